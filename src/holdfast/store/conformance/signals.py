"""Waiting without a slot: until a time, for a signal, or for whichever comes first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.core.outcome import CANCELED, Suspended
from holdfast.core.states import Event, State
from holdfast.errors import BadJob
from holdfast.store.conformance.world import BLOCKER_TASK, BOOM, HOUR, OTHER_TASK, Subject, World
from holdfast.store.port import Answer, Emitted, Retention, Settled

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.lease import Claimed

SIGNAL: Final = "paid:42"
NOBODY: Final = Emitted(first=True)


async def suspended(world: World, signal: str | None = SIGNAL, *, seconds: float | None = None, **fields: Any) -> Claimed:
    """Return the attempt of a job that was suspended."""
    claimed = await world.claimed(**fields)
    until = None if seconds is None else claimed.claimed_at + timedelta(seconds=seconds)
    answer = await world.settle(claimed, Suspended(until, signal))
    assert answer is Settled.APPLIED, f"suspending under a current lease was answered {answer}"
    return claimed


async def wake(world: World, signal: str = SIGNAL) -> tuple[UUID, ...]:
    """Emit a signal for the first time, and return who became ready."""
    emitted = await world.store.emit(signal, "1")
    assert emitted.first
    return emitted.jobs


class Signals(Subject):
    """Suspending, emitting, and their races."""

    async def test_suspended_job_holds_no_lease_and_spends_nothing(self, world: World) -> None:
        claimed = await suspended(world)

        view = await world.view(claimed.job_id)
        assert (view.state, view.attempt, view.failures, view.error) == (State.SCHEDULED, 1, 0, None)
        assert await world.store.holding(await world.worker()) == []
        assert await world.attempts(claimed.job_id) == [(1, Event.SUSPEND)]
        assert (await world.store.promote(10)).count == 0
        assert await world.store.settled(claimed.lease)
        await world.check_log(claimed.job_id)

    async def test_signal_makes_who_waits_for_it_ready(self, world: World) -> None:
        jobs = [(await suspended(world, queue=queue)).job_id for queue in ("a", "b", "a")]
        other = (await suspended(world, "paid:43")).job_id

        emitted = await world.store.emit(SIGNAL, '{"amount": 1.50}', by="shop")

        assert emitted.first
        assert (set(emitted.jobs), emitted.queues) == (set(jobs), frozenset({"a", "b"}))
        assert await world.states([*jobs, other]) == [State.READY] * 3 + [State.SCHEDULED]
        lines = await world.store.events(jobs[0])
        assert [line.event for line in lines] == [Event.ENQUEUE, Event.CLAIM, Event.SUSPEND, Event.WAKE]
        assert (lines[-1].state, lines[-1].actor) == (State.READY, "shop")
        assert {claim.attempt for claim in await world.claim(10)} == {2}
        await world.check_log(*jobs, other)

    async def test_signal_that_was_emitted_before_is_not_waited_for(self, world: World) -> None:
        assert await world.store.emit(SIGNAL, "1") == NOBODY

        claimed = await suspended(world)

        assert await world.events(claimed.job_id) == [Event.ENQUEUE, Event.CLAIM, Event.SUSPEND, Event.WAKE]
        assert (await world.claim_only(claimed.job_id)).attempt == 2
        await world.check_log(claimed.job_id)

    async def test_first_signal_stands(self, world: World) -> None:
        first = await world.store.emit(SIGNAL, '{"n": 1.0}')
        second = await world.store.emit(SIGNAL, '{"n": 2}')

        assert (first, second) == (NOBODY, Emitted(first=False))
        assert await world.store.signals([SIGNAL, "another"]) == {SIGNAL: '{"n": 1.0}'}
        assert await world.store.signals([]) == {}

    async def test_signal_wakes_once(self, world: World) -> None:
        claimed = await suspended(world)
        await wake(world)
        again = await world.claim_only(claimed.job_id)

        second = await world.store.emit(SIGNAL, "2")

        assert second == Emitted(first=False)
        assert await world.succeed(again) is Settled.APPLIED
        await world.check_log(claimed.job_id)

    async def test_job_may_sleep_without_a_signal(self, world: World) -> None:
        claimed = await suspended(world, None, seconds=HOUR)
        assert (await world.store.promote(10)).count == 0

        await world.store.rewind(2 * HOUR)

        assert (await world.store.promote(10)).count == 1
        assert (await world.claim_only(claimed.job_id)).failures == 0
        assert await world.events(claimed.job_id) == [
            *(Event.ENQUEUE, Event.CLAIM, Event.SUSPEND, Event.PROMOTE, Event.CLAIM),
        ]

    async def test_time_that_comes_first_ends_the_wait(self, world: World) -> None:
        claimed = await suspended(world, seconds=HOUR)
        await world.store.rewind(2 * HOUR)
        assert (await world.store.promote(10)).count == 1
        before = await world.snapshot(claimed.job_id)

        assert await wake(world) == (), "it waits for the signal no longer"

        before.check_unchanged(await world.snapshot(claimed.job_id), "a signal that came too late")
        assert await world.store.signals([SIGNAL]) == {SIGNAL: "1"}

    async def test_signal_that_comes_first_ends_the_wait(self, world: World) -> None:
        claimed = await suspended(world, seconds=HOUR)

        assert await wake(world) == (claimed.job_id,)

        running = await world.claim_only(claimed.job_id)
        await world.store.rewind(2 * HOUR)
        assert (await world.store.promote(10)).count == 0, "its time comes a second time"
        assert (await world.succeed(running)).accepted

    async def test_job_may_wait_again_for_another_signal(self, world: World) -> None:
        claimed = await suspended(world)
        await wake(world)
        second = await world.claim_only(claimed.job_id)

        await world.settle(second, Suspended(signal="second"))

        assert await world.state(claimed.job_id) is State.SCHEDULED
        assert await wake(world, "second") == (claimed.job_id,)
        await world.check_log(claimed.job_id)

    @pytest.mark.parametrize("way", ["cancel", "complete", "fail", "delete"])
    async def test_suspended_job_that_is_ended_waits_no_longer(self, world: World, way: str) -> None:
        claimed = await suspended(world, key="k")
        match way:
            case "cancel":
                assert await world.store.cancel([claimed.job_id]) == [Answer.DONE]
            case "complete":
                assert await world.store.complete({claimed.job_id: "1"}) == [Answer.DONE]
            case "fail":
                assert await world.store.fail({claimed.job_id: BOOM}) == [Answer.DONE]
            case _:
                assert await world.store.delete([claimed.job_id]) == [Answer.DONE]
        before = await world.snapshot(claimed.job_id)

        assert await wake(world) == ()

        before.check_unchanged(await world.snapshot(claimed.job_id), "a signal for a job that has ended")
        assert (await world.enqueue(world.job(key="k")))[0].status == "created"

    async def test_suspended_job_has_begun_and_does_not_expire(self, world: World) -> None:
        claimed = await suspended(world, expires_in=HOUR)
        await world.store.rewind(2 * HOUR)

        assert await world.store.drop_overdue(10) == 0

        assert (await world.view(claimed.job_id)).start_by is None
        assert await wake(world) == (claimed.job_id,)
        await world.store.rewind(2 * HOUR)
        assert await world.store.drop_overdue(10) == 0
        assert not (await world.claim_only(claimed.job_id)).overdue
        await world.check_log(claimed.job_id)

    async def test_job_brought_back_does_not_wait_for_its_old_signal(self, world: World) -> None:
        claimed = await suspended(world)
        await world.store.cancel([claimed.job_id])
        await world.store.reopen([claimed.job_id])
        running = await world.claim_only(claimed.job_id)
        await world.settle(running, Suspended(running.claimed_at + timedelta(seconds=HOUR)))

        assert await wake(world) == ()

        assert await world.state(claimed.job_id) is State.SCHEDULED

    async def test_suspending_under_a_dead_token_changes_nothing(self, world: World) -> None:
        claimed = await world.claimed()
        await world.reaped(claimed)
        before = await world.snapshot(claimed.job_id)

        answer = await world.settle(claimed, Suspended(signal=SIGNAL))

        assert answer is Settled.STALE
        before.check_unchanged(await world.snapshot(claimed.job_id), "suspending under a dead token")
        assert await wake(world) == (), "nobody waits for it"

    async def test_repeated_suspension_changes_nothing(self, world: World) -> None:
        claimed = await suspended(world)
        await wake(world)
        await world.claim_only(claimed.job_id, worker="two")
        before = await world.snapshot(claimed.job_id)

        answer = await world.settle(claimed, Suspended(signal=SIGNAL))

        assert answer is Settled.REPEATED
        before.check_unchanged(await world.snapshot(claimed.job_id), "repeating a suspension")

    async def test_cancel_that_was_asked_for_wins_over_a_suspension(self, world: World) -> None:
        claimed = await world.claimed()
        assert await world.store.cancel([claimed.job_id], reason="enough") == [Answer.REQUESTED]

        answer = await world.settle(claimed, Suspended(signal=SIGNAL))

        view = await world.view(claimed.job_id)
        assert answer is Settled.CANCELED
        assert (view.state, view.error and view.error.code) == (State.CANCELED, CANCELED)
        assert await wake(world) == ()
        await world.check_log(claimed.job_id)

    async def test_suspended_blocker_keeps_its_waiters(self, world: World) -> None:
        claimed = await suspended(world, task=BLOCKER_TASK)
        waiter = await world.waiter(claimed.job_id)

        await wake(world)
        woken = await world.state(waiter)
        await world.succeed(await world.claim_only(claimed.job_id, tasks=(BLOCKER_TASK,)))

        assert (woken, await world.state(waiter)) == (State.BLOCKED, State.READY)

    async def test_woken_job_that_has_failed_before_waits_among_the_retries(self, world: World) -> None:
        first = await world.claimed()
        await world.fail(first)
        second = await world.claim_only(first.job_id)
        await world.settle(second, Suspended(signal=SIGNAL))

        assert await wake(world) == (first.job_id,)

        third = await world.claim_only(first.job_id, retries_first=True)
        assert (third.attempt, third.failures) == (3, 1)

    @pytest.mark.parametrize(("signal", "data"), [("", "1"), ("x" * 201, "1"), ("nul \0", "1"), ("good", "nul \0")])
    async def test_signal_that_no_store_could_keep_is_refused(self, world: World, signal: str, data: str) -> None:
        with pytest.raises(BadJob):
            await world.store.emit(signal, data)

        assert await world.store.signals(["good"]) == {}

    # keeping signals

    async def test_old_signals_are_pruned(self, world: World) -> None:
        await wake(world, "old")
        await world.store.rewind(2 * HOUR)
        await wake(world, "young")
        for retention in (Retention(), Retention(succeeded=0.0, failed=0.0, canceled=0.0), Retention(signals=3 * HOUR)):
            assert (await world.store.prune(retention, limit=10)).count == 0
            assert set(await world.store.signals(["old", "young"])) == {"old", "young"}

        pruned = await world.store.prune(Retention(signals=HOUR), limit=10)

        assert pruned.count == 0, "only jobs are counted"
        assert set(await world.store.signals(["old", "young"])) == {"young"}
        assert await wake(world, "old") == (), "what is forgotten may be emitted again"

    # races

    async def test_signal_emitted_while_a_job_is_suspended_is_never_missed(self, world: World) -> None:
        other = await world.handle()
        jobs = world.jobs(100)
        await world.enqueue(*jobs)
        claims = await world.claim(100)

        for number, claim in enumerate(claims):
            await asyncio.gather(world.settle(claim, Suspended(signal=f"{number}")), other.emit(f"{number}", "1"))

        missed = (await world.states([claim.job_id for claim in claims])).count(State.SCHEDULED)
        assert missed == 0, f"{missed} of 100 jobs wait for a signal that was emitted"
        assert len(await world.claim(200)) == 100
        await world.check_log(*(claim.job_id for claim in claims[:5]))

    async def test_signal_emitted_by_two_at_the_same_moment_is_emitted_once(self, world: World) -> None:
        other = await world.handle()
        for number in range(20):
            claimed = await suspended(world, f"{number}", task=OTHER_TASK)

            answers = await asyncio.gather(world.store.emit(f"{number}", '"one"'), other.emit(f"{number}", '"two"'))

            assert sorted(answer.first for answer in answers) == [False, True]
            assert [answer.jobs for answer in answers if answer.first] == [(claimed.job_id,)]
            winner = '"one"' if answers[0].first else '"two"'
            assert await world.store.signals([f"{number}"]) == {f"{number}": winner}
            await world.store.complete({claimed.job_id: "1"})
