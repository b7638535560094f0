"""The PostgreSQL store when the server is away, restarts, turns read-only, or an answer is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast.core.job import NewJob
from holdfast.core.lease import Hold
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.errors import StoreUnavailable
from holdfast.store.port import ClaimRequest, Enqueue, Enqueued, Settled, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment
from tests.support.postgres import MAJORS, PostgresServer, database_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

SUCCEED = Write(Event.SUCCEED, 0, result="null")


class Steered(SystemEnvironment):
    """A world whose monotonic clock runs `ahead` of the real one by what the test says."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


WORLD = SystemEnvironment()


@pytest.fixture(scope="module", params=MAJORS, ids=lambda major: f"pg{major}")
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server of this module's own, to be mistreated."""
    with PostgresServer(request.param) as server:
        yield server


@pytest.fixture
def world() -> Steered:
    return Steered()


@pytest.fixture
async def store(server: PostgresServer, world: Steered) -> AsyncIterator[PostgresStore]:
    url = server.create_database()
    store = PostgresStore(url, world, timeout=5.0)
    await store.open()
    yield store
    await store.close()


async def hold(store: PostgresStore, *, lease: float) -> tuple[NewJob, ClaimRequest]:
    """Leave one job held under a lease."""
    worker = Worker(id=WORLD.token(), name="w")
    await store.register(worker)
    request = ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=10, look=True)
    job = NewJob(id=WORLD.job_id(), task="t", lease=lease)
    await store.enqueue([job])
    assert [claimed.job_id for claimed in await store.claim(request)] == [job.id]
    return job, request


async def back(store: PostgresStore) -> None:
    """Wait until the store answers again."""
    for _ in range(200):
        try:
            await store.workers()
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        else:
            return
    pytest.fail("the store did not come back")


async def test_a_store_survives_an_immediate_restart_of_its_server(store: PostgresStore, server: PostgresServer) -> None:
    job, request = await hold(store, lease=60)
    (lease,) = await store.holding(request.worker)

    server.restart(immediate=True)

    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.*Check that the server runs"):
        await store.extend([lease])
    await back(store)
    assert [extended.hold for extended in await store.extend([lease])] == [Hold.HELD]
    assert await store.settle([Settlement(lease, SUCCEED)]) == [Settled.APPLIED]
    assert await store.enqueue([job]) == [Enqueued(Enqueue.REPEATED, job.id)]


@pytest.mark.row("11b")
async def test_an_outage_spends_no_budget(store: PostgresStore, server: PostgresServer, world: Steered) -> None:
    job, _ = await hold(store, lease=30)
    server.restart(immediate=True)
    with pytest.raises(StoreUnavailable):
        await store.workers()
    await back(store)

    # the lease has lapsed during the outage, but the server has not been up for its length
    connection = await asyncpg.connect(store._db.url)
    await connection.execute("UPDATE holdfast.lease SET expires_at = clock_timestamp() - interval '1 s'")
    assert await store.reap(10) == []
    # the server says it has been up long enough: now this connection has not been back for as long
    await connection.execute("UPDATE holdfast.meta SET rewound = interval '1 hour'")
    assert await store.reap(10) == []
    world.ahead += 31
    assert [reaped.job_id for reaped in await store.reap(10)] == [job.id]
    await connection.close()


async def test_claims_find_everything_again_after_a_restart(store: PostgresStore, server: PostgresServer) -> None:
    _, request = await hold(store, lease=60)
    jobs = [NewJob(id=WORLD.job_id(), task="t") for _ in range(30)]
    await store.enqueue(jobs)
    taken = await store.claim(request)
    server.restart(immediate=True)
    with pytest.raises(StoreUnavailable):
        await store.claim(request)
    await back(store)
    claimed = {job.job_id for job in taken}
    while batch := await store.claim(request):
        claimed |= {job.job_id for job in batch}
    assert claimed == {job.id for job in jobs}


async def test_a_repeated_enqueue_after_a_lost_answer_creates_nothing_twice(store: PostgresStore) -> None:
    jobs = [NewJob(id=WORLD.job_id(), task="t") for _ in range(5)]
    fetch = asyncpg.pool.PoolConnectionProxy.fetch

    async def lose_the_answer(
        self: asyncpg.pool.PoolConnectionProxy[asyncpg.Record], query: str, *args: object
    ) -> list[asyncpg.Record]:
        await fetch(self, query, *args)
        raise ConnectionResetError("cut after COMMIT was sent")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncpg.pool.PoolConnectionProxy, "fetch", lose_the_answer)
        with pytest.raises(StoreUnavailable, match="cut after COMMIT"):
            await store.enqueue(jobs)
    assert [answer.status for answer in await store.enqueue(jobs)] == [Enqueue.REPEATED] * 5
    assert (await store.stats()).count(State.READY) == len(jobs)


async def test_a_claim_whose_answer_was_lost_is_found_by_holding(store: PostgresStore) -> None:
    worker = Worker(id=WORLD.token(), name="w")
    await store.register(worker)
    await store.enqueue([NewJob(id=WORLD.job_id(), task="t")])
    request = ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=1, look=True)
    lost = (await store.claim(request))[0].lease
    assert await store.holding(worker.id) == [lost]
    released = Write(Event.RELEASE, 0, front=True)
    assert await store.settle([Settlement(lost, released)]) == [Settled.APPLIED]
    assert [job.failures for job in await store.claim(request)] == [0]


@pytest.mark.row(26)
async def test_canceled_statements_do_all_or_nothing(store: PostgresStore, server: PostgresServer) -> None:
    """Claims and settles canceled at random moments: every job is ready, held or succeeded, and the counts agree."""
    worker = Worker(id=WORLD.token(), name="w")
    await store.register(worker)
    jobs = [NewJob(id=WORLD.job_id(), task="t") for _ in range(2_000)]
    await store.enqueue(jobs)
    request = ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=50, look=True)
    stop = asyncio.Event()

    async def saboteur() -> None:
        connection = await asyncpg.connect(store._db.url)
        while not stop.is_set():
            await connection.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast' AND state = 'active' "
                "AND datname = current_database()"
            )
            await asyncio.sleep(0)
        await connection.close()

    canceled = 0
    task = asyncio.create_task(saboteur())
    for _ in range(400):
        try:
            for claimed in await store.claim(request):
                await store.settle([Settlement(claimed.lease, SUCCEED)])
        except StoreUnavailable:
            canceled += 1
    stop.set()
    await task
    stats = await store.stats()
    assert canceled > 0, "the saboteur hit nothing"
    assert stats.count() == len(jobs)
    assert stats.count(State.RUNNING) == len(await store.holding(worker.id))
    views = await store.get([job.id for job in jobs])
    for state in (State.READY, State.RUNNING, State.SUCCEEDED):
        assert stats.count(state) == sum(view is not None and view.state is state for view in views)
    assert server.pid


@pytest.mark.row(42)
async def test_a_read_only_replica_is_named_as_such(store: PostgresStore) -> None:
    connection = await asyncpg.connect(store._db.url)
    await connection.execute(
        f"ALTER DATABASE {await connection.fetchval('SELECT current_database()')} SET default_transaction_read_only = on"
    )
    await connection.close()
    replica = PostgresStore(store._db.url, WORLD)
    await replica.open()
    with pytest.raises(StoreUnavailable, match="read-only replica: connect to the primary"):
        await replica.enqueue([NewJob(id=WORLD.job_id(), task="t")])
    await replica.close()


async def test_a_store_works_without_prepared_statements(store: PostgresStore) -> None:
    bare = PostgresStore(store._db.url, WORLD, prepare=False)
    await bare.open()
    _, request = await hold(bare, lease=60)
    leases: list[UUID] = [lease.job_id for lease in await bare.holding(request.worker)]
    assert len(leases) == 1
    await bare.close()


async def test_a_closed_store_says_so(server: PostgresServer) -> None:
    store = PostgresStore(server.url("postgres"), WORLD)
    with pytest.raises(StoreUnavailable, match=r"not open: call open\(\) first"):
        await store.stats()


async def test_a_database_that_is_down_is_named_with_how_long_it_was_tried(world: Steered) -> None:
    store = PostgresStore("postgresql://somebody:secret@127.0.0.1:1/jobs", world, connect_for=0.3)
    with pytest.raises(StoreUnavailable, match=r"at 127\.0\.0\.1:1/jobs \(tried for 0\.\d s\)") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


async def test_a_database_that_does_not_exist_is_named(server: PostgresServer) -> None:
    store = PostgresStore(server.url("nowhere"), WORLD)
    with pytest.raises(StoreUnavailable, match=r'/nowhere.*database "nowhere" does not exist'):
        await store.open()


async def test_a_server_that_lets_nobody_in_for_a_moment_is_an_outage_and_not_a_wrong_schema(
    server: PostgresServer, store: PostgresStore
) -> None:
    job, request = await hold(store, lease=60)
    (lease,) = await store.holding(request.worker)
    database = database_of(store._db.url)
    server.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database)
    try:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.settle([Settlement(lease, SUCCEED)])
    finally:
        server.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')
    await back(store)
    assert await store.settle([Settlement(lease, SUCCEED)]) == [Settled.APPLIED]
    assert job.id == lease.job_id
