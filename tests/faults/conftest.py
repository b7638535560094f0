"""A fleet for each test: on SQLite and on PostgreSQL, its invariants checked when the test is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.support import fleet_on
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.faults.support import Fleet
    from tests.support.postgres import PostgresServers

OLDER = [pytest.param(f"pg{major}", marks=pytest.mark.slow) for major in MAJORS[:-1]]


@pytest.fixture(params=["sqlite", f"pg{MAJORS[-1]}", *OLDER])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: PostgresServers) -> Iterator[str]:
    """The URL of an empty store of this test's own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    server = postgres_servers[int(request.param.removeprefix("pg"))]
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
async def fleet(url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A store and the worker processes on it, all of them gone afterwards."""
    async with fleet_on(url, tmp_path) as fleet:
        yield fleet
