"""Apps on every store: the same fixtures as the runtime's tests, and apps in memory where the store does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from holdfast import Holdfast
from tests.runtime.conftest import app, make_app, postgres_database, postgres_schemas, url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["app", "make_app", "memory", "postgres_database", "postgres_schemas", "url"]


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[Holdfast]:
    """An app in memory, for what does not depend on the store."""
    app = Holdfast("memory://")
    yield app
    await app.close()
