"""Statements of several handles are canceled at random: each call is done whole, or not at all.

A call that was canceled is repeated as it is. Then every job of the batch is answered alike: all were done before, or none was.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast.core.outcome import Succeeded
from holdfast.core.states import State
from holdfast.errors import StoreUnavailable
from holdfast.store.conformance.world import LEASE, TASK, World, ids, settlement_of
from holdfast.store.port import Answer, ClaimRequest, Enqueue, Settled
from tests.faults.racing import opened
from tests.faults.support import chance
from tests.support.majors import NEWEST

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from uuid import UUID

    from holdfast.core.lease import Lease
    from holdfast.store.port import Store
    from tests.support.postgres import PostgresServers

HANDLES = 3
BATCH = 20
USUAL = 60
"""Cancels of which each finds somebody at work; then the storm is over. Not each comes in time."""
MANY = 600


@pytest.fixture(params=NEWEST)
def url(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> Iterator[str]:
    server = postgres_servers[request.param]
    url = server.create_database()
    yield url
    server.drop_database(url)


@dataclass
class Storm:
    """What is counted, and when it is over."""

    cancels: int
    """Those yet to come: their number is fixed and not that of the calls they hit, which depends on the machine."""
    luck: random.Random
    canceled: Counter[str] = field(default_factory=Counter)
    """Calls that were hit."""

    @property
    def over(self) -> bool:
        return self.cancels <= 0

    async def call(self, what: str, act: Callable[[], Awaitable[Sequence[Any]]]) -> list[Any]:
        """Make a call until it is answered; the answers of a repetition are those of one that was done whole, or not at all."""
        repeated = False
        while True:
            try:
                answers = list(await act())
            except StoreUnavailable as error:
                self.hit(what, error)
                repeated = True
                continue
            if repeated:
                assert len(set(answers)) <= 1, f"{what} was done by halves: {set(answers)}"
            return answers

    def hit(self, what: str, error: StoreUnavailable) -> None:
        assert "canceling statement due to user request" in str(error)
        self.canceled[what] += 1


async def work(world: World, store: Store, storm: Storm, worker: UUID) -> list[UUID]:
    """Enqueue, claim, extend, settle and cancel batches until the storm is over; returns the jobs that were created."""
    request = ClaimRequest(worker=worker, tasks=frozenset({TASK}), limit=BATCH, look=True)
    created: list[UUID] = []
    while not storm.over:
        jobs = world.jobs(BATCH)
        later = world.jobs(BATCH, delay=3600.0)
        for batch in (jobs, later):
            told = await storm.call("enqueue", lambda batch=batch: answered(store.enqueue(batch)))  # type: ignore[misc]
            assert set(told) <= {Enqueue.CREATED, Enqueue.REPEATED}
        created += ids(jobs) + ids(later)
        leases = await claimed(store, request, storm)
        await storm.call("extend", lambda leases=leases: held(store, leases))  # type: ignore[misc]
        settlements = [settlement_of(lease, Succeeded()) for lease in leases]
        told = await storm.call("settle", lambda these=settlements: store.settle(these))  # type: ignore[misc]
        assert set(told) <= {Settled.APPLIED, Settled.REPEATED}
        told = await storm.call("cancel", lambda these=later: store.cancel(ids(these)))  # type: ignore[misc]
        assert set(told) <= {Answer.DONE, Answer.REFUSED}
    return created


async def answered(enqueuing: Awaitable[Sequence[Any]]) -> list[Enqueue]:
    return [answer.status for answer in await enqueuing]


async def held(store: Store, leases: Sequence[Lease]) -> list[Any]:
    return [extended.hold for extended in await store.extend(leases)]


async def claimed(store: Store, request: ClaimRequest, storm: Storm) -> list[Lease]:
    """Claim what is ready: a claim whose answer was lost is found among what the worker holds."""
    while True:
        try:
            if leases := await store.holding(request.worker):
                return leases
            return [claim.lease for claim in await store.claim(request)]
        except StoreUnavailable as error:
            storm.hit("claim", error)


@asynccontextmanager
async def saboteur(url: str, storm: Storm) -> AsyncIterator[None]:
    """Cancel whatever a session of this database happens to do, one at a time, again and again until the storm is over."""
    connection = await asyncpg.connect(url)
    luck = storm.luck
    any_one = (
        "SELECT pg_cancel_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast' "
        "AND state = 'active' AND datname = current_database() ORDER BY md5(pid || $1) LIMIT 1) active"
    )

    async def cancel() -> None:
        while not storm.over:
            storm.cancels -= len(await connection.fetch(any_one, str(luck.random())))
            await asyncio.sleep(luck.choice([0, 0.001]))

    task = asyncio.create_task(cancel())
    try:
        yield
    finally:
        storm.cancels = 0
        await task
        connection.terminate()


@pytest.mark.row(26)
async def test_a_storm_of_canceled_statements_leaves_nothing_half_done(url: str, request: pytest.FixtureRequest) -> None:
    storm = Storm(MANY if request.config.getoption("--rows") else USUAL, chance())
    async with opened(url) as world:
        stores = [await world.handle() for _ in range(HANDLES)]
        workers = [await world.worker(f"worker {number}") for number in range(HANDLES)]
        async with saboteur(url, storm):
            works = [work(world, store, storm, worker) for store, worker in zip(stores, workers, strict=True)]
            batches = await asyncio.gather(*works)
        assert storm.canceled, "no call was canceled: the fault did not happen"
        print(f"canceled: {dict(storm.canceled)}")  # noqa: T201
        created = [job_id for batch in batches for job_id in batch]
        states = await world.states(created)
        assert None not in states, "an acknowledged job has vanished"
        assert State.SCHEDULED not in states, "a cancel that was acknowledged was not done"
        await world.check_counts()
        for view in storm.luck.sample(await world.all_jobs(), 50):
            assert await world.replayed(view.id) is view.state
        # what is left over can be worked off: no lock, lease or lane has been lost
        await world.lapse(2 * LEASE)
        while await world.store.reap(1000):
            pass
        while claims := await world.claim(500):
            assert set(await world.store.settle([settlement_of(claim.lease, Succeeded()) for claim in claims])) == {
                Settled.APPLIED
            }
        assert (await world.store.stats()).live == 0
