"""Repeating after an unknown outcome: no loss, no double."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.core.states import Event, State
from holdfast.store.conformance.cells import RETRIES, SETTLES, SIGNAL
from holdfast.store.conformance.world import AT_ONCE, BLOCKER_TASK, BOOM, HOUR, Subject, World, ids, settlement_of
from holdfast.store.port import Answer, Checkpoint, Enqueue, Part, PartState, Progress, Retention, Settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.lease import Claimed
    from holdfast.store.port import Settlement


async def settled(world: World, event: Event) -> tuple[Claimed, Settlement]:
    """Return an attempt that was settled by `event`, and that settlement."""
    retry = RETRIES.get(event, AT_ONCE)
    claimed = await world.claimed(retry=retry)
    settlement = settlement_of(claimed.lease, SETTLES[event], retry)
    assert settlement.write.event is event
    assert await world.store.settle([settlement]) == [Settled.APPLIED]
    return claimed, settlement


def settle_by(events: Iterable[Event]) -> pytest.MarkDecorator:
    """Run a test for each of these events."""
    return pytest.mark.parametrize("event", list(events), ids=lambda event: event.name.lower())


every_settle = settle_by(SETTLES)
every_settle_that_can_come_back = settle_by(event for event in SETTLES if event is not Event.CONTINUE)


class Repeats(Subject):
    """Settle by token, enqueue by id."""

    @every_settle
    async def test_repeated_settle_changes_nothing(self, world: World, event: Event) -> None:
        claimed, settlement = await settled(world, event)
        before = await world.snapshot(claimed.job_id)

        answers = [await world.store.settle([settlement]) for _ in range(2)]

        assert answers == [[Settled.REPEATED]] * 2
        before.check_unchanged(await world.snapshot(claimed.job_id), f"repeating a settle by {event}")

    @every_settle_that_can_come_back
    async def test_settle_repeated_after_the_job_moved_on_changes_nothing(self, world: World, event: Event) -> None:
        claimed, settlement = await settled(world, event)
        await self.bring_back(world, claimed)
        second = await world.claim_only(claimed.job_id, worker="two")
        before = await world.snapshot(claimed.job_id)

        while_held = await world.store.settle([settlement])
        before.check_unchanged(await world.snapshot(claimed.job_id), f"repeating {event} while another holds the job")
        assert await world.succeed(second, '"second"') is Settled.APPLIED
        before = await world.snapshot(claimed.job_id)
        after_end = await world.store.settle([settlement])

        before.check_unchanged(await world.snapshot(claimed.job_id), f"repeating {event} after another ended the job")
        assert (while_held, after_end) == ([Settled.REPEATED], [Settled.REPEATED])

    async def bring_back(self, world: World, claimed: Claimed) -> None:
        """Make the job ready again."""
        state = await world.state(claimed.job_id)
        if state is State.SCHEDULED:
            await world.store.rewind(2 * HOUR)
            await world.store.promote(10)
            await world.store.emit(SIGNAL, "1")
        elif state is not State.READY:
            assert await world.store.reopen([claimed.job_id]) == [Answer.DONE]

    @every_settle
    async def test_settle_repeated_after_the_job_was_ended_from_outside_changes_nothing(
        self, world: World, event: Event
    ) -> None:
        claimed, settlement = await settled(world, event)
        await world.store.fail({claimed.job_id: BOOM})
        before = await world.snapshot(claimed.job_id)

        answer = await world.store.settle([settlement])

        assert answer == [Settled.REPEATED]
        before.check_unchanged(await world.snapshot(claimed.job_id), f"repeating a settle by {event}")

    async def test_late_settle_repeated_is_repeated(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()
        assert await world.succeed(claimed) is Settled.LATE
        before = await world.snapshot(claimed.job_id)

        assert await world.succeed(claimed) is Settled.REPEATED

        before.check_unchanged(await world.snapshot(claimed.job_id), "repeating a late settle")

    async def test_another_outcome_under_a_settled_token_changes_nothing(self, world: World) -> None:
        claimed = await world.claimed()
        await world.succeed(claimed, '"first"')
        before = await world.snapshot(claimed.job_id)

        answer = await world.fail(claimed, fatal=True)

        assert answer is Settled.REPEATED, "this token has settled this job before"
        before.check_unchanged(await world.snapshot(claimed.job_id), "a second outcome under a settled token")

    async def test_settled_token_holds_nothing_any_more(self, world: World) -> None:
        claimed = await world.claimed()
        await world.succeed(claimed)
        before = await world.snapshot(claimed.job_id)

        answers = [
            *await world.store.progress([Progress(claimed.lease, 50)]),
            *await world.store.checkpoint([Checkpoint(claimed.lease, Part("part", PartState.COMPLETED))]),
            *await world.store.flag_free([claimed.lease]),
        ]

        assert not {Settled.APPLIED, Settled.LATE} & set(answers), f"writes under a settled token were answered {answers}"
        before.check_unchanged(await world.snapshot(claimed.job_id), "writing under a settled token")

    async def test_first_of_two_settlements_of_one_job_wins(self, world: World) -> None:
        claimed = await world.claimed()
        batch = [settlement_of(claimed.lease, SETTLES[event]) for event in (Event.SUCCEED, Event.FAIL)]

        answers = await world.store.settle(batch)

        assert answers[0] is Settled.APPLIED
        assert answers[1] is not Settled.APPLIED, "one lease was settled twice in one call"
        assert await world.state(claimed.job_id) is State.SUCCEEDED
        await world.check_log(claimed.job_id)

    async def test_partly_repeated_batch_applies_the_rest(self, world: World) -> None:
        jobs = world.jobs(3)
        await world.enqueue(*jobs)
        claims = await world.claim(3)
        settlements = [world.settlement(claim, SETTLES[Event.SUCCEED]) for claim in claims]
        await world.store.settle(settlements[1:2])

        answers = await world.store.settle(settlements)

        assert answers == [Settled.APPLIED, Settled.REPEATED, Settled.APPLIED]
        assert await world.states(ids(jobs)) == [State.SUCCEEDED] * 3
        await world.check_log(*ids(jobs))

    async def test_empty_batches_are_fine(self, world: World) -> None:
        store = world.store

        answers = [await store.enqueue([]), await store.settle([]), await store.extend([]), await store.progress([])]
        more = [await store.checkpoint([]), await store.flag_free([]), await store.cancel([]), await store.complete({})]
        rest = [await store.fail({}), await store.delete([]), await store.reopen([]), await store.get([])]

        assert [*answers, *more, *rest] == [[]] * 12

    # enqueue

    @pytest.mark.parametrize("delay", [0.0, HOUR])
    async def test_repeated_enqueue_changes_nothing(self, world: World, delay: float) -> None:
        job = world.job(delay=delay)
        await world.enqueue(job)
        before = await world.snapshot(job.id)

        answer = (await world.enqueue(job))[0]

        assert (answer.status, answer.job_id) == (Enqueue.REPEATED, job.id)
        before.check_unchanged(await world.snapshot(job.id), "repeating an enqueue")

    async def test_repeated_enqueue_of_a_keyed_job_is_repeated_not_existing(self, world: World) -> None:
        job = world.job(key="k")
        await world.enqueue(job)
        before = await world.snapshot(job.id)

        answer = (await world.enqueue(job))[0]

        assert (answer.status, answer.job_id) == (Enqueue.REPEATED, job.id)
        before.check_unchanged(await world.snapshot(job.id), "repeating a keyed enqueue")

    async def test_repeated_enqueue_of_an_ended_job_does_not_bring_it_back(self, world: World) -> None:
        job = world.job(key="k")
        await world.enqueue(job)
        await world.succeed(await world.claim_only(job.id))
        other = world.job(key="k")
        await world.enqueue(other)
        before = await world.snapshot(job.id, other.id)

        answer = (await world.enqueue(job))[0]

        assert (answer.status, answer.job_id) == (Enqueue.REPEATED, job.id)
        before.check_unchanged(await world.snapshot(job.id, other.id), "repeating the enqueue of an ended job")

    @pytest.mark.parametrize("way", ["deleted", "pruned"])
    async def test_repeated_enqueue_of_a_waiter_whose_blocker_is_gone_is_repeated(self, world: World, way: str) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        waiter = world.job(after=(blocker,))
        await world.enqueue(waiter)
        await world.store.complete({blocker: "1"})
        await world.store.rewind(HOUR)
        await world.store.complete({waiter.id: "1"})  # as long as it is live it needs what it waited for
        if way == "deleted":
            assert await world.store.delete([blocker]) == [Answer.DONE]
        else:
            await world.store.prune(Retention(succeeded=60), limit=10)
        assert await world.state(blocker) is None

        answer = (await world.enqueue(waiter))[0]

        assert (answer.status, answer.job_id) == (Enqueue.REPEATED, waiter.id), "the job is there: nothing else matters"

    async def test_job_twice_in_one_call_is_created_once(self, world: World) -> None:
        job = world.job(key="k")

        answers = await world.enqueue(job, job)

        assert [(one.status, one.job_id) for one in answers] == [(Enqueue.CREATED, job.id), (Enqueue.REPEATED, job.id)]
        assert len(await world.claim(10)) == 1
        await world.check_log(job.id)

    async def test_partly_repeated_enqueue_creates_the_rest(self, world: World) -> None:
        jobs = world.jobs(4)
        await world.enqueue(jobs[0], jobs[2])

        answers = await world.enqueue(*jobs)

        assert [one.status for one in answers] == [Enqueue.REPEATED, Enqueue.CREATED, Enqueue.REPEATED, Enqueue.CREATED]
        assert [one.job_id for one in answers] == ids(jobs)
        assert sorted(ids(await world.claim(10))) == sorted(ids(jobs))
        await world.check_log(*ids(jobs))

    async def test_repeated_enqueue_under_a_current_lease_is_repeated(self, world: World) -> None:
        parent = await world.claimed()
        child = world.job(task="conformance.child")
        await world.enqueue(child, under=parent.lease)

        answer = (await world.enqueue(child, under=parent.lease))[0]

        assert answer.status is Enqueue.REPEATED

    async def test_repeated_progress_and_checkpoint_are_applied_again(self, world: World) -> None:
        claimed = await world.claimed()
        progress = Progress(claimed.lease, 40, "step", "message")
        part = Checkpoint(claimed.lease, Part("part", PartState.COMPLETED, done=2, total=2))

        answers = [*await world.store.progress([progress]), *await world.store.progress([progress])]
        answers += [*await world.store.checkpoint([part]), *await world.store.checkpoint([part])]

        assert answers == [Settled.APPLIED] * 4
        assert (await world.view(claimed.job_id)).progress == 40
        assert len(await world.store.parts(claimed.job_id)) == 1
