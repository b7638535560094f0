"""Unique keys: at most one holder, freed when the holder ends, whoever ends it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.core.job import BlockerPolicy, OnConflict
from holdfast.core.outcome import BLOCKER_CANCELED, REPLACED, Failed, Released, Rescheduled
from holdfast.core.states import LIVE, State
from holdfast.store.conformance.world import (
    BLOCKER_TASK,
    BOOM,
    ENDINGS,
    HOUR,
    ONCE,
    OTHER_TASK,
    TASK,
    Subject,
    World,
    ids,
)
from holdfast.store.port import Answer, Enqueue, Enqueued, Retention, Settled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from holdfast.core.outcome import Outcome

KEY: Final = "user:42"
TAKES_OVER: Final = (OnConflict.REPLACE, OnConflict.DEBOUNCE)


async def try_key(world: World, **fields: Any) -> Enqueued:
    """Enqueue one more job with the key."""
    return (await world.enqueue(world.job(**{"key": KEY, **fields})))[0]


# --- ways a live holder ends: each takes the id of a ready job that holds the key ----------------------------------------


def by_settling(outcome: Outcome) -> Callable[[World, UUID], Awaitable[None]]:
    async def end(world: World, job_id: UUID) -> None:
        await world.settle(await world.claim_only(job_id), outcome)

    return end


async def by_cancel(world: World, job_id: UUID) -> None:
    await world.store.cancel([job_id])


async def by_complete(world: World, job_id: UUID) -> None:
    await world.store.complete({job_id: "1"})


async def by_fail(world: World, job_id: UUID) -> None:
    await world.store.fail({job_id: BOOM})


async def by_complete_while_running(world: World, job_id: UUID) -> None:
    await world.claim_only(job_id)
    await world.store.complete({job_id: "1"})


async def by_delete(world: World, job_id: UUID) -> None:
    await world.store.delete([job_id])


async def by_delete_while_running(world: World, job_id: UUID) -> None:
    await world.claim_only(job_id)
    await world.store.delete([job_id])


async def by_reaping(world: World, job_id: UUID) -> None:
    await world.reaped(await world.claim_only(job_id))


async def by_cancel_and_reaping(world: World, job_id: UUID) -> None:
    claimed = await world.claim_only(job_id)
    await world.store.cancel([job_id])
    await world.reaped(claimed)


async def by_cancel_and_retry(world: World, job_id: UUID) -> None:
    claimed = await world.claim_only(job_id)
    await world.store.cancel([job_id])
    await world.settle(claimed, Released())


ENDS: Final = {
    "succeeded": by_settling(ENDINGS[State.SUCCEEDED]),
    "failed": by_settling(ENDINGS[State.FAILED]),
    "stopped": by_settling(ENDINGS[State.CANCELED]),
    "exhausted": by_settling(Failed(BOOM)),
    "canceled": by_cancel,
    "completed_outside": by_complete,
    "completed_outside_while_running": by_complete_while_running,
    "failed_outside": by_fail,
    "deleted": by_delete,
    "deleted_while_running": by_delete_while_running,
    "reaped": by_reaping,
    "canceled_and_reaped": by_cancel_and_reaping,
    "canceled_and_released": by_cancel_and_retry,
}


class UniqueKeys(Subject):
    """Keys: skip, replace, debounce, windows, scopes, and when they are free again."""

    # who holds a key

    async def test_taken_key_names_its_holder(self, world: World) -> None:
        first = await try_key(world)
        before = await world.snapshot(first.job_id)

        second = await try_key(world)

        assert first.status is Enqueue.CREATED
        assert second == Enqueued(Enqueue.EXISTING, first.job_id)
        before.check_unchanged(await world.snapshot(first.job_id), "an enqueue that met a taken key")
        assert len(await world.all_jobs()) == 1

    async def test_skipped_job_does_not_exist(self, world: World) -> None:
        await try_key(world)
        skipped = world.job(key=KEY)
        await world.enqueue(skipped)

        assert await world.state(skipped.id) is None
        assert await world.store.events(skipped.id) == []

    async def test_scopes_are_apart(self, world: World) -> None:
        answers = [
            await try_key(world),
            await try_key(world, task=OTHER_TASK),
            await try_key(world, key="user:43"),
            await try_key(world, scope="wide"),
            await try_key(world, task=OTHER_TASK, scope="wide"),
        ]

        statuses = [answer.status for answer in answers]
        assert statuses == [*[Enqueue.CREATED] * 4, Enqueue.EXISTING]
        assert answers[4].job_id == answers[3].job_id, "a scope shared by tasks is held by one of them"

    async def test_duplicates_within_a_call_meet_the_first(self, world: World) -> None:
        jobs = [world.job(key=KEY), world.job(), world.job(key=KEY), world.job(key="other"), world.job(key=KEY)]

        answers = await world.enqueue(*jobs)

        first = jobs[0].id
        assert [answer.status for answer in answers] == ["created", "created", "existing", "created", "existing"]
        assert [answer.job_id for answer in answers] == [first, jobs[1].id, first, jobs[3].id, first]
        assert ids(await world.claim(10)) == [first, jobs[1].id, jobs[3].id]

    async def test_view_shows_key_and_scope(self, world: World) -> None:
        answer = await try_key(world, scope="wide")

        view = await world.view(answer.job_id)

        assert (view.key, view.scope) == (KEY, "wide")

    # when it is free again

    @pytest.mark.parametrize("way", list(ENDS))
    async def test_key_is_free_once_its_holder_ended(self, world: World, way: str) -> None:
        first = await try_key(world, retry=ONCE)
        await ENDS[way](world, first.job_id)
        assert await world.state(first.job_id) not in LIVE, f"the holder should have ended ({way})"

        assert (await try_key(world)).status is Enqueue.CREATED, f"the key is still held after its holder ended ({way})"

    @pytest.mark.parametrize("policy", [BlockerPolicy.FAIL, BlockerPolicy.CANCEL])
    async def test_key_is_free_once_a_blocker_ended_its_holder(self, world: World, policy: BlockerPolicy) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        await try_key(world, after=(blocker,), on_blocker_failure=policy)
        assert (await try_key(world)).status is Enqueue.EXISTING, "a blocked job holds its key"

        await world.store.fail({blocker: BOOM})

        assert (await try_key(world)).status is Enqueue.CREATED

    async def test_key_of_a_job_that_ended_at_once_is_free_for_the_next_of_the_call(self, world: World) -> None:
        failed = await world.ended(State.FAILED, task=BLOCKER_TASK)
        dead, alive = world.job(key=KEY, after=(failed,)), world.job(key=KEY)

        answers = await world.enqueue(dead, alive)

        assert answers == [Enqueued(Enqueue.CREATED, dead.id), Enqueued(Enqueue.CREATED, alive.id)]
        assert await world.states([dead.id, alive.id]) == [State.FAILED, State.READY]
        await world.check_log(dead.id, alive.id)

    async def test_key_stays_with_a_job_that_lives_on(self, world: World) -> None:
        holder = (await try_key(world)).job_id
        for outcome in (Failed(BOOM), Released(), Rescheduled()):
            claimed = await world.claim_only(holder)
            assert (await try_key(world)).status is Enqueue.EXISTING, "a running job holds its key"
            await world.settle(claimed, outcome)
            assert await try_key(world) == Enqueued(Enqueue.EXISTING, holder), f"the key was freed by {outcome}"
        await world.reaped(await world.claim_only(holder))
        assert await try_key(world) == Enqueued(Enqueue.EXISTING, holder), "the key was freed by the reaper"

    async def test_stale_settle_does_not_free_a_key(self, world: World) -> None:
        holder = (await try_key(world)).job_id
        stale = await world.claim_only(holder)
        await world.reaped(stale)

        assert await world.succeed(stale) is Settled.STALE

        assert (await try_key(world)).status is Enqueue.EXISTING

    async def test_settle_repeated_later_does_not_free_the_key_of_another(self, world: World) -> None:
        first = await world.claim_only((await try_key(world)).job_id)
        await world.succeed(first)
        second = (await try_key(world)).job_id

        assert await world.succeed(first) is Settled.REPEATED

        assert await try_key(world) == Enqueued(Enqueue.EXISTING, second)

    async def test_pruned_or_deleted_past_holder_leaves_the_key_of_another_alone(self, world: World) -> None:
        pruned = await world.ended(State.SUCCEEDED, key=KEY)
        deleted = await world.ended(State.SUCCEEDED, key=KEY)
        holder = (await try_key(world)).job_id

        await world.store.delete([deleted])
        await world.store.rewind(HOUR)
        await world.store.prune(Retention(succeeded=60), limit=100)

        assert await world.states([pruned, deleted]) == [None, None]
        assert await try_key(world) == Enqueued(Enqueue.EXISTING, holder)

    # reopening

    async def test_reopened_job_takes_its_key_back(self, world: World) -> None:
        job_id = await world.ended(State.FAILED, key=KEY)

        assert await world.store.reopen([job_id]) == [Answer.DONE]

        assert await try_key(world) == Enqueued(Enqueue.EXISTING, job_id)

    async def test_reopening_into_a_taken_key_changes_nothing(self, world: World) -> None:
        job_id = await world.ended(State.FAILED, key=KEY)
        holder = (await try_key(world)).job_id
        before = await world.snapshot(job_id, holder)

        assert await world.store.reopen([job_id]) == [Answer.KEY_TAKEN]

        before.check_unchanged(await world.snapshot(job_id, holder), "reopening into a taken key")

    @pytest.mark.parametrize("older_first", [True, False])
    async def test_first_of_two_reopened_in_a_call_gets_the_key(self, world: World, *, older_first: bool) -> None:
        older = await world.ended(State.FAILED, key=KEY)
        newer = await world.ended(State.FAILED, key=KEY)
        first, second = (older, newer) if older_first else (newer, older)

        assert await world.store.reopen([first, second]) == [Answer.DONE, Answer.KEY_TAKEN]

        assert await world.states([first, second]) == [State.READY, State.FAILED]
        await world.check_log(first, second)

    # replace and debounce

    @pytest.mark.parametrize("mode", TAKES_OVER)
    @pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.BLOCKED])
    async def test_waiting_holder_is_replaced(self, world: World, mode: OnConflict, state: State) -> None:
        after = (await world.create(task=BLOCKER_TASK),) if state is State.BLOCKED else ()
        old = (await try_key(world, after=after, delay=HOUR if state is State.SCHEDULED else 0.0)).job_id
        assert await world.state(old) is state

        answer = await try_key(world, on_conflict=mode)

        view = await world.view(old)
        assert answer.status is Enqueue.CREATED
        assert view.state is State.CANCELED
        assert view.error is not None
        assert view.error.code == REPLACED
        assert str(answer.job_id) in view.error.message, f"the message should name the new job: {view.error.message!r}"
        assert await try_key(world) == Enqueued(Enqueue.EXISTING, answer.job_id)
        assert ids(await world.claim(10)) == [answer.job_id]
        await world.check_log(old, answer.job_id)

    @pytest.mark.parametrize("mode", TAKES_OVER)
    async def test_running_holder_is_not_replaced(self, world: World, mode: OnConflict) -> None:
        claimed = await world.claim_only((await try_key(world)).job_id)
        before = await world.snapshot(claimed.job_id)

        answer = await try_key(world, on_conflict=mode)

        assert answer == Enqueued(Enqueue.EXISTING, claimed.job_id)
        before.check_unchanged(await world.snapshot(claimed.job_id), f"{mode} against a running holder")

    @pytest.mark.parametrize(("old", "new"), [(0.0, HOUR), (HOUR, 0.0), (HOUR, 9 * HOUR), (9 * HOUR, HOUR)])
    async def test_replace_is_due_at_the_earlier_time(self, world: World, old: float, new: float) -> None:
        await try_key(world, delay=old)

        answer = await try_key(world, delay=new, on_conflict=OnConflict.REPLACE)

        await self.check_due(world, answer.job_id, min(old, new))

    @pytest.mark.parametrize(("old", "new"), [(0.0, HOUR), (HOUR, 0.0), (HOUR, 9 * HOUR), (9 * HOUR, HOUR)])
    async def test_debounce_is_due_when_the_new_job_says(self, world: World, old: float, new: float) -> None:
        await try_key(world, delay=old)

        answer = await try_key(world, delay=new, on_conflict=OnConflict.DEBOUNCE)

        await self.check_due(world, answer.job_id, new)

    async def check_due(self, world: World, job_id: UUID, due: float) -> None:
        view = await world.view(job_id)
        assert view.state is (State.SCHEDULED if due else State.READY)
        if due:
            assert view.run_at is not None
            wait = (view.run_at - view.created_at).total_seconds()
            assert due - 60 < wait < due + 60, f"due in {wait:.0f} s, should be about {due:.0f} s"

    async def test_waiters_of_a_replaced_job_follow_their_policy(self, world: World) -> None:
        old = (await try_key(world)).job_id
        canceled = await world.waiter(old, task=OTHER_TASK, on_blocker_failure=BlockerPolicy.CANCEL)
        runs = await world.waiter(old, task=OTHER_TASK, on_blocker_failure=BlockerPolicy.RUN)

        await try_key(world, on_conflict=OnConflict.REPLACE)

        assert await world.states([canceled, runs]) == [State.CANCELED, State.READY]
        error = (await world.view(canceled)).error
        assert error is not None
        assert error.code == BLOCKER_CANCELED
        await world.check_log(old, canceled, runs)

    async def test_last_of_several_replacements_in_a_call_holds_the_key(self, world: World) -> None:
        jobs = [world.job(key=KEY, on_conflict=OnConflict.DEBOUNCE) for _ in range(3)]

        answers = await world.enqueue(*jobs)

        assert [answer.status for answer in answers] == [Enqueue.CREATED] * 3
        assert await world.states(ids(jobs)) == [State.CANCELED, State.CANCELED, State.READY]
        assert await try_key(world) == Enqueued(Enqueue.EXISTING, jobs[2].id)
        await world.check_log(*ids(jobs))

    async def test_repeated_replace_does_not_replace_itself(self, world: World) -> None:
        job = world.job(key=KEY, on_conflict=OnConflict.REPLACE)
        await world.enqueue(job)

        answer = (await world.enqueue(job))[0]

        assert answer == Enqueued(Enqueue.REPEATED, job.id)
        assert await world.state(job.id) is State.READY

    # windows

    async def test_window_holds_the_key_beyond_the_end_of_the_job(self, world: World) -> None:
        holder = await world.ended(State.SUCCEEDED, key=KEY, window=HOUR)

        within = await try_key(world, window=HOUR)
        await world.store.rewind(2 * HOUR)
        beyond = await try_key(world, window=HOUR)

        assert within == Enqueued(Enqueue.EXISTING, holder)
        assert beyond.status is Enqueue.CREATED

    @pytest.mark.parametrize("mode", TAKES_OVER)
    async def test_holder_that_ended_within_its_window_is_not_replaced(self, world: World, mode: OnConflict) -> None:
        holder = await world.ended(State.SUCCEEDED, key=KEY, window=HOUR)
        before = await world.snapshot(holder)

        assert await try_key(world, on_conflict=mode) == Enqueued(Enqueue.EXISTING, holder)

        before.check_unchanged(await world.snapshot(holder), f"{mode} against a holder that ended within its window")

    async def test_window_that_passed_frees_the_key_of_a_live_job(self, world: World) -> None:
        old = (await try_key(world, window=HOUR)).job_id
        await world.store.rewind(2 * HOUR)

        new = await try_key(world)

        assert new.status is Enqueue.CREATED
        assert await world.states([old, new.job_id]) == [State.READY, State.READY]

    async def test_past_holder_that_ends_leaves_the_key_of_its_successor_alone(self, world: World) -> None:
        old = [(await try_key(world, window=HOUR, key=key)).job_id for key in ("a", "b", "c")]
        await world.store.rewind(2 * HOUR)
        new = [(await try_key(world, key=key)).job_id for key in ("a", "b", "c")]

        await world.store.complete({old[0]: "1"})
        await world.store.cancel([old[1]])
        await world.store.delete([old[2]])

        answers = [await try_key(world, key=key) for key in ("a", "b", "c")]
        assert answers == [Enqueued(Enqueue.EXISTING, job_id) for job_id in new], "the key of a successor was freed"

    async def test_deleting_a_holder_within_its_window_frees_the_key(self, world: World) -> None:
        holder = await world.ended(State.SUCCEEDED, key=KEY, window=HOUR)

        await world.store.delete([holder])

        assert (await try_key(world)).status is Enqueue.CREATED

    async def test_pruning_a_holder_within_its_window_frees_the_key(self, world: World) -> None:
        await world.ended(State.SUCCEEDED, key=KEY, window=9 * HOUR)
        await world.store.rewind(HOUR)

        await world.store.prune(Retention(succeeded=60), limit=10)

        assert (await try_key(world)).status is Enqueue.CREATED

    async def test_reopening_with_a_window_needs_no_key(self, world: World) -> None:
        job_id = await world.ended(State.FAILED, key=KEY, window=HOUR)
        await world.store.rewind(2 * HOUR)
        holder = (await try_key(world)).job_id

        assert await world.store.reopen([job_id]) == [Answer.DONE]

        assert await try_key(world) == Enqueued(Enqueue.EXISTING, holder)

    # races

    async def test_fifty_producers_create_one_job(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        for number in range(5):
            key = f"race {number}"
            producers = [world.enqueue(world.job(key=key), store=handles[index % 4]) for index in range(50)]

            answers = [answer for batch in await asyncio.gather(*producers) for answer in batch]

            created = [answer for answer in answers if answer.status is Enqueue.CREATED]
            assert len(created) == 1, f"{len(created)} of 50 producers created a job with one key"
            assert {answer.job_id for answer in answers} == {created[0].job_id}, "all must be told the same holder"
            assert ids(await world.claim(10)) == [created[0].job_id]

    async def test_batches_with_crossed_keys_do_not_deadlock(self, world: World) -> None:
        other = await world.handle()
        for number in range(10):
            keys = [f"{number}:{index}" for index in range(8)]
            forth = [world.job(key=key) for key in keys]
            back = [world.job(key=key) for key in reversed(keys)]

            answers = await asyncio.gather(world.enqueue(*forth), world.enqueue(*back, store=other))

            created = sum(answer.status is Enqueue.CREATED for batch in answers for answer in batch)
            assert created == len(keys), f"{len(keys)} keys, {created} jobs created"

    async def test_racing_replacements_leave_one_live_job(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        producers = [
            world.enqueue(world.job(key=KEY, on_conflict=OnConflict.REPLACE), store=handles[index % 4]) for index in range(20)
        ]

        answers = [answer for batch in await asyncio.gather(*producers) for answer in batch]

        assert all(answer.status is Enqueue.CREATED for answer in answers), "every replacement took the key in its turn"
        states = await world.states(answer.job_id for answer in answers)
        assert states.count(State.READY) == 1, f"one job should be live: {states}"
        assert states.count(State.CANCELED) == 19
        await world.check_log(*(answer.job_id for answer in answers))
        assert all(view.task == TASK for view in await world.all_jobs())
