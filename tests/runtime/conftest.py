"""Apps on every store, closed at the end of each test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from holdfast import Holdfast
from tests.support.sweeping import Schemas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServers


@pytest.fixture(scope="session")
def postgres_database(postgres_servers: PostgresServers) -> str:
    """The URL of a database on one real server, shared by the tests: each takes a schema of its own."""
    return postgres_servers[18].create_database()


@pytest.fixture(scope="session")
def postgres_schemas(postgres_database: str) -> Iterator[Schemas]:
    """Empty schemas of that database."""
    schemas = Schemas(postgres_database)
    yield schemas
    schemas.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store of each kind."""
    if request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        schemas: Schemas = request.getfixturevalue("postgres_schemas")
        schema = schemas.take()
        yield f"{request.getfixturevalue('postgres_database')}?schema={schema}"
        schemas.give_back(schema)


@pytest_asyncio.fixture
async def make_app(url: str) -> AsyncIterator[Callable[..., Holdfast]]:
    """Apps on the store, closed afterwards."""
    made: list[Holdfast] = []

    def make(**options: Any) -> Holdfast:
        made.append(Holdfast(url, **options))
        return made[-1]

    yield make
    for app in made:
        await app.close()


@pytest.fixture
def app(make_app: Callable[..., Holdfast]) -> Holdfast:
    """One app on the store."""
    return make_app()


@pytest_asyncio.fixture
async def memory_app() -> AsyncIterator[Holdfast]:
    """One app in memory, for what does not depend on the store."""
    app = Holdfast("memory://")
    yield app
    await app.close()
