"""Jobs that may not wait for ever: what becomes of those that did not start in time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from holdfast.core.job import BlockerPolicy
from holdfast.core.outcome import BLOCKER_CANCELED, EXPIRED, Released, Rescheduled, Stopped
from holdfast.core.states import WAITING, Event, State
from holdfast.store.conformance.world import BLOCKER_TASK, HOUR, LATER, Subject, World, ids
from holdfast.store.port import Answer, Enqueue, Settled

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.store.port import JobView

PATIENCE: Final = 1000.0
"""How many seconds the jobs of these tests may wait."""


async def waiting(world: World, state: State) -> UUID:
    """Return a job in a waiting state that may not wait long."""
    match state:
        case State.BLOCKED:
            return await world.waiter(await world.create(task=BLOCKER_TASK), expires_in=PATIENCE)
        case State.SCHEDULED:
            return await world.create(expires_in=PATIENCE, delay=9 * HOUR)
        case _:
            return await world.create(expires_in=PATIENCE)


def check_expired(view: JobView) -> None:
    """Check that a job ended because it did not start in time, and says so."""
    assert view.state is State.CANCELED
    assert view.error is not None
    assert view.error.code == EXPIRED
    assert f"{PATIENCE:g}" in view.error.message, f"the message should say how long it could wait: {view.error.message}"


class Expiry(Subject):
    """`expires_in`, `start_by`, `drop_overdue`, and claims that come too late."""

    @pytest.mark.parametrize("state", sorted(WAITING))
    async def test_waiting_job_is_ended_when_it_should_have_started(self, world: World, state: State) -> None:
        job_id = await waiting(world, state)
        assert await world.store.drop_overdue(10) == 0
        assert await world.state(job_id) is state
        await world.store.rewind(2 * PATIENCE)

        assert await world.store.drop_overdue(10) == 1

        check_expired(await world.view(job_id))
        line = (await world.store.events(job_id))[-1]
        assert (line.event, line.actor, line.detail.split(":")[0]) == (Event.OVERDUE, "store", EXPIRED)
        assert await world.store.drop_overdue(10) == 0
        assert job_id not in ids(await world.claim(10))
        await world.check_log(job_id)

    async def test_start_by_is_shown_while_the_job_lives(self, world: World) -> None:
        job_id = await world.create(expires_in=PATIENCE)
        ready = await world.view(job_id)
        claimed = await world.claim_only(job_id)
        running = await world.view(job_id)
        await world.succeed(claimed)

        assert ready.start_by is not None
        assert ready.start_by - ready.created_at == timedelta(seconds=PATIENCE)
        assert running.start_by == ready.start_by
        assert (await world.view(job_id)).start_by is None

    async def test_start_by_counts_from_the_enqueue_not_from_the_due_time(self, world: World) -> None:
        view = await world.view(await world.create(expires_in=PATIENCE, delay=HOUR))

        assert view.start_by == view.created_at + timedelta(seconds=PATIENCE)

    async def test_start_by_survives_every_way_back_into_waiting(self, world: World) -> None:
        job_id = await world.create(expires_in=PATIENCE, retry=LATER)
        start_by = (await world.view(job_id)).start_by
        seen = []
        for outcome in (Released(), Rescheduled(), Rescheduled(after=HOUR)):
            await world.settle(await world.claim_only(job_id), outcome)
            seen.append((await world.view(job_id)).start_by)

        assert seen == [start_by] * 3

    async def test_job_without_a_limit_waits_for_ever(self, world: World) -> None:
        job_id = await world.create()
        await world.store.rewind(1000 * HOUR)

        assert await world.store.drop_overdue(10) == 0
        assert (await world.view(job_id)).start_by is None
        assert not (await world.claim_only(job_id)).overdue

    async def test_running_job_is_left_alone(self, world: World) -> None:
        claimed = await world.claimed(expires_in=PATIENCE, lease=9 * HOUR)
        assert not claimed.overdue
        await world.store.rewind(2 * PATIENCE)

        assert await world.store.drop_overdue(10) == 0

        assert await world.state(claimed.job_id) is State.RUNNING
        assert await world.succeed(claimed) is Settled.APPLIED

    async def test_job_that_waits_again_too_late_is_ended(self, world: World) -> None:
        claimed = await world.claimed(expires_in=PATIENCE, lease=9 * HOUR)
        await world.store.rewind(2 * PATIENCE)
        await world.fail(claimed)

        assert await world.store.drop_overdue(10) == 1

        check_expired(await world.view(claimed.job_id))
        assert (await world.view(claimed.job_id)).failures == 1
        await world.check_log(claimed.job_id)

    async def test_claim_that_comes_too_late_says_so(self, world: World) -> None:
        jobs = [world.job(expires_in=PATIENCE), world.job(expires_in=9 * PATIENCE), world.job()]
        await world.enqueue(*jobs)
        await world.store.rewind(2 * PATIENCE)

        claims = {claim.job_id: claim for claim in await world.claim(3)}

        assert [claims[job.id].overdue for job in jobs] == [True, False, False]
        answer = await world.settle(claims[jobs[0].id], Stopped("too late", EXPIRED))
        view = await world.view(jobs[0].id)
        assert answer is Settled.APPLIED
        assert view.error is not None
        assert (view.state, view.error.code, view.error.message) == (State.CANCELED, EXPIRED, "too late")
        await world.check_log(*ids(jobs))

    async def test_job_that_comes_back_too_late_is_overdue_at_its_next_claim(self, world: World) -> None:
        claimed = await world.claimed(expires_in=PATIENCE, lease=9 * HOUR)
        await world.store.rewind(2 * PATIENCE)
        await world.settle(claimed, Released())

        assert (await world.claim_only(claimed.job_id)).overdue

    async def test_expired_job_frees_its_unique_key(self, world: World) -> None:
        await world.create(expires_in=PATIENCE, key="k")
        await world.store.rewind(2 * PATIENCE)
        await world.store.drop_overdue(10)

        assert (await world.enqueue(world.job(key="k")))[0].status is Enqueue.CREATED

    async def test_window_outlives_an_expired_job(self, world: World) -> None:
        holder = await world.create(expires_in=PATIENCE, key="k", window=9 * HOUR)
        await world.store.rewind(2 * PATIENCE)
        await world.store.drop_overdue(10)

        answer = (await world.enqueue(world.job(key="k", window=9 * HOUR)))[0]

        assert (answer.status, answer.job_id) == (Enqueue.EXISTING, holder)

    async def test_waiters_of_an_expired_job_are_told(self, world: World) -> None:
        blocker = await world.create(expires_in=PATIENCE)
        canceled = await world.waiter(blocker, on_blocker_failure=BlockerPolicy.CANCEL)
        failed = await world.waiter(blocker, on_blocker_failure=BlockerPolicy.FAIL)
        ready = await world.waiter(blocker, on_blocker_failure=BlockerPolicy.RUN)
        after_them = await world.waiter(canceled, on_blocker_failure=BlockerPolicy.CANCEL)
        await world.store.rewind(2 * PATIENCE)

        assert await world.store.drop_overdue(10) == 1

        states = await world.states([canceled, failed, ready, after_them])
        assert states == [State.CANCELED, State.FAILED, State.READY, State.CANCELED]
        error = (await world.view(canceled)).error
        assert error is not None
        assert error.code == BLOCKER_CANCELED
        assert await world.store.unblock(10) == 0, "nothing was left for unblock() to settle"
        await world.check_log(blocker, canceled, failed, ready, after_them)

    async def test_waiter_that_is_overdue_itself_expires_with_its_blocker(self, world: World) -> None:
        blocker = await world.create(expires_in=PATIENCE)
        waiter = await world.waiter(blocker, expires_in=PATIENCE)
        await world.store.rewind(2 * PATIENCE)

        assert await world.store.drop_overdue(10) == 2

        check_expired(await world.view(waiter))
        await world.check_log(blocker, waiter)

    async def test_blocker_of_an_expired_waiter_can_be_deleted(self, world: World) -> None:
        blocker = await world.create()
        await world.waiter(blocker, expires_in=PATIENCE)
        assert await world.store.delete([blocker]) == [Answer.NEEDED]
        await world.store.rewind(2 * PATIENCE)
        await world.store.drop_overdue(10)

        assert await world.store.delete([blocker]) == [Answer.DONE]

    async def test_reopened_job_does_not_expire_again(self, world: World) -> None:
        job_id = await world.create(expires_in=PATIENCE)
        await world.store.rewind(2 * PATIENCE)
        await world.store.drop_overdue(10)
        await world.store.reopen([job_id])

        assert await world.store.drop_overdue(10) == 0

        assert (await world.view(job_id)).start_by is None
        assert not (await world.claim_only(job_id)).overdue

    async def test_jobs_of_a_paused_queue_expire_too(self, world: World) -> None:
        job_id = await world.create(queue="paused", expires_in=PATIENCE)
        await world.store.pause("paused")
        await world.store.rewind(2 * PATIENCE)

        assert await world.store.drop_overdue(10) == 1
        check_expired(await world.view(job_id))

    async def test_limit_is_respected_and_the_longest_overdue_go_first(self, world: World) -> None:
        jobs = [world.job(expires_in=PATIENCE - number) for number in range(5)]
        await world.enqueue(*jobs)
        await world.store.rewind(2 * PATIENCE)

        looked = [await world.store.drop_overdue(limit) for limit in (0, -1, 2)]
        states = await world.states(ids(jobs))
        rest = [await world.store.drop_overdue(2) for _ in range(3)]

        assert looked == [0, 0, 2]
        assert states == [State.READY] * 3 + [State.CANCELED] * 2
        assert rest == [2, 1, 0]
        await world.check_log(*ids(jobs))

    async def test_several_housekeepers_end_each_job_once(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        jobs = world.jobs(40, expires_in=PATIENCE)
        await world.enqueue(*jobs)
        await world.store.rewind(2 * PATIENCE)

        await asyncio.gather(*(handle.drop_overdue(100) for handle in handles))
        await world.store.drop_overdue(100)

        assert await world.states(ids(jobs)) == [State.CANCELED] * 40
        for job in jobs:
            assert await world.events(job.id) == [Event.ENQUEUE, Event.OVERDUE]
        await world.check_counts()

    async def test_claim_and_expiry_at_one_moment_agree(self, world: World) -> None:
        other = await world.handle()
        for _ in range(10):
            jobs = world.jobs(5, expires_in=PATIENCE)
            await world.enqueue(*jobs)
            await world.store.rewind(2 * PATIENCE)

            claims, _ = await asyncio.gather(world.claim(5), other.drop_overdue(100))
            await world.store.drop_overdue(100)

            taken = set(ids(claims))
            assert all(claim.overdue for claim in claims)
            for job in jobs:
                expected = State.RUNNING if job.id in taken else State.CANCELED
                assert await world.state(job.id) is expected, "a job was both claimed and ended, or neither"
            for claim in claims:
                assert await world.succeed(claim) in (Settled.APPLIED, Settled.LATE)
        await world.check_counts()
