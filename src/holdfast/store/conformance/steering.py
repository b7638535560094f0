"""What clients and operators do to jobs and queues from outside."""

from __future__ import annotations

import asyncio

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.outcome import CANCELED, Error, Failed
from holdfast.core.states import LIVE, TERMINAL, WAITING, Event, State
from holdfast.store.conformance.cells import put
from holdfast.store.conformance.world import BOOM, HOUR, OTHER_TASK, Subject, World, ids
from holdfast.store.port import Answer, Settled

LIVE_STATES = sorted(LIVE)
WAITING_STATES = sorted(WAITING)
TERMINAL_STATES = sorted(TERMINAL)


class Steering(Subject):
    """Cancel, complete, fail, delete, reopen, pause, resume. The plain cells are in `cells`."""

    # one job

    @pytest.mark.parametrize("state", WAITING_STATES)
    async def test_canceled_waiting_job_keeps_who_and_why(self, world: World, state: State) -> None:
        job_id = (await put(world, state, Event.CANCEL)).job_id

        assert await world.store.cancel([job_id], by="ops", reason="not needed") == [Answer.DONE]

        view, line = await world.view(job_id), (await world.store.events(job_id))[-1]
        assert (view.state, view.error) == (State.CANCELED, Error(CANCELED, "not needed"))
        assert view.finished_at is not None
        assert (line.event, line.state, line.actor) == (Event.CANCEL, State.CANCELED, "ops")
        assert "not needed" in line.detail

    async def test_running_job_is_asked_to_stop_once(self, world: World) -> None:
        claimed = await world.claimed()

        first = await world.store.cancel([claimed.job_id], by="ops", reason="enough")
        before = await world.snapshot(claimed.job_id)
        second = await world.store.cancel([claimed.job_id], by="somebody else", reason="please")

        view, log = await world.view(claimed.job_id), await world.store.events(claimed.job_id)
        assert (first, second) == ([Answer.REQUESTED], [Answer.REQUESTED])
        before.check_unchanged(await world.snapshot(claimed.job_id), "asking twice")
        assert (view.state, view.cancel_requested) == (State.RUNNING, True)
        requests = [(line.event, line.state, line.actor, line.detail) for line in log if line.event is Event.CANCEL]
        assert requests == [(Event.CANCEL, State.RUNNING, "ops", "enough")]

    @pytest.mark.parametrize("state", LIVE_STATES)
    async def test_job_completed_from_outside_keeps_result_and_actor(self, world: World, state: State) -> None:
        job_id = (await put(world, state, Event.COMPLETE_OUTSIDE)).job_id

        assert await world.store.complete({job_id: '{"by": "hand"}'}, by="ops") == [Answer.DONE]

        view, line = await world.view(job_id), (await world.store.events(job_id))[-1]
        assert (view.state, view.result, view.error) == (State.SUCCEEDED, '{"by": "hand"}', None)
        assert view.finished_at is not None
        assert (line.event, line.actor) == (Event.COMPLETE_OUTSIDE, "ops")
        assert not await self.held(world), "a job ended from outside is still held"

    @pytest.mark.parametrize("state", LIVE_STATES)
    async def test_job_failed_from_outside_keeps_error_and_actor(self, world: World, state: State) -> None:
        job_id = (await put(world, state, Event.FAIL_OUTSIDE)).job_id

        assert await world.store.fail({job_id: BOOM}, by="ops") == [Answer.DONE]

        view, line = await world.view(job_id), (await world.store.events(job_id))[-1]
        assert (view.state, view.result, view.error) == (State.FAILED, None, BOOM)
        assert (line.event, line.actor, line.detail) == (Event.FAIL_OUTSIDE, "ops", "BOOM: it broke")
        assert not await self.held(world), "a job ended from outside is still held"

    async def held(self, world: World) -> list[object]:
        return [lease for name in world.workers for lease in await world.store.holding(world.workers[name])]

    async def test_attempt_ended_from_outside_is_recorded(self, world: World) -> None:
        first = await world.claimed()
        await world.store.complete({first.job_id: "1"})
        second = await world.claimed()
        await world.store.fail({second.job_id: BOOM})

        assert await world.attempts(first.job_id) == [(1, Event.COMPLETE_OUTSIDE)]
        assert await world.attempts(second.job_id) == [(1, Event.FAIL_OUTSIDE)]

    @pytest.mark.parametrize("state", list(State))
    async def test_deleted_job_leaves_nothing(self, world: World, state: State) -> None:
        cell = await put(world, state, Event.DELETE)
        neighbour = await world.create(task=OTHER_TASK)

        assert await world.store.delete([cell.job_id], by="ops") == [Answer.DONE]

        assert await world.state(cell.job_id) is None
        assert await world.store.events(cell.job_id) == []
        assert await world.store.attempts(cell.job_id) == []
        assert await world.store.parts(cell.job_id) == []
        assert not await self.held(world)
        assert await world.store.delete([cell.job_id]) == [Answer.NOT_FOUND]
        assert await world.claim(10) == []
        assert await world.state(neighbour) is State.READY
        await world.check_log(neighbour)

    async def test_id_of_a_deleted_job_may_be_used_again(self, world: World) -> None:
        job = world.job(key="k")
        await world.enqueue(job)
        await world.part(await world.claim_only(job.id), "part")
        await world.store.delete([job.id])

        answer = (await world.enqueue(job))[0]

        assert answer.status == "created"
        claimed = await world.claim_only(job.id)
        assert (claimed.attempt, claimed.failures) == (1, 0)
        assert await world.store.parts(job.id) == []
        await world.check_log(job.id)

    @pytest.mark.parametrize("state", TERMINAL_STATES)
    async def test_reopened_job_is_fresh_but_remembers(self, world: World, state: State) -> None:
        job_id = await world.ended(state)
        log = await world.store.events(job_id)
        assert await world.store.reopen([job_id], by="ops") == [Answer.DONE]

        view, after = await world.view(job_id), await world.store.events(job_id)

        assert (view.state, view.failures, view.attempt) == (State.READY, 0, 1)
        assert (view.result, view.error, view.finished_at, view.late) == (None, None, None, False)
        assert after[:-1] == log, "reopening must not change what the log said before"
        assert (after[-1].event, after[-1].actor) == (Event.REOPEN, "ops")
        endings = {State.SUCCEEDED: Event.SUCCEED, State.FAILED: Event.FAIL, State.CANCELED: Event.STOP}
        assert await world.attempts(job_id) == [(1, endings[state])]
        second = await world.claim_only(job_id)
        assert second.attempt == 2
        await world.succeed(second)
        assert await world.attempts(job_id) == [(1, endings[state]), (2, Event.SUCCEED)]
        await world.check_log(job_id)

    async def test_job_reopened_many_times_replays(self, world: World) -> None:
        job_id = await world.ended(State.SUCCEEDED)
        for state in (State.FAILED, State.CANCELED, State.SUCCEEDED):
            await world.store.reopen([job_id])
            await world.end(await world.claim_only(job_id), state)
            await world.check_log(job_id)

        await world.store.reopen([job_id])
        await world.store.cancel([job_id])

        await world.check_log(job_id)
        assert [attempt for attempt, _ in await world.attempts(job_id)] == [1, 2, 3, 4]

    # batches

    async def test_batches_are_answered_one_by_one(self, world: World) -> None:
        ended, claimed, unknown = await world.ended(State.SUCCEEDED), await world.claimed(), uuid7()
        ready = await world.create()

        canceled = await world.store.cancel([ready, ended, unknown, claimed.job_id, ready])
        reopened = await world.store.reopen([claimed.job_id, ready, unknown, ended, ended])

        assert canceled == [Answer.DONE, Answer.REFUSED, Answer.NOT_FOUND, Answer.REQUESTED, Answer.REFUSED]
        assert reopened == [Answer.REFUSED, Answer.DONE, Answer.NOT_FOUND, Answer.DONE, Answer.REFUSED]
        await world.check_log(ended, claimed.job_id, ready)

    async def test_complete_and_fail_answer_in_the_order_given(self, world: World) -> None:
        jobs = world.jobs(4)
        await world.enqueue(*jobs)
        order = [jobs[2].id, uuid7(), jobs[0].id]

        completed = await world.store.complete({job_id: f'"{number}"' for number, job_id in enumerate(order)})
        failed = await world.store.fail(dict.fromkeys((jobs[0].id, jobs[3].id, uuid7()), BOOM))

        assert completed == [Answer.DONE, Answer.NOT_FOUND, Answer.DONE]
        assert failed == [Answer.REFUSED, Answer.DONE, Answer.NOT_FOUND]
        assert [(await world.view(jobs[index].id)).result for index in (2, 0)] == ['"0"', '"2"']
        await world.check_log(*ids(jobs))

    async def test_deleting_twice_in_one_call_finds_nothing_the_second_time(self, world: World) -> None:
        job_id = await world.create()

        assert await world.store.delete([job_id, uuid7(), job_id]) == [Answer.DONE, Answer.NOT_FOUND, Answer.NOT_FOUND]

    # races

    async def test_cancel_against_claim_has_one_winner(self, world: World) -> None:
        other = await world.handle()
        await world.worker()
        for _ in range(30):
            job_id = await world.create()

            answers, claims = await asyncio.gather(other.cancel([job_id]), world.claim(1))

            view = await world.view(job_id)
            if claims:
                assert answers == [Answer.REQUESTED]
                assert (view.state, view.cancel_requested) == (State.RUNNING, True)
            else:
                assert (answers, view.state) == ([Answer.DONE], State.CANCELED)
            await world.check_log(job_id)
            await world.store.delete([job_id])

    async def test_complete_from_outside_against_settle_has_one_winner(self, world: World) -> None:
        other = await world.handle()
        for _ in range(30):
            claimed = await world.claimed()

            answers, settled = await asyncio.gather(
                other.complete({claimed.job_id: '"outside"'}), world.settle(claimed, Failed(BOOM, fatal=True))
            )

            view = await world.view(claimed.job_id)
            if answers == [Answer.DONE]:
                assert (settled, view.result) == (Settled.STALE, '"outside"')
            else:
                assert (answers, settled, view.state) == ([Answer.REFUSED], Settled.APPLIED, State.FAILED)
            await world.store.delete([claimed.job_id])

    # queues

    async def test_pause_stops_claims_of_that_queue_only(self, world: World) -> None:
        stopped, free = await world.create(queue="a"), await world.create(queue="b")

        await world.store.pause("a", by="ops", reason="migration")
        while_paused = ids(await world.claim(10))
        await world.store.resume("a")
        resumed = ids(await world.claim(10))

        assert (while_paused, resumed) == ([free], [stopped])

    async def test_pause_holds_for_every_handle(self, world: World) -> None:
        other = await world.handle()
        await world.create(queue="a")
        assert len(await world.claim(10, store=other)) == 1
        await world.create(queue="a")

        await world.store.pause("a")
        assert await world.claim(10, store=other) == []
        await world.store.resume("a")

        assert len(await world.claim(10, store=other)) == 1

    async def test_pause_before_the_first_job_of_a_queue_holds(self, world: World) -> None:
        await world.store.pause("new")
        job_id = await world.create(queue="new")

        assert await world.claim(10) == []
        await world.store.resume("new")
        await world.claim_only(job_id)

    async def test_pause_stops_fifo_queues_and_released_jobs_too(self, world: World) -> None:
        claimed = await world.claimed(queue="ledger", fifo=True)
        await world.create(queue="ledger", fifo=True)
        await world.store.pause("ledger")
        await world.fail(claimed)

        assert await world.claim(10) == []

    async def test_running_jobs_of_a_paused_queue_go_on(self, world: World) -> None:
        claimed = await world.claimed(queue="a")
        await world.store.pause("a")

        assert (await world.store.extend([claimed.lease]))[0].hold == "held"
        assert await world.succeed(claimed) is Settled.APPLIED

    async def test_pause_shows_who_and_why(self, world: World) -> None:
        job_id, other = await world.create(queue="a"), await world.create(queue="b")
        await world.store.pause("a", by="ops", reason="moving the disks")

        queues = {view.name: view for view in await world.store.queues()}
        paused, free = await world.view(job_id), await world.view(other)

        assert (queues["a"].paused_by, queues["a"].reason) == ("ops", "moving the disks")
        assert queues["a"].paused_at is not None
        assert queues["b"].paused_at is None
        assert (paused.paused, paused.shown, free.paused) == (True, "paused", False)

    async def test_pause_and_resume_may_be_repeated(self, world: World) -> None:
        job_id = await world.create(queue="a")
        for _ in range(2):
            await world.store.pause("a", by="ops", reason="first")
        for _ in range(2):
            await world.store.resume("a")
        await world.store.resume("never seen")

        view = await world.view(job_id)
        queues = {one.name: (one.paused_at, one.paused_by, one.reason) for one in await world.store.queues()}
        assert not view.paused
        assert queues["a"] == (None, "", "")
        await world.claim_only(job_id)

    async def test_queues_show_counts_and_waits(self, world: World) -> None:
        await world.enqueue(*world.jobs(3, queue="b"), world.job(queue="a", delay=HOUR), world.job(OTHER_TASK, queue="b"))
        await world.store.rewind(HOUR / 2)
        await world.claim(1, queues=("b",))

        queues = await world.store.queues()

        assert [queue.name for queue in queues] == ["a", "b"]
        shown = [{state: count for state, count in queue.counts.items() if count} for queue in queues]
        assert shown == [{State.SCHEDULED: 1}, {State.READY: 3, State.RUNNING: 1}]
        assert queues[0].oldest_waiting is None
        assert queues[1].oldest_waiting == pytest.approx(HOUR / 2, abs=60)
