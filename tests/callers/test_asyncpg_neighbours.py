"""Nobody waits for a transaction that somebody leaves open: not who settles, not who enqueues, and no neighbour of theirs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import pytest_asyncio

from holdfast.core.job import OnConflict, Unique
from holdfast.core.outcome import Continued, Succeeded
from holdfast.core.states import State
from holdfast.errors import KeyBusy
from holdfast.store.port import Answer, ClaimRequest, Enqueue, Retention, Settled
from holdfast.store.postgres.rendering import MOST_TURNS
from tests.callers.asyncpg_world import SOON, TASK, World, keyed, new, opened, settlement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.job import NewJob
    from holdfast.core.outcome import Outcome


@pytest_asyncio.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    async with opened(postgres_url) as world:
        yield world


REPLACING = [OnConflict.REPLACE, OnConflict.DEBOUNCE]


def replacing(job: NewJob, conflict: OnConflict = OnConflict.REPLACE) -> NewJob:
    assert job.unique is not None
    return keyed(job.unique.key, conflict, delay=50)


async def waiting(world: World, **fields: object) -> NewJob:
    """A waiting job that may be replaced."""
    job = keyed(f"{uuid4()}", OnConflict.REPLACE, **fields)
    await world.store.enqueue([job])
    return job


# -- a replaced job --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("conflict", REPLACING)
async def test_who_waits_for_a_replaced_job_is_held_up_by_nobody(world: World, conflict: OnConflict, end: str) -> None:
    replaced = await waiting(world, delay=100)
    blocker, neighbour = await world.running(), await world.running()
    waiter, other = new(after=(replaced.id, blocker.job_id)), new(after=(replaced.id,))
    await world.store.enqueue([waiter, other])
    async with world.caller() as caller:
        await caller.enqueue([replacing(replaced, conflict)])
        async with asyncio.timeout(SOON):
            answers = await world.store.settle([settlement(blocker, Succeeded()), settlement(neighbour, Succeeded())])
            assert await world.store.cancel([other.id]) == [Answer.DONE]
        assert answers == [Settled.APPLIED] * 2
        assert await world.states(waiter) == [State.BLOCKED]
        await (caller.commit() if end == "commit" else caller.rollback())
    await world.store.unblock(10)
    assert await world.states(waiter, other) == [State.FAILED if end == "commit" else State.BLOCKED, State.CANCELED]
    assert await world.doubts() == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_its_blocker_is_settled_meanwhile_and_the_job_is_let_go_when_it_stays(world: World, end: str) -> None:
    blocker, neighbour = await world.running(), await world.running()
    replaced = await waiting(world, after=(blocker.job_id,))
    async with world.caller() as caller:
        await caller.enqueue([replacing(replaced)])
        async with asyncio.timeout(SOON):
            answers = await world.store.settle([settlement(blocker, Succeeded()), settlement(neighbour, Succeeded())])
        assert answers == [Settled.APPLIED] * 2
        assert await world.states(replaced) == [State.BLOCKED]
        await (caller.commit() if end == "commit" else caller.rollback())
    await world.store.unblock(10)
    assert await world.states(replaced) == [State.CANCELED if end == "commit" else State.READY]
    assert await world.doubts() == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_jobs_come_to_wait_for_it_meanwhile_and_follow_it(world: World, end: str) -> None:
    replaced = await waiting(world, delay=100)
    claimed = await world.running()
    step, waiter, plain = new(after=(replaced.id,)), new(after=(replaced.id,)), new()
    async with world.caller() as caller:
        await caller.enqueue([replacing(replaced)])
        async with asyncio.timeout(SOON):
            assert await world.settle(claimed, Continued(step)) is Settled.APPLIED
            assert {one.status for one in await world.store.enqueue([waiter, plain])} == {Enqueue.CREATED}
        assert await world.states(step, waiter, plain) == [State.BLOCKED, State.BLOCKED, State.READY]
        await (caller.commit() if end == "commit" else caller.rollback())
    await world.store.unblock(10)
    assert await world.states(step, waiter) == [State.FAILED if end == "commit" else State.BLOCKED] * 2
    if end == "rollback":
        assert await world.store.cancel([replaced.id]) == [Answer.DONE]
        assert await world.states(step, waiter) == [State.FAILED] * 2
    assert await world.doubts() == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_waiter_that_the_replacing_transaction_cannot_see_follows_too(world: World, level: str) -> None:
    replaced = await waiting(world, delay=100)
    unseen = new(after=(replaced.id,))
    async with world.caller() as caller:
        await caller.connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        await caller.connection.fetchval("SELECT count(*) FROM holdfast.job")  # its view of the world is from now on this one
        await world.store.enqueue([unseen])
        await caller.enqueue([replacing(replaced)])
        await caller.commit()
    await world.store.unblock(10)
    assert await world.states(replaced, unseen) == [State.CANCELED, State.FAILED]


async def test_a_signal_for_it_is_given_up_soon_and_can_be_given_again(world: World) -> None:
    replaced, signal = await waiting(world, delay=100), f"paid:{uuid4()}"
    await world.store._db.execute("UPDATE holdfast.scheduled SET signal = $2 WHERE job_id = $1", replaced.id, signal)
    async with world.caller() as caller:
        await caller.enqueue([replacing(replaced)])
        async with asyncio.timeout(SOON):
            with pytest.raises(ConnectionError):
                await world.store.emit(signal, "1")
        await caller.rollback()
    assert (await world.store.emit(signal, "1")).jobs == (replaced.id,)


# -- a fifo queue ----------------------------------------------------------------------------------------------------------


async def claimed_of(world: World, *jobs: NewJob) -> list[NewJob]:
    """Claim everything; which of these jobs were among it, in order."""
    request = ClaimRequest(worker=world.worker, tasks=frozenset({TASK}), limit=1000, look=True)
    async with asyncio.timeout(SOON):
        claimed = [claim.job_id for claim in await world.store.claim(request)]
    return sorted((job for job in jobs if job.id in claimed), key=lambda job: claimed.index(job.id))


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("conflict", REPLACING)
async def test_claims_go_on_up_to_a_fifo_job_that_is_being_replaced(world: World, conflict: OnConflict, end: str) -> None:
    queue = f"{uuid4()}"
    first, last, elsewhere = new(queue=queue, fifo=True), new(queue=queue, fifo=True), new(queue=f"{uuid4()}")
    await world.store.enqueue([first])
    replaced = await waiting(world, queue=queue, fifo=True)
    await world.store.enqueue([last, elsewhere])
    async with world.caller() as caller:
        await caller.enqueue([replacing(replaced, conflict)])
        assert len(await claimed_of(world, first, elsewhere)) == 2
        assert await claimed_of(world, replaced, last) == []
        assert await world.states(first, replaced, last) == [State.RUNNING, State.READY, State.READY]
        await (caller.commit() if end == "commit" else caller.rollback())
    assert await claimed_of(world, replaced, last) == ([last] if end == "commit" else [replaced, last])


async def test_a_fifo_lane_that_another_claimer_does_not_let_go_of_keeps_no_other_from_being_claimed(world: World) -> None:
    inside, elsewhere = new(queue=f"{uuid4()}", fifo=True), new(queue=f"{uuid4()}")
    await world.store.enqueue([inside, elsewhere])
    lock = (
        "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.fifo', l.entry)) "
        "FROM holdfast.lane l WHERE l.queue = $1 AND l.entry <> l.id"
    )
    async with world.caller() as caller:
        assert await caller.connection.fetch(lock, inside.queue)
        assert await claimed_of(world, inside, elsewhere) == [elsewhere]
    assert await claimed_of(world, inside) == [inside]


# -- who sweeps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [2, 100])
async def test_chains_that_open_transactions_hold_keep_no_other_waiter_from_being_swept(world: World, at_once: int) -> None:
    held = [await waiting(world, delay=100) for _ in range(4)]
    async with world.caller() as caller:
        await world.store.unblock(100)  # what is left of other tests
        await caller.enqueue([new(after=(job.id,)) for job in held])
        await caller.commit()
    blocker = await world.running()
    waiter = new(after=(blocker.job_id,))
    async with world.caller() as replacing_all:
        for job in held:
            await replacing_all.enqueue([replacing(job)])
        async with world.caller() as caller:
            await caller.enqueue([waiter])
            await world.settle(blocker, Succeeded())
            await caller.commit()
        async with asyncio.timeout(SOON):
            for _ in range(1 + len(held) // at_once):
                await world.store.unblock(at_once)
        assert await world.states(waiter) == [State.READY]
        assert await world.doubts() == len(held)
    await world.store.unblock(100)
    assert await world.doubts() == 0


# -- many waiters ----------------------------------------------------------------------------------------------------------


async def test_many_waiters_are_created_while_their_blockers_are_held_briefly(world: World) -> None:
    blocker = await world.running()
    pairs = [(first := new(), new(after=(first.id,))) for _ in range(20_000)]
    fan = [new(after=(blocker.job_id,)) for _ in range(20_000)]
    async with asyncio.timeout(SOON):
        await world.store.enqueue(fan)
    async with asyncio.timeout(SOON):
        await world.store.enqueue([job for pair in pairs for job in pair])
    assert await world.states(fan[0], fan[-1], *pairs[-1]) == [State.BLOCKED, State.BLOCKED, State.READY, State.BLOCKED]


# -- an id and keys --------------------------------------------------------------------------------------------------------


async def test_an_id_that_an_open_transaction_creates_is_busy_and_named(world: World) -> None:
    job, neighbour = new(), await world.running()
    claimed = await world.running()
    async with world.caller() as caller, world.caller() as other:
        await caller.enqueue([job])
        async with asyncio.timeout(SOON):
            with pytest.raises(KeyBusy, match=f"the id '{job.id}' is being taken by a transaction that is still open"):
                await world.store.enqueue([job])
            with pytest.raises(KeyBusy, match=str(job.id)):
                await other.enqueue([job])
            answers = await world.store.settle([settlement(claimed, Continued(job)), settlement(neighbour, Succeeded())])
        assert answers == [Settled.KEY_TAKEN, Settled.APPLIED]
        await caller.rollback()
    assert (await world.store.enqueue([job]))[0].status is Enqueue.CREATED


async def test_one_busy_key_refuses_one_continuation(world: World) -> None:
    busy, steps = f"{uuid4()}", [keyed(f"{uuid4()}"), new(), keyed(f"{uuid4()}")]
    claims = [await world.running() for _ in range(5)]
    outcomes: list[Outcome] = [
        Continued(steps[0]),
        Continued(keyed(busy)),
        Continued(steps[1]),
        Succeeded(),
        Continued(steps[2]),
    ]
    async with world.caller() as holding:
        await holding.enqueue([keyed(busy)])
        async with asyncio.timeout(SOON):
            answers = await world.store.settle([settlement(*pair) for pair in zip(claims, outcomes, strict=True)])
    applied = Settled.APPLIED
    assert answers == [applied, Settled.KEY_TAKEN, applied, applied, applied]
    assert await world.states(*steps) == [State.READY] * 3


async def test_a_busy_key_and_a_busy_id_in_one_batch_refuse_two(world: World) -> None:
    busy, job = f"{uuid4()}", new()
    taken = f"{uuid4()}"
    await world.running(unique=Unique(key=taken, scope="s"))
    claims = [await world.running() for _ in range(4)]
    outcomes = [Continued(keyed(busy)), Continued(job), Continued(keyed(taken)), Continued(new())]
    async with world.caller() as holding:
        await holding.enqueue([keyed(busy), job])
        async with asyncio.timeout(SOON):
            answers = await world.store.settle([settlement(*pair) for pair in zip(claims, outcomes, strict=True)])
    assert answers == [Settled.KEY_TAKEN] * 3 + [Settled.APPLIED]


async def test_many_keys_of_an_open_transaction_are_no_obstacle_to_many_others(world: World) -> None:
    def many() -> list[NewJob]:
        return [
            *(keyed(f"{uuid4()}", delay=100) for _ in range(MOST_TURNS)),
            keyed(f"{uuid4()}", OnConflict.REPLACE, delay=100),
        ]

    async with world.caller() as first, world.caller() as second:
        for enqueue in (first.enqueue, second.enqueue, world.store.enqueue):
            async with asyncio.timeout(SOON):
                assert {one.status for one in await enqueue(many())} == {Enqueue.CREATED}


async def test_an_elapsed_key_that_is_being_retaken_keeps_its_job_from_neither_deletion_nor_pruning(world: World) -> None:
    keys = [f"{uuid4()}", f"{uuid4()}"]
    claims = [await world.running(unique=Unique(key=key, scope="s", window=60.0)) for key in keys]
    await world.store.settle([settlement(claimed, Succeeded()) for claimed in claims])
    deleted, pruned = (claimed.job_id for claimed in claims)
    await world.store._db.execute("UPDATE holdfast.unique_key SET until = until - interval '1 h' WHERE key = ANY ($1)", keys)
    async with world.caller() as caller:
        retaking = [keyed(key, delay=100) for key in keys]
        assert {one.status for one in await caller.enqueue(retaking)} == {Enqueue.CREATED}
        async with asyncio.timeout(SOON):
            assert await world.store.delete([deleted]) == [Answer.DONE]
            await world.store.prune(Retention(succeeded=0.0, failed=0.0, canceled=0.0), limit=1000)
        assert await world.store.get([deleted, pruned]) == [None, None]
        await caller.commit()
    assert {one.status for one in await world.store.enqueue([keyed(key) for key in keys])} == {Enqueue.EXISTING}


async def test_a_deleted_job_frees_the_rest_of_its_window(world: World) -> None:
    key = f"{uuid4()}"
    claimed = await world.running(unique=Unique(key=key, scope="s", window=60.0))
    await world.settle(claimed, Succeeded())
    assert (await world.store.enqueue([keyed(key)]))[0].status is Enqueue.EXISTING
    await world.store.delete([claimed.job_id])
    assert (await world.store.enqueue([keyed(key)]))[0].status is Enqueue.CREATED
