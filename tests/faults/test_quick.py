"""Claims stay as quick behind millions of jobs and under an old snapshot, by the clock.

Blocks are counted in `tests/store`; here two stores do the same things in turns, and only what one takes is compared with what
the other takes, in one run: a busy machine is busy for both.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest
from uuid_utils.compat import uuid7

from holdfast import connect
from holdfast.core.job import NewJob
from holdfast.core.outcome import Succeeded
from holdfast.store.conformance.world import settlement_of
from holdfast.store.port import ClaimRequest, Worker
from tests.store import test_postgres_plans as plans
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from holdfast.store.port import Store
    from tests.support.postgres import PostgresServers

FILE, SERVER = "sqlite", f"pg{MAJORS[-1]}"
TASKS = ("own.a", "own.b", "own.c")
BATCH = 5
"""Jobs in a claim: so few that a turn has 200 claims, and its p99 is not its worst."""
TURN = 1_000
"""Jobs that one store passes through before it is the turn of the other."""
TURNS = 15
BACKLOG = {FILE: 2_000_000, SERVER: 10_000_000}
PASSED = {FILE: 50_000, SERVER: 100_000}
"""Jobs that come and go under the snapshot before anything is measured."""

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", [FILE, SERVER])]


@pytest.fixture
def urls(kind: str, tmp_path: Path, postgres_servers: PostgresServers) -> Iterator[list[str]]:
    """Two empty stores."""
    if kind == FILE:
        yield [f"sqlite:///{tmp_path}/{number}.db" for number in range(2)]
        return
    server = postgres_servers[MAJORS[-1]]
    urls = [server.create_database() for _ in range(2)]
    yield urls
    for url in urls:
        server.drop_database(url)


@dataclass
class Line:
    """Jobs that pass through one store, and how long that takes."""

    url: str
    store: Store
    worker: UUID
    turns: list[float] = field(default_factory=list)
    """Seconds of each turn,"""
    claims: list[list[float]] = field(default_factory=list)
    """and of each claim in it."""

    async def pass_through(self, jobs: int, *, batch: int = BATCH, tasks: Sequence[str] = TASKS) -> None:
        """Claim and settle so many, and note what it took. Looks are as rare as those of a worker."""
        began = time.perf_counter()
        claims = []
        for number in range(jobs // batch):
            asked = time.perf_counter()
            request = ClaimRequest(worker=self.worker, tasks=frozenset(tasks), limit=batch, look=number == 0)
            claimed = await self.store.claim(request)
            claims.append(time.perf_counter() - asked)
            assert len(claimed) == batch
            await self.store.settle([settlement_of(one.lease, Succeeded()) for one in claimed])
        self.turns.append(time.perf_counter() - began)
        self.claims.append(claims)

    async def enqueue(self, jobs: int, tasks: Sequence[str] = TASKS) -> None:
        await self.store.enqueue([NewJob(id=uuid7(), task=tasks[n % len(tasks)], args='{"n": 1}') for n in range(jobs)])

    async def vacuum(self) -> None:
        """Do what the server does by itself now and then, between two turns: here it must not happen within one."""
        if not self.url.startswith("sqlite"):
            admin = await asyncpg.connect(self.url)
            try:
                await admin.execute("VACUUM")
            finally:
                await admin.close()

    def forget(self) -> None:
        self.turns.clear()
        self.claims.clear()


@asynccontextmanager
async def lines(urls: Sequence[str]) -> AsyncIterator[list[Line]]:
    """Open the stores, and close them."""
    async with AsyncExitStack() as stack:
        opened = []
        for url in urls:
            store = connect(url)
            await store.open()
            stack.push_async_callback(store.close)
            worker = Worker(id=uuid4(), name="w")
            await store.register(worker)
            opened.append(Line(url, store, worker.id))
        yield opened


def assert_as_quick(what: str, line: Line, other: Line) -> None:
    """Compare claims turn by turn: the usual turn decides, for any of them may have been disturbed."""
    for name, percentile, factor, slack in (("p50", 49, 2.0, 0.001), ("p99", 98, 3.0, 0.002)):
        took, usual = (median(quantiles(turn, n=100)[percentile] for turn in one.claims) for one in (line, other))
        print(f"{what}: claim {name} {1000 * usual:.2f} -> {1000 * took:.2f} ms")  # noqa: T201  figures for the docs
        assert took <= factor * usual + slack, f"{what}: {name} of claims is {took:.4f} s instead of {usual:.4f} s"


@pytest.mark.row(39)
async def test_claims_behind_millions_of_jobs_are_as_quick_as_without_them(urls: list[str], kind: str) -> None:
    await pile_up(urls[0], BACKLOG[kind])
    async with lines([urls[0], *urls]) as (within, behind, empty):
        for _ in range(TURNS):
            await within.pass_through(TURN, tasks=plans.OTHERS[:3])
            for line in (behind, empty):
                await line.enqueue(TURN)
                await line.pass_through(TURN)
        assert_as_quick("from the backlog", within, empty)
        assert_as_quick("behind the backlog", behind, empty)


@pytest.mark.row(23)
async def test_an_old_snapshot_leaves_four_fifths_of_the_throughput_and_claims_as_quick(urls: list[str], kind: str) -> None:
    async with lines(urls) as (pinned, free), old_snapshot(urls[0]):
        for line in (pinned, free):
            for _ in range(PASSED[kind] // TURN):
                await line.enqueue(TURN)
                await line.pass_through(TURN, batch=100)
            await line.vacuum()
            line.forget()
        for _ in range(TURNS):
            for line in (pinned, free):
                await line.enqueue(TURN)
                await line.pass_through(TURN)
                await line.vacuum()
        share = median(usual / took for took, usual in zip(pinned.turns, free.turns, strict=True))
        print(f"under an old snapshot: {share:.0%} of the throughput")  # noqa: T201  figures for the docs
        assert share >= 0.8, f"under an old snapshot only {share:.0%} of the throughput is left"
        assert_as_quick("under an old snapshot", pinned, free)


@asynccontextmanager
async def old_snapshot(url: str) -> AsyncIterator[None]:
    """Keep a transaction open that has read: vacuum removes nothing that it might see, and a log is not started anew."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM holdfast_job").fetchone()
            yield
        return
    reading = await asyncpg.connect(url)
    try:
        async with reading.transaction(isolation="repeatable_read", readonly=True):
            await reading.fetchval("SELECT count(*) FROM holdfast.job")
            yield
    finally:
        await reading.close()


async def pile_up(url: str, count: int) -> None:
    """Fill a store with jobs of other tasks, as quickly as that can be done."""
    async with lines([url]) as (line,):
        if url.startswith("sqlite"):
            for _ in range(count // 10_000):
                await line.enqueue(10_000, plans.OTHERS)
            return
    async with AsyncExitStack() as stack:
        side = await plans.Side.open("holdfast", url, stack)
        await plans.fill(side, plans.Size(ready=count, archived=0, scheduled=0, running=0))
