"""A hinted idle worker claims before it looks: one round trip less, and nothing is passed over for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from holdfast.core.job import NewJob, Unique
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.lanes import SPARE_LANES
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.lease import Claimed

WORLD = SystemEnvironment()
BACK = Write(Event.RELEASE, 0, front=True, error=Error("RELEASED", "given back"))


class Hurrying:
    """A worker's store, one that enqueues elsewhere, and how often the worker's looked."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.elsewhere = PostgresStore(url, WORLD, schema=schema)
        self.store = PostgresStore(url, WORLD, schema=schema)
        self.worker = Worker(id=uuid4(), name="w")
        self.looks = 0
        looked = self.store._look

        async def look() -> None:
            self.looks += 1
            await looked()

        self.store._look = look  # type: ignore[method-assign]

    async def claim(self, *, limit: int = 10, hurry: bool = True) -> list[Claimed]:
        request = ClaimRequest(
            worker=self.worker.id, tasks=frozenset({"one", "two", "three"}), limit=limit, look=True, hurry=hurry
        )
        return await self.store.claim(request)

    async def finish(self, jobs: list[Claimed]) -> None:
        await self.store.settle([Settlement(job.lease, Write(Event.SUCCEED, 0, result="null")) for job in jobs])

    async def empty(self, *tasks: NewJob) -> None:
        """Have the worker know the lanes of these jobs, all of which it has taken."""
        await self.elsewhere.enqueue(list(tasks))
        claimed = await self.claim()
        assert len(claimed) == len(tasks)
        await self.finish(claimed)
        assert await self.claim() == []
        self.looks = 0


@pytest_asyncio.fixture
async def hurrying(postgres_url: str, schema: str) -> AsyncIterator[Hurrying]:
    hurrying = Hurrying(postgres_url, schema)
    await hurrying.store.open()
    await hurrying.elsewhere.open()
    await hurrying.store.register(hurrying.worker)
    yield hurrying
    await hurrying.store.close()
    await hurrying.elsewhere.close()


def new(task: str = "one", **fields: Any) -> NewJob:
    return NewJob(id=WORLD.job_id(), task=task, **fields)


async def assert_same_as_ever(hurrying: Hurrying, first: Claimed) -> None:
    """Give back what was claimed alone, and claim it with `limit` above one: it differs where the attempts differ."""
    held = await leased(hurrying)
    await hurrying.elsewhere.settle([Settlement(first.lease, BACK)])
    [second] = await hurrying.claim(limit=2, hurry=False)
    moved = {"token", "attempt", "claimed_at", "expires_at"}
    differs = {name for name in first.__struct_fields__ if getattr(first, name) != getattr(second, name)}
    assert differs == {*moved, "ready_at"}
    assert second.attempt == first.attempt + 1
    assert (first.expires_at - first.claimed_at) == (second.expires_at - second.claimed_at)
    again = await leased(hurrying)
    assert {name for name, value in held.items() if again[name] != value} == {*moved, "no"}
    assert (held["token"], held["attempt"], held["expires_at"]) == (first.token, first.attempt, first.expires_at)


async def leased(hurrying: Hurrying) -> asyncpg.Record:
    """Return the one lease that is held, and where its job was enqueued."""
    connection = await asyncpg.connect(hurrying.url)
    try:
        schema = hurrying.schema
        [row] = await connection.fetch(
            f"SELECT l.*, j.place AS first_place FROM {schema}.lease l JOIN {schema}.job j ON j.id = l.job_id"
        )
        return row
    finally:
        await connection.close()


async def test_a_job_in_a_lane_that_was_empty_is_claimed_without_a_look(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    job = new()
    await hurrying.elsewhere.enqueue([job])
    [claimed] = await hurrying.claim()
    assert claimed.job_id == job.id
    assert hurrying.looks == 0


async def test_where_the_known_lanes_have_nothing_it_looks(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    job = new("two")
    await hurrying.elsewhere.enqueue([job])
    assert [one.job_id for one in await hurrying.claim()] == [job.id]
    assert hurrying.looks == 1


async def test_a_new_lane_is_found_by_the_next_claim(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    known, fresh = new(), new("two")
    await hurrying.elsewhere.enqueue([known, fresh])
    assert [one.job_id for one in await hurrying.claim()] == [known.id]
    request = ClaimRequest(worker=hurrying.worker.id, tasks=frozenset({"one", "two"}), limit=10)
    assert [one.job_id for one in await hurrying.store.claim(request)] == [fresh.id]


async def test_the_higher_priority_comes_first(hurrying: Hurrying) -> None:
    await hurrying.empty(new(priority=1), new("two", priority=9))
    low, high = new(priority=1), new("two", priority=9)
    await hurrying.elsewhere.enqueue([low])
    await hurrying.elsewhere.enqueue([high])
    assert [one.job_id for one in await hurrying.claim(limit=1)] == [high.id]
    assert hurrying.looks == 0


async def test_what_went_back_to_the_front_is_found_by_the_next_claim(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    first, second = new(), new()
    await hurrying.elsewhere.enqueue([first])
    [claimed] = await hurrying.claim()
    await hurrying.elsewhere.settle([Settlement(claimed.lease, BACK)])
    await hurrying.elsewhere.enqueue([second])
    both = [one.job_id for _ in range(2) for one in await hurrying.claim(limit=1)]
    assert sorted(both) == sorted([first.id, second.id])


async def test_many_lanes_are_looked_at_first(hurrying: Hurrying) -> None:
    """To probe each of them would cost more than a look."""
    await hurrying.empty(*(new(queue=f"q{number}") for number in range(9)))
    job = new(queue="q3")
    await hurrying.elsewhere.enqueue([job])
    assert [one.job_id for one in await hurrying.claim()] == [job.id]
    assert hurrying.looks == 1


async def test_one_job_is_claimed_and_the_next_claim_takes_the_others(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    jobs = [new() for _ in range(5)]
    await hurrying.elsewhere.enqueue(jobs)
    first = await hurrying.claim()
    rest = await hurrying.claim(hurry=False)
    assert [one.job_id for one in first] == [jobs[0].id]
    assert [one.job_id for one in rest] == [job.id for job in jobs[1:]]


async def test_nothing_is_claimed_in_a_hurry_from_a_queue_that_is_paused(hurrying: Hurrying) -> None:
    await hurrying.empty(new(), new("two", queue="other"))
    await hurrying.elsewhere.pause("default", by="a test")
    await hurrying.elsewhere.enqueue([new()])
    job = new("two", queue="other")
    await hurrying.elsewhere.enqueue([job])
    assert [one.job_id for one in await hurrying.claim()] == [job.id]


@pytest.mark.parametrize(
    "fields", [{}, {"trace": "t"}, {"tags": ("a",)}, {"unique": Unique(key="k", scope="s")}, {"expires_in": 60.0}]
)
async def test_it_is_the_same_job_as_another_claim_would_have_given(hurrying: Hurrying, fields: dict[str, Any]) -> None:
    await hurrying.empty(new())
    job = new(args='{"n": 1}', **fields)
    await hurrying.elsewhere.enqueue([job])
    [claimed] = await hurrying.claim()
    assert claimed.attempt == 1
    held = await leased(hurrying)
    assert held["place"] == held["first_place"]
    await assert_same_as_ever(hurrying, claimed)


async def test_a_retry_is_claimed_in_a_hurry_with_its_count(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    job = new()
    await hurrying.elsewhere.enqueue([job])
    [first] = await hurrying.claim()
    again = Write(Event.RETRY, 1, error=Error("E", "once more"))
    await hurrying.store.settle([Settlement(first.lease, again)])
    await hurrying.store.stats()  # looks: the lane of retries is known now
    [second] = await hurrying.claim()
    assert (second.job_id, second.attempt, second.failures) == (job.id, 2, 1)


async def test_a_front_that_a_look_saw_comes_before_its_lane(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    first, second, third = new(), new(), new()
    await hurrying.elsewhere.enqueue([first, second])
    held = [one for _ in range(2) for one in await hurrying.claim(limit=1)]
    await hurrying.elsewhere.settle([Settlement(one.lease, BACK) for one in held[::-1]])
    await hurrying.elsewhere.enqueue([third])
    await hurrying.store.stats()  # looks: the front is known now
    hurrying.looks = 0
    again = [one for _ in range(3) for one in await hurrying.claim()]
    assert [(one.job_id, one.attempt) for one in again] == [(first.id, 2), (second.id, 2), (third.id, 1)]
    assert hurrying.looks == 0
    await hurrying.finish(again[1:])
    await assert_same_as_ever(hurrying, again[0])


async def test_what_waited_for_others_is_claimed_with_their_number(hurrying: Hurrying) -> None:
    await hurrying.empty(new(), new("two"))
    await hurrying.elsewhere.enqueue([new("two"), new("two")])
    blockers = [one for _ in range(2) for one in await hurrying.claim()]
    job = new(after=tuple(one.job_id for one in blockers))
    await hurrying.elsewhere.enqueue([job])
    await hurrying.finish(blockers)
    hurrying.looks = 0
    [claimed] = await hurrying.claim()
    assert (claimed.job_id, claimed.blockers) == (job.id, 2)
    assert hurrying.looks == 0
    await assert_same_as_ever(hurrying, claimed)


async def test_the_next_step_of_a_chain_is_claimed_with_its_chain(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    first, then = new(), new(args='{"n": 2}')
    await hurrying.elsewhere.enqueue([first])
    [claimed] = await hurrying.claim()
    await hurrying.elsewhere.settle([Settlement(claimed.lease, Write(Event.CONTINUE, 0), then)])
    [claimed] = await hurrying.claim()
    assert (claimed.job_id, claimed.chain_id, claimed.args) == (then.id, first.id, then.args)
    assert hurrying.looks == 0
    await assert_same_as_ever(hurrying, claimed)


async def test_what_is_overdue_is_claimed_as_such(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    await hurrying.elsewhere.enqueue([new(expires_in=60.0)])
    await hurrying.elsewhere.rewind(120.0)
    [claimed] = await hurrying.claim()
    assert claimed.overdue
    assert hurrying.looks == 0
    await assert_same_as_ever(hurrying, claimed)


async def test_one_job_is_claimed_from_the_last_of_many_lanes(hurrying: Hurrying) -> None:
    """All before it are in somebody's hands, more of them than the first statement names."""
    others = [new(queue=f"q{number}", priority=5) for number in range(SPARE_LANES + 2)]
    last = new("two", priority=1)
    await hurrying.elsewhere.enqueue([*others, last])
    connection = await asyncpg.connect(hurrying.url)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT FROM {hurrying.schema}.ready WHERE job_id <> $1 FOR UPDATE", last.id)
            [claimed] = await hurrying.claim(limit=1, hurry=False)
            assert claimed.job_id == last.id
            await assert_same_as_ever(hurrying, claimed)
    finally:
        await connection.close()
    rest = [one.job_id for _ in others for one in await hurrying.claim(limit=1, hurry=False)]
    assert sorted(rest) == sorted(job.id for job in others)


async def test_a_job_in_hand_elsewhere_is_passed_over(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    first, second = new(), new()
    await hurrying.elsewhere.enqueue([first, second])
    connection = await asyncpg.connect(hurrying.url)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT FROM {hurrying.schema}.ready WHERE job_id = $1 FOR UPDATE", first.id)
            assert [one.job_id for one in await hurrying.claim()] == [second.id]
    finally:
        await connection.close()


async def test_what_has_a_deadline_is_claimed_with_it(hurrying: Hurrying) -> None:
    await hurrying.empty(new())
    await hurrying.elsewhere.enqueue([new(expires_in=60.0)])
    [claimed] = await hurrying.claim()
    assert not claimed.overdue
    connection = await asyncpg.connect(hurrying.url)
    try:
        assert await connection.fetchval(f"SELECT count(*) FROM {hurrying.schema}.deadline") == 0
        assert await connection.fetchval(f"SELECT dated FROM {hurrying.schema}.lease") is True
    finally:
        await connection.close()
