"""What a waiter is handed of the chains it waited for: in the order it named them, as they were stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy
from holdfast.core.outcome import Continued, Failed, Succeeded
from holdfast.core.states import State
from holdfast.store.conformance.world import BLOCKER_TASK, BOOM, HOUR, NEXT_TASK, Subject, World, ids
from holdfast.store.port import Answer, BlockerView, Retention

if TYPE_CHECKING:
    from uuid import UUID

BLOCKERS: Final = (BLOCKER_TASK,)
TEXTS: Final = ('{"b": 1, "a": 1.50}', "null", '"\\u0041 \u00e4"', "12345678901234567890.0")
"""JSON texts that a store which reads JSON would write otherwise."""


async def results(world: World, job_id: UUID) -> list[tuple[UUID, State | None, str | None]]:
    """Return what a job is handed: chain, state, result."""
    return [(view.chain_id, view.state, view.result) for view in await world.store.blockers(job_id)]


class Results(Subject):
    """The results of blockers, and blockers that end at the same moment."""

    async def test_results_come_in_the_order_the_blockers_were_named(self, world: World) -> None:
        jobs = world.jobs(len(TEXTS), task=BLOCKER_TASK)
        await world.enqueue(*jobs)
        named = [jobs[index].id for index in (2, 0, 3, 1)]
        waiter = await world.create(after=tuple(named))
        claims = {claim.job_id: claim for claim in await world.claim(len(jobs), tasks=BLOCKERS)}
        given = dict(zip(ids(jobs), TEXTS, strict=True))

        for job_id in (jobs[1].id, jobs[3].id, jobs[0].id, jobs[2].id):
            await world.succeed(claims[job_id], given[job_id])

        claimed = await world.claim_only(waiter)
        assert claimed.blockers == 4
        assert await results(world, waiter) == [(job_id, State.SUCCEEDED, given[job_id]) for job_id in named]
        view = await world.view(waiter)
        assert (view.after, view.waits_for) == (tuple(named), ())

    async def test_result_of_a_chain_is_its_last_steps(self, world: World) -> None:
        chain = await world.chain(task=BLOCKER_TASK)
        waiter = await world.waiter(chain)
        step = await world.claim_only(await world.proceed(await world.claim_only(chain, tasks=BLOCKERS)), tasks=(NEXT_TASK,))
        (before,) = await world.store.blockers(waiter)

        await world.succeed(step, '"last"')

        assert before == BlockerView(chain_id=chain, state=State.RUNNING, task=BLOCKER_TASK, step_task=NEXT_TASK)
        (after,) = await world.store.blockers(waiter)
        assert after == BlockerView(
            chain_id=chain, state=State.SUCCEEDED, task=BLOCKER_TASK, step_task=NEXT_TASK, result='"last"'
        )

    async def test_blockers_that_ended_badly_show_their_errors(self, world: World) -> None:
        failed, canceled = await world.create(task=BLOCKER_TASK), await world.create(task=BLOCKER_TASK)
        waiters = [await world.create(after=(failed, canceled), on_blocker_failure=policy) for policy in BlockerPolicy]

        await world.store.cancel([canceled], reason="not wanted")
        await world.store.fail({failed: BOOM})

        for waiter in waiters:
            first, second = await world.store.blockers(waiter)
            assert (first.chain_id, first.state, first.result, first.error) == (failed, State.FAILED, None, BOOM)
            assert (second.chain_id, second.state, second.result) == (canceled, State.CANCELED, None)
            assert second.error is not None
            assert (second.error.code, second.error.message) == ("CANCELED", "not wanted")

    async def test_blockers_that_ended_before_are_handed_over_too(self, world: World) -> None:
        done = await world.ended(State.SUCCEEDED, task=BLOCKER_TASK)
        live = await world.create(task=BLOCKER_TASK)

        free, held = await world.waiter(done), await world.create(after=(live, done))

        assert (await world.claim_only(free)).blockers == 1
        assert await results(world, free) == [(done, State.SUCCEEDED, "null")]
        assert await results(world, held) == [(live, State.READY, None), (done, State.SUCCEEDED, "null")]
        assert (await world.view(held)).after == (live, done)

    async def test_results_are_there_for_every_attempt(self, world: World) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        waiter = await world.waiter(blocker)
        await world.store.complete({blocker: "7"})
        expected = [(blocker, State.SUCCEEDED, "7")]

        await world.fail(await world.claim_only(waiter))
        second = await world.claim_only(waiter)
        assert (second.attempt, second.blockers, await results(world, waiter)) == (2, 1, expected)
        await world.succeed(second)
        await world.store.reopen([waiter])

        assert (await world.claim_only(waiter)).blockers == 1
        assert await results(world, waiter) == expected

    async def test_job_without_blockers_is_handed_nothing(self, world: World) -> None:
        claimed = await world.claimed()

        assert claimed.blockers == 0
        assert await world.store.blockers(claimed.job_id) == []
        assert await world.store.blockers(uuid7()) == []
        assert (await world.view(claimed.job_id)).after == ()

    async def test_chain_that_is_gone_leaves_its_place_empty(self, world: World) -> None:
        deleted, old, kept = [await world.create(task=BLOCKER_TASK) for _ in range(3)]
        waiter = await world.create(after=(deleted, old, kept))
        await world.store.complete({deleted: "1", old: "2"})
        await world.store.rewind(HOUR)
        await world.store.complete({kept: "3"})
        await world.succeed(await world.claim_only(waiter))  # as long as it is live it is handed all of them

        assert (await world.store.prune(Retention(succeeded=60), limit=1, after=_before(old))).count == 1
        assert await world.store.blockers(waiter) == [
            BlockerView(chain_id=deleted, state=State.SUCCEEDED, task=BLOCKER_TASK, step_task=BLOCKER_TASK, result="1"),
            BlockerView(chain_id=old, state=None),
            BlockerView(chain_id=kept, state=State.SUCCEEDED, task=BLOCKER_TASK, step_task=BLOCKER_TASK, result="3"),
        ]
        assert await world.store.delete([deleted]) == [Answer.DONE]

        assert [view.state for view in await world.store.blockers(waiter)] == [None, None, State.SUCCEEDED]
        assert (await world.view(waiter)).after == (deleted, old, kept)

    async def test_blocker_whose_key_was_taken_is_stood_for_by_the_holder(self, world: World) -> None:
        holder = await world.create(task=BLOCKER_TASK, key="k")
        skipped = world.job(BLOCKER_TASK, key="k")
        waiter = world.job(after=(skipped.id,))
        await world.enqueue(skipped, waiter)

        await world.store.complete({holder: "1"})

        assert await results(world, waiter.id) == [(holder, State.SUCCEEDED, "1")]

    async def test_diamond_hands_results_down(self, world: World) -> None:
        top = await world.chain(task="top")
        left, right = await world.waiter(top, task="left"), await world.waiter(top, task="right")
        bottom = await world.create(task="bottom", after=(left, right))
        tasks = ("top", "left", "right", "bottom")
        await world.succeed(await world.claim_only(top, tasks=tasks), '"top"')

        for claim in await world.claim(10, tasks=tasks):
            assert await results(world, claim.job_id) == [(top, State.SUCCEEDED, '"top"')]
            await world.succeed(claim, f'"{claim.task}"')

        await world.claim_only(bottom, tasks=tasks)
        assert await results(world, bottom) == [(left, State.SUCCEEDED, '"left"'), (right, State.SUCCEEDED, '"right"')]
        await world.check_log(top, left, right, bottom)

    async def test_chains_that_end_at_the_same_moment_never_strand_a_waiter(self, world: World) -> None:
        other = await world.handle()
        pairs = [world.jobs(2, task=BLOCKER_TASK) for _ in range(40)]
        await world.enqueue(*(job for pair in pairs for job in pair))
        await world.store.settle(
            [world.settlement(one, Continued(world.job(NEXT_TASK))) for one in await world.claim(80, tasks=BLOCKERS)]
        )
        waiters = [world.job(after=tuple(ids(pair)), on_blocker_failure=BlockerPolicy.RUN) for pair in pairs]
        await world.enqueue(*waiters)
        lasts = {claim.chain_id: claim for claim in await world.claim(80, tasks=(NEXT_TASK,))}

        for left, right in pairs:
            await asyncio.gather(
                world.settle(lasts[left.id], Succeeded("1")),
                world.settle(lasts[right.id], Failed(BOOM, fatal=True), store=other),
            )

        assert (await world.states(ids(waiters))).count(State.READY) == 40, "a waiter was stranded"
        for pair, waiter in zip(pairs, waiters, strict=True):
            expected = [(pair[0].id, State.SUCCEEDED, "1"), (pair[1].id, State.FAILED, None)]
            assert await results(world, waiter.id) == expected
        assert len(await world.claim(100)) == 40
        await world.check_log(*ids(waiters)[:3])


def _before(job_id: UUID) -> UUID:
    """Return the cursor from which a walk looks at this job first."""
    return type(job_id)(int=job_id.int - 1)
