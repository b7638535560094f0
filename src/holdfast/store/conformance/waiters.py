"""Jobs that wait for others: they go on, or follow them down, and are never stranded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy
from holdfast.core.outcome import BLOCKER_CANCELED, BLOCKER_FAILED, Released, Succeeded
from holdfast.core.states import Event, State
from holdfast.errors import BadJob
from holdfast.store.conformance.world import BLOCKER_TASK, BOOM, ENDINGS, HOUR, ONCE, Subject, World, ids, places
from holdfast.store.port import Answer, Settled

if TYPE_CHECKING:
    from uuid import UUID

ENDED_BADLY = [State.FAILED, State.CANCELED]
WHICH = {State.FAILED: "which failed", State.CANCELED: "which was canceled"}
"""What the error of a job says about the chain that it waited for."""


async def blockers(world: World, count: int, **fields: object) -> list[UUID]:
    """Enqueue jobs to wait for."""
    jobs = world.jobs(count, task=BLOCKER_TASK, **fields)
    await world.enqueue(*jobs)
    return ids(jobs)


async def end(world: World, blocker: UUID, state: State) -> None:
    """Let a ready blocker run and end."""
    await world.end(await world.claim_only(blocker, tasks=(BLOCKER_TASK,)), state)


class Waiters(Subject):
    """Blocked jobs: unblocking, policies, cascades, races."""

    async def test_waiter_is_blocked_until_its_blocker_ends(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)
        view = await world.view(waiter)
        assert (view.state, view.waits_for) == (State.BLOCKED, (blocker,))
        assert await world.claim(10) == []

        await end(world, blocker, State.SUCCEEDED)

        assert await world.events(waiter) == [Event.ENQUEUE_BLOCKED, Event.UNBLOCK]
        assert (await world.view(waiter)).waits_for == ()
        await world.claim_only(waiter)
        await world.check_log(waiter, blocker)

    async def test_last_blocker_unblocks(self, world: World) -> None:
        several = await blockers(world, 3)
        waiter = await world.create(after=tuple(several))

        seen = []
        for blocker in several:
            seen.append(set((await world.view(waiter)).waits_for))
            await end(world, blocker, State.SUCCEEDED)

        assert seen == [set(several), set(several[1:]), set(several[2:])]
        assert await world.state(waiter) is State.READY
        await world.check_log(waiter)

    async def test_blockers_settled_in_one_batch_unblock_once(self, world: World) -> None:
        several = await blockers(world, 5)
        waiter = await world.create(after=tuple(several))
        claims = await world.claim(5, tasks=(BLOCKER_TASK,))

        await world.store.settle([world.settlement(claim, Succeeded()) for claim in claims])

        assert await world.events(waiter) == [Event.ENQUEUE_BLOCKED, Event.UNBLOCK]
        await world.check_log(waiter)

    async def test_many_waiters_of_one_blocker_all_go_on(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiters = world.jobs(30, after=(blocker,))
        await world.enqueue(*waiters)

        await end(world, blocker, State.SUCCEEDED)

        assert sorted(places(ids(waiters), await world.claim(50))) == list(range(1, 31))
        await world.check_log(*ids(waiters)[:3])

    async def test_waiters_unblocked_one_after_another_are_claimed_in_that_order(self, world: World) -> None:
        several = await blockers(world, 3)
        waiters = [await world.waiter(blocker) for blocker in several]

        for index in (2, 0, 1):
            await world.store.complete({several[index]: "1"})

        assert places(waiters, await world.claim(10)) == [3, 1, 2]

    async def test_waiter_due_later_is_scheduled(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker, delay=9 * HOUR)
        due = (await world.view(waiter)).run_at

        await end(world, blocker, State.SUCCEEDED)

        view = await world.view(waiter)
        assert await world.events(waiter) == [Event.ENQUEUE_BLOCKED, Event.UNBLOCK_LATER]
        assert (view.state, view.run_at) == (State.SCHEDULED, due)
        await world.check_log(waiter)

    async def test_waiter_whose_time_came_while_it_was_blocked_is_ready(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker, delay=HOUR)
        await world.store.rewind(2 * HOUR)
        assert (await world.store.promote(10)).count == 0, "a blocked job is not promoted"

        await end(world, blocker, State.SUCCEEDED)

        assert await world.events(waiter) == [Event.ENQUEUE_BLOCKED, Event.UNBLOCK]

    # blockers that ended before

    async def test_blocker_that_ended_well_counts_as_done(self, world: World) -> None:
        done = await world.ended(State.SUCCEEDED, task=BLOCKER_TASK)
        still = (await blockers(world, 1))[0]

        free, later, held = (
            await world.waiter(done),
            await world.waiter(done, delay=HOUR),
            await world.create(after=(done, still)),
        )

        assert await world.states([free, later, held]) == [State.READY, State.SCHEDULED, State.BLOCKED]
        assert (await world.view(held)).waits_for == (still,)
        assert [await world.events(job) for job in (free, later)] == [[Event.ENQUEUE], [Event.ENQUEUE_LATER]], (
            "none was blocked"
        )
        await world.check_log(free, later, held)

    @pytest.mark.parametrize("state", ENDED_BADLY)
    async def test_blocker_that_ended_badly_acts_at_once(self, world: World, state: State) -> None:
        ended = await world.ended(state, task=BLOCKER_TASK)

        waiters = [await world.waiter(ended, on_blocker_failure=policy) for policy in BlockerPolicy]

        expected = {BlockerPolicy.FAIL: State.FAILED, BlockerPolicy.CANCEL: State.CANCELED, BlockerPolicy.RUN: State.READY}
        assert await world.states(waiters) == [expected[policy] for policy in BlockerPolicy]
        texts = [view.error.message for view in await world.store.get(waiters) if view is not None and view.error is not None]
        assert texts == [f"it waited for job {ended}, {WHICH[state]}"] * 2
        await world.check_log(*waiters)

    async def test_waiter_in_the_same_call_as_its_blocker(self, world: World) -> None:
        blocker = world.job(BLOCKER_TASK)
        waiter = world.job(after=(blocker.id,))

        await world.enqueue(blocker, waiter)

        assert await world.state(waiter.id) is State.BLOCKED
        await end(world, blocker.id, State.SUCCEEDED)
        assert await world.state(waiter.id) is State.READY

    async def test_unknown_blocker_is_refused_and_nothing_is_stored(self, world: World) -> None:
        known = (await blockers(world, 1))[0]
        before = await world.snapshot(known)
        batch = [world.job(key="k"), world.job(after=(known, uuid7()))]

        with pytest.raises(BadJob) as caught:
            await world.enqueue(*batch)

        unknown = batch[1].after[1]
        assert (caught.value.path, caught.value.task) == ("after[1]", batch[1].task)
        assert caught.value.reason == f"there is no job {unknown} to wait for"
        assert await world.states(ids(batch)) == [None, None]
        before.check_unchanged(await world.snapshot(known), "an enqueue that was refused")
        assert (await world.enqueue(world.job(key="k")))[0].status == "created", "the refused job holds its key"

    # policies

    @pytest.mark.parametrize("state", ENDED_BADLY)
    @pytest.mark.parametrize("policy", list(BlockerPolicy))
    async def test_blocker_that_ends_badly_acts_by_policy(self, world: World, policy: BlockerPolicy, state: State) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker, on_blocker_failure=policy)

        await end(world, blocker, state)

        view = await world.view(waiter)
        expected = {
            BlockerPolicy.FAIL: (State.FAILED, Event.BLOCKER_FAIL, BLOCKER_FAILED),
            BlockerPolicy.CANCEL: (State.CANCELED, Event.BLOCKER_CANCEL, BLOCKER_CANCELED),
            BlockerPolicy.RUN: (State.READY, Event.UNBLOCK, ""),
        }[policy]
        log = await world.store.events(waiter)
        assert (view.state, log[-1].event, view.error.code if view.error else "") == expected
        if view.error is not None:
            assert view.error.message == f"it waited for job {blocker}, {WHICH[state]}"
        await world.check_log(waiter, blocker)

    async def test_other_blockers_do_not_matter_once_one_has_failed(self, world: World) -> None:
        first, second = await blockers(world, 2)
        waiter = await world.create(after=(first, second))

        await end(world, first, State.FAILED)
        before = await world.snapshot(waiter)
        await end(world, second, State.SUCCEEDED)

        assert await world.state(waiter) is State.FAILED
        after = await world.snapshot(waiter)
        assert not [change for change in before.changes(after) if change.startswith("job 1")], "an ended waiter was touched"

    async def test_blockers_that_end_differently_in_one_batch_end_the_waiter_once(self, world: World) -> None:
        several = await blockers(world, 3)
        waiter = await world.create(after=tuple(several))
        claims = await world.claim(3, tasks=(BLOCKER_TASK,))
        outcomes = (ENDINGS[State.SUCCEEDED], ENDINGS[State.FAILED], ENDINGS[State.CANCELED])

        await world.store.settle([world.settlement(*pair) for pair in zip(claims, outcomes, strict=True)])

        assert await world.events(waiter) == [Event.ENQUEUE_BLOCKED, Event.BLOCKER_FAIL]
        await world.check_log(waiter)

    @pytest.mark.parametrize(("policy", "state"), [(BlockerPolicy.FAIL, State.FAILED), (BlockerPolicy.CANCEL, State.CANCELED)])
    async def test_cascade_goes_to_any_depth(self, world: World, policy: BlockerPolicy, state: State) -> None:
        root = (await blockers(world, 1))[0]
        chain = [root]
        for _ in range(3):
            chain.append(await world.waiter(chain[-1], on_blocker_failure=policy))
        saved = await world.waiter(chain[-1], on_blocker_failure=BlockerPolicy.RUN)
        after_saved = await world.waiter(saved)

        await end(world, root, State.FAILED)

        assert await world.states(chain) == [State.FAILED, state, state, state]
        assert await world.states([saved, after_saved]) == [State.READY, State.BLOCKED]
        await world.check_log(*chain, saved, after_saved)

    @pytest.mark.parametrize("way", ["cancel", "fail", "reap"])
    async def test_waiters_follow_however_the_blocker_ends(self, world: World, way: str) -> None:
        blocker = (await blockers(world, 1, retry=ONCE))[0]
        waiter = await world.waiter(blocker)
        last = await world.waiter(waiter)
        match way:
            case "cancel":
                await world.store.cancel([blocker])
            case "fail":
                await world.store.fail({blocker: BOOM})
            case _:
                await world.reaped(await world.claim_only(blocker, tasks=(BLOCKER_TASK,)))

        assert await world.states([waiter, last]) == [State.FAILED, State.FAILED]
        await world.check_log(blocker, waiter, last)

    async def test_blocker_completed_from_outside_unblocks(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)

        await world.store.complete({blocker: "1"})

        assert await world.state(waiter) is State.READY

    async def test_blocker_that_lives_on_unblocks_nobody(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)
        for lives_on in (world.fail, lambda claim: world.settle(claim, Released())):
            await lives_on(await world.claim_only(blocker, tasks=(BLOCKER_TASK,)))
            assert await world.state(waiter) is State.BLOCKED

        await end(world, blocker, State.SUCCEEDED)

        assert await world.state(waiter) is State.READY

    async def test_those_canceled_with_their_blocker_are_canceled_themselves_also_when_one_is_named_twice(
        self, world: World
    ) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)

        answers = await world.store.cancel([blocker, waiter, waiter])

        assert answers == [Answer.DONE, Answer.DONE, Answer.REFUSED]
        assert await world.events(waiter) == [Event.ENQUEUE_BLOCKED, Event.CANCEL]
        await world.check_log(waiter, blocker)

    async def test_diamond_runs_its_end_once(self, world: World) -> None:
        top = (await blockers(world, 1))[0]
        left, right = await world.waiter(top, task="left"), await world.waiter(top, task="right")
        bottom = await world.create(task="bottom", after=(left, right))

        await end(world, top, State.SUCCEEDED)
        claims = await world.claim(10, tasks=("left", "right", "bottom"))
        assert set(ids(claims)) == {left, right}
        for claim in claims:
            await world.succeed(claim)

        assert ids(await world.claim(10, tasks=("left", "right", "bottom"))) == [bottom]
        await world.check_log(top, left, right, bottom)

    async def test_diamond_that_fails_ends_its_end_once(self, world: World) -> None:
        top = (await blockers(world, 1))[0]
        left, right = await world.waiter(top), await world.waiter(top)
        bottom = await world.create(after=(left, right))

        await end(world, top, State.FAILED)

        assert await world.states([left, right, bottom]) == [State.FAILED] * 3
        assert await world.events(bottom) == [Event.ENQUEUE_BLOCKED, Event.BLOCKER_FAIL]
        await world.check_log(top, left, right, bottom)

    async def test_canceled_waiter_is_not_unblocked_later(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)
        await world.store.cancel([waiter])

        await end(world, blocker, State.SUCCEEDED)

        assert await world.state(waiter) is State.CANCELED
        await world.check_log(waiter)

    async def test_reopened_waiter_waits_for_nobody(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)
        await world.store.cancel([waiter])

        assert await world.store.reopen([waiter]) == [Answer.DONE]
        claimed = await world.claim_only(waiter)
        await end(world, blocker, State.FAILED)

        assert await world.succeed(claimed) is Settled.APPLIED, "the end of an old blocker hit a reopened job"
        await world.check_log(waiter)

    async def test_job_that_is_needed_cannot_be_deleted(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)
        before = await world.snapshot(blocker, waiter)

        refused = await world.store.delete([blocker])

        before.check_unchanged(await world.snapshot(blocker, waiter), "deleting a job that is needed")
        assert refused == [Answer.NEEDED]
        assert await world.store.delete([waiter, blocker]) == [Answer.DONE, Answer.DONE]
        assert await world.states([blocker, waiter]) == [None, None]

    async def test_job_whose_result_is_still_to_be_read_cannot_be_deleted(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker, delay=HOUR)
        await end(world, blocker, State.SUCCEEDED)

        answers = [await world.store.delete([blocker])]
        await world.store.rewind(2 * HOUR)
        await world.store.promote(10)
        answers.append(await world.store.delete([blocker]))
        claimed = await world.claim_only(waiter)
        answers.append(await world.store.delete([blocker]))

        assert answers == [[Answer.NEEDED]] * 3, "the waiter is scheduled, ready, running: it has not read the result yet"
        assert await world.succeed(claimed) is Settled.APPLIED
        assert await world.store.delete([blocker]) == [Answer.DONE]
        assert await world.states([blocker, waiter]) == [None, State.SUCCEEDED]

    async def test_unblock_finds_nothing_when_nobody_is_stranded(self, world: World) -> None:
        blocker = (await blockers(world, 1))[0]
        waiter = await world.waiter(blocker)

        assert await world.store.unblock(10) == 0

        assert await world.state(waiter) is State.BLOCKED

    # races

    async def test_blockers_settled_at_the_same_moment_never_strand_a_waiter(self, world: World) -> None:
        other = await world.handle()
        pairs = [world.jobs(2, task=BLOCKER_TASK) for _ in range(100)]
        await world.enqueue(*(job for pair in pairs for job in pair))
        waiters = [world.job(after=tuple(ids(pair))) for pair in pairs]
        await world.enqueue(*waiters)
        claims = {claim.job_id: claim for claim in await world.claim(200, tasks=(BLOCKER_TASK,))}

        for left, right in pairs:
            await asyncio.gather(
                world.settle(claims[left.id], Succeeded()), world.settle(claims[right.id], Succeeded(), store=other)
            )

        stranded = (await world.states(ids(waiters))).count(State.BLOCKED)
        assert stranded == 0, f"{stranded} of 100 waiters still wait for blockers that have ended"
        assert len(await world.claim(200)) == 100
        await world.check_log(*ids(waiters)[:5])

    async def test_waiter_created_while_its_blocker_settles_is_never_stranded(self, world: World) -> None:
        other = await world.handle()
        jobs = world.jobs(100, task=BLOCKER_TASK)
        await world.enqueue(*jobs)
        claims = {claim.job_id: claim for claim in await world.claim(100, tasks=(BLOCKER_TASK,))}
        waiters = [world.job(after=(job.id,)) for job in jobs]

        for blocker, waiter in zip(jobs, waiters, strict=True):
            await asyncio.gather(world.settle(claims[blocker.id], Succeeded()), world.enqueue(waiter, store=other))

        stranded = (await world.states(ids(waiters))).count(State.BLOCKED)
        assert stranded == 0, f"{stranded} of 100 waiters still wait for blockers that have ended"
        assert len(await world.claim(200)) == 100
        await world.check_log(*ids(waiters)[:5])

    async def test_waiter_created_while_its_blocker_is_deleted_is_refused_or_keeps_it(self, world: World) -> None:
        other = await world.handle()
        for _ in range(20):
            blocker, waiter = world.job(BLOCKER_TASK), None
            await world.enqueue(blocker)
            waiter = world.job(after=(blocker.id,))

            deleted, enqueued = await asyncio.gather(
                world.store.delete([blocker.id]), world.enqueue(waiter, store=other), return_exceptions=True
            )

            if isinstance(enqueued, BadJob):
                assert deleted == [Answer.DONE], f"the blocker was not there for the waiter, but deleting it said {deleted}"
                assert await world.state(waiter.id) is None
            else:
                assert deleted == [Answer.NEEDED], f"a waiter was created, but deleting its blocker said {deleted}"
                assert await world.states([blocker.id, waiter.id]) == [State.READY, State.BLOCKED]
                await world.store.delete([waiter.id, blocker.id])
