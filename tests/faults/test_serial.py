"""Deadlocks and serialization failures on PostgreSQL: the operation that the server rolled back is made again, whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast.core.outcome import Succeeded
from holdfast.core.states import State
from holdfast.store.conformance.world import World, ids, settlement_of
from holdfast.store.port import Answer, Enqueue, Settled
from tests.callers.asyncpg_world import new, on
from tests.faults.racing import opened
from tests.faults.support import chance
from tests.support.majors import NEWEST
from tests.support.postgres import database_of
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Claimed
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

pytestmark = pytest.mark.row(24)

BULK = 150
ROUNDS = 6
CALLERS = 6
EACH = 6
"""Transactions of each caller."""


@pytest.fixture(params=NEWEST)
def server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    return postgres_servers[request.param]


@pytest.fixture
def url(server: PostgresServer | GivenServer) -> Iterator[str]:
    """An empty database whose sessions look for a deadlock as soon as they wait."""
    url = server.create_database()
    server.execute(f"ALTER DATABASE {database_of(url)} SET deadlock_timeout = '20ms'")
    yield url
    server.drop_database(url)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


# -- bulk operations in opposite orders ----------------------------------------------------------------------------------


async def test_bulk_operations_on_the_same_jobs_in_any_order_all_end_and_each_job_has_one_winner(url: str) -> None:
    luck = chance()
    async with opened(url) as world:
        stores = [await world.handle() for _ in range(5)]
        for _ in range(ROUNDS):
            jobs = world.jobs(BULK)
            await world.enqueue(*jobs)
            claims = await world.claim(BULK)
            backwards = claims[::-1]
            shuffled = luck.sample(ids(claims), BULK)
            one, two, completed, canceled, extended = await asyncio.gather(
                stores[0].settle([settlement_of(claim.lease, Succeeded()) for claim in claims]),
                stores[1].settle([settlement_of(claim.lease, Succeeded()) for claim in backwards]),
                stores[2].complete(dict.fromkeys(ids(backwards), "1")),
                stores[3].cancel(shuffled),
                stores[4].extend([claim.lease for claim in luck.sample(claims, BULK)]),
            )
            assert len(extended) == BULK
            told = dict(zip(ids(claims), one, strict=True))
            other = dict(zip(ids(backwards), two, strict=True))
            outside = dict(zip(ids(backwards), completed, strict=True))
            allowed = {
                (Settled.APPLIED, Settled.REPEATED, Answer.REFUSED),
                (Settled.REPEATED, Settled.APPLIED, Answer.REFUSED),
                (Settled.STALE, Settled.STALE, Answer.DONE),
            }
            for job_id in ids(claims):
                answers = (told[job_id], other[job_id], outside[job_id])
                assert answers in allowed, f"job {job_id} was answered {answers}"
            assert set(canceled) <= {Answer.REQUESTED, Answer.REFUSED}
            assert await world.states(ids(claims)) == [State.SUCCEEDED] * BULK
            await world.check_log(*luck.sample(ids(claims), 5))
            await world.store.delete(ids(claims))


async def test_keyed_jobs_enqueued_in_opposite_orders_are_created_once_and_nobody_is_left_hanging(url: str) -> None:
    async with opened(url) as world:
        stores = [await world.handle() for _ in range(4)]
        for number in range(ROUNDS):
            keys = [f"{number}-{one}" for one in range(40)]
            batches = [[world.job(key=key) for key in (keys if one % 2 else keys[::-1])] for one in range(len(stores))]
            answers = await asyncio.gather(*(store.enqueue(batch) for store, batch in zip(stores, batches, strict=True)))
            created = Counter(answer.status for batch in answers for answer in batch)
            assert created[Enqueue.CREATED] == len(keys)
            holders = [
                {job.unique.key: answer.job_id for job, answer in zip(batch, told, strict=True) if job.unique is not None}
                for batch, told in zip(batches, answers, strict=True)
            ]
            assert all(holder == holders[0] for holder in holders), "all are told the same holder of each key"


# -- a deadlock that the store loses -------------------------------------------------------------------------------------

BULK_OPERATIONS: dict[str, tuple[Callable[[World, list[Claimed]], Awaitable[Any]], list[Any], State | None]] = {
    "settle": (
        lambda world, claims: world.store.settle([settlement_of(claim.lease, Succeeded()) for claim in claims]),
        [Settled.APPLIED, Settled.APPLIED],
        State.SUCCEEDED,
    ),
    "complete": (
        lambda world, claims: world.store.complete(dict.fromkeys(ids(claims), "1")),
        [Answer.DONE, Answer.DONE],
        State.SUCCEEDED,
    ),
    "cancel": (
        lambda world, claims: world.store.cancel(ids(claims)),
        [Answer.REQUESTED, Answer.REQUESTED],
        State.RUNNING,
    ),
    "delete": (lambda world, claims: world.store.delete(ids(claims)), [Answer.DONE, Answer.DONE], None),
}


@pytest.mark.parametrize("name", BULK_OPERATIONS)
async def test_an_operation_that_lost_a_deadlock_is_made_again_whole(
    url: str, server: PostgresServer | GivenServer, name: str
) -> None:
    """The store gets the first job, before somebody who has the second and waits for the first: the server ends one of the two.

    It is the one who comes to wait last, and so sees the deadlock: the store.
    """
    operation, answers, state = BULK_OPERATIONS[name]
    async with opened(url) as world, connected(url) as before, connected(url) as somebody, connected(url) as looking:
        await world.enqueue(*world.jobs(2))
        claims = sorted(await world.claim(2), key=lambda claim: claim.job_id)
        await before.execute("BEGIN")
        await before.execute(LOCK.format(claims[0].job_id))
        work = asyncio.ensure_future(operation(world, claims))
        await until(lambda: waiting(looking, 1))
        await somebody.execute("SET deadlock_timeout = '60s'; BEGIN")
        await somebody.execute(LOCK.format(claims[1].job_id))
        wanting = asyncio.ensure_future(somebody.execute(LOCK.format(claims[0].job_id)))
        await until(lambda: waiting(looking, 2))
        await before.execute("COMMIT")
        await wanting
        await somebody.execute("COMMIT")
        assert await work == answers
        assert await world.states(ids(claims)) == [state] * 2
        await world.check_log(*ids(claims))

    async def lost() -> bool:  # a session tells what it counted when it ends
        [row] = server.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = $1", database_of(url))
        return bool(row["deadlocks"] >= 1)  # it may be quicker than the other when it comes again, and lose again

    await until(lost)


LOCK = "SELECT FROM holdfast.lease WHERE job_id = '{}' FOR UPDATE"


async def waiting(connection: asyncpg.Connection[Any], wanted: int) -> bool:
    counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await connection.fetchval(counted) == wanted)


# -- callers at SERIALIZABLE ---------------------------------------------------------------------------------------------


async def test_callers_who_repeat_their_serializable_transactions_get_one_job_for_each_that_commits(url: str) -> None:
    luck = chance()
    conflicts = 0
    together = asyncio.Barrier(CALLERS)

    async def caller() -> list[NewJob]:
        nonlocal conflicts
        jobs = [new() for _ in range(EACH)]
        async with connected(url) as connection:
            for job in jobs:
                meeting = together if job is jobs[0] else None
                while not await deposited(connection, job, meeting):
                    meeting = None
                    conflicts += 1
                    await asyncio.sleep(luck.random() * 0.01)
        return jobs

    async with opened(url) as world, connected(url) as admin:
        await admin.execute("CREATE TABLE deposit (job uuid PRIMARY KEY, number bigint)")
        batches = await asyncio.gather(*(caller() for _ in range(CALLERS)))
        jobs = [job for batch in batches for job in batch]
        numbers = [row["number"] for row in await admin.fetch("SELECT number FROM deposit ORDER BY number")]
        assert conflicts >= CALLERS - 1, "of those who have counted the same rows at the same time, one can be right"
        assert numbers == list(range(len(jobs))), "each saw what was there before it"
        assert await world.states(ids(jobs)) == [State.READY] * len(jobs)
        assert (await world.store.stats()).live == len(jobs)
        assert set(ids(await world.claim(1000, tasks=[jobs[0].task]))) == set(ids(jobs))


async def deposited(connection: asyncpg.Connection[Any], job: NewJob, meeting: asyncio.Barrier | None) -> bool:
    """Note how many have come before, and enqueue a job, in one transaction; False: the server has rolled it back."""
    try:
        async with connection.transaction(isolation="serializable"):
            number = await connection.fetchval("SELECT count(*) FROM deposit")
            if meeting is not None:
                await meeting.wait()
            await on(connection).enqueue([job])
            await connection.execute("INSERT INTO deposit VALUES ($1, $2)", job.id, number)
    except asyncpg.SerializationError:
        return False
    return True
