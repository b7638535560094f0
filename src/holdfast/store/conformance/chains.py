"""Chains: each step ends together with the beginning of the next, and the chain stands where its last step stands."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy
from holdfast.core.lease import Hold
from holdfast.core.outcome import BLOCKER_FAILED, CANCELED, Continued, Error, Succeeded
from holdfast.core.states import TERMINAL, Event, State
from holdfast.errors import BadJob
from holdfast.store.conformance.world import (
    BLOCKER_TASK,
    BOOM,
    ENDINGS,
    HOUR,
    NEXT_TASK,
    ONCE,
    TASK,
    Subject,
    World,
    ids,
)
from holdfast.store.port import Answer, JobFilter, Retention, Settled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome

NEXT: Final = (NEXT_TASK,)


async def begun(world: World, **fields: Any) -> Claimed:
    """Start a chain and claim its first step; no other job of its task may be ready."""
    chain = await world.chain(**fields)
    return await world.claim_only(chain, tasks=(fields.get("task", TASK),))


async def second_step(world: World, **fields: Any) -> tuple[UUID, UUID]:
    """Start a chain that has continued once; return its id and that of its second step."""
    first = await begun(world)
    return first.job_id, await world.proceed(first, **fields)


async def at_step(world: World, number: int, **fields: Any) -> tuple[UUID, Claimed]:
    """Start a chain and run it up to a step; return its id and the claim of that step."""
    claimed = await begun(world, **fields)
    chain = claimed.job_id
    for _ in range(number - 1):
        claimed = await world.claim_only(await world.proceed(claimed), tasks=NEXT)
    return chain, claimed


async def pruned(world: World, retention: Retention, *, limit: int = 100) -> int:
    """Walk through the archive again and again until nothing more is pruned; return how many jobs were."""
    total = -1
    count = 0
    while total != count:
        total, after = count, None
        while True:
            answer = await world.store.prune(retention, limit=limit, after=after)
            count, after = count + answer.count, answer.after
            if after is None:
                break
    return count


# --- ways a ready second step ends, and the state it ends in ------------------------------------------------------------


def by_settling(outcome: Outcome) -> Callable[[World, UUID], Awaitable[None]]:
    async def end(world: World, step: UUID) -> None:
        await world.settle(await world.claim_only(step, tasks=NEXT), outcome)

    return end


async def by_cancel(world: World, step: UUID) -> None:
    await world.store.cancel([step])


async def by_complete(world: World, step: UUID) -> None:
    await world.store.complete({step: '"outside"'})


async def by_fail_while_running(world: World, step: UUID) -> None:
    await world.claim_only(step, tasks=NEXT)
    await world.store.fail({step: BOOM})


async def by_reaping(world: World, step: UUID) -> None:
    await world.reaped(await world.claim_only(step, tasks=NEXT))


async def by_waiting_too_long(world: World, step: UUID) -> None:
    assert await world.state(step) is State.READY
    await world.store.rewind(2 * HOUR)
    assert await world.store.drop_overdue(10) == 1


ENDS: Final = {
    "succeeded": (by_settling(ENDINGS[State.SUCCEEDED]), State.SUCCEEDED),
    "failed": (by_settling(ENDINGS[State.FAILED]), State.FAILED),
    "stopped": (by_settling(ENDINGS[State.CANCELED]), State.CANCELED),
    "canceled": (by_cancel, State.CANCELED),
    "completed_outside": (by_complete, State.SUCCEEDED),
    "failed_outside_while_running": (by_fail_while_running, State.FAILED),
    "reaped": (by_reaping, State.FAILED),
    "overdue": (by_waiting_too_long, State.CANCELED),
}


# --- ways a step loses its lease before it continues --------------------------------------------------------------------


async def reaped(world: World, claimed: Claimed) -> None:
    await world.reaped(claimed)


async def completed_outside(world: World, claimed: Claimed) -> None:
    await world.store.complete({claimed.job_id: "1"})


async def deleted(world: World, claimed: Claimed) -> None:
    await world.store.delete([claimed.job_id])


class Chains(Subject):
    """Continuing, ending, waiting for chains, bringing them back, pruning them."""

    loop_steps: ClassVar[int] = 1_000

    # going on

    async def test_step_that_continues_is_followed_by_the_next(self, world: World) -> None:
        first = await begun(world)
        before = await world.chain_view(first.job_id)

        second = await world.proceed(first, args='{"n": 2}')

        claimed = await world.claim_only(second, tasks=NEXT)
        assert (before.steps, before.step, before.state) == (1, first.job_id, State.RUNNING)
        assert (claimed.chain_id, claimed.args, claimed.attempt) == (first.job_id, '{"n": 2}', 1)
        views = [await world.view(job_id) for job_id in (first.job_id, second)]
        assert [(view.state, view.chain_id, view.continued_by, view.result) for view in views] == [
            (State.SUCCEEDED, first.job_id, second, None),
            (State.RUNNING, first.job_id, None, None),
        ]
        chain = await world.chain_view(first.job_id)
        assert (chain.steps, chain.step, chain.step_task, chain.state) == (2, second, NEXT_TASK, State.RUNNING)
        assert (chain.task, chain.finished_at, chain.result) == (TASK, None, None)
        await world.check_log(first.job_id, second)

    async def test_result_of_a_chain_is_that_of_its_last_step(self, world: World) -> None:
        chain, last = await at_step(world, 3)

        assert await world.succeed(last, '"the end"') is Settled.APPLIED

        view = await world.chain_view(chain)
        assert (view.steps, view.step, view.state, view.result) == (3, last.job_id, State.SUCCEEDED, '"the end"')
        assert view.finished_at == (await world.view(last.job_id)).finished_at
        await world.check_log(chain, last.job_id)

    async def test_plain_job_that_continues_becomes_a_chain(self, world: World) -> None:
        first = await world.claimed()
        assert (first.chain_id, (await world.view(first.job_id)).chain_id) == (None, None)

        second = await world.proceed(first)

        view = await world.chain_view(first.job_id)
        assert (view.id, view.steps, view.step) == (first.job_id, 2, second)
        assert [(await world.view(one)).chain_id for one in (first.job_id, second)] == [first.job_id] * 2
        assert (await world.claim_only(second, tasks=NEXT)).chain_id == first.job_id

    async def test_steps_may_branch_and_go_back(self, world: World) -> None:
        for path in (("a", "b", "a", "b", "end"), ("a", "c", "a", "c", "a", "end")):
            claimed = await begun(world, task="a")
            chain, taken = claimed.job_id, ["a"]
            for task in path[1:]:
                claimed = await world.claim_only(await world.proceed(claimed, task=task), tasks=("a", "b", "c", "end"))
                taken.append(claimed.task)
            await world.succeed(claimed, f'"{len(path)}"')

            view = await world.chain_view(chain)
            steps = await world.all_jobs(JobFilter(chain_id=chain))
            assert taken == list(path)
            assert (view.steps, view.result) == (len(path), f'"{len(path)}"')
            assert [step.task for step in sorted(steps, key=lambda step: step.id)] == list(path)

    async def test_loop_of_many_steps_is_one_chain(self, world: World) -> None:
        chain = await world.chain(key="loop")
        waiter = await world.waiter(chain, task=BLOCKER_TASK)
        claimed = await world.claim_only(chain)
        for number in range(2, self.loop_steps + 1):
            claimed = await world.claim_only(await world.proceed(claimed, task=TASK, args=f'{{"n": {number}}}'))
        view = await world.chain_view(chain)
        assert (view.steps, view.step, view.state) == (self.loop_steps, claimed.job_id, State.RUNNING)
        assert await world.state(waiter) is State.BLOCKED

        assert await world.succeed(claimed, "1") is Settled.FREED

        assert await world.state(waiter) is State.READY
        assert (await world.chain_view(chain)).result == "1"
        assert (await world.enqueue(world.job(key="loop")))[0].status == "created", "the key of the chain is still held"
        await world.check_log(chain, claimed.job_id, waiter)

    async def test_many_chains_continue_in_one_batch(self, world: World) -> None:
        first = [world.job() for _ in range(20)]
        await world.enqueue(*first)
        claims = await world.claim(20)
        following = [world.job(NEXT_TASK) for _ in claims]

        answers = await world.store.settle(
            [world.settlement(claim, Continued(then)) for claim, then in zip(claims, following, strict=True)]
        )

        assert answers == [Settled.APPLIED] * 20
        continued = [view and view.continued_by for view in await world.store.get([claim.job_id for claim in claims])]
        assert continued == ids(following)
        assert sorted(ids(await world.claim(50, tasks=NEXT))) == sorted(ids(following))
        await world.check_log(claims[0].job_id, following[0].id)

    async def test_logs_say_that_a_step_continued(self, world: World) -> None:
        chain, last = await at_step(world, 2)
        await world.succeed(last)

        assert await world.events(chain) == [Event.ENQUEUE, Event.CLAIM, Event.CONTINUE]
        assert await world.events(last.job_id) == [Event.ENQUEUE, Event.CLAIM, Event.SUCCEED]
        assert await world.attempts(chain) == [(1, Event.CONTINUE)]
        assert (await world.store.extend([last.lease]))[0].hold is Hold.ENDED
        await world.check_log(chain, last.job_id)

    async def test_late_continuation_of_an_unreaped_lease_is_accepted(self, world: World) -> None:
        claimed = await begun(world)
        await world.lapse()
        then = world.job(NEXT_TASK)

        answer = await world.settle(claimed, Continued(then))

        assert answer is Settled.LATE
        assert await world.states([claimed.job_id, then.id]) == [State.SUCCEEDED, State.READY]
        assert (await world.view(claimed.job_id)).late

    # the step that follows

    async def test_next_step_may_be_due_later(self, world: World) -> None:
        chain, step = await second_step(world, delay=HOUR)

        view = await world.view(step)
        assert (view.state, await world.events(step)) == (State.SCHEDULED, [Event.ENQUEUE_LATER])
        assert (await world.chain_view(chain)).state is State.SCHEDULED
        await world.store.rewind(2 * HOUR)
        assert (await world.store.promote(10)).count == 1
        await world.claim_only(step, tasks=NEXT)

    async def test_past_schedule_of_a_next_step_means_now(self, world: World) -> None:
        _, step = await second_step(world, run_at=datetime(2020, 1, 1, tzinfo=UTC))

        view = await world.view(step)
        assert (view.state, await world.events(step)) == (State.READY, [Event.ENQUEUE])
        assert view.ready_at is not None
        assert view.ready_at >= view.created_at, "it was never ready before it was there"

    async def test_next_step_may_wait_for_other_chains(self, world: World) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        chain, step = await second_step(world, after=(blocker,))
        view = await world.view(step)
        assert (view.state, view.waits_for, view.after) == (State.BLOCKED, (blocker,), (blocker,))
        assert (await world.chain_view(chain)).state is State.BLOCKED

        await world.store.complete({blocker: '"ready"'})

        claimed = await world.claim_only(step, tasks=NEXT)
        assert claimed.blockers == 1
        assert [one.result for one in await world.store.blockers(step)] == ['"ready"']
        await world.check_log(chain, step)

    async def test_next_step_whose_blocker_has_failed_ends_the_chain_at_once(self, world: World) -> None:
        failed = await world.ended(State.FAILED, task=BLOCKER_TASK)
        first = await begun(world)
        waiter = await world.waiter(first.job_id, task="waiter")

        step = await world.proceed(first, after=(failed,))

        chain = await world.chain_view(first.job_id)
        assert (chain.state, chain.step, chain.error and chain.error.code) == (State.FAILED, step, BLOCKER_FAILED)
        assert await world.state(waiter) is State.FAILED
        await world.check_log(first.job_id, step, waiter)

    async def test_next_step_keeps_every_field(self, world: World) -> None:
        then = world.job(
            NEXT_TASK, queue="q", priority=9, args="[1]", tags=("t",), requires=("gpu",), lease=5.0, trace="x", expires_in=HOUR
        )
        first = await begun(world)
        await world.settle(first, Continued(then))

        claimed = await world.claim_only(then.id, tasks=NEXT, queues=("q",), capabilities=("gpu",))

        view = await world.view(then.id)
        assert (view.queue, view.priority, view.args, view.tags, view.requires) == ("q", 9, "[1]", ("t",), ("gpu",))
        assert (claimed.trace, claimed.lease_seconds, view.start_by is not None) == ("x", 5.0, True)

    # all or nothing

    @pytest.mark.parametrize("lose", [reaped, completed_outside, deleted], ids=lambda way: way.__name__)
    async def test_stale_continuation_creates_nothing(
        self, world: World, lose: Callable[[World, Claimed], Awaitable[None]]
    ) -> None:
        claimed = await begun(world)
        await lose(world, claimed)
        then = world.job(NEXT_TASK, key="next")
        before = await world.snapshot(claimed.job_id, then.id)

        answer = await world.settle(claimed, Continued(then))

        assert answer is Settled.STALE
        before.check_unchanged(await world.snapshot(claimed.job_id, then.id), "a continuation under a dead token")
        assert (await world.enqueue(world.job(NEXT_TASK, key="next")))[0].status == "created", "a stale step holds its key"

    async def test_next_step_that_cannot_be_created_refuses_the_whole_call(self, world: World) -> None:
        chain, later = await second_step(world)
        await world.enqueue(*world.jobs(2))
        good, bad = await world.claim(2)
        wanted: dict[str, tuple[dict[str, Any], str]] = {
            "an id that is taken": ({"id": chain}, str(chain)),
            "a blocker that is not there": ({"after": (missing := uuid7(),)}, str(missing)),
            "a later step as blocker": ({"after": (later,)}, str(chain)),
            "its own chain as blocker": ({"after": (bad.job_id,)}, "own chain"),
        }
        seen = (good.job_id, bad.job_id, chain, later)
        before = await world.snapshot(*seen)
        for what, (fields, named) in wanted.items():
            then = world.job(**{"task": NEXT_TASK, **fields})
            with pytest.raises(BadJob) as caught:
                await world.store.settle([world.settlement(good, Succeeded()), world.settlement(bad, Continued(then))])

            assert named in str(caught.value), f"{what}: the error should name it: {caught.value}"
            before.check_unchanged(await world.snapshot(*seen), f"continuing with {what}")
        assert [await world.succeed(good), await world.succeed(bad)] == [Settled.APPLIED] * 2, "the leases are still held"

    async def test_next_step_that_would_close_a_circle_of_waiters_is_refused(self, world: World) -> None:
        claimed = await begun(world)
        between = await world.waiter(claimed.job_id)
        waiter = await world.waiter(between)
        before = await world.snapshot(claimed.job_id, between, waiter)

        with pytest.raises(BadJob, match="neither would ever end"):
            await world.settle(claimed, Continued(world.job(NEXT_TASK, after=(waiter,))))

        before.check_unchanged(await world.snapshot(claimed.job_id, between, waiter), "closing a circle")
        beside = await world.create()
        assert (await world.settle(claimed, Continued(world.job(NEXT_TASK, after=(beside,))))).accepted

    async def test_two_next_steps_of_one_call_that_wait_for_each_other_are_refused(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        one, other = await world.claim(2)
        steps = [world.job(NEXT_TASK, after=(other.job_id,)), world.job(NEXT_TASK, after=(one.job_id,))]

        with pytest.raises(BadJob, match="neither would ever end"):
            await world.store.settle(
                [world.settlement(claim, Continued(step)) for claim, step in zip((one, other), steps, strict=True)]
            )

        assert await world.states([one.job_id, other.job_id, *ids(steps)]) == [State.RUNNING, State.RUNNING, None, None]

    async def test_one_id_for_two_next_steps_is_refused(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        claims = await world.claim(2)
        then = world.job(NEXT_TASK)

        with pytest.raises(BadJob):
            await world.store.settle([world.settlement(claim, Continued(then)) for claim in claims])

        assert await world.states([*ids(claims), then.id]) == [State.RUNNING, State.RUNNING, None]

    async def test_repeated_continuation_creates_one_step(self, world: World) -> None:
        claimed = await begun(world)
        settlement = world.settlement(claimed, Continued(world.job(NEXT_TASK)))
        assert await world.store.settle([settlement]) == [Settled.APPLIED]
        assert settlement.then is not None
        step = settlement.then.id

        answers = [await world.store.settle([settlement])]
        running = await world.claim_only(step, tasks=NEXT)
        answers.append(await world.store.settle([settlement]))
        await world.succeed(running)
        answers.append(await world.store.settle([settlement, settlement]))

        assert answers == [[Settled.REPEATED], [Settled.REPEATED], [Settled.REPEATED, Settled.REPEATED]]
        assert (await world.chain_view(claimed.job_id)).steps == 2
        assert len(await world.all_jobs()) == 2
        assert await world.store.settled(claimed.lease)

    async def test_continuation_twice_in_one_call_creates_one_step(self, world: World) -> None:
        claimed = await begun(world)
        settlements = [world.settlement(claimed, Continued(world.job(NEXT_TASK))) for _ in range(2)]

        answers = await world.store.settle(settlements)

        assert answers[0] is Settled.APPLIED
        assert answers[1] is not Settled.APPLIED, "one lease was settled twice in one call"
        assert (await world.chain_view(claimed.job_id)).steps == 2
        assert len(await world.all_jobs()) == 2

    async def test_continuation_repeated_in_one_call_creates_one_step(self, world: World) -> None:
        claimed = await begun(world)
        settlement = world.settlement(claimed, Continued(world.job(NEXT_TASK)))

        answers = await world.store.settle([settlement, settlement])

        assert answers[0] is Settled.APPLIED
        assert answers[1] is not Settled.APPLIED, "one lease was settled twice in one call"
        assert (await world.chain_view(claimed.job_id)).steps == 2

    async def test_cancel_that_was_asked_for_wins_over_a_step_that_cannot_follow(self, world: World) -> None:
        claimed = await begun(world)
        await world.store.cancel([claimed.job_id])

        answer = await world.settle(claimed, Continued(world.job(NEXT_TASK, after=(uuid7(),))))

        assert answer is Settled.CANCELED, "the step that cannot be created is not to be created"
        assert await world.state(claimed.job_id) is State.CANCELED

    async def test_cancel_that_was_asked_for_wins_over_a_continuation(self, world: World) -> None:
        claimed = await begun(world, key="k")
        waiter = await world.waiter(claimed.job_id, task=BLOCKER_TASK)
        assert await world.store.cancel([claimed.job_id], reason="enough") == [Answer.REQUESTED]
        then = world.job(NEXT_TASK)

        answer = await world.settle(claimed, Continued(then))

        view = await world.chain_view(claimed.job_id)
        assert answer is Settled.CANCELED
        assert (view.state, view.steps, view.error and view.error.code) == (State.CANCELED, 1, CANCELED)
        assert (await world.view(claimed.job_id)).continued_by is None
        assert await world.states([then.id, waiter]) == [None, State.FAILED]
        assert (await world.enqueue(world.job(key="k")))[0].status == "created"
        await world.check_log(claimed.job_id, waiter)

    # the end of a chain

    @pytest.mark.parametrize("way", list(ENDS))
    async def test_chain_ends_however_its_last_step_ends(self, world: World, way: str) -> None:
        end, state = ENDS[way]
        chain, step = await second_step(world, retry=ONCE, expires_in=HOUR if way == "overdue" else None)
        waiters = [await world.waiter(chain, on_blocker_failure=policy, task="waiter") for policy in BlockerPolicy]

        await end(world, step)

        view, last = await world.chain_view(chain), await world.view(step)
        well = state is State.SUCCEEDED
        assert (view.state, view.steps, view.step) == (state, 2, step)
        assert (view.result, view.error, view.finished_at) == (last.result, last.error, last.finished_at)
        assert await world.states(waiters) == [
            State.READY if well else State.FAILED,
            State.READY if well else State.CANCELED,
            State.READY,
        ]
        assert await world.state(chain) is State.SUCCEEDED, "the steps before the last ended well"
        await world.check_log(chain, step, *waiters)

    async def test_waiter_of_a_chain_that_fails_names_the_chain(self, world: World) -> None:
        chain, step = await second_step(world)
        waiter = await world.waiter(chain)

        await world.store.fail({step: BOOM})

        assert (await world.view(waiter)).error == Error(BLOCKER_FAILED, f"it waited for job {chain}, which failed")

    # waiting for chains

    async def test_settling_tells_whether_somebody_may_run_now(self, world: World) -> None:
        plain, waited_for, ended_badly, later = world.jobs(4)
        await world.enqueue(plain, waited_for, ended_badly, later)
        await world.enqueue(
            world.job("waiter", after=(waited_for.id,)),
            world.job("waiter", after=(ended_badly.id,)),
            world.job("waiter", after=(later.id,), delay=HOUR),
        )
        claims = {claim.job_id: claim for claim in await world.claim(4)}

        answers = [
            await world.succeed(claims[plain.id]),
            await world.fail(claims[ended_badly.id], fatal=True),
            await world.succeed(claims[waited_for.id]),
            await world.succeed(claims[later.id]),
        ]

        assert answers == [Settled.APPLIED, Settled.APPLIED, Settled.FREED, Settled.FREED]
        assert all(answer.accepted for answer in answers)

    async def test_canceled_is_not_covered_by_who_may_run_now(self, world: World) -> None:
        """Whoever wrote more than the settlement must learn that it went another way, whatever else is to be told."""
        stopped, other = world.jobs(2)
        await world.enqueue(stopped, other)
        waiter = await world.waiter(stopped.id, task=BLOCKER_TASK, on_blocker_failure=BlockerPolicy.RUN)
        claims = await world.claim(2)
        await world.store.cancel([stopped.id])

        answers = await world.store.settle(
            [world.settlement(claims[0], Continued(world.job(NEXT_TASK))), world.settlement(claims[1], Succeeded())]
        )

        assert answers == [Settled.CANCELED, Settled.FREED]
        assert await world.states([stopped.id, other.id, waiter]) == [State.CANCELED, State.SUCCEEDED, State.READY]

    async def test_canceled_alone_says_so_though_somebody_may_run_now(self, world: World) -> None:
        claimed = await begun(world)
        waiter = await world.waiter(claimed.job_id, task=BLOCKER_TASK, on_blocker_failure=BlockerPolicy.RUN)
        await world.store.cancel([claimed.job_id])

        assert await world.settle(claimed, Continued(world.job(NEXT_TASK))) is Settled.CANCELED
        assert await world.state(waiter) is State.READY

    async def test_one_answer_of_a_batch_tells_that_somebody_may_run_now(self, world: World) -> None:
        chain, step = await second_step(world)
        await world.waiter(chain, task="waiter")
        claims = [await world.claim_only(step, tasks=NEXT), await world.claimed(), await world.claimed()]
        continuing: list[Outcome] = [Succeeded(), Continued(world.job(NEXT_TASK)), Succeeded()]

        answers = await world.store.settle([world.settlement(*pair) for pair in zip(claims, continuing, strict=True)])

        assert Settled.FREED in answers
        assert set(answers) <= {Settled.FREED, Settled.APPLIED}

    async def test_waiter_waits_for_the_last_step(self, world: World) -> None:
        claimed = await begun(world, task="first")
        chain = claimed.job_id
        early = await world.waiter(chain)
        for _ in range(3):
            claimed = await world.claim_only(await world.proceed(claimed), tasks=NEXT)
            view = await world.view(early)
            assert (view.state, view.waits_for) == (State.BLOCKED, (chain,)), "the chain goes on, and so does the wait"
        late = await world.waiter(chain)
        assert await world.state(late) is State.BLOCKED

        await world.succeed(claimed)

        after = await world.waiter(chain)
        assert await world.states([early, late, after]) == [State.READY] * 3
        await world.check_log(chain, early, late, after)

    async def test_later_step_cannot_be_waited_for(self, world: World) -> None:
        chain, step = await second_step(world)
        batch = [world.job(key="k"), world.job(after=(step,))]

        with pytest.raises(BadJob) as caught:
            await world.enqueue(*batch)

        assert (caught.value.path, caught.value.task) == ("after[0]", batch[1].task)
        assert caught.value.reason == f"job {step} is a step of chain {chain}: name the chain"
        assert await world.states(ids(batch)) == [None, None]

    async def test_waiter_created_while_its_chain_ends_is_never_stranded(self, world: World) -> None:
        other = await world.handle()
        first = world.jobs(40, task=BLOCKER_TASK)
        await world.enqueue(*first)
        claims = await world.claim(40, tasks=(BLOCKER_TASK,))
        await world.store.settle([world.settlement(claim, Continued(world.job(NEXT_TASK))) for claim in claims])
        lasts = {claim.chain_id: claim for claim in await world.claim(40, tasks=NEXT)}
        waiters = [world.job(after=(job.id,)) for job in first]

        for blocker, waiter in zip(first, waiters, strict=True):
            await asyncio.gather(world.settle(lasts[blocker.id], Succeeded()), world.enqueue(waiter, store=other))

        assert (await world.states(ids(waiters))).count(State.READY) == 40, "a waiter was stranded"
        await world.check_log(*ids(waiters)[:3])

    async def test_waiter_created_while_its_chain_continues_waits_for_the_end(self, world: World) -> None:
        other = await world.handle()
        first = world.jobs(40, task=BLOCKER_TASK)
        await world.enqueue(*first)
        claims = {claim.job_id: claim for claim in await world.claim(40, tasks=(BLOCKER_TASK,))}
        waiters = [world.job(after=(job.id,)) for job in first]

        for blocker, waiter in zip(first, waiters, strict=True):
            await asyncio.gather(world.proceed(claims[blocker.id]), world.enqueue(waiter, store=other))
        assert await world.states(ids(waiters)) == [State.BLOCKED] * 40, "the chain has not ended yet"
        await world.store.settle([world.settlement(claim, Succeeded()) for claim in await world.claim(40, tasks=NEXT)])

        assert await world.states(ids(waiters)) == [State.READY] * 40, "a waiter was stranded"
        await world.check_log(*ids(waiters)[:3])

    # bringing back

    async def test_step_that_continued_cannot_be_brought_back(self, world: World) -> None:
        chain, last = await at_step(world, 2)
        await world.succeed(last)
        before = await world.snapshot(chain, last.job_id)

        answer = await world.store.reopen([chain])

        assert answer == [Answer.CHAINED]
        before.check_unchanged(await world.snapshot(chain, last.job_id), "reopening a step that continued")

    @pytest.mark.parametrize("state", sorted(TERMINAL))
    async def test_last_step_brought_back_lets_the_chain_go_on(self, world: World, state: State) -> None:
        chain, last = await at_step(world, 2)
        await world.end(last, state)

        assert await world.store.reopen([last.job_id]) == [Answer.DONE]
        live = await world.chain_view(chain)
        waiter = await world.waiter(chain, task="waiter")
        again = await world.claim_only(last.job_id, tasks=NEXT)
        third = await world.claim_only(await world.proceed(again), tasks=NEXT)
        blocked = await world.state(waiter)
        await world.succeed(third, "3")

        view = await world.chain_view(chain)
        assert (live.state, live.finished_at, live.steps) == (State.READY, None, 2)
        assert (view.state, view.steps, view.result) == (State.SUCCEEDED, 3, "3")
        assert (blocked, await world.state(waiter)) == (State.BLOCKED, State.READY)
        await world.check_log(chain, last.job_id, third.job_id)

    # pruning

    @pytest.mark.parametrize("limit", [1, 100])
    async def test_prune_keeps_a_chain_whole_until_its_last_step_is_old(self, world: World, limit: int) -> None:
        retention = Retention(succeeded=2 * HOUR, failed=2 * HOUR, canceled=2 * HOUR)
        chain, last = await at_step(world, 4)
        steps = ids(await world.all_jobs(JobFilter(chain_id=chain)))
        await world.store.rewind(3 * HOUR)
        while_live = await pruned(world, retention, limit=limit)
        await world.succeed(last)
        while_young = await pruned(world, retention, limit=limit)
        there = await world.states(steps)

        await world.store.rewind(3 * HOUR)
        when_old = await pruned(world, retention, limit=limit)

        assert (while_live, while_young) == (0, 0), "steps of a chain were pruned before its end was old"
        assert there == [State.SUCCEEDED] * 4
        assert when_old == 4
        assert await world.store.chains([chain]) == [None]
        assert await world.all_jobs() == []

    async def test_prune_keeps_a_chain_as_long_as_the_state_it_ended_in(self, world: World) -> None:
        chain, last = await at_step(world, 2)
        await world.end(last, State.FAILED)
        await world.store.rewind(3 * HOUR)

        assert await pruned(world, Retention(succeeded=60)) == 0
        assert await world.states([chain, last.job_id]) == [State.SUCCEEDED, State.FAILED]
        assert await pruned(world, Retention(failed=60)) == 2
        assert await world.states([chain, last.job_id]) == [None, None]

    async def test_prune_spares_what_a_live_job_waits_for_or_will_be_handed(self, world: World) -> None:
        retention = Retention(succeeded=60, failed=60, canceled=60)
        plain = await world.ended(State.SUCCEEDED, task=BLOCKER_TASK)
        chain, last = await at_step(world, 2)
        await world.succeed(last)
        live = await world.create(task=BLOCKER_TASK)
        waiter = await world.create(after=(plain, chain, live), task="waiter")
        needed = [plain, chain, last.job_id]
        ended = [State.SUCCEEDED] * 3

        await world.store.rewind(HOUR)
        assert await pruned(world, retention) == 0
        while_blocked = await world.states(needed)
        await world.store.complete({live: "1"})
        await world.store.rewind(HOUR)
        needed.append(live)
        assert await pruned(world, retention, limit=1) == 0
        claimed = await world.claim_only(waiter, tasks=("waiter",))
        assert await pruned(world, retention) == 0
        while_running = await world.states(needed)
        results = [one.result for one in await world.store.blockers(waiter)]
        await world.succeed(claimed)

        assert (while_blocked, while_running) == (ended, [*ended, State.SUCCEEDED]), "pruned what a live job needs"
        assert None not in results
        assert await pruned(world, retention) == len(needed), "kept what nobody needs any more"
        assert await world.states([*needed, waiter]) == [None] * 4 + [State.SUCCEEDED]
        await world.check_counts()
