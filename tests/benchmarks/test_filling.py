"""Rows that are filled in are those that the store itself would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import pytest_asyncio

from benchmarks.filling import ARGS, SUCCEED, Filler
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.core.lease import Claimed
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

WORLD = SystemEnvironment()
LANES = [("mail", "welcome"), ("mail", "farewell"), ("media", "cut")]
TASKS = frozenset(task for _, task in LANES)
JOBS = 30
OWN = {
    "job": {"id", "place", "created_at", "run_at"},
    "ready": {"job_id", "place", "ready_at"},
    "scheduled": {"job_id", "run_at"},
    "archive": {"job_id", "token", "claimed_at", "finished_at", "worker"},
}
"""In what two jobs of a lane differ."""


@pytest.fixture
def postgres_server(postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """The version that makes UUIDv7 itself."""
    return postgres_servers[18]


@pytest_asyncio.fixture
async def worlds(postgres_server: PostgresServer) -> AsyncIterator[tuple[World, World]]:
    """A database that is filled in, and one that the store writes to."""
    urls = [postgres_server.create_database() for _ in range(2)]
    worlds = [World(url) for url in urls]
    for world in worlds:
        await world.open()
    yield worlds[0], worlds[1]
    for world, url in zip(worlds, urls, strict=True):
        await world.close()
        postgres_server.drop_database(url)


class World:
    """A database, a store on it, and a plain connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = PostgresStore(url, WORLD)
        self.worker = Worker(id=WORLD.token(), name="w")

    async def open(self) -> None:
        await self.store.open()
        await self.store.register(self.worker)
        self.there = await asyncpg.connect(self.url, server_settings={"search_path": "holdfast"})

    async def close(self) -> None:
        await self.there.close()
        await self.store.close()

    async def fill(self, state: State) -> None:
        async with Filler(self.url) as filler:
            await filler.fill(JOBS, LANES, state=state)
            await filler.rest()

    async def make(self, state: State) -> None:
        """Bring as many jobs into a state the ordinary way."""
        delay = 3600.0 if state is State.SCHEDULED else 0.0
        await self.store.enqueue([job(n, delay=delay) for n in range(JOBS)])
        if state is State.SUCCEEDED:
            await self.settle(await self.claim(JOBS))

    async def claim(self, limit: int) -> list[Claimed]:
        return await self.store.claim(ClaimRequest(worker=self.worker.id, tasks=TASKS, limit=limit, look=True))

    async def settle(self, claimed: Sequence[Claimed]) -> None:
        answers = await self.store.settle([Settlement(one.lease, SUCCEED) for one in claimed])
        assert all(answer.accepted for answer in answers)

    async def rows(self, table: str) -> list[dict[str, Any]]:
        """Return what a table holds, without what every job has of its own, and by what is left."""
        rows = [dict(row) for row in await self.there.fetch(f"SELECT * FROM {table}")]
        return sorted(({name: row[name] for name in row if name not in OWN[table]} for row in rows), key=repr)

    async def holding(self) -> set[str]:
        """Return the tables that hold anything of jobs."""
        tables = await self.there.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
        bookkeeping = {"meta", "worker", "tally", "total"}
        return {
            name for [name] in tables if name not in bookkeeping and await self.there.fetchval(f"SELECT count(*) FROM {name}")
        }


def job(number: int, **fields: Any) -> NewJob:
    queue, task = LANES[number % len(LANES)]
    return NewJob(id=WORLD.job_id(), queue=queue, task=task, args=ARGS, **fields)


FILLED = pytest.mark.parametrize(
    ("state", "table"), [(State.READY, "ready"), (State.SCHEDULED, "scheduled"), (State.SUCCEEDED, "archive")]
)


@FILLED
async def test_filled_rows_are_those_of_the_store(worlds: tuple[World, World], state: State, table: str) -> None:
    filled, made = worlds
    await filled.fill(state)
    await made.make(state)
    assert await filled.holding() == await made.holding() == {"job", "lane", table}
    for name in ("job", table):
        assert await filled.rows(name) == await made.rows(name)
    known = "SELECT id, entry, queue, task, priority, requires FROM lane ORDER BY id"
    assert await filled.there.fetch(known) == await made.there.fetch(known)


@FILLED
async def test_what_is_filled_in_is_counted(worlds: tuple[World, World], state: State, table: str) -> None:
    filled, _ = worlds
    await filled.fill(state)
    stats = await filled.store.stats()
    assert stats.count() == stats.count(state) == JOBS
    assert stats.count(state, queue="media") == JOBS // 3


@FILLED
async def test_what_is_of_a_jobs_own_is_in_order_of_time(worlds: tuple[World, World], state: State, table: str) -> None:
    filled, _ = worlds
    await filled.fill(state)
    its = {"ready": "x.place = job.place AND x.ready_at = job.created_at", "scheduled": "x.run_at = job.run_at"}
    wrong = await filled.there.fetchval(
        f"SELECT count(*) FROM job LEFT JOIN {table} x ON x.job_id = job.id WHERE {its.get(table, 'true')} IS NOT TRUE"
    )
    assert wrong == 0
    # on the pages as well: a claim of neighbours reads what lies together
    lying = await filled.there.fetch(f"SELECT job.place FROM {table} x JOIN job ON job.id = x.job_id ORDER BY x.ctid")
    assert lying == sorted(lying, key=tuple)
    copies = await filled.there.fetch("SELECT id, created_at, run_at FROM job ORDER BY place OFFSET $1", len(LANES))
    assert copies == sorted(copies, key=tuple)
    assert len({row["id"] for row in copies}) == JOBS - len(LANES)
    assert {row["id"].version for row in copies} == {7}


async def test_the_store_goes_on_behind_what_is_filled_in(worlds: tuple[World, World]) -> None:
    filled, _ = worlds
    await filled.fill(State.SUCCEEDED)
    await filled.fill(State.READY)
    await filled.store.enqueue([job(n) for n in range(JOBS)])
    claimed = await filled.claim(3 * JOBS)
    assert len({one.job_id for one in claimed}) == 2 * JOBS
    assert await filled.there.fetchval("SELECT min(no) FROM lease") > JOBS
    await filled.settle(claimed)
    assert (await filled.store.stats()).count(State.SUCCEEDED) == 3 * JOBS


async def test_scheduled_copies_are_promoted_when_they_are_due(worlds: tuple[World, World]) -> None:
    filled, _ = worlds
    await filled.fill(State.SCHEDULED)
    assert (await filled.store.promote(JOBS)).count == 0
    await filled.store.rewind(60 * 24 * 3600.0)
    assert (await filled.store.promote(JOBS)).count == JOBS
    assert len(await filled.claim(JOBS)) == JOBS


async def test_what_is_forgotten_leaves_nothing_and_is_not_counted(worlds: tuple[World, World]) -> None:
    filled, _ = worlds
    await filled.fill(State.READY)
    claimed = await filled.claim(JOBS)
    await filled.settle(claimed)
    async with Filler(filled.url) as filler:
        await filler.forget([one.job_id for one in claimed])
    assert await filled.holding() == {"lane"}
    assert (await filled.store.stats()).count() == 0


async def test_what_has_ended_cannot_be_filled_in_behind_what_is_ready(worlds: tuple[World, World]) -> None:
    filled, _ = worlds
    await filled.fill(State.READY)
    with pytest.raises(ValueError, match="before what is ready"):
        await filled.fill(State.SUCCEEDED)
