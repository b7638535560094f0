"""A PostgreSQL store, and connections of asyncpg that others bring: what tests of their transactions share."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, OnConflict, Unique
from holdfast.core.outcome import Continued, Suspended
from holdfast.core.settle import settle
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import PostgresCaller
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from holdfast.core.states import State
    from holdfast.store.port import Settled

CHANNEL = "holdfast.holdfast"
SOON = 15.0
"""Seconds in which what waits for nobody has happened, however busy the machine; half of what the store waits for an answer."""
TASK = "task"


@dataclass
class World:
    """A store, and connections that others bring."""

    store: PostgresStore
    url: str
    worker: UUID

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            connection.terminate()

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[PostgresCaller]:
        """A caller in a transaction, rolled back at the end unless it was committed."""
        async with self.connection() as connection:
            caller = on(connection)
            await caller.begin()
            yield caller
            await caller.rollback()

    async def states(self, *jobs: NewJob) -> list[State | None]:
        return [None if view is None else view.state for view in await self.store.get([job.id for job in jobs])]

    async def claim(self, *jobs: NewJob, task: str = TASK) -> list[Claimed]:
        request = ClaimRequest(worker=self.worker, tasks=frozenset({task}), limit=1000, look=True)
        claimed = {claim.job_id: claim for claim in await self.store.claim(request)}
        return [claimed[job.id] for job in jobs]

    async def running(self, **fields: Any) -> Claimed:
        job = new(task=f"t{uuid4().hex}", **fields)
        await self.store.enqueue([job])
        return (await self.claim(job, task=job.task))[0]

    async def settle(self, claimed: Claimed, outcome: Outcome) -> Settled:
        return (await self.store.settle([settlement(claimed, outcome)]))[0]

    async def anybody_waits(self) -> bool:
        """Whether a session waits for a lock of another."""
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await self.store._db.fetch_value(waiting))

    async def doubts(self) -> int:
        return int(await self.store._db.fetch_value("SELECT count(*) FROM holdfast.doubt"))


def new(task: str = TASK, **fields: Any) -> NewJob:
    return NewJob(id=uuid7(), task=task, **fields)


def keyed(key: str, on_conflict: OnConflict = OnConflict.SKIP, **fields: Any) -> NewJob:
    return new(unique=Unique(key=key, scope="s", on_conflict=on_conflict), **fields)


def settlement(claimed: Claimed, outcome: Outcome) -> Settlement:
    write = settle(outcome, claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
    return Settlement(
        claimed.lease,
        write,
        then=outcome.then if isinstance(outcome, Continued) else None,
        signal=outcome.signal if isinstance(outcome, Suspended) else None,
    )


def on(connection: Any) -> PostgresCaller:
    return PostgresCaller(AsyncpgLine(connection), "holdfast", CHANNEL)


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[World]:
    """A world whose store is open."""
    store = PostgresStore(url, SystemEnvironment(), **settings)
    await store.open()
    try:
        world = World(store, url, uuid4())
        await store.register(Worker(id=world.worker, name="w"))
        yield world
    finally:
        await store.close()
