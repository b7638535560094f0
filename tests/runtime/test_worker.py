"""A worker runs jobs: every executor but processes, retries, reports, aborts, draining. On every store."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import (
    BadSetting,
    Cancel,
    Fatal,
    Holdfast,
    Job,
    JobCanceled,
    JobFailed,
    Reschedule,
    Retry,
    Retryable,
    State,
    Verdict,
)
from holdfast.runtime import attempt, housekeeping, slots
from holdfast.runtime.counters import STALE, MemoryCounters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.runtime.entry import CallNext

WAIT = 20.0
SOON = Retry(max_attempts=3, initial=0.01, max=0.01)


async def until(condition: Callable[[], Any], seconds: float = WAIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def test_an_async_task_gives_its_result(app: Holdfast) -> None:
    @app.task(queue="mail")
    async def welcome(user_id: int, *, job: Job) -> str:
        return f"sent {user_id} on attempt {job.attempt}"

    handle = await welcome.enqueue(42)
    assert await handle.state() is State.READY
    async with app.worker(concurrency=2):
        assert await handle.result(timeout=WAIT) == "sent 42 on attempt 1"
    assert await handle.state() is State.SUCCEEDED


async def test_a_sync_task_runs_in_a_thread_and_may_enqueue_from_there(app: Holdfast) -> None:
    @app.task()
    def child(number: int) -> int:
        return number + 1

    @app.task()
    def parent(number: int) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return str(child.enqueue_sync(number).id)

    async with app.worker(concurrency=2):
        child_id = await (await parent.enqueue(1)).result(timeout=WAIT)
        assert await app.job(child_id).result(timeout=WAIT) == 2


async def test_a_failing_task_is_tried_again_until_its_budget_is_spent(app: Holdfast) -> None:
    @app.task(retry=SOON)
    async def broken() -> None:
        raise ValueError("token=abc123 did not work")

    handle = await broken.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=WAIT)
    assert failed.value.code == "RETRIES_EXHAUSTED"
    assert "ValueError" in failed.value.error
    assert "abc123" not in failed.value.error + failed.value.traceback, "a secret was kept"
    report = await handle.report()
    assert [attempt.attempt for attempt in report.attempts] == [1, 2, 3]
    assert report.failures == 3
    assert report.attempts[0].error is not None
    assert report.attempts[0].error.code == "ValueError"
    assert "raise ValueError" in report.attempts[0].error.traceback


@pytest.mark.parametrize(
    ("error", "code"),
    [(Fatal("no such user", code="NO_USER"), "NO_USER"), (KeyError("x"), "KeyError")],
    ids=["says so itself", "by the table of codes"],
)
async def test_a_fatal_error_is_not_tried_again(app: Holdfast, error: Exception, code: str) -> None:
    @app.task(retry=SOON, codes={"KeyError": Verdict.FATAL})
    async def broken() -> None:
        raise error

    handle = await broken.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=WAIT)
    assert failed.value.code == code
    assert (await handle.view()).attempt == 1


async def test_a_retryable_error_succeeds_on_a_later_attempt(app: Holdfast) -> None:
    @app.task(retry=SOON)
    async def flaky(*, job: Job) -> int:
        if job.failures < 2:
            raise Retryable("upstream is down", code="UPSTREAM")
        return job.attempt

    counters = MemoryCounters()
    handle = await flaky.enqueue()
    async with app.worker(counters=counters):
        assert await handle.result(timeout=WAIT) == 3
    assert counters.snapshot()["retry_attempts:UPSTREAM"] == 2


async def test_a_reschedule_costs_no_failure(app: Holdfast) -> None:
    @app.task()
    async def later(*, job: Job) -> int:
        if job.attempt < 3:
            raise Reschedule(after=0.01)
        return job.failures

    handle = await later.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 0
    assert (await handle.view()).attempt == 3


async def test_a_handler_may_cancel_its_job(app: Holdfast) -> None:
    @app.task()
    async def unneeded() -> None:
        raise Cancel("nobody asked")

    handle = await unneeded.enqueue()
    async with app.worker():
        with pytest.raises(JobCanceled, match="nobody asked"):
            await handle.result(timeout=WAIT)


async def test_exits_and_strange_errors_of_a_handler_do_not_hurt_the_worker(app: Holdfast) -> None:
    class Strange(BaseException):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @app.task(retry=1)
    async def leaves() -> None:
        raise SystemExit(3)

    @app.task(retry=1)
    async def strange() -> None:
        raise Strange

    @app.task(retry=1)
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @app.task(retry=1)
    async def unstorable() -> Any:
        return object()

    @app.task()
    async def fine() -> int:
        return 1

    async with app.worker(concurrency=1):
        for task, code in ((leaves, "SystemExit"), (strange, "Strange"), (cancels_itself, "CancelledError")):
            handle = await task.enqueue()
            with pytest.raises(JobFailed, match=code):
                await handle.result(timeout=WAIT)
        with pytest.raises(JobFailed, match="BAD_RESULT"):
            await (await unstorable.enqueue()).result(timeout=WAIT)
        assert await (await fine.enqueue()).result(timeout=WAIT) == 1


async def test_progress_stages_checkpoints_and_logs_are_kept(app: Holdfast) -> None:
    @app.task(retry=SOON)
    async def render(*, job: Job) -> list[str]:
        redone = []
        for name in ("a", "b", "c"):
            if job.done(name):
                continue
            with job.stage(name):
                redone.append(name)
                await job.checkpoint(name, data={"size": 2**53 + 1})
            job.progress(50, "halfway", step=name)
            if name == "b" and job.attempt == 1:
                raise RuntimeError("lost power")
        job.log.info("all %d parts done", 3, width=1920)
        logging.getLogger("some.library").warning("said in passing")
        assert job.data("a") == {"size": 2**53 + 1}
        return redone

    handle = await render.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == ["c"]
    report = await handle.report()
    assert [(stage.name, stage.attempt) for stage in report.stages] == [("a", 1), ("b", 1), ("c", 2)]
    assert all(stage.seconds is not None for stage in report.stages)
    assert [part.name for part in report.parts] == ["a", "b", "c"]
    assert "attempt 2" in str(report)
    lines = await handle.logs()
    assert [(line.level, line.message) for line in lines] == [("info", "all 3 parts done"), ("warning", "said in passing")]
    assert lines[0].fields == '{"width":1920}'
    assert (await handle.view()).progress == 50


async def test_a_checkpoint_that_is_not_awaited_is_stored_before_the_end(app: Holdfast) -> None:
    @app.task()
    async def careless(*, job: Job) -> None:
        job.checkpoint("part", done=1, total=4)

    handle = await careless.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)
    part = (await handle.report()).parts[0]
    assert (part.state, part.percent) == ("in_progress", 25.0)


async def test_a_thread_checkpoints_and_sees_its_parts_again(app: Holdfast) -> None:
    @app.task(retry=SOON)
    def build(*, job: Job) -> int:
        if job.done("compile"):
            return int(job.data("compile"))
        job.checkpoint("compile", data=7)
        raise RuntimeError("again")

    handle = await build.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 7


@pytest.mark.row(36)
async def test_concurrency_is_never_exceeded_and_fully_used(app: Holdfast) -> None:
    running = most = 0
    full = asyncio.Event()

    @app.task()
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running -= 1

    handles = await app.enqueue_many([work.call() for _ in range(9)])
    async with app.worker(concurrency=3, prefetch=4):
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert most == 3


@pytest.mark.row(36)
async def test_a_worker_takes_no_more_jobs_than_it_has_room_for(app: Holdfast) -> None:
    go = asyncio.Event()

    @app.task()
    async def work() -> None:
        await go.wait()

    await app.enqueue_many([work.call() for _ in range(10)])
    async with app.worker(concurrency=2, prefetch=1) as worker:
        await until(lambda: worker.counters.snapshot().get("claimed_jobs") == 3)
        assert (await app.stats())["running"] == 3
        assert (await app.stats())["ready"] == 7
        go.set()
        await until(lambda: worker.counters.snapshot().get("settled_jobs:succeeded") == 10)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.row(33)
async def test_unknown_tasks_wait_and_others_pass_them(make_app: Callable[..., Holdfast]) -> None:
    producer, consumer = make_app(), make_app()

    @producer.task(name="new")
    async def new() -> None: ...

    @producer.task(name="old")
    async def old() -> None: ...

    @consumer.task(name="old")
    async def also_old() -> None: ...

    unknown = await new.enqueue()
    known = await old.enqueue()
    async with consumer.worker():
        await known.result(timeout=WAIT)
    assert await unknown.state() is State.READY


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.row(33)
async def test_args_that_no_longer_decode_wait_at_no_cost(make_app: Callable[..., Holdfast]) -> None:
    producer, consumer = make_app(), make_app()

    @producer.task(name="resize")
    async def resize(width: str) -> None: ...

    @consumer.task(name="resize")
    async def resize_now(width: int) -> None: ...

    handle = await resize.enqueue("wide")
    async with consumer.worker() as worker:
        await until(lambda: worker.counters.snapshot().get("settled_jobs:rescheduled:later"))
    view = await handle.view()
    assert (view.state, view.failures) == (State.SCHEDULED, 0)
    error = (await handle.report()).attempts[0].error
    assert error is not None
    assert error.code == "BAD_ARGS"
    assert "width" in error.message


async def test_cancel_stops_a_running_async_handler(app: Holdfast) -> None:
    started = asyncio.Event()

    @app.task()
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    async with app.worker():
        await asyncio.wait_for(started.wait(), WAIT)
        assert await handle.cancel("enough")
        with pytest.raises(JobCanceled):
            await handle.result(timeout=WAIT)
    assert await handle.cancel() is False


async def test_a_thread_sees_why_it_should_stop(app: Holdfast) -> None:
    started = threading.Event()
    seen: list[str] = []

    @app.task()
    def patient(*, job: Job) -> None:
        started.set()
        assert job.abort.wait(WAIT)
        seen.append(str(job.abort.reason))
        job.abort.check()

    handle = await patient.enqueue()
    async with app.worker():
        await until(started.is_set)
        await handle.cancel()
        with pytest.raises(JobCanceled):
            await handle.result(timeout=WAIT)
    assert seen == ["canceled"]


@pytest.mark.row(7)
async def test_an_attempt_is_stopped_at_its_time_out(app: Holdfast) -> None:
    @app.task(timeout=0.2, retry=1)
    async def endless() -> None:
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await handle.result(timeout=WAIT)


@pytest.mark.row(7)
async def test_a_handler_that_was_canceled_and_does_not_stop_cannot_keep_its_job_past_its_time_out(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "STOP_GRACE", 0.1)
    monkeypatch.setattr(attempt, "STOP_GRACE", 0.1)
    began, end = threading.Event(), threading.Event()

    @app.task(timeout=0.5)
    def stubborn() -> None:
        began.set()
        end.wait(WAIT)

    handle = await stubborn.enqueue()
    async with app.worker():
        await until(began.is_set)
        await handle.cancel("enough")
        try:
            with pytest.raises(JobCanceled):
                await handle.result(timeout=WAIT / 2)  # far less than its lease
        finally:
            end.set()


async def test_a_lease_is_kept_far_beyond_its_length(app: Holdfast) -> None:
    @app.task(lease=0.5)
    async def long() -> str:
        await asyncio.sleep(2.0)
        return "done"

    handle = await long.enqueue()
    async with app.worker() as worker:
        assert await handle.result(timeout=WAIT) == "done"
        assert worker.counters.snapshot()["heartbeats"] >= 2
    assert (await handle.view()).attempt == 1


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease_and_is_named(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(lease=0.6)
    async def rude() -> None:
        time.sleep(2.0)  # noqa: ASYNC251  the very thing that is tested

    handle = await rude.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)
    assert (await handle.view()).attempt == 1
    assert any("test_worker.py" in line and "rude" in line and "blocked" in line for line in caplog.messages)


async def test_a_job_deleted_under_its_handler_stops_it(app: Holdfast) -> None:
    started = threading.Event()
    seen: list[str] = []

    @app.task(lease=1.0)
    def patient(*, job: Job) -> None:
        started.set()
        job.abort.wait(WAIT)
        seen.append(str(job.abort.reason))

    counters = MemoryCounters()
    handle = await patient.enqueue()
    async with app.worker(counters=counters):
        await until(started.is_set)
        client = app.client()
        await client.store.delete([handle.id])
        await until(lambda: seen)
    assert seen == ["not_found"]
    assert counters.total(STALE) >= 1


@pytest.mark.row(41)
async def test_stopping_lets_running_jobs_finish_and_gives_the_others_back(app: Holdfast) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.task()
    async def work(number: int) -> int:
        started.set()
        await go.wait()
        return number

    handles = await app.enqueue_many([work.call(number) for number in range(5)])
    worker = app.worker(concurrency=1, prefetch=2)
    async with worker:
        await asyncio.wait_for(started.wait(), WAIT)
        await until(lambda: worker.counters.snapshot().get("claimed_jobs") == 3)
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: worker.counters.snapshot().get("settled_jobs:released") == 2)
        go.set()
        await stopping
    states = [await handle.state() for handle in handles]
    assert states == [State.SUCCEEDED] + [State.READY] * 4
    assert (await handles[1].view()).failures == 0


@pytest.mark.row(41)
async def test_what_does_not_finish_in_time_is_aborted_and_released_free(app: Holdfast) -> None:
    started = asyncio.Event()

    @app.task()
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    async with app.worker(shutdown_timeout=0.05):
        await asyncio.wait_for(started.wait(), WAIT)
    view = await handle.view()
    assert (view.state, view.failures, view.attempt) == (State.READY, 0, 1)
    assert [event.event for event in await handle.events()][-1] == "aborted:shutdown"


async def test_middlewares_wrap_attempts_like_an_onion(app: Holdfast) -> None:
    trace: list[str] = []

    @app.middleware
    async def outer(job: Job, call_next: CallNext) -> Any:
        trace.append(f"outer {job.task}")
        try:
            return await call_next(job)
        finally:
            trace.append("outer ends")

    @app.middleware
    async def inner(job: Job, call_next: CallNext) -> Any:
        trace.append("inner")
        return (await call_next(job)) + 1

    @app.task(name="one")
    async def one() -> int:
        return 1

    @app.task(name="two")
    def two() -> int:
        return 2

    async with app.worker(concurrency=1):
        assert await (await one.enqueue()).result(timeout=WAIT) == 2
        assert await (await two.enqueue()).result(timeout=WAIT) == 3
    assert trace == ["outer one", "inner", "outer ends", "outer two", "inner", "outer ends"]


async def test_lifespans_and_listeners_see_a_worker_start_and_stop(app: Holdfast) -> None:
    seen: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        seen.append("opened")
        yield
        seen.append("closed")

    @app.on_worker
    def heard(event: str, worker_id: object) -> None:
        seen.append(event)

    async with app.worker():
        pass
    assert seen == ["opened", "worker_started", "worker_stopping", "worker_stopped", "closed"]


async def test_a_delayed_job_starts_when_it_is_due_not_at_the_next_poll(app: Holdfast) -> None:
    @app.task()
    async def later() -> None: ...

    async with app.worker():
        handle = await later.options(delay=0.3).enqueue()
        await handle.result(timeout=WAIT)
    view = await handle.view()
    assert view.claimed_at is not None
    assert (view.claimed_at - view.created_at).total_seconds() >= 0.3


async def test_a_job_that_waited_past_its_expiry_is_not_run(app: Holdfast) -> None:
    ran: list[int] = []

    @app.task(expires_in=0.05)
    async def stale_news() -> None:
        ran.append(1)

    handle = await stale_news.enqueue()
    await app.client().store.rewind(10.0)
    async with app.worker():
        with pytest.raises(JobCanceled) as canceled:
            await handle.result(timeout=WAIT)
    assert canceled.value.code == "EXPIRED"
    assert not ran


async def test_a_worker_that_was_disabled_claims_nothing_until_enabled(app: Holdfast) -> None:
    @app.task()
    async def work() -> None: ...

    async with app.worker() as worker:
        store = app.client().store
        await app.client().open()
        await store.disable(worker.id, by="tests")
        worker._heartbeat._beat_at = 0.0
        worker._heartbeat.hurry()
        await until(lambda: not worker._claimer.enabled)
        handle = await work.enqueue()
        before = datetime.now(UTC)
        await store.enable(worker.id)
        worker._heartbeat._beat_at = 0.0
        worker._heartbeat.hurry()
        await handle.result(timeout=WAIT)
        assert [attempt.started_at > before for attempt in (await handle.report()).attempts] == [True]


async def test_a_drained_worker_finishes_what_it_runs_and_serves_no_longer(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task()
    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    await app.client().open()
    store = app.client().store
    handle = await work.enqueue()
    worker = app.worker(concurrency=2)
    serving = asyncio.create_task(worker.serve())
    await asyncio.wait_for(begun.wait(), WAIT)
    await store.drain(worker.id, by="tests")
    worker._heartbeat._beat_at = 0.0
    worker._heartbeat.hurry()
    await until(worker._claiming.done)
    later = await work.enqueue()
    go_on.set()
    await asyncio.wait_for(serving, WAIT)

    assert await handle.result(timeout=WAIT) == "done"
    assert await later.state() is State.READY
    assert "was asked by an operator to finish and end" in caplog.text
    (view,) = await store.workers()
    assert (view.state, view.draining_at is not None) == ("offline", True)


async def test_a_worker_that_is_asked_to_stop_is_shown_as_draining_at_once_while_it_finishes_what_it_runs(
    app: Holdfast,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task()
    async def work() -> None:
        begun.set()
        await go_on.wait()

    await app.client().open()
    store = app.client().store
    await work.enqueue()
    worker = app.worker(concurrency=2)
    serving = asyncio.create_task(worker.serve())
    await asyncio.wait_for(begun.wait(), WAIT)
    (view,) = await store.workers()
    assert (view.drains, view.doing(await store.now())) == (False, "active")

    worker.ask_to_stop()

    async with asyncio.timeout(WAIT):  # long before its next sign of life would be due
        while not (await store.workers())[0].drains:  # noqa: ASYNC110  nobody here is told
            await asyncio.sleep(0.01)
    (view,) = await store.workers()
    assert (view.doing(await store.now()), view.draining_at) == ("active, draining", None)
    go_on.set()
    await asyncio.wait_for(serving, WAIT)
    (view,) = await store.workers()
    assert (view.drains, view.doing(await store.now())) == (False, "offline")


async def test_a_first_signal_to_a_worker_that_drains_already_aborts_nothing(memory_app: Holdfast) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    @memory_app.task()
    async def work() -> str:
        begun.set()
        await gate.wait()
        return "done"

    handle = await work.enqueue()
    async with memory_app.worker() as worker:
        await begun.wait()
        worker.finish()
        worker.ask_to_stop()
        assert not worker._abort_asked.is_set()
        gate.set()
        assert await handle.result(timeout=WAIT) == "done"
    assert (await handle.view()).attempt == 1


async def test_a_drained_worker_of_a_program_ends_while_the_program_goes_on(memory_app: Holdfast) -> None:
    async with memory_app.worker() as worker:
        store = memory_app.client().store
        await store.drain(worker.id)
        worker._heartbeat._beat_at = 0.0
        worker._heartbeat.hurry()
        await until(lambda: worker._stopped)
        (view,) = await store.workers()
        assert view.state == "offline"


async def test_a_worker_that_was_revoked_stops_what_it_no_longer_holds(app: Holdfast) -> None:
    begun = asyncio.Event()
    stopped = []

    @app.task()
    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(WAIT)
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    await app.client().open()
    store = app.client().store
    handle = await work.enqueue()
    async with app.worker(concurrency=1) as worker:
        await asyncio.wait_for(begun.wait(), WAIT)
        await until(lambda: worker._heartbeat._beat_at > 0.0)  # else its first beat would be the one that hears of it
        assert await store.revoke(worker.id, by="tests") == [handle.id]
        worker._heartbeat._beat_at = 0.0
        worker._heartbeat.hurry()
        await until(lambda: stopped and not worker._claimer.enabled)
        await until(lambda: not worker._slots.held)
        events = [(line.event, line.actor) for line in await store.events(handle.id)]
        assert ("released", "tests") in events


async def test_the_registry_shows_a_worker_and_its_end(app: Holdfast) -> None:
    @app.task(name="known")
    async def known() -> None: ...

    await app.client().open()
    store = app.client().store
    async with app.worker(name="w1", concurrency=7) as worker:
        await (await known.enqueue()).result(timeout=WAIT)
        view = next(one for one in await store.workers() if one.worker.id == worker.id)
        assert (view.worker.name, view.worker.slots, view.worker.version != "") == ("w1", 7, True)
        assert '"known"' in view.worker.info
    view = next(one for one in await store.workers() if one.worker.id == worker.id)
    assert view.state == "offline"
    assert '"settled_jobs:succeeded":1' in view.counters


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"prefetch": -1}, {"poll": 0}, {"queues": []}, {"retry_share": 2}, {"shutdown_timeout": -1}]
)
def test_a_worker_that_could_not_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Holdfast("memory://").worker(**options)


async def test_a_job_that_ends_while_the_worker_drains_is_settled_with_all_it_reported(memory_app: Holdfast) -> None:
    app = memory_app
    started, go = asyncio.Event(), asyncio.Event()

    @app.task()
    async def chatty(*, job: Job) -> str:
        started.set()
        await go.wait()
        job.log.info("nearly done")
        return "done"

    handle = await chatty.enqueue()
    worker = app.worker(concurrency=1)
    async with worker:
        await asyncio.wait_for(started.wait(), WAIT)
        write = worker._base.store.log

        async def slowly(lines: Any) -> Any:
            await asyncio.sleep(0.3)
            return await write(lines)

        worker._base.store.log = slowly  # type: ignore[method-assign]
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        go.set()
        await stopping
    assert await handle.result(timeout=0) == "done"
    assert [line.message for line in await handle.logs()] == ["nearly done"]


async def test_what_was_claimed_ahead_is_given_back_when_no_slot_becomes_free(memory_app: Holdfast) -> None:
    app = memory_app
    started, go = asyncio.Event(), asyncio.Event()

    @app.task(priority="high")
    async def long() -> None:
        started.set()
        await go.wait()

    @app.task()
    async def short() -> None: ...

    await long.enqueue()
    handles = await app.enqueue_many([short.call() for _ in range(5)])
    async with app.worker(name="busy", concurrency=1, prefetch=5):
        await asyncio.wait_for(started.wait(), WAIT)
        async with app.worker(name="free", concurrency=1, queues=["default"]):
            for handle in handles:
                await handle.result(timeout=WAIT)
        assert not go.is_set()
        go.set()
    assert {(await handle.view()).failures for handle in handles} == {0}


async def test_a_rest_between_claims_does_not_hold_up_the_end(memory_app: Holdfast) -> None:
    app = memory_app

    @app.task()
    async def work() -> None: ...

    handle = await work.enqueue()
    async with app.worker(delay=3600) as worker:
        await handle.result(timeout=WAIT)
        await asyncio.wait_for(worker.stop(), WAIT)


async def test_a_block_that_is_cancelled_twice_ends_though_a_thread_runs_on(memory_app: Holdfast) -> None:
    app = memory_app
    started, go = threading.Event(), threading.Event()
    seen: list[object] = []

    @app.task()
    def stuck(*, job: Job) -> None:
        started.set()
        job.abort.wait(60)
        seen.append(job.abort.reason)
        go.wait(60)

    async def serve() -> None:
        async with app.worker():
            await asyncio.Event().wait()

    await stuck.enqueue()
    serving = asyncio.create_task(serve())
    try:
        await until(started.is_set)
        serving.cancel()
        await asyncio.sleep(0.1)
        serving.cancel()
        await asyncio.wait({serving}, timeout=WAIT)
        assert serving.done()
        assert seen == ["error"]
    finally:
        go.set()


async def test_a_failing_job_is_told_of_in_the_log_with_the_users_traceback_only(
    memory_app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    app = memory_app

    @app.task(retry=Retry(max_attempts=2, initial=0.01))
    async def broken() -> None:
        raise ValueError("password=hunter2")

    handle = await broken.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed):
            await handle.result(timeout=WAIT)
    told = [record for record in caplog.records if getattr(record, "job_id", None) == str(handle.id)]
    assert [record.levelname for record in told] == ["WARNING", "ERROR"]
    assert "tried again" in told[0].getMessage()
    assert "failed for good" in told[1].getMessage()
    assert "raise ValueError" in told[0].getMessage()
    assert "hunter2" not in "".join(record.getMessage().replace('raise ValueError("password=hunter2")', "") for record in told)
    assert "holdfast/runtime" not in told[0].getMessage()


async def test_a_job_whose_time_has_passed_starts_at_once(app: Holdfast) -> None:
    @app.task()
    async def work(*, job: Job) -> int:
        if job.id != job.chain_id:
            return 2
        return job.continue_with(work.options(run_at=datetime.now(UTC) - timedelta(days=1)))

    async with app.worker():  # which looks for itself once a minute: somebody must tell it
        chain = await work.options(run_at=datetime.now(UTC) - timedelta(days=1)).start_chain()
        assert await chain.result(timeout=30) == 2


async def test_a_waiter_for_what_expired_starts_when_that_is_swept(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "SWEEP", 0.2)
    monkeypatch.setattr(housekeeping.Sweeper, "interval", 0.2)

    @app.task(executor="outside")
    async def asked() -> bool:
        raise NotImplementedError

    @app.task()
    async def goes_on(*, job: Job) -> str:
        return str(job.blockers[0].state)

    question = await asked.options(expires_in=0.1).enqueue()
    waiter = await goes_on.options(after=question, on_blocker_failure="run").enqueue()
    async with app.worker():  # which looks for itself once a minute
        assert await waiter.result(timeout=30) == "canceled"
