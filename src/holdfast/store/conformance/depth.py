"""Queues that may hold so many waiting jobs and no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.core.job import OnConflict
from holdfast.core.outcome import Succeeded
from holdfast.core.states import State
from holdfast.errors import BadJob, QueueFull, StaleLease
from holdfast.store.conformance.world import BLOCKER_TASK, BOOM, HOUR, TASK, Subject, World, ids
from holdfast.store.port import Enqueue, Enqueued

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.job import NewJob
    from holdfast.store.port import Store

QUEUE = "capped"


async def full(world: World, count: int, **fields: object) -> list[NewJob]:
    """Fill the queue with ready jobs."""
    jobs = world.jobs(count, queue=QUEUE, **fields)
    await world.enqueue(*jobs)
    return jobs


async def refused(world: World, *jobs: NewJob, caps: Mapping[str, int]) -> QueueFull:
    """Enqueue jobs for which there is no room, and check that nothing was stored."""
    before = await world.snapshot(*ids(jobs))
    with pytest.raises(QueueFull) as caught:
        await world.enqueue(*jobs, caps=caps)
    before.check_unchanged(await world.snapshot(*ids(jobs)), "an enqueue into a full queue")
    return caught.value


class Depth(Subject):
    """`enqueue(caps=)`."""

    async def test_queue_takes_as_many_as_it_may_and_no_more(self, world: World) -> None:
        await world.enqueue(*world.jobs(2, queue=QUEUE), caps={QUEUE: 3})
        await world.enqueue(world.job(queue=QUEUE), caps={QUEUE: 3})

        error = await refused(world, world.job(queue=QUEUE), caps={QUEUE: 3})

        assert (error.queue, error.depth, error.max_depth) == (QUEUE, 4, 3)

    async def test_blocked_scheduled_and_ready_jobs_wait(self, world: World) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        await world.waiter(blocker, queue=QUEUE)
        await world.create(queue=QUEUE, delay=HOUR)
        await world.create(queue=QUEUE, task="conformance.another")

        await refused(world, world.job(queue=QUEUE), caps={QUEUE: 3})
        for fields in ({"delay": HOUR}, {"after": (blocker,)}):
            await refused(world, world.job(queue=QUEUE, **fields), caps={QUEUE: 3})

        await world.enqueue(world.job(queue=QUEUE), caps={QUEUE: 4})

    async def test_running_and_ended_jobs_do_not_count(self, world: World) -> None:
        await full(world, 4)
        claims = await world.claim(4)
        await world.succeed(claims[0])
        await world.fail(claims[1], fatal=True)
        await world.store.cancel([claims[2].job_id])

        await world.enqueue(world.job(queue=QUEUE), caps={QUEUE: 1})
        await refused(world, world.job(queue=QUEUE), caps={QUEUE: 1})

    async def test_retried_job_takes_its_room_again(self, world: World) -> None:
        await full(world, 1)
        claimed = (await world.claim(1))[0]
        await world.enqueue(world.job(queue=QUEUE), caps={QUEUE: 1})
        await world.fail(claimed)

        error = await refused(world, world.job(queue=QUEUE), caps={QUEUE: 2})

        assert error.depth == 3, "a retry is never refused, and counts"

    async def test_room_opens_when_a_job_is_claimed(self, world: World) -> None:
        await full(world, 2)
        await refused(world, world.job(queue=QUEUE), caps={QUEUE: 2})
        await world.claim(1)

        await world.enqueue(world.job(queue=QUEUE), caps={QUEUE: 2})

    async def test_queue_that_may_hold_nothing_takes_nothing(self, world: World) -> None:
        await refused(world, world.job(queue=QUEUE), caps={QUEUE: 0})

    async def test_one_full_queue_refuses_the_whole_call(self, world: World) -> None:
        await full(world, 1)
        jobs = [world.job(queue="roomy"), world.job(queue=QUEUE), world.job(queue="other", key="k")]

        error = await refused(world, *jobs, caps={QUEUE: 1, "roomy": 10})

        assert error.queue == QUEUE
        assert (await world.enqueue(world.job(queue="other", key="k")))[0].status is Enqueue.CREATED, "the key is free"

    async def test_first_full_queue_by_name_is_told_of(self, world: World) -> None:
        jobs = [world.job(queue=queue) for queue in ("c", "b", "a")]

        error = await refused(world, *jobs, caps={"c": 0, "b": 0, "a": 5})

        assert error.queue == "b"

    async def test_only_capped_queues_are_counted(self, world: World) -> None:
        await full(world, 3)

        await world.enqueue(world.job(queue=QUEUE), world.job(queue="elsewhere"), caps={"elsewhere": 1})
        await world.enqueue(world.job(queue="elsewhere"), caps={QUEUE: 1})
        await world.enqueue(world.job(queue="elsewhere"), caps={})

        assert (await world.store.stats()).count(State.READY) == 7

    async def test_repeated_enqueue_into_a_full_queue_is_answered(self, world: World) -> None:
        (job,) = await full(world, 1)

        assert await world.enqueue(job, caps={QUEUE: 1}) == [Enqueued(Enqueue.REPEATED, job.id)]
        assert await world.enqueue(job, job, caps={QUEUE: 0}) == [Enqueued(Enqueue.REPEATED, job.id)] * 2

    async def test_job_given_twice_in_one_call_takes_one_place(self, world: World) -> None:
        job = world.job(queue=QUEUE)

        answers = await world.enqueue(job, job, caps={QUEUE: 1})

        assert [answer.status for answer in answers] == [Enqueue.CREATED, Enqueue.REPEATED]

    async def test_taken_key_is_answered_though_the_queue_is_full(self, world: World) -> None:
        (holder,) = await full(world, 1, key="k")

        for most in (1, 0):
            answers = await world.enqueue(world.job(queue=QUEUE, key="k"), caps={QUEUE: most})

            assert answers == [Enqueued(Enqueue.EXISTING, holder.id)]

    @pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.DEBOUNCE])
    async def test_replacement_takes_the_place_of_what_it_replaces(self, world: World, on_conflict: OnConflict) -> None:
        (holder,) = await full(world, 1, key="k")
        job = world.job(queue=QUEUE, key="k", on_conflict=on_conflict)

        assert await world.enqueue(job, caps={QUEUE: 1}) == [Enqueued(Enqueue.CREATED, job.id)]

        assert await world.states([holder.id, job.id]) == [State.CANCELED, State.READY]

    async def test_refused_replacement_leaves_the_old_job(self, world: World) -> None:
        (holder,) = await full(world, 1, key="k")
        waiter = await world.waiter(holder.id, queue="elsewhere")
        replacing = world.job(queue=QUEUE, key="k", on_conflict=OnConflict.REPLACE)

        await refused(world, replacing, world.job(queue=QUEUE), caps={QUEUE: 1})

        assert await world.states([holder.id, waiter]) == [State.READY, State.BLOCKED]
        assert (await world.enqueue(world.job(queue=QUEUE, key="k")))[0].job_id == holder.id

    async def test_job_that_ends_at_once_takes_no_room(self, world: World) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        await world.store.fail({blocker: BOOM})
        await full(world, 1)
        job = world.job(queue=QUEUE, after=(blocker,))

        await world.enqueue(job, caps={QUEUE: 1})

        assert await world.state(job.id) is State.FAILED

    async def test_child_is_refused_and_its_parent_goes_on(self, world: World) -> None:
        await full(world, 1)
        parent = await world.claimed(queue="elsewhere", task="conformance.parent")
        child = world.job(queue=QUEUE)

        with pytest.raises(QueueFull):
            await world.enqueue(child, under=parent.lease, caps={QUEUE: 1})

        assert await world.states([child.id, parent.job_id]) == [None, State.RUNNING]
        await world.enqueue(child, under=parent.lease, caps={QUEUE: 2})
        await world.settle(parent, Succeeded())
        with pytest.raises(StaleLease):
            await world.enqueue(world.job(queue=QUEUE), under=parent.lease, caps={QUEUE: 0})

    async def test_bad_job_is_told_of_before_a_full_queue(self, world: World) -> None:
        (job,) = await full(world, 1)
        await world.store.delete([job.id])

        with pytest.raises(BadJob):
            await world.enqueue(world.job(queue=QUEUE, after=(job.id,)), caps={QUEUE: 0})

    async def test_concurrent_callers_do_not_get_past_the_cap_together(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        for number in range(4):
            queue = f"{QUEUE} {number}"

            answers = await asyncio.gather(
                *(_try(world, world.jobs(2, queue=queue), {queue: 15}, handles[index % 4]) for index in range(12))
            )

            depth = (await world.store.stats()).count(State.READY, queue=queue, task=TASK)
            assert depth == 14, f"pairs of jobs into room for 15 should leave 14 there, not {depth}"
            assert sum(answers) == 7
        await world.check_counts()

    async def test_callers_with_caps_on_crossed_queues_do_not_deadlock(self, world: World) -> None:
        other = await world.handle()
        caps = {"a": 1_000, "b": 1_000}
        for _ in range(10):
            forth = [world.job(queue=queue) for queue in ("a", "b")]
            back = [world.job(queue=queue) for queue in ("b", "a")]

            answers = await asyncio.gather(_try(world, forth, caps, world.store), _try(world, back, caps, other))

            assert all(answers)


async def _try(world: World, jobs: list[NewJob], caps: Mapping[str, int], store: Store) -> bool:
    """Enqueue jobs and tell whether there was room."""
    try:
        await world.enqueue(*jobs, caps=caps, store=store)
    except QueueFull:
        return False
    return True
