"""What spends the budget of a job and what does not, and how lapsed leases are settled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.core.lease import Hold
from holdfast.core.outcome import CANCELED, LEASE_EXPIRED, RETRIES_EXHAUSTED, Error, Failed, Released, Rescheduled, Stopped
from holdfast.core.retry import Retry
from holdfast.core.states import Event, State
from holdfast.store.conformance.world import (
    AT_ONCE,
    BOOM,
    HOUR,
    LATER,
    LEASE,
    ONCE,
    OTHER_TASK,
    TASK,
    Subject,
    World,
    ids,
)
from holdfast.store.port import Answer, Settled

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.outcome import Outcome

ENDLESS = Retry(max_attempts=None, initial=0.0, jitter=0.0)


class Budgets(Subject):
    """Attempts, failures, backoff, exhaustion, expiry."""

    async def test_failures_count_until_the_budget_is_spent(self, world: World) -> None:
        job_id = await world.create()
        seen = []
        for _ in range(3):
            claimed = await world.claim_only(job_id)
            seen.append((claimed.attempt, claimed.failures))
            assert await world.fail(claimed) is Settled.APPLIED

        view = await world.view(job_id)

        assert seen == [(1, 0), (2, 1), (3, 2)]
        assert (view.state, view.attempt, view.failures) == (State.FAILED, 3, 3)
        assert view.error is not None
        assert view.error.code == RETRIES_EXHAUSTED
        assert "BOOM" in view.error.message
        assert await world.attempts(job_id) == [(1, Event.RETRY), (2, Event.RETRY), (3, Event.FAIL)]
        assert await world.claim(10) == []
        await world.check_log(job_id)

    async def test_endless_budget_is_never_spent(self, world: World) -> None:
        job_id = await world.create(retry=ENDLESS)
        for _ in range(12):
            await world.fail(await world.claim_only(job_id))

        view = await world.view(job_id)

        assert (view.state, view.failures, view.attempt) == (State.READY, 12, 12)
        await world.check_log(job_id)

    async def test_fatal_failure_ends_the_job_at_once(self, world: World) -> None:
        claimed = await world.claimed()

        await world.fail(claimed, fatal=True)

        view = await world.view(claimed.job_id)
        assert (view.state, view.failures, view.error) == (State.FAILED, 1, BOOM)

    async def test_backoff_schedules_the_next_attempt(self, world: World) -> None:
        job_id = await world.create(retry=Retry(max_attempts=5, initial=HOUR, factor=2.0, max=3 * HOUR, jitter=0.0))
        rests = []
        for _ in range(3):
            await world.fail(await world.claim_only(job_id))
            view = await world.view(job_id)
            assert view.state is State.SCHEDULED
            assert view.shown == "retrying"
            assert view.run_at is not None
            ended = (await world.store.attempts(job_id))[-1].ended_at
            assert ended is not None
            rests.append((view.run_at - ended).total_seconds())
            await world.store.rewind(4 * HOUR)
            await world.store.promote(10)

        assert rests == pytest.approx([HOUR, 2 * HOUR, 3 * HOUR], abs=1)
        await world.check_log(job_id)

    async def test_delay_of_a_settlement_counts_from_the_clock_of_the_store(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.rewind(LEASE / 2)

        await world.settle(claimed, Rescheduled(after=HOUR))

        assert (await world.store.promote(10)).next_due == pytest.approx(HOUR, abs=20)

    @pytest.mark.parametrize(
        "outcome",
        [Released("not now"), Released("shutdown", aborted=True), Rescheduled()],
        ids=["released", "aborted", "rescheduled"],
    )
    async def test_release_and_reschedule_cost_nothing(self, world: World, outcome: Outcome) -> None:
        job_id = await world.create(retry=ONCE)
        for attempt in range(1, 6):
            claimed = await world.claim_only(job_id)
            assert (claimed.attempt, claimed.failures) == (attempt, 0)
            assert await world.settle(claimed, outcome) is Settled.APPLIED

        assert (await world.view(job_id)).failures == 0
        assert len(await world.store.attempts(job_id)) == 5
        await world.check_log(job_id)

    async def test_reopening_restores_the_budget(self, world: World) -> None:
        job_id = await world.create()
        for _ in range(3):
            await world.fail(await world.claim_only(job_id))
        assert await world.store.reopen([job_id]) == [Answer.DONE]

        claimed = await world.claim_only(job_id)
        await world.fail(claimed)

        assert (claimed.attempt, claimed.failures) == (4, 0)
        assert (await world.view(job_id)).failures == 1
        assert await world.state(job_id) is State.READY
        await world.check_log(job_id)

    # expiry

    async def test_expiry_is_a_failure(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()

        reaped = (await world.store.reap(10))[0]

        view = await world.view(claimed.job_id)
        record = (await world.store.attempts(claimed.job_id))[0]
        assert (reaped.job_id, reaped.task, reaped.queue, reaped.attempt) == (claimed.job_id, TASK, "default", 1)
        assert reaped.worker_id == await world.worker()
        assert (reaped.write.event, reaped.write.failures) == (Event.EXPIRE, 1)
        assert (view.state, view.failures) == (State.READY, 1)
        assert record.event is Event.EXPIRE
        assert record.error is not None
        assert record.error.code == LEASE_EXPIRED
        await world.check_log(claimed.job_id)

    async def test_first_expiry_puts_the_job_back_at_once_ahead_of_other_retries(self, world: World) -> None:
        rest = Retry(max_attempts=3, initial=10 * HOUR, max=10 * HOUR)
        claimed = await world.claimed(retry=rest)
        other = await world.claimed(retry=Retry(max_attempts=3, initial=0.0))
        await world.store.settle([world.settlement(other, Failed(Error("AGAIN")))])
        await world.store.extend([other.lease])

        await world.lapse(2 * claimed.lease_seconds)
        await world.store.reap(100)

        view = await world.view(claimed.job_id)
        assert (view.state, view.failures) == (State.READY, 1)
        assert [claim.job_id for claim in await world.claim(2)] == [claimed.job_id, other.job_id]

    async def test_expiry_rests_by_the_stored_policy(self, world: World) -> None:
        retry = Retry(max_attempts=3, initial=10 * HOUR, factor=1.0, max=10 * HOUR, jitter=0.1)
        claimed = await world.claimed(retry=retry)
        await world.reaped(claimed)
        claimed = await world.claim_only(claimed.job_id)

        await world.reaped(claimed)

        view, ended = await world.view(claimed.job_id), (await world.store.attempts(claimed.job_id))[1].ended_at
        assert view.state is State.SCHEDULED
        assert view.run_at is not None
        assert ended is not None
        seconds = (view.run_at - ended).total_seconds()
        assert 9 * HOUR - 1 <= seconds <= 11 * HOUR + 1, f"10 hours ± 10 %, the job rests {seconds / HOUR:.2f} hours"

    async def test_rests_of_expired_jobs_are_spread(self, world: World) -> None:
        retry = Retry(max_attempts=3, initial=10 * HOUR, max=10 * HOUR, jitter=0.5)
        jobs = world.jobs(20, retry=retry)
        await world.enqueue(*jobs)
        await world.claim(20)
        await world.lapse()
        await world.store.reap(100)
        await world.claim(20)
        await world.lapse()
        reaped = await world.store.reap(100)

        assert len({round(one.write.delay) for one in reaped}) > 5, "jobs that lapsed together must not come back together"

    async def test_poison_job_is_quarantined_after_its_budget(self, world: World) -> None:
        poison, neighbour = await world.create(), await world.create()
        events = []
        for _ in range(3):
            await world.claim(10)
            await world.store.flag_free(
                [lease for lease in await world.store.holding(await world.worker()) if lease.job_id == neighbour]
            )
            await world.lapse()
            events += [one.write.event for one in await world.store.reap(10) if one.job_id == poison]

        view = await world.view(poison)
        assert events == [Event.EXPIRE, Event.EXPIRE, Event.EXPIRE_FAIL]
        assert (view.state, view.failures) == (State.FAILED, 3)
        assert view.error is not None
        assert view.error.code == RETRIES_EXHAUSTED
        assert LEASE_EXPIRED in view.error.message
        assert ids(await world.claim(10)) == [neighbour]
        await world.check_log(poison, neighbour)

    async def test_free_expiry_costs_nothing(self, world: World) -> None:
        claimed = await world.claimed(retry=ONCE)
        assert await world.store.flag_free([claimed.lease]) == [Settled.APPLIED]
        assert await world.store.flag_free([claimed.lease]) == [Settled.APPLIED], "repeatable"

        await world.reaped(claimed)

        view = await world.view(claimed.job_id)
        assert (view.state, view.failures) == (State.READY, 0)
        assert await world.attempts(claimed.job_id) == [(1, Event.EXPIRE)]

    async def test_free_flag_is_gone_with_its_lease(self, world: World) -> None:
        first = await world.claimed()
        await world.store.flag_free([first.lease])
        await world.reaped(first)
        second = await world.claim_only(first.job_id)

        await world.reaped(second)

        assert (await world.view(first.job_id)).failures == 1, "the flag of an earlier lease saved a later one"

    async def test_lease_that_has_not_lapsed_is_left_alone(self, world: World) -> None:
        claimed = await world.claimed()
        before = await world.snapshot(claimed.job_id)

        assert await world.store.reap(10) == []

        before.check_unchanged(await world.snapshot(claimed.job_id), "reap with a lease that has not lapsed")

    async def test_lease_longer_than_the_caller_was_undisturbed_is_left_alone(self, world: World) -> None:
        long, short = await world.create(lease=600.0), await world.create(lease=10.0)
        await world.claim(2)
        await world.store.rewind(HOUR)

        careful = await world.store.reap(10, up_for=60.0)
        rested = await world.store.reap(10, up_for=601.0)

        assert [one.job_id for one in careful] == [short], "an outage shorter than the lease must not spend its budget"
        assert [one.job_id for one in rested] == [long]

    async def test_reap_respects_its_limit(self, world: World) -> None:
        await world.enqueue(*world.jobs(7))
        await world.claim(7)
        await world.lapse()

        sizes = [len(await world.store.reap(limit)) for limit in (3, 3, 3, 3)]

        assert sizes == [3, 3, 1, 0]

    async def test_own_tasks_are_reaped_first(self, world: World) -> None:
        foreign, mine = world.jobs(3, task=OTHER_TASK), world.jobs(2)
        await world.enqueue(*foreign, *mine)
        await world.claim(10, tasks=(OTHER_TASK,))
        await world.store.rewind(1)
        await world.claim(10)
        await world.lapse()

        first = await world.store.reap(2, tasks=frozenset({TASK}))
        rest_of_them = await world.store.reap(10, tasks=frozenset({TASK}))

        assert {one.job_id for one in first} == set(ids(mine))
        assert {one.job_id for one in rest_of_them} == set(ids(foreign)), "any worker reaps any task"

    async def test_reaping_twice_settles_once(self, world: World) -> None:
        other = await world.handle()
        await world.enqueue(*world.jobs(20))
        await world.claim(20)
        await world.lapse()

        first, second = await asyncio.gather(world.store.reap(20), other.reap(20))

        both = [one.job_id for one in (*first, *second)]
        assert len(both) == len(set(both)), "two reapers settled the same lease"
        views = await world.all_jobs()
        assert all(view.failures == 1 for view in views if view.state is State.READY)

    async def test_reaper_against_heartbeat_has_one_winner(self, world: World) -> None:
        other = await world.handle()
        jobs = world.jobs(30, retry=ENDLESS)
        await world.enqueue(*jobs)
        for _ in range(30):
            claimed = (await world.claim(1))[0]
            await world.lapse()

            reaped, extended = await asyncio.gather(world.store.reap(10), other.extend([claimed.lease]))

            hold = extended[0].hold
            if hold is Hold.SETTLING:  # the reaper had the row in its hand that moment
                hold = (await other.extend([claimed.lease]))[0].hold
            taken = [one.job_id for one in reaped]
            if hold is Hold.HELD:
                assert taken == [], "a lease was extended and reaped"
                assert await world.succeed(claimed) is Settled.APPLIED
            else:
                assert taken == [claimed.job_id], f"the holder was told {hold}, but nobody reaped the lease"
                assert await world.succeed(claimed) is Settled.STALE
        await world.check_log(*ids(jobs))

    async def test_reaper_against_settle_has_one_winner(self, world: World) -> None:
        other = await world.handle()
        for _ in range(30):
            claimed = await world.claimed(retry=ONCE)
            await world.lapse()

            reaped, settled = await asyncio.gather(world.store.reap(10), world.settle(claimed, Stopped(), store=other))

            view = await world.view(claimed.job_id)
            assert (settled is Settled.STALE) == (len(reaped) == 1), f"settle said {settled}, the reaper {reaped}"
            assert view.state is (State.FAILED if reaped else State.CANCELED)
            await world.store.delete([claimed.job_id])

    # cancel

    async def test_lapse_of_a_job_asked_to_stop_cancels_it(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.cancel([claimed.job_id], by="ops", reason="enough")

        await world.reaped(claimed)

        view = await world.view(claimed.job_id)
        assert (view.state, view.failures) == (State.CANCELED, 0)
        assert view.error is not None
        assert view.error.code == CANCELED
        assert await world.events(claimed.job_id) == [Event.ENQUEUE, Event.CLAIM, Event.CANCEL, Event.EXPIRE_CANCEL]
        await world.check_log(claimed.job_id)

    @pytest.mark.parametrize(
        ("outcome", "retry"),
        [
            (Failed(BOOM), AT_ONCE),
            (Failed(BOOM), LATER),
            (Rescheduled(), AT_ONCE),
            (Rescheduled(after=HOUR), AT_ONCE),
            (Released(), AT_ONCE),
            (Released("shutdown", aborted=True), AT_ONCE),
        ],
        ids=["retry", "retry_later", "reschedule", "reschedule_later", "release", "abort"],
    )
    async def test_cancel_is_never_lost_to_a_job_that_would_live_on(self, world: World, outcome: Outcome, retry: Retry) -> None:
        claimed = await world.claimed(retry=retry)
        await world.store.cancel([claimed.job_id])

        answer = await world.settle(claimed, outcome)

        view = await world.view(claimed.job_id)
        assert answer is Settled.CANCELED
        assert view.state is State.CANCELED
        assert view.error is not None
        assert view.error.code == CANCELED
        assert (await world.events(claimed.job_id))[-1] is Event.STOP
        assert await world.attempts(claimed.job_id) == [(1, Event.STOP)]
        assert await world.settle(claimed, outcome) is Settled.REPEATED
        await world.check_log(claimed.job_id)

    async def test_job_that_ends_by_itself_ignores_the_wish_to_stop(self, world: World) -> None:
        states = []
        for outcome in (Failed(BOOM, fatal=True), Stopped("of its own accord")):
            claimed = await world.claimed()
            await world.store.cancel([claimed.job_id])
            await world.settle(claimed, outcome)
            states.append(await world.state(claimed.job_id))
        claimed = await world.claimed()
        await world.store.cancel([claimed.job_id])
        await world.succeed(claimed)

        assert [*states, await world.state(claimed.job_id)] == [State.FAILED, State.CANCELED, State.SUCCEEDED]

    async def test_holder_learns_of_a_cancel_when_it_extends(self, world: World) -> None:
        claimed = await world.claimed()
        before = (await world.store.extend([claimed.lease]))[0]
        await world.store.cancel([claimed.job_id])

        after = (await world.store.extend([claimed.lease]))[0]

        assert (before.hold, before.cancel_requested) == (Hold.HELD, False)
        assert (after.hold, after.cancel_requested) == (Hold.HELD, True)

    async def test_wish_to_stop_ends_with_the_job(self, world: World) -> None:
        job_id = await self.canceled_while_running(world)
        await world.store.reopen([job_id])

        claimed = await world.claim_only(job_id)

        assert not (await world.store.extend([claimed.lease]))[0].cancel_requested, "an old wish to stop came back"
        await world.fail(claimed)
        assert await world.state(job_id) is State.READY

    async def canceled_while_running(self, world: World) -> UUID:
        claimed = await world.claimed()
        await world.store.cancel([claimed.job_id])
        await world.settle(claimed, Released())
        return claimed.job_id
