"""Empty schemas for tests that want one each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sweeping import Schemas

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def postgres_schemas(postgres_url: str) -> Iterator[Schemas]:
    """Schemas in the database of this test module."""
    schemas = Schemas(postgres_url)
    yield schemas
    schemas.close()


@pytest.fixture
def schema(postgres_schemas: Schemas) -> Iterator[str]:
    """The name of a schema that holds nothing; a store makes it when it is not there yet."""
    schema = postgres_schemas.take()
    yield schema
    postgres_schemas.give_back(schema)
