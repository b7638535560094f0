"""A process that stands still between two statements of its own keeps no lease from being taken over.

A worker that is frozen says nothing, and does not hang up either: its session lives on, with whatever rows it had locked. Who
reaps skips those. So no operation may leave a lease locked for longer than a moment, wherever it is stopped.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast.core.job import NewJob
from holdfast.core.outcome import Continued, Succeeded
from holdfast.core.states import State
from holdfast.errors import StaleLease, StoreUnavailable
from holdfast.store.conformance.world import settlement_of
from holdfast.store.port import Checkpoint, ClaimRequest, Part, PartState, Progress, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import PostgresCaller
from holdfast.store.postgres.connection import LONGEST_IDLE
from holdfast.system import SystemEnvironment
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.core.lease import Lease
    from holdfast.store.port import Transaction

pytestmark = pytest.mark.row(5)

WORLD = SystemEnvironment()
LEASE = 0.4
TIMEOUT = 0.5
"""Seconds that a transaction may stand still; those for a statement, where they are less than usual."""
TRIES = 20
"""Of opening a store with so little time: many do at once, and it is more than one statement."""
MAY_IDLE = "SHOW idle_in_transaction_session_timeout"
MOST = 6
"""Statements of an operation, at most."""


@dataclass
class Stop:
    """Stops a process after so many statements, until it is thawed."""

    left: int
    thawed: asyncio.Event = field(default_factory=asyncio.Event)


STOP: ContextVar[Stop | None] = ContextVar("STOP", default=None)
"""What stops the current task."""


@pytest.fixture(autouse=True)
def stoppable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test stop a task after any statement."""
    for name in ("fetch", "fetchrow", "fetchval", "execute", "executemany"):
        real = getattr(asyncpg.Connection, name)

        def stoppable(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            @wraps(real)
            async def method(connection: Any, *args: Any, **options: Any) -> Any:
                answer = await real(connection, *args, **options)
                if (stop := STOP.get()) is not None:
                    stop.left -= 1
                    if not stop.left:
                        await stop.thawed.wait()
                return answer

            return method

        monkeypatch.setattr(asyncpg.Connection, name, stoppable(real))


async def settle(store: PostgresStore, lease: Lease) -> None:
    await store.settle([settlement_of(lease, Succeeded("null"))])


async def go_on(store: PostgresStore, lease: Lease) -> None:
    await store.settle([settlement_of(lease, Continued(NewJob(id=WORLD.job_id(), task="next")))])


async def report(store: PostgresStore, lease: Lease) -> None:
    await store.progress([Progress(lease, 50.0)])


async def report_twice(store: PostgresStore, lease: Lease) -> None:
    await store.progress([Progress(lease, 50.0), Progress(lease, 60.0)])


async def keep_a_part(store: PostgresStore, lease: Lease) -> None:
    await store.checkpoint([Checkpoint(lease, Part("one", PartState.COMPLETED))])


async def flag(store: PostgresStore, lease: Lease) -> None:
    await store.flag_free([lease])


async def extend(store: PostgresStore, lease: Lease) -> None:
    await store.extend([lease])


async def enqueue_a_child(store: PostgresStore, lease: Lease) -> None:
    await store.enqueue([NewJob(id=WORLD.job_id(), task="child")], under=lease)


async def cancel(store: PostgresStore, lease: Lease) -> None:
    await store.cancel([lease.job_id])


async def cancel_twice(store: PostgresStore, lease: Lease) -> None:
    await store.cancel([lease.job_id, lease.job_id])


async def wait_for_it(store: PostgresStore, lease: Lease) -> None:
    await store.enqueue([NewJob(id=WORLD.job_id(), task="waiter", after=(lease.job_id,))])


async def settle_in_a_transaction(store: PostgresStore, lease: Lease) -> None:
    async with begun(store) as transaction:
        await transaction.settle(settlement_of(lease, Succeeded("null")))


async def prove_in_a_transaction(store: PostgresStore, lease: Lease) -> None:
    async with begun(store) as transaction:
        await transaction.prove(lease)


@asynccontextmanager
async def begun(store: PostgresStore) -> AsyncIterator[Transaction]:
    transaction = await store.begin()
    try:
        yield transaction
        await transaction.commit()
    finally:
        await transaction.rollback()


OPERATIONS = [
    settle,
    go_on,
    report,
    report_twice,
    keep_a_part,
    flag,
    extend,
    enqueue_a_child,
    cancel,
    cancel_twice,
    wait_for_it,
    settle_in_a_transaction,
    prove_in_a_transaction,
]


@pytest.mark.parametrize("postgres_server", ["pg18"], indirect=True)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
async def test_whoever_stands_still_keeps_no_lease_from_others(
    postgres_url: str, operation: Callable[[PostgresStore, Lease], Awaitable[None]]
) -> None:
    async with opened(postgres_url) as other, asyncio.TaskGroup() as group:
        for statements in range(1, MOST + 1):
            group.create_task(stand_still(postgres_url, operation, statements, other))


async def test_a_connection_of_the_callers_own_may_stand_still_until_it_has_a_lease_in_hand(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease = await hold(store, "on somebody's own connection")
        connection = await asyncpg.connect(postgres_url)
        try:
            caller = PostgresCaller(AsyncpgLine(connection), "holdfast", "holdfast")
            await caller.begin()
            assert await connection.fetchval(MAY_IDLE) == "0"
            assert (await caller.prove(lease)).accepted
            assert await connection.fetchval(MAY_IDLE) == f"{LONGEST_IDLE:.0f}s"
            await caller.commit()
            assert await connection.fetchval(MAY_IDLE) == "0", "what is the caller's own is as it was"
        finally:
            await connection.close()


async def stand_still(
    url: str, operation: Callable[[PostgresStore, Lease], Awaitable[None]], statements: int, other: PostgresStore
) -> None:
    """Have a process stop after so many statements of an operation, and see that its lease ends all the same."""
    lease = await hold(other, f"{operation.__name__}-{statements}")
    stop = Stop(statements)
    async with opened(url, timeout=TIMEOUT) as store:

        async def operate() -> None:
            STOP.set(stop)
            # what it may hear when it goes on
            with suppress(StoreUnavailable, StaleLease):
                await operation(store, lease)

        async def over() -> bool:
            await other.reap(100)
            (view,) = await other.get([lease.job_id])
            assert view is not None
            return view.state is not State.RUNNING

        async with asyncio.TaskGroup() as group:
            group.create_task(operate())
            await until(over)
            stop.thawed.set()


async def hold(store: PostgresStore, task: str) -> Lease:
    """Claim a job of one's own."""
    worker = Worker(id=WORLD.token(), name=task)
    await store.register(worker)
    await store.enqueue([NewJob(id=WORLD.job_id(), task=task, lease=LEASE)])
    (claimed,) = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({task}), limit=1, look=True))
    return claimed.lease


@asynccontextmanager
async def opened(url: str, timeout: float = 30.0) -> AsyncIterator[PostgresStore]:
    store = await _opened(url, timeout)
    try:
        yield store
    finally:
        await store.close()


async def _opened(url: str, timeout: float, tries: int = TRIES) -> PostgresStore:
    store = PostgresStore(url, WORLD, timeout=timeout)
    try:
        await store.open()
    except StoreUnavailable:
        await store.close()
        if tries == 1:
            raise
        return await _opened(url, timeout, tries - 1)
    return store
