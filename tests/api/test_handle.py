"""Handles: looking at jobs and steering them, as the one who enqueued them. On every store."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import pytest

from holdfast import (
    BadSetting,
    Cancel,
    Fatal,
    Holdfast,
    HoldfastError,
    Job,
    JobCanceled,
    JobFailed,
    JobNotFound,
    NotAllowed,
    State,
)
from holdfast.core.states import Event
from tests.api.blocking import in_thread
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 20.0


async def test_a_failed_job_tells_its_code_error_and_traceback(app: Holdfast) -> None:
    @app.task()
    async def broken() -> None:
        raise Fatal("the disk is full", code="DISK")

    handle = await broken.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=WAIT)
    error = failed.value
    assert (error.job_id, error.code, error.error) == (handle.id, "DISK", "the disk is full")
    assert "raise Fatal" in error.traceback
    assert str(error) == f"job {handle.id} failed with DISK: the disk is full"


async def test_a_canceled_job_tells_its_reason(app: Holdfast) -> None:
    @app.task()
    async def refusing() -> None:
        raise Cancel("no such user")

    waiting = await refusing.options(delay=60).enqueue()
    assert await waiting.cancel("not needed") is True
    with pytest.raises(JobCanceled, match="not needed") as canceled:
        await waiting.result(timeout=WAIT)
    assert (canceled.value.job_id, canceled.value.reason) == (waiting.id, "not needed")
    assert await waiting.cancel() is False, "it has ended"

    by_itself = await refusing.enqueue()
    async with app.worker():
        with pytest.raises(JobCanceled) as canceled:
            await by_itself.result(timeout=WAIT)
    assert canceled.value.reason == "no such user"


async def test_waiting_gives_up_in_time_and_changes_nothing(app: Holdfast) -> None:
    @app.task()
    async def note() -> str:
        return "done"

    handle = await note.enqueue()
    with pytest.raises(TimeoutError, match=rf"job {handle.id} has not ended within 0\.02 s; it goes on"):
        await handle.result(timeout=0.02)
    assert await handle.state() is State.READY
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"


async def test_many_wait_for_one_job_and_a_cancelled_wait_hurts_nobody(app: Holdfast) -> None:
    @app.task()
    async def note() -> int:
        return 42

    handle = await note.enqueue()
    waits = [asyncio.create_task(handle.result(timeout=WAIT)) for _ in range(5)]
    await asyncio.sleep(0.01)
    waits[0].cancel()
    async with app.worker():
        answers = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [42] * 4


async def test_a_job_that_is_not_there_is_named_by_every_method(app: Holdfast) -> None:
    missing = app.job(uuid4())
    for method in (
        missing.state,
        missing.view,
        missing.result,
        missing.cancel,
        missing.retry,
        missing.events,
        missing.logs,
        missing.report,
    ):
        with pytest.raises(JobNotFound, match=str(missing.id)) as not_found:
            await method()
        assert not_found.value.job_id == missing.id
        assert isinstance(not_found.value, LookupError)


async def test_a_handle_is_made_from_an_id_or_its_text(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> dict[str, int]:
        return {"number": number}

    handle = await note.enqueue(1)
    assert await app.job(handle.id).state() is State.READY
    async with app.worker():
        assert await app.job(str(handle.id)).result(timeout=WAIT) == {"number": 1}
    with pytest.raises(BadSetting, match="'nonsense' is no job id: a job id is a UUID"):
        app.job("nonsense")


async def test_retry_brings_an_ended_job_back_and_refuses_a_live_one(app: Holdfast) -> None:
    fails = True

    @app.task(retry=1)
    async def shaky() -> str:
        if fails:
            raise ValueError("not yet")
        return "done"

    handle = await shaky.enqueue()
    with pytest.raises(NotAllowed, match=f"job {handle.id} is ready: only jobs that have ended"):
        await handle.retry()
    async with app.worker():
        with pytest.raises(JobFailed):
            await handle.result(timeout=WAIT)
        fails = False
        await handle.retry()
        assert await handle.result(timeout=WAIT) == "done"
    view = await handle.view()
    assert (view.attempt, view.failures) == (2, 0)


async def test_events_and_report_tell_the_whole_story(app: Holdfast) -> None:
    @app.task()
    async def work(*, job: Job) -> str:
        with job.stage("render"):
            job.log.info("rendering", width=1920)
        await job.checkpoint("page", done=1, total=2)
        return "done"

    handle = await work.enqueue()
    async with app.worker(name="anna"):
        await handle.result(timeout=WAIT)
    events = [event.event for event in await handle.events()]
    assert events[0] is Event.ENQUEUE
    assert events[-1] is Event.SUCCEED
    report = await handle.report()
    assert (report.id, report.state, report.worker, report.failures) == (handle.id, State.SUCCEEDED, "anna", 0)
    assert [(one.attempt, one.worker) for one in report.attempts] == [(1, "anna")]
    assert [stage.name for stage in report.stages] == ["render"]
    assert [part.name for part in report.parts] == ["page"]
    assert str(handle.id) in str(report)
    assert msgspec.json.decode(msgspec.json.encode(report))["state"] == "succeeded"
    (line,) = await handle.logs()
    assert (line.message, line.level, line.fields) == ("rendering", "info", '{"width":1920}')
    assert await handle.logs(after=line.no) == []


async def test_every_method_has_a_blocking_twin(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> int:
        return number

    def script() -> int:
        assert threading.current_thread() is not threading.main_thread()
        canceled, *others = app.enqueue_many_sync([note.call(1), note.options(delay=60).call(2)])
        assert canceled.state_sync() is State.READY
        assert canceled.view_sync().task == note.name
        assert canceled.cancel_sync("no") is True
        with pytest.raises(JobCanceled):
            canceled.result_sync(timeout=WAIT)
        canceled.retry_sync()
        assert [event.event for event in others[0].events_sync()] == [Event.ENQUEUE_LATER]
        assert canceled.logs_sync() == []
        assert canceled.report_sync().state is State.READY
        assert app.stats_sync()["live"] == 2
        app.pause_sync("default")
        app.resume_sync("default")
        handle = note.enqueue_sync(3)
        other = note.options(priority=9).enqueue_sync(4)
        assert app.stats_sync()["live"] == 4
        return handle.result_sync(timeout=WAIT) + other.result_sync(timeout=WAIT)

    ran = asyncio.create_task(in_thread(script))

    async def enqueued() -> bool:
        return ran.done() or (await app.stats())["ready"] == 3

    await until(enqueued)
    async with app.worker():
        assert await ran == 7


async def test_a_blocking_call_on_an_event_loop_names_the_one_to_use(memory: Holdfast) -> None:
    @memory.task()
    async def note() -> None: ...

    handle = await note.enqueue()
    calls: list[tuple[Callable[[], object], str]] = [
        (note.enqueue_sync, "enqueue"),
        (note.options().enqueue_sync, "enqueue"),
        (lambda: memory.enqueue_many_sync([]), "enqueue_many"),
        (memory.stats_sync, "stats"),
        (lambda: memory.pause_sync("a"), "pause"),
        (lambda: memory.resume_sync("a"), "resume"),
        (handle.state_sync, "state"),
        (handle.view_sync, "view"),
        (handle.result_sync, "result"),
        (handle.cancel_sync, "cancel"),
        (handle.retry_sync, "retry"),
        (handle.events_sync, "events"),
        (handle.logs_sync, "logs"),
        (handle.report_sync, "report"),
    ]
    for call, name in calls:
        with pytest.raises(HoldfastError, match=rf"{name}_sync was called inside a running event loop.* await ….{name}\("):
            call()


async def test_a_zero_wait_gives_the_result_of_a_job_that_has_ended(app: Holdfast) -> None:
    @app.task()
    async def note() -> int:
        return 42

    handle = await note.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)
    assert await handle.result(timeout=0) == 42
