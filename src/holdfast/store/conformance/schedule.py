"""Jobs with a time: when they become ready, and how the store's clock is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.states import Event, State
from holdfast.store.conformance.world import HOUR, LEASE, Subject, World, ids, places

TIMES = ("created_at", "run_at", "ready_at", "start_by", "claimed_at", "expires_at", "heartbeat_at", "finished_at")


class Schedule(Subject):
    """Delay, run_at, clamping, promotion, rewind."""

    async def test_delayed_job_is_scheduled_and_not_claimed(self, world: World) -> None:
        job_id = await world.create(delay=HOUR)

        view = await world.view(job_id)

        assert view.state is State.SCHEDULED
        assert view.run_at is not None
        assert (view.run_at - view.created_at).total_seconds() == pytest.approx(HOUR, abs=1)
        assert await world.claim(10) == []
        assert (await world.store.promote(10)).count == 0

    async def test_run_at_is_kept_to_the_microsecond(self, world: World) -> None:
        run_at = datetime(2999, 12, 31, 23, 59, 59, 123_457, tzinfo=UTC)
        far, farther = datetime(9000, 1, 1, tzinfo=UTC), run_at.astimezone(tz=None)

        views = [await world.view(await world.create(run_at=when)) for when in (run_at, far, farther)]

        assert [view.run_at for view in views] == [run_at, far, run_at]

    @pytest.mark.parametrize("ago", [timedelta(seconds=1), timedelta(days=1), timedelta(days=365 * 50)])
    async def test_past_time_means_now(self, world: World, ago: timedelta) -> None:
        early, job = world.job(), world.job(run_at=datetime.now(UTC) - ago)
        await world.enqueue(early)
        await world.enqueue(job)

        view = await world.view(job.id)

        assert view.state is State.READY
        assert view.ready_at is not None
        assert abs((view.ready_at - view.created_at).total_seconds()) < 60, "a past time counts as now, not as a long wait"
        assert places([early.id, job.id], await world.claim(2)) == [1, 2], "a past time must not overtake"
        assert await world.events(job.id) == [Event.ENQUEUE, Event.CLAIM]

    async def test_earliest_time_of_all_means_now(self, world: World) -> None:
        job_id = await world.create(run_at=datetime(1, 1, 2, tzinfo=UTC))

        assert await world.state(job_id) is State.READY

    async def test_due_job_is_promoted_and_claimed(self, world: World) -> None:
        job_id = await world.create(delay=HOUR, queue="nightly")
        await world.store.rewind(2 * HOUR)
        assert await world.claim(10) == [], "a job due becomes ready by promotion"

        promoted = await world.store.promote(10)

        assert (promoted.count, promoted.queues, promoted.next_due) == (1, frozenset({"nightly"}), None)
        assert await world.events(job_id) == [Event.ENQUEUE_LATER, Event.PROMOTE]
        await world.claim_only(job_id)
        await world.check_log(job_id)

    async def test_promotion_says_when_the_next_is_due(self, world: World) -> None:
        await world.enqueue(world.job(delay=3 * HOUR), world.job(delay=HOUR), world.job(delay=2 * HOUR))
        assert (await world.store.promote(10)).next_due == pytest.approx(HOUR, abs=60)

        await world.store.rewind(1.5 * HOUR)
        first = await world.store.promote(10)
        await world.store.rewind(9 * HOUR)
        rest = await world.store.promote(10)
        none = await world.store.promote(10)

        assert first.count == 1
        assert first.next_due == pytest.approx(HOUR / 2, abs=60)
        assert (rest.count, rest.next_due) == (2, None)
        assert (none.count, none.queues, none.next_due) == (0, frozenset(), None)

    async def test_promotion_respects_its_limit_and_takes_the_earliest(self, world: World) -> None:
        jobs = [world.job(delay=delay) for delay in (50.0, 10.0, 40.0, 20.0, 30.0)]
        await world.enqueue(*jobs)
        await world.store.rewind(HOUR)

        first = await world.store.promote(2)
        claims = await world.claim(10)
        rest = await world.store.promote(10)

        assert first.count == 2
        assert first.next_due is not None
        assert first.next_due <= 0, "more jobs are due already"
        assert places(ids(jobs), claims) == [2, 4]
        assert rest.count == 3

    async def test_promotion_leaves_ready_running_and_ended_jobs_alone(self, world: World) -> None:
        claimed = await world.claimed()
        ready = await world.create()
        await world.store.rewind(HOUR)
        before = await world.snapshot(claimed.job_id, ready)

        assert (await world.store.promote(10)).count == 0

        before.check_unchanged(await world.snapshot(claimed.job_id, ready), "promote with nothing scheduled")

    async def test_canceled_schedule_is_never_promoted(self, world: World) -> None:
        job_id = await world.create(delay=HOUR)
        await world.store.cancel([job_id])
        await world.store.rewind(2 * HOUR)

        promoted = await world.store.promote(10)

        assert (promoted.count, promoted.next_due) == (0, None)
        assert await world.state(job_id) is State.CANCELED

    # moving the clock

    async def test_rewind_makes_everything_older(self, world: World) -> None:
        scheduled = await world.create(delay=9 * HOUR)
        ended = await world.ended(State.SUCCEEDED)
        claimed = await world.claimed()
        await world.part(claimed, "part")
        ready = await world.create(expires_in=9 * HOUR)
        everything = (scheduled, ended, claimed.job_id, ready)
        before = [await world.view(job_id) for job_id in everything]
        logs = [await world.store.events(job_id) for job_id in everything]

        await world.store.rewind(HOUR)

        for old, view in zip(before, [await world.view(job_id) for job_id in everything], strict=True):
            for name in TIMES:
                was, now = getattr(old, name), getattr(view, name)
                aged = None if was is None else was - timedelta(seconds=HOUR)
                assert now == aged, f"{name} of a {old.state} job: {was} should have become {aged}, is {now}"
        for log, job_id in zip(logs, everything, strict=True):
            assert [line.at + timedelta(seconds=HOUR) for line in await world.store.events(job_id)] == [one.at for one in log]

    async def test_now_is_the_clock_that_decides(self, world: World) -> None:
        before = await world.store.now()
        created = (await world.view(await world.create())).created_at
        await world.store.rewind(HOUR)
        after = await world.store.now()

        assert before <= created <= after, "jobs are dated by the clock that is told"
        assert after - before < timedelta(seconds=HOUR / 2), "what is stored is made older, the clock stays"

    async def test_rewind_makes_leases_lapse(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.rewind(LEASE / 2)
        assert await world.store.reap(10) == []
        assert not (await world.view(claimed.job_id)).lapsed

        await world.store.rewind(LEASE)

        assert (await world.view(claimed.job_id)).lapsed
        assert ids(await world.all_jobs()) == [claimed.job_id]
        assert [one.job_id for one in await world.store.reap(10)] == [claimed.job_id]

    async def test_rewind_lengthens_waits(self, world: World) -> None:
        await world.create(queue="a")
        await world.store.rewind(HOUR)
        await world.create(queue="a")
        await world.create(queue="b")

        waits = (await world.store.stats()).oldest_waiting

        assert waits["a"] == pytest.approx(HOUR, abs=60)
        assert waits["b"] < 60
