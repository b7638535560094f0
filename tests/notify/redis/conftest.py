"""A real Redis 6.2 and a real Valkey 9, one of each for all tests of a process, emptied for each."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.redis import KINDS, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[dict[str, RedisServer]]:
    servers: dict[str, RedisServer] = {}
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture(params=KINDS)
def redis_server(request: pytest.FixtureRequest, redis_servers: dict[str, RedisServer]) -> RedisServer:
    """A running server without data."""
    if request.param not in redis_servers:
        redis_servers[request.param] = RedisServer(request.param)
        redis_servers[request.param].start()
    server = redis_servers[request.param]
    assert server.ask("FLUSHALL") == "+OK"
    return server


@pytest.fixture
def name() -> str:
    """What the processes of one store have agreed on."""
    return f"holdfast:{uuid4().hex[:8]}"
