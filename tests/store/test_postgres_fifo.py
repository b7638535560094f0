"""Claims from a queue that keeps its order take turns; a lease begins when it is taken, not when its claimer came to wait."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg

from holdfast.core.job import NewJob
from holdfast.core.needs import needs_of
from holdfast.core.outcome import Released
from holdfast.store.conformance.world import settlement_of
from holdfast.store.port import ClaimRequest, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import PostgresCaller
from holdfast.store.postgres.lanes import MOST_PASSED, MOST_PASSED_IN_FRONT, Lane, Reached, claimed
from holdfast.system import SystemEnvironment
from tests.support.until import until

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.lease import Claimed

WORLD = SystemEnvironment()
TURN = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.fifo', l.entry)) FROM holdfast.lane l WHERE l.queue = 'line'"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"


async def test_a_lease_begins_when_its_claimer_has_had_its_turn(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, WORLD)
    await store.open()
    before = await asyncpg.connect(postgres_url)
    look = await asyncpg.connect(postgres_url)
    try:
        worker = Worker(id=WORLD.token(), name="next in turn", slots=10)
        await store.register(worker)
        later = await enqueue(store)
        claims: list[Claimed] = []
        while not claims:  # a claimer that has waited for long comes again
            async with before.transaction():
                await before.fetch(TURN)
                claim = asyncio.create_task(
                    store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"step"}), limit=10, look=True))
                )

                async def waits(claim: asyncio.Task[list[Claimed]] = claim) -> bool:
                    return claim.done() or bool(await look.fetchval(WAITING))

                await until(waits)
                later = await enqueue(store)
            claims = await claim

        assert later in {claimed.job_id for claimed in claims}, "what was enqueued while it waited is claimed as well"
        for claimed in claims:
            (view,) = await store.get([claimed.job_id])
            (attempt,) = await store.attempts(claimed.job_id)
            assert view is not None
            assert attempt.claimed_at >= view.created_at, "the lease began before its job was there"
    finally:
        await look.close()
        await before.close()
        await store.close()


async def test_nothing_passes_what_has_committed_late(postgres_url: str) -> None:
    """A job that drew its place early and is acknowledged late stands before all that are enqueued after that."""
    store, other = PostgresStore(postgres_url, WORLD), PostgresStore(postgres_url, WORLD)
    connection = await asyncpg.connect(postgres_url)
    try:
        await store.open()
        await other.open()
        worker = Worker(id=WORLD.token(), name="one by one")
        await store.register(worker)

        async def claimed(*, look: bool = False) -> list[UUID]:
            request = ClaimRequest(worker=worker.id, tasks=frozenset({"step"}), limit=1, look=look)
            return [claim.job_id for claim in await store.claim(request)]

        transaction = connection.transaction()
        await transaction.start()
        late = NewJob(id=WORLD.job_id(), task="step", queue="line", fifo=True)
        await PostgresCaller(AsyncpgLine(connection), "holdfast", "holdfast").enqueue([late])
        early = [await enqueue(other), await enqueue(other)]
        assert await claimed(look=True) == early[:1]
        await transaction.commit()
        after = await enqueue(other)

        assert [await claimed() for _ in range(3)] == [[late.id], early[1:], [after]]
    finally:
        await connection.close()
        await other.close()
        await store.close()


async def test_nothing_passes_what_was_given_back(postgres_url: str) -> None:
    store, other = PostgresStore(postgres_url, WORLD), PostgresStore(postgres_url, WORLD)
    try:
        await store.open()
        await other.open()
        one, another = Worker(id=WORLD.token(), name="one"), Worker(id=WORLD.token(), name="another")
        await store.register(one)
        await other.register(another)
        jobs = [await enqueue(store) for _ in range(3)]

        async def claim(store: PostgresStore, worker: Worker, *, look: bool = False) -> list[Claimed]:
            return await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"step"}), limit=1, look=look))

        (first,) = await claim(store, one, look=True)
        (second,) = await claim(other, another, look=True)
        await store.settle([settlement_of(first.lease, Released("it shuts down"))])

        assert [first.job_id, second.job_id] == jobs[:2]
        assert [claim.job_id for claim in await claim(other, another)] == jobs[:1]
    finally:
        await other.close()
        await store.close()


def test_claims_do_not_walk_over_more_and_more_dead_rows() -> None:
    lane = Lane(2, "line", 5, needs_of(()), fifo=True)
    lane.marks.took(1_000)
    assert (lane.numbers(), lane.starts()) == ((-2, 2), (0, 0))
    now = datetime.now(UTC)

    for _ in range(200):
        claimed([lane], [Reached(2, 1_000, now, MOST_PASSED // 200)], full=True)
    assert (lane.numbers(), lane.starts()) == ((2,), (1_001,)), "the base has stood still for too many jobs"

    lane.passed = 0
    for _ in range(20):
        claimed([lane], [Reached(-2, 7, now, MOST_PASSED_IN_FRONT // 20)], full=True)
    assert (lane.numbers(), lane.starts()) == ((-2, 2), (8, 1_001)), "as much of the front as was seen"


async def test_a_base_that_moves_brings_the_strict_order_back(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, WORLD)
    await store.open()
    try:
        worker = Worker(id=WORLD.token(), name="one by one")
        await store.register(worker)
        request = ClaimRequest(worker=worker.id, tasks=frozenset({"step"}), limit=1, look=True)
        await enqueue(store)
        assert len(await store.claim(request)) == 1
        (lane,) = store._lanes.all()
        lane.passed = MOST_PASSED

        async def strict() -> bool:
            await enqueue(store)
            await store.claim(request)
            return lane.passed < MOST_PASSED

        await until(strict)
        assert lane.starts() == (0, lane.marks.base)
    finally:
        await store.close()


async def enqueue(store: PostgresStore) -> UUID:
    job = NewJob(id=WORLD.job_id(), task="step", queue="line", fifo=True)
    await store.enqueue([job])
    return job.id
