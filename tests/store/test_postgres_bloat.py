"""A snapshot kept open for long keeps vacuum from removing dead rows; the store must not walk over them (decision 0002).

Counted in blocks by EXPLAIN (ANALYZE, BUFFERS), never by time. A side connection pins a snapshot; then jobs pass through the
store by the ten thousand, and the same operations are counted near the start and at the end.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, Policy
from holdfast.core.outcome import Error, Failed, Released, Succeeded
from holdfast.core.retry import Retry
from holdfast.core.settle import settle
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.marks import Marks
from holdfast.system import SystemEnvironment
from tests.support.majors import NEWEST
from tests.support.probe import Probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

JOBS = 80_000
ROUND = 5_000
"""Jobs between two looks: what passes in a second."""
BATCH = 200
SLACK = 200
"""Blocks: what a table costs that autovacuum has analyzed at an odd moment. Walking the dead rows costs thousands."""
COUNTED = 100
TASKS = ("own.a", "own.b", "own.c")
AGAIN = Policy(retry=Retry(initial=0.001, max=0.001))
ONCE = Policy(retry=Retry(max_attempts=1))
ODD = (Failed(Error("BOOM")), Failed(Error("BOOM")), Released())
"""How the first jobs of every tenth batch end: hundreds are retried, some are given back."""


@pytest.fixture(
    scope="module",
    params=NEWEST,
)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """The newest major version; the others take as long again and are for --slow."""
    return postgres_servers[request.param]


class Clock(SystemEnvironment):
    """A clock that moves when it is told: looks every second and folds every five, without waiting for them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Bench:
    """A producer, a worker, and a bystander: another process whose loops run as well, but always come too late.

    Each has a handle, and so marks, of its own.
    """

    clock: Clock
    producer: PostgresStore
    worker: PostgresStore
    bystander: PostgresStore
    admin: asyncpg.Connection[asyncpg.Record]
    id: UUID = field(default_factory=uuid4)

    async def enqueue(self, count: int, **fields: Any) -> None:
        jobs = [NewJob(id=uuid7(), task=TASKS[n % 3], args='{"n": 1}', **({"policy": AGAIN} | fields)) for n in range(count)]
        await self.producer.enqueue(jobs)

    async def claim(self, count: int, *, look: bool = True) -> list[Claimed]:
        return await self.worker.claim(ClaimRequest(worker=self.id, tasks=frozenset(TASKS), limit=count, look=look))

    async def settle(self, claimed: Sequence[Claimed], *outcomes: Outcome) -> None:
        """Settle the first with these outcomes, the others as succeeded."""
        given = (*outcomes, *[Succeeded("1")] * len(claimed))
        settlements = [
            Settlement(job.lease, settle(outcome, job.policy.retry, job.failures, job.claimed_at, lambda: 0.5))
            for job, outcome in zip(claimed, given, strict=False)
        ]
        assert all(answer.accepted for answer in await self.worker.settle(settlements))

    async def tick(self) -> None:
        """Return once the database's clock has moved on by two milliseconds."""
        until = await self.admin.fetchval("SELECT clock_timestamp() + interval '2 ms'")
        while await self.admin.fetchval("SELECT clock_timestamp() < $1", until):
            pass

    async def pass_through(self, count: int) -> None:
        """Let jobs pass: a quarter is scheduled first, some are retried, a few given back, and for a tenth as many it gets
        too late while they wait. Each round is a second.
        """
        for start in range(0, count, ROUND):
            size = min(ROUND, count - start)
            await self.enqueue(size // 4, delay=0.001)
            await self.enqueue(size - size // 4)
            await self.tick()
            await self.drain()
            await self.expire(size // 10)
            await self.stand_by()
            self.clock.seconds += 1.0

    async def drain(self) -> None:
        """Run all there is, retries too."""
        batch = 0
        while True:
            promoted = (await self.worker.promote(1_000)).count
            claimed = await self.claim(BATCH, look=promoted > 0)
            if not claimed and not promoted and not (claimed := await self.claim(BATCH)):
                return
            if batch % 10 == 0:
                await self.worker.reap(COUNTED)
            await self.settle(claimed, *(ODD if batch % 10 == 0 else ()))
            batch += 1

    async def expire(self, count: int) -> None:
        """Enqueue jobs that nobody claims in time, and drop them."""
        await self.enqueue(count, expires_in=0.001)
        await self.tick()
        assert await self.worker.drop_overdue(count) == count

    async def stand_by(self) -> None:
        """What the bystander does every second or so, when all is done."""
        await self.bystander.promote(1_000)
        await self.bystander.reap(COUNTED)
        await self.bystander.drop_overdue(COUNTED)
        await self.bystander.stats()

    async def count(self) -> dict[str, int]:
        """Count what each operation touches, after every loop had its turn within the last seconds, as in life."""
        async with Probe(self.worker) as worker, Probe(self.bystander) as bystander:
            for _ in range(3):
                self.clock.seconds += 5.0
                await self.stand_by()
                await self.count_each(worker, bystander)
            return {
                **{name: worker.buffers(name) for name in ("claim", "settle", "promote", "reap", "expire", "stats")},
                **{name: bystander.buffers(name) for name in ("idle promote", "idle reap", "idle expire", "idle stats")},
            }

    async def count_each(self, worker: Probe, bystander: Probe) -> None:
        await self.enqueue(COUNTED)
        with worker.watch("claim"):
            claimed = await self.claim(COUNTED)
        assert len(claimed) == COUNTED
        with worker.watch("settle"):
            await self.settle(claimed)

        await self.worker.promote(0)  # folds the counts, which is not what is watched here
        await self.enqueue(COUNTED, delay=0.001)
        await self.tick()
        with worker.watch("promote"):
            promoted = await self.worker.promote(COUNTED)
        assert promoted.count == COUNTED
        await self.settle(await self.claim(COUNTED))

        await self.enqueue(COUNTED, lease=0.001, policy=ONCE)
        assert len(await self.claim(COUNTED)) == COUNTED
        await self.tick()
        with worker.watch("reap"):
            reaped = await self.worker.reap(COUNTED)
        assert len(reaped) == COUNTED
        await self.enqueue(COUNTED, expires_in=0.001)
        await self.tick()
        with worker.watch("expire"):
            dropped = await self.worker.drop_overdue(COUNTED)
        assert dropped == COUNTED
        with worker.watch("stats"):
            await self.worker.stats()

        with bystander.watch("idle promote"):
            await self.bystander.promote(COUNTED)
        with bystander.watch("idle reap"):
            await self.bystander.reap(COUNTED)
        with bystander.watch("idle expire"):
            await self.bystander.drop_overdue(COUNTED)
        with bystander.watch("idle stats"):
            await self.bystander.stats()

    async def dead(self, table: str) -> int:
        """Return how many rows of a table vacuum would remove and cannot."""
        await self.admin.execute(f"VACUUM {table}")
        sql = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'holdfast' AND relname = $1"
        dead: int = await self.admin.fetchval(sql, table)
        return dead


@asynccontextmanager
async def pinned(url: str) -> AsyncIterator[Bench]:
    """Give a bench on empty tables, under a snapshot that is pinned from before the first job to the end."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        stores = [PostgresStore(url, clock) for _ in range(3)]
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
        producer, worker, bystander = stores
        pin = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
        stack.push_async_callback(pin.close)
        admin = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
        stack.push_async_callback(admin.close)
        tables = "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'holdfast' AND tablename <> 'meta'"
        await admin.execute("ALTER TABLE audit DISABLE TRIGGER USER")
        await admin.execute(f"TRUNCATE {await admin.fetchval(tables)}")
        await admin.execute("ALTER TABLE audit ENABLE TRIGGER USER")
        bench = Bench(clock, producer, worker, bystander, admin)
        await worker.register(Worker(id=bench.id, name="w"))
        async with pin.transaction(isolation="repeatable_read", readonly=True):
            await pin.fetchval("SELECT count(*) FROM job")
            yield bench


@dataclass(frozen=True)
class Figures:
    """What each operation touched near the start and at the end."""

    start: dict[str, int]
    end: dict[str, int]
    analyzed: dict[str, int]
    """And when the server has looked at the tables meanwhile, which are full of dead rows and hold next to nothing."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def figures(postgres_url: str) -> Figures:
    async with pinned(postgres_url) as bench:
        await bench.pass_through(2_000)
        start = await bench.count()
        await bench.pass_through(JOBS)
        end = await bench.count()
        assert await bench.dead("ready") > JOBS
        assert await bench.dead("lease") > JOBS
        assert await bench.dead("scheduled") > JOBS // 4
        assert await bench.dead("deadline") >= JOBS // 10
        await bench.admin.execute("ANALYZE")
        return Figures(start, end, await bench.count())


@pytest.mark.row(23)
@pytest.mark.parametrize("operation", ["claim", "settle", "promote", "reap", "expire", "stats"])
async def test_after_80_000_jobs_under_a_pinned_snapshot_it_costs_what_it_did(figures: Figures, operation: str) -> None:
    print(f"{operation}: {figures.start[operation]} -> {figures.end[operation]} blocks")  # noqa: T201  figures for the docs
    assert figures.end[operation] <= 1.5 * figures.start[operation] + SLACK
    assert figures.analyzed[operation] <= 1.5 * figures.start[operation] + SLACK, "another plan once the tables are analyzed"


@pytest.mark.row(23)
@pytest.mark.parametrize("operation", ["idle promote", "idle reap", "idle expire", "idle stats"])
async def test_it_costs_a_bystander_what_it_did(figures: Figures, operation: str) -> None:
    """One who took nothing, and saw only empty tables, has marks to move all the same."""
    print(f"{operation}: {figures.start[operation]} -> {figures.end[operation]} blocks")  # noqa: T201  figures for the docs
    assert figures.end[operation] <= 1.5 * figures.start[operation] + SLACK
    assert figures.analyzed[operation] <= 1.5 * figures.start[operation] + SLACK, "another plan once the tables are analyzed"


@pytest.mark.row(23)
async def test_without_marks_a_claim_walks_the_dead(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: with marks that never move they do, after a quarter of the jobs."""
    monkeypatch.setattr(Marks, "took", lambda _self, _behind: None)
    async with pinned(postgres_url) as bench:
        await bench.pass_through(2_000)
        start = await bench.count()
        await bench.pass_through(JOBS // 4)
        end = await bench.count()
    assert end["claim"] > 1.5 * start["claim"]
