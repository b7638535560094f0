"""A real PostgreSQL, and a real Redis or Valkey of each test's own, which may die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.redis import KINDS, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServers


@pytest.fixture
def redis_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of the kind that a test asks for, else Redis."""
    with RedisServer(getattr(request, "param", KINDS[0])) as server:
        yield server


@pytest.fixture
def database(postgres_servers: PostgresServers) -> Iterator[str]:
    """The URL of an empty database on PostgreSQL 18."""
    server = postgres_servers[18]
    url = server.create_database()
    yield url
    server.drop_database(url)
