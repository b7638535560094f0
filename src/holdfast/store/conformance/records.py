"""What is written down about a job, and that it comes back as it went in."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any, Final

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy, NewJob, Unique
from holdfast.core.outcome import MESSAGE_LIMIT, Error, Failed, Released, Rescheduled
from holdfast.core.states import Event, State
from holdfast.errors import BadJob
from holdfast.store.conformance.world import (
    BLOCKER_TASK,
    BOOM,
    HOUR,
    LATER,
    LEASE,
    ONCE,
    TASK,
    Subject,
    World,
    endings,
    steps,
)
from holdfast.store.port import JobFilter, Part, PartState, Progress, Settled, Worker

HOSTILE: Final = {
    "astral": "\U0001d518\U0001d52b 🧵🏴\u200d☠️ \U00010348",
    "right_to_left": "\u202e\u05e9\u05dc\u05d5\u05dd عالم\u202c",
    "combining": "e\u0301 é \ufb01 \u0130 ß",
    "quotes": 'it\'s "quoted" `back` $$dollar$$ $1 %s :name ?',
    "backslashes": r"\ \\ \n \u0041 \x00 \N{BEE}",
    "braces": "{}{{1,2}} [NULL] (a,b) ,;|",
    "null": "null",
    "sql": "'; DROP TABLE job; --",
    "control": "\t\r\n\x01\x7f\u0085\u2028\ufeff",
    "blank": " leading and trailing ",
    "number": "1e400",
    "noncharacter": "\uffff\U0010ffff",
}
"""Text that is legal everywhere, and that careless code mangles."""

hostile = pytest.mark.parametrize("text", list(HOSTILE.values()), ids=list(HOSTILE))


class Records(Subject):
    """Attempts, events, parts, progress, and faithful values."""

    # attempts and events

    async def test_attempts_tell_who_ran_when_and_how_it_ended(self, world: World) -> None:
        job_id = await world.create()
        await world.settle(await world.claim_only(job_id, worker="one"), Failed(BOOM))
        await world.settle(await world.claim_only(job_id, worker="two"), Released("shutdown"))
        await world.reaped(await world.claim_only(job_id, worker="one"))
        running = await world.claim_only(job_id, worker="two")

        attempts = await world.store.attempts(job_id)
        assert [(one.attempt, one.event) for one in attempts] == [
            (1, Event.RETRY),
            (2, Event.RELEASE),
            (3, Event.EXPIRE),
            (4, None),
        ]
        assert [one.worker_name for one in attempts] == ["one", "two", "one", "two"]
        assert [one.worker_id for one in attempts][:2] == [await world.worker("one"), await world.worker("two")]
        assert attempts[0].error == BOOM
        assert (attempts[3].claimed_at, attempts[3].ended_at) == (running.claimed_at, None)
        for one in attempts[:3]:
            assert one.ended_at is not None
            assert one.ended_at >= one.claimed_at
        await world.succeed(running)
        assert endings(await world.store.attempts(job_id))[3] == (4, Event.SUCCEED, False)
        await world.check_log(job_id)

    async def test_job_never_claimed_has_no_attempts(self, world: World) -> None:
        assert await world.store.attempts(await world.create()) == []
        assert await world.store.attempts(uuid7()) == []
        assert await world.store.events(uuid7()) == []
        assert await world.store.parts(uuid7()) == []

    async def test_event_log_tells_the_whole_life(self, world: World) -> None:
        job_id = await world.create(retry=LATER, delay=HOUR)
        await world.store.rewind(2 * HOUR)
        await world.store.promote(10)
        await world.fail(await world.claim_only(job_id))
        await world.store.rewind(2 * HOUR)
        await world.store.promote(10)
        await world.settle(await world.claim_only(job_id, worker="two"), Released("shutdown"))
        await world.succeed(await world.claim_only(job_id))

        log = await world.store.events(job_id)

        assert steps(log) == [
            (Event.ENQUEUE_LATER, State.SCHEDULED, 0),
            (Event.PROMOTE, State.READY, 0),
            (Event.CLAIM, State.RUNNING, 1),
            (Event.RETRY_LATER, State.SCHEDULED, 1),
            (Event.PROMOTE, State.READY, 1),
            (Event.CLAIM, State.RUNNING, 2),
            (Event.RELEASE, State.READY, 2),
            (Event.CLAIM, State.RUNNING, 3),
            (Event.SUCCEED, State.SUCCEEDED, 3),
        ]
        actors = [line.actor for line in log]
        assert actors[1:] == ["promoter", "one", "one", "promoter", "two", "two", "one", "one"]
        assert log[3].detail == "BOOM: it broke"
        assert "shutdown" in log[6].detail
        assert [line.at for line in log] == sorted(line.at for line in log), "the log goes forward in time"

    async def test_the_last_attempts_and_events_are_the_end_of_all_of_them(self, world: World) -> None:
        job_id = await world.create(retry=LATER)
        for name in ("one", "two", "one"):
            claimed = await world.claim_only(job_id, worker=name)
            await world.mark(claimed, (Event.STAGE_ENTER, "fetch"))
            await world.settle(claimed, Released("no room"))
        await world.fail(await world.claim_only(job_id))
        await world.store.rewind(2 * HOUR)
        await world.store.promote(10)
        last = await world.claim_only(job_id, worker="two")

        async def agree() -> None:
            attempts, log = await world.store.attempts(job_id), await world.store.events(job_id)
            assert (len(attempts), len(log)) > (4, 12)
            for count in (-1, 0, 1, 2, 4, 5, 7, len(log), 1_000, 2**40):
                assert await world.store.attempts(job_id, last=count) == attempts[max(0, len(attempts) - max(0, count)) :]
                assert await world.store.events(job_id, last=count) == log[max(0, len(log) - max(0, count)) :]

        await agree()
        await world.succeed(last)
        await agree()
        await world.store.reopen([job_id])
        await world.succeed(await world.claim_only(job_id))
        await agree()
        assert await world.store.attempts(uuid7(), last=3) == []
        assert await world.store.events(uuid7(), last=3) == []

    async def test_attempt_stopped_at_shutdown_is_told_from_one_given_back_unrun(self, world: World) -> None:
        job_id = await world.create()
        await world.settle(await world.claim_only(job_id), Released("no room"))
        await world.settle(await world.claim_only(job_id), Released("shutting down", aborted=True))
        claimed = await world.claim_only(job_id)

        assert claimed.failures == 0
        assert await world.attempts(job_id) == [(1, Event.RELEASE), (2, Event.ABORT), (3, None)]
        lines = [line for line in await world.store.events(job_id) if line.event in (Event.RELEASE, Event.ABORT)]
        assert [line.detail for line in lines] == ["RELEASED: no room", "ABORTED: shutting down"]
        await world.check_log(job_id)

    async def test_event_log_names_housekeepers(self, world: World) -> None:
        blocker = await world.create(task=BLOCKER_TASK)
        waiter = await world.waiter(blocker, retry=ONCE)
        follower = await world.waiter(waiter, on_blocker_failure=BlockerPolicy.CANCEL)
        await world.store.complete({blocker: "1"}, by="ops")
        await world.reaped(await world.claim_only(waiter))

        lines = [*await world.store.events(waiter), *await world.store.events(follower)]

        told = [(line.event, line.actor) for line in lines if line.event not in (Event.ENQUEUE_BLOCKED, Event.CLAIM)]
        assert told == [(Event.UNBLOCK, "store"), (Event.EXPIRE_FAIL, "reaper"), (Event.BLOCKER_CANCEL, "store")]
        assert str(waiter) in lines[-1].detail

    async def test_archived_job_names_the_worker_of_its_last_attempt(self, world: World) -> None:
        job_id = await world.create()
        await world.fail(await world.claim_only(job_id, worker="one"))
        await world.succeed(await world.claim_only(job_id, worker="two"), '{"ok": true}')

        view = await world.view(job_id)

        assert (view.worker_id, view.worker_name) == (await world.worker("two"), "two")
        assert (view.result, view.error, view.attempt, view.failures) == ('{"ok": true}', None, 2, 1)
        assert view.finished_at is not None
        assert (view.expires_at, view.lapsed, view.late) == (None, False, False)

    async def test_waiting_job_shows_no_worker_lease_or_end(self, world: World) -> None:
        job_id = await world.create()
        await world.fail(await world.claim_only(job_id))

        view = await world.view(job_id)

        assert (view.state, view.attempt, view.failures) == (State.READY, 1, 1)
        assert (view.expires_at, view.heartbeat_at, view.finished_at, view.lapsed) == (None, None, None, False)
        assert view.ready_at is not None

    async def test_get_keeps_the_order_asked_for(self, world: World) -> None:
        jobs = [await world.create() for _ in range(3)]
        asked = [jobs[2], uuid7(), jobs[0], jobs[2]]

        views = await world.store.get(asked)

        assert [view and view.id for view in views] == [jobs[2], None, jobs[0], jobs[2]]

    # progress and parts

    async def test_progress_is_shown_and_extends_the_lease(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.rewind(LEASE / 2)
        before = await world.view(claimed.job_id)

        assert await world.store.progress([Progress(claimed.lease, 40, "encode", "frame 7")]) == [Settled.APPLIED]

        view = await world.view(claimed.job_id)
        assert (view.progress, view.step, view.message) == (40, "encode", "frame 7")
        assert before.expires_at is not None
        assert view.expires_at is not None
        assert view.expires_at - before.expires_at > timedelta(seconds=LEASE / 4)
        await world.check_log(claimed.job_id)

    async def test_progress_survives_retries_and_the_end(self, world: World) -> None:
        job_id = await world.create()
        claimed = await world.claim_only(job_id)
        await world.store.progress([Progress(claimed.lease, 40, "encode", "frame 7")])
        await world.fail(claimed)
        waiting = await world.view(job_id)
        await world.succeed(await world.claim_only(job_id))
        ended = await world.view(job_id)

        assert [(view.progress, view.step, view.message) for view in (waiting, ended)] == [(40, "encode", "frame 7")] * 2

    async def test_hostile_progress_is_cleaned_not_refused(self, world: World) -> None:
        claimed = await world.claimed()
        updates = [
            Progress(claimed.lease, math.nan, "nul \0 byte", "lone \ud800 surrogate"),
            Progress(claimed.lease, math.inf, "s" * 10_000, "m" * 100_000),
            Progress(claimed.lease, -5),
            Progress(claimed.lease, 1e308, HOSTILE["astral"], HOSTILE["sql"]),
        ]

        answers = [(await world.store.progress([update]))[0] for update in updates]

        view = await world.view(claimed.job_id)
        assert answers == [Settled.APPLIED] * 4
        assert (view.progress, view.step, view.message) == (100, HOSTILE["astral"], HOSTILE["sql"])

    async def test_last_progress_of_a_batch_stands(self, world: World) -> None:
        claimed = await world.claimed()

        answers = await world.store.progress([Progress(claimed.lease, percent) for percent in (10, 20, 30)])

        assert all(answer.accepted for answer in answers)
        assert (await world.view(claimed.job_id)).progress == 30

    async def test_checkpoint_extends_the_lease(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()

        assert (await world.part(claimed, "part")).accepted

        assert not (await world.view(claimed.job_id)).lapsed
        assert await world.store.reap(10) == [], "the reaper took a lease that a checkpoint had extended"

    async def test_parts_survive_retries_and_the_end(self, world: World) -> None:
        job_id = await world.create()
        claimed = await world.claim_only(job_id)
        await world.part(claimed, "download", PartState.COMPLETED, done=10, total=10, data='{"path": "/x"}')
        await world.part(claimed, "encode", PartState.IN_PROGRESS, done=3, total=8)
        await world.fail(claimed)
        second = await world.claim_only(job_id)
        kept = await world.store.parts(job_id)
        await world.part(second, "encode", PartState.COMPLETED, done=8, total=8)
        await world.succeed(second)

        parts = await world.store.parts(job_id)

        assert [(part.name, part.state, part.done) for part in kept] == [
            ("download", PartState.COMPLETED, 10),
            ("encode", PartState.IN_PROGRESS, 3),
        ]
        assert kept[0].data == '{"path": "/x"}'
        assert [(part.name, part.state, part.percent) for part in parts] == [
            ("download", PartState.COMPLETED, 100),
            ("encode", PartState.COMPLETED, 100),
        ]

    async def test_parts_keep_the_order_of_their_first_writing(self, world: World) -> None:
        claimed = await world.claimed()
        for name in ("zeta", "alpha", "mid", "zeta", "beta", "alpha"):
            await world.part(claimed, name)

        assert [part.name for part in await world.store.parts(claimed.job_id)] == ["zeta", "alpha", "mid", "beta"]

    async def test_parts_know_when_they_started_and_completed(self, world: World) -> None:
        claimed = await world.claimed(lease=9 * HOUR)
        await world.part(claimed, "part", PartState.PENDING)
        pending = (await world.store.parts(claimed.job_id))[0]
        await world.part(claimed, "part", PartState.IN_PROGRESS)
        started = (await world.store.parts(claimed.job_id))[0]
        await world.store.rewind(HOUR)
        await world.part(claimed, "part", PartState.FAILED, error="went wrong")
        failed = (await world.store.parts(claimed.job_id))[0]
        await world.part(claimed, "part", PartState.IN_PROGRESS)
        again = (await world.store.parts(claimed.job_id))[0]
        await world.part(claimed, "part", PartState.SKIPPED)
        skipped = (await world.store.parts(claimed.job_id))[0]

        assert (pending.started_at, pending.completed_at) == (None, None)
        assert started.started_at is not None
        assert started.completed_at is None
        assert failed.started_at == started.started_at - timedelta(seconds=HOUR), "it started when it first left pending"
        assert failed.completed_at is not None
        assert failed.completed_at - failed.started_at > timedelta(seconds=HOUR / 2)
        assert failed.error == "went wrong"
        assert (again.started_at, again.completed_at) == (failed.started_at, None)
        assert skipped.completed_at is not None
        assert (skipped.done, skipped.total, skipped.error) == (0, None, None), "a part is as last written"

    @hostile
    async def test_parts_keep_hostile_text(self, world: World, text: str) -> None:
        claimed = await world.claimed()
        await world.part(claimed, text, PartState.COMPLETED, done=0.1, total=1e300, data=text, error=text)

        part = (await world.store.parts(claimed.job_id))[0]

        assert (part.name, part.data, part.error, part.done, part.total) == (text, text, text, 0.1, 1e300)

    # faithful values

    @hostile
    async def test_hostile_names_come_back_as_they_went_in(self, world: World, text: str) -> None:
        job = world.job(text, queue=text, key=text, scope=text, tags=(text, "plain"), requires=(text,), trace=text)
        await world.store.register(Worker(id=uuid7(), name=text))
        await world.enqueue(job)

        view = await world.view(job.id)
        found = await world.all_jobs(JobFilter(task=text, queue=text, key=text, tag=text))
        claims = await world.claim(1, tasks=(text,), queues=(text,), capabilities=(text,))
        await world.store.pause(text, by=text, reason=text)

        assert (view.task, view.queue, view.key, view.scope, view.trace) == (text,) * 5
        assert (view.tags, view.requires) == ((text, "plain"), (text,))
        assert [one.id for one in found] == [job.id]
        assert [(claim.task, claim.queue, claim.trace) for claim in claims] == [(text, text, text)]
        assert text in [view.worker.name for view in await world.store.workers()]
        queue = next(one for one in await world.store.queues() if one.name == text)
        assert (queue.paused_by, queue.reason) == (text, text)
        assert (await world.store.stats()).count(State.RUNNING, queue=text, task=text) == 1

    @hostile
    async def test_hostile_values_come_back_as_they_went_in(self, world: World, text: str) -> None:
        document = json.dumps({text: [text]}, ensure_ascii=False)
        error = Error(text[:100], text, text)
        failing, succeeding = world.job(args=document), world.job(args=json.dumps(text))
        await world.enqueue(failing, succeeding)
        claims = await world.claim(2)
        await world.fail(claims[0], error, fatal=True)
        await world.succeed(claims[1], document)

        failed, succeeded = await world.view(failing.id), await world.view(succeeding.id)

        assert [claim.args for claim in claims] == [document, json.dumps(text)]
        assert (failed.args, failed.error) == (document, error)
        assert (succeeded.args, succeeded.result) == (json.dumps(text), document)
        assert (await world.store.attempts(failing.id))[0].error == error

    @pytest.mark.parametrize(
        "text",
        [
            '{"a": 1.0, "b": 1e400, "c": 0.1000000000000000055511151231257827, "d": -0.0, "e": 9223372036854775807}',
            '{"b":1,"a":2,"b":3}',
            '  {"spaces" :  [ 1 ,2 ] }  ',
            "null",
            '""',
            "[" * 60 + "]" * 60,
        ],
        ids=["numbers", "repeated_keys", "spaces", "null", "empty", "deep"],
    )
    async def test_json_text_is_kept_letter_by_letter(self, world: World, text: str) -> None:
        claimed = await world.claimed(args=text)
        await world.succeed(claimed, text)

        view = await world.view(claimed.job_id)

        assert (claimed.args, view.args, view.result) == (text, text, text)

    async def test_large_values_come_back_whole(self, world: World) -> None:
        text = json.dumps({"text": "äöü\U0001d518" * 100_000}, ensure_ascii=False)
        assert len(text.encode()) > 900_000
        claimed = await world.claimed(args=text)
        await world.succeed(claimed, text)

        view = await world.view(claimed.job_id)

        assert claimed.args == text, "the args of a claim differ from what was enqueued"
        assert view.args == text, "the args shown differ from what was enqueued"
        assert view.result == text, "the result shown differs from what was settled"

    async def test_errors_of_any_text_can_be_stored(self, world: World) -> None:
        error = Error("CODE\0" * 100, "nul \0 lone \udcff" + "m" * (MESSAGE_LIMIT + 10), "t" * 1_000_000)
        claimed = await world.claimed()

        assert await world.fail(claimed, error, fatal=True) is Settled.APPLIED

        assert (await world.view(claimed.job_id)).error == error

    async def test_every_field_of_a_job_is_kept(self, world: World) -> None:
        chain = uuid7()
        job = world.job(
            id=chain,
            args='{"x": 1}',
            queue="q",
            priority=0,
            lease=0.5,
            retry=LATER,
            tags=("b", "a"),
            requires=("z", "y"),
            chain_id=chain,
        )
        await world.enqueue(job)

        view = await world.view(job.id)

        kept = (view.task, view.queue, view.priority, view.args, view.lease_seconds, view.policy, view.tags, view.chain_id)
        assert kept == (TASK, "q", 0, '{"x": 1}', 0.5, job.policy, ("b", "a"), chain)
        assert set(view.requires) == {"y", "z"}

    async def test_unusual_policies_are_kept(self, world: World) -> None:
        plain = NewJob(id=uuid7(), task=TASK)
        await world.enqueue(plain)

        claimed = await world.claim_only(plain.id)

        assert claimed.policy == plain.policy
        assert (await world.view(plain.id)).policy == plain.policy

    async def test_rescheduling_to_a_moment_keeps_it(self, world: World) -> None:
        claimed = await world.claimed()
        at = claimed.claimed_at + timedelta(days=400, microseconds=1)

        await world.settle(claimed, Rescheduled(at=at))

        assert (await world.view(claimed.job_id)).run_at == at

    async def test_late_mark_stays_with_the_attempt(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()
        await world.fail(claimed)
        await world.succeed(await world.claim_only(claimed.job_id))

        assert endings(await world.store.attempts(claimed.job_id)) == [(1, Event.RETRY, True), (2, Event.SUCCEED, False)]
        assert not (await world.view(claimed.job_id)).late, "the job itself was settled in time"

    def test_illegal_values_never_reach_a_store(self) -> None:
        illegal: list[dict[str, Any]] = [
            {"args": "nul \0"},
            {"args": "lone \ud800"},
            {"task": ""},
            {"queue": "q" * 201},
            {"tags": ("ok", "\0")},
            {"priority": 10},
            {"delay": math.nan},
            {"lease": 0.0},
            {"unique": Unique(key="\udc00", scope="s")},
        ]
        for fields in illegal:
            with pytest.raises(BadJob):
                NewJob(**{"id": uuid7(), "task": TASK, **fields})
        with pytest.raises(BadJob):
            Part("", PartState.PENDING)
