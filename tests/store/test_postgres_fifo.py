"""Claims from a queue that keeps its order take turns; a lease begins when it is taken, not when its claimer came to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg

from holdfast.core.job import NewJob
from holdfast.store.port import ClaimRequest, Worker
from holdfast.store.postgres import PostgresStore
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


async def enqueue(store: PostgresStore) -> UUID:
    job = NewJob(id=WORLD.job_id(), task="step", queue="line", fifo=True)
    await store.enqueue([job])
    return job.id
