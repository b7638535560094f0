"""Who meets whom in the middle of a transaction: each race of chains, waiters and signals held still at its worst moment.

The one who comes first leaves its transaction open; the second is seen to wait for it, or to pass; then the first commits. What
is left to chance is in the conformance suite.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, Unique
from holdfast.core.outcome import Continued, Succeeded, Suspended
from holdfast.core.settle import settle
from holdfast.core.states import State
from holdfast.errors import KeyBusy
from holdfast.store.port import Answer, ClaimRequest, Retention, Settled, Settlement, Worker
from holdfast.store.postgres import PostgresStore, scripts
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import PostgresCaller
from holdfast.system import SystemEnvironment
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome


@dataclass
class World:
    """A store, and transactions that stay open until they are told otherwise."""

    store: PostgresStore
    url: str
    worker: UUID

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresCaller]:
        connection = await asyncpg.connect(self.url)
        try:
            caller = PostgresCaller(AsyncpgLine(connection), "holdfast", "unheard")
            await caller.begin()
            yield caller
        finally:
            connection.terminate()

    async def running(self, **fields: Any) -> Claimed:
        job = new(**fields)
        await self.store.enqueue([job])
        return await self.claim(job)

    async def claim(self, job: NewJob) -> Claimed:
        request = ClaimRequest(worker=self.worker, tasks=frozenset({job.task}), limit=1, look=True)
        (claimed,) = await self.store.claim(request)
        return claimed

    async def state(self, job_id: UUID) -> State | None:
        (view,) = await self.store.get([job_id])
        return None if view is None else view.state

    async def held_up(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start something that waits for a lock, and return once it does."""
        task = asyncio.create_task(work)
        await until(self._anybody_waits)
        assert not task.done()
        return task

    async def _anybody_waits(self) -> bool:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await self.store._db.fetch_value(waiting))


@pytest_asyncio.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    store = PostgresStore(postgres_url, SystemEnvironment())
    await store.open()
    world = World(store, postgres_url, uuid4())
    await store.register(Worker(id=world.worker, name="w"))
    yield world
    await store.close()


def new(**fields: Any) -> NewJob:
    """Return a job of a task of its own, so that a claim takes it and no other."""
    return NewJob(id=uuid7(), task=f"t{uuid4().hex}", **fields)


def settlement(claimed: Claimed, outcome: Outcome) -> Settlement:
    write = settle(outcome, claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
    match outcome:
        case Continued(then):
            return Settlement(claimed.lease, write, then=then)
        case Suspended(_, signal):
            return Settlement(claimed.lease, write, signal=signal)
        case _:
            return Settlement(claimed.lease, write)


async def create(transaction: PostgresCaller, jobs: Sequence[NewJob]) -> None:
    """Create jobs as the store does, which locks what they wait for, in a transaction that stays open."""

    async def fetch(sql: str, parameters: Sequence[Any]) -> Any:
        return await transaction.connection.fetch(sql.replace("{schema}", "holdfast"), *parameters)

    await scripts.drive(scripts.enqueue(jobs), fetch)


# -- a waiter is created ---------------------------------------------------------------------------------------------------


async def test_while_its_chain_continues_it_waits_for_the_next_step(world: World) -> None:
    claimed, step, last = await world.running(), new(), new()
    waiter = new(after=(claimed.job_id,))
    async with world.transaction() as first:
        await first.settle(settlement(claimed, Continued(step)))
        enqueue = await world.held_up(world.store.enqueue([waiter]))
        await first.commit()
        await enqueue
    assert await world.state(waiter.id) is State.BLOCKED
    second = await world.claim(step)
    another = new(after=(claimed.job_id,))
    async with world.transaction() as first:  # and once more, now that it is a chain already
        await first.settle(settlement(second, Continued(last)))
        enqueue = await world.held_up(world.store.enqueue([another]))
        await first.commit()
        await enqueue
    assert (await world.store.settle([settlement(await world.claim(last), Succeeded())])) == [Settled.FREED]
    assert [await world.state(waiter.id), await world.state(another.id)] == [State.READY] * 2


async def test_while_its_chain_continues_it_holds_the_next_step_until_it_is_seen(world: World) -> None:
    claimed, step = await world.running(), new()
    waiter = new(after=(claimed.job_id,))
    async with world.transaction() as first, world.transaction() as second:
        await first.settle(settlement(claimed, Continued(step)))
        creation = await world.held_up(create(second, [waiter]))
        await first.commit()
        await creation
        complete = await world.held_up(world.store.complete({step.id: "1"}))
        await second.commit()
        assert await complete == [Answer.DONE]
    assert await world.state(waiter.id) is State.READY


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_while_its_chain_ends_it_is_free_or_blocked_as_that_turns_out(world: World, end: str) -> None:
    claimed, step = await world.running(), new()
    await world.store.settle([settlement(claimed, Continued(step))])
    last = await world.claim(step)
    waiter = new(after=(claimed.job_id,))
    async with world.transaction() as first:
        await first.settle(settlement(last, Succeeded()))
        enqueue = await world.held_up(world.store.enqueue([waiter]))
        await getattr(first, end)()
        await enqueue
    assert await world.state(waiter.id) is (State.READY if end == "commit" else State.BLOCKED)


@pytest.mark.parametrize("outcome", ["ends", "continues"])
async def test_before_its_chain_goes_on_it_is_seen(world: World, outcome: str) -> None:
    claimed, step = await world.running(), new()
    waiter = new(after=(claimed.job_id,))
    async with world.transaction() as first:
        await create(first, [waiter])
        going = settlement(claimed, Succeeded() if outcome == "ends" else Continued(step))
        settle_ = await world.held_up(world.store.settle([going]))
        await first.commit()
        assert await settle_ == [Settled.FREED if outcome == "ends" else Settled.APPLIED]
    assert await world.state(waiter.id) is (State.READY if outcome == "ends" else State.BLOCKED)


async def test_heartbeats_of_the_chain_it_will_wait_for_go_on(world: World) -> None:
    claimed = await world.running()
    async with world.transaction() as first:
        await create(first, [new(after=(claimed.job_id,))])
        (extended,) = await world.store.extend([claimed.lease])
        assert extended.hold == "held"


async def test_two_blockers_ending_at_once_free_it_once(world: World) -> None:
    left, right = await world.running(), await world.running()
    waiter = new(after=(left.job_id, right.job_id))
    await world.store.enqueue([waiter])
    async with world.transaction() as first:
        assert await first.settle(settlement(left, Succeeded())) is Settled.APPLIED
        second = await world.held_up(world.store.settle([settlement(right, Succeeded())]))
        await first.commit()
        assert await second == [Settled.FREED]
    assert await world.state(waiter.id) is State.READY


# -- a chain is removed ----------------------------------------------------------------------------------------------------


@pytest.mark.row(34)
async def test_a_chain_that_continues_while_it_is_deleted_goes_with_its_next_step(world: World) -> None:
    claimed, step = await world.running(), new()
    async with world.transaction() as first:
        await first.settle(settlement(claimed, Continued(step)))
        delete = await world.held_up(world.store.delete_chains([claimed.job_id]))
        await first.commit()
        deleted = await delete
    assert (deleted.answer, set(deleted.jobs)) == (Answer.DONE, {claimed.job_id, step.id})
    assert [await world.state(claimed.job_id), await world.state(step.id)] == [None, None]
    assert await world.store._db.fetch_value("SELECT count(*) FROM holdfast.ready WHERE job_id = $1", step.id) == 0
    assert (await world.store.stats()).count(task=step.task) == 0


@pytest.mark.row(34)
async def test_a_job_that_continues_while_it_is_deleted_is_chained(world: World) -> None:
    claimed, step = await world.running(), new()
    async with world.transaction() as first:
        await first.settle(settlement(claimed, Continued(step)))
        delete = await world.held_up(world.store.delete([claimed.job_id]))
        await first.commit()
        assert await delete == [Answer.CHAINED]
    assert [await world.state(claimed.job_id), await world.state(step.id)] == [State.SUCCEEDED, State.READY]


@pytest.mark.parametrize("ended", [False, True])
async def test_a_waiter_about_to_be_created_keeps_its_chain_from_being_deleted(world: World, *, ended: bool) -> None:
    claimed, step = await world.running(), new()
    await world.store.settle([settlement(claimed, Continued(step))])
    if ended:
        await world.store.complete({step.id: "1"})
    waiter = new(after=(claimed.job_id,))
    async with world.transaction() as first:
        await create(first, [waiter])
        delete = await world.held_up(world.store.delete_chains([claimed.job_id]))
        await first.commit()
        deleted = await delete
    assert (deleted.answer, deleted.chain, deleted.needed_by) == (Answer.NEEDED, claimed.job_id, waiter.id)
    assert await world.state(step.id) is (State.SUCCEEDED if ended else State.READY)


@pytest.mark.row(34)
async def test_a_chain_reopened_while_it_is_pruned_is_kept(world: World) -> None:
    claimed, step = await world.running(), new()
    await world.store.settle([settlement(claimed, Continued(step))])
    await world.store.complete({step.id: "1"})
    before = UUID(int=claimed.job_id.int - 1)
    async with world.transaction() as first:
        await first.connection.fetch("SELECT * FROM holdfast.reopen($1, '{succeeded}', 'x')", [step.id])
        prune = await world.held_up(world.store.prune(Retention(succeeded=0.0), limit=10, after=before))
        await first.commit()
        await prune
    assert [await world.state(claimed.job_id), await world.state(step.id)] == [State.SUCCEEDED, State.READY]


async def test_a_waiter_about_to_be_created_keeps_what_it_waits_for_from_being_pruned(world: World) -> None:
    claimed = await world.running()
    await world.store.settle([settlement(claimed, Succeeded())])
    before = UUID(int=claimed.job_id.int - 1)
    async with world.transaction() as first:
        await create(first, [new(after=(claimed.job_id,))])
        prune = await world.held_up(world.store.prune(Retention(succeeded=0.0), limit=10, after=before))
        await first.commit()
        assert (await prune).count == 0
    assert await world.state(claimed.job_id) is State.SUCCEEDED


# -- a signal is emitted ---------------------------------------------------------------------------------------------------


async def test_while_a_job_is_suspended_it_wakes_it(world: World) -> None:
    claimed, signal = await world.running(), f"{uuid4()}"
    async with world.transaction() as first:
        await first.settle(settlement(claimed, Suspended(signal=signal)))
        emit = await world.held_up(world.store.emit(signal, "1"))
        await first.commit()
        assert (await emit).jobs == (claimed.job_id,)
    assert await world.state(claimed.job_id) is State.READY


async def test_before_a_job_is_suspended_it_does_not_wait(world: World) -> None:
    claimed, signal = await world.running(), f"{uuid4()}"
    async with world.transaction() as first:
        await first.connection.fetch("SELECT * FROM holdfast.emit($1, '1', '')", signal)
        suspend = await world.held_up(world.store.settle([settlement(claimed, Suspended(signal=signal))]))
        await first.commit()
        await suspend
    assert await world.state(claimed.job_id) is State.READY


async def test_a_job_that_waits_for_something_else_by_now_is_left_alone(world: World) -> None:
    claimed, earlier, later = await world.running(), f"{uuid4()}", f"{uuid4()}"
    job = NewJob(id=claimed.job_id, task=claimed.task)
    await world.store.settle([settlement(claimed, Suspended(until=claimed.claimed_at, signal=earlier))])
    assert (await world.store.promote(100)).count >= 1
    await world.store.settle([settlement(await world.claim(job), Suspended(signal=later))])
    assert (await world.store.emit(earlier, "1")).jobs == ()
    assert await world.state(claimed.job_id) is State.SCHEDULED
    assert (await world.store.emit(later, "1")).jobs == (claimed.job_id,)


# -- keys ------------------------------------------------------------------------------------------------------------------


async def test_the_key_of_a_chain_is_free_for_who_waits_for_its_end(world: World) -> None:
    key = Unique(key=f"{uuid4()}", scope="s")
    claimed, step = await world.running(unique=key), new()
    await world.store.settle([settlement(claimed, Continued(step))])
    last = await world.claim(step)
    follower = new(unique=key)
    async with world.transaction() as first:
        await first.settle(settlement(last, Succeeded()))
        enqueue = await world.held_up(world.store.enqueue([follower]))
        await first.commit()
        try:
            answers = await enqueue
        except KeyBusy:  # the commit was slow to come
            answers = await world.store.enqueue([follower])
    assert answers[0].job_id == follower.id
