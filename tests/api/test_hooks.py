"""Middlewares and lifespans that fail."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast import Fatal, Holdfast, Job, JobFailed, Reschedule, Retry, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.runtime.entry import CallNext

WAIT = 20.0
SOON = Retry(max_attempts=2, initial=0.01, max=0.01)


def refuse() -> None:
    raise ConnectionRefusedError("no cache here")


async def test_a_lifespan_that_fails_at_the_start_leaves_nothing_running(app: Holdfast) -> None:
    left: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        yield
        left.append("pool")

    @app.lifespan
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        refuse()
        yield

    @app.task()
    async def note() -> None: ...

    handle = await note.enqueue()
    tasks, threads, handlers = asyncio.all_tasks(), threading.active_count(), list(logging.getLogger().handlers)
    with pytest.raises(ConnectionRefusedError, match="no cache here"):
        async with app.worker():
            pytest.fail("it must not start")
    assert left == ["pool"]
    assert asyncio.all_tasks() <= tasks
    assert threading.active_count() <= threads
    assert logging.getLogger().handlers == handlers
    assert await handle.state() is State.READY


async def test_a_lifespan_that_fails_at_the_end_is_heard_of_and_the_others_are_left(memory: Holdfast) -> None:
    left: list[str] = []

    @memory.lifespan
    @asynccontextmanager
    async def outer() -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.append("outer")

    @memory.lifespan
    @asynccontextmanager
    async def inner() -> AsyncIterator[None]:
        yield
        raise RuntimeError("the pool would not close")

    with pytest.raises(RuntimeError, match="would not close"):
        async with memory.worker():
            pass
    assert left == ["outer"]


async def test_a_middleware_that_fails_fails_the_attempt_like_the_handler(app: Holdfast) -> None:
    calls: list[str] = []

    @app.middleware
    async def guard(job: Job, call_next: CallNext) -> object:
        calls.append("guard")
        if job.attempt == 1:
            raise PermissionError("password=hunter2 is wrong")
        return await call_next(job)

    @app.task(retry=SOON)
    async def note() -> str:
        calls.append("note")
        return "done"

    handle = await note.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"
    assert calls == ["guard", "guard", "note"]
    first, _ = (await handle.report()).attempts
    assert first.error is not None
    assert first.error.code == "PermissionError"
    assert "hunter2" not in first.error.message + first.error.traceback


async def test_a_middleware_may_end_an_attempt_for_good_or_put_it_off(memory: Holdfast) -> None:
    @memory.middleware
    async def gate(job: Job, call_next: CallNext) -> object:
        if job.task == "fatal":
            raise Fatal("not here", code="NOT_HERE")
        if job.attempt == 1:
            raise Reschedule(after=0.01)
        return await call_next(job)

    @memory.task(name="fatal")
    async def fatal() -> None: ...

    @memory.task(name="later")
    def later() -> str:
        return "done"

    ended, put_off = await fatal.enqueue(), await later.enqueue()
    async with memory.worker():
        with pytest.raises(JobFailed) as failed:
            await ended.result(timeout=WAIT)
        assert await put_off.result(timeout=WAIT) == "done"
    assert failed.value.code == "NOT_HERE"
    assert (await put_off.view()).failures == 0


async def test_a_middleware_may_change_the_result_and_it_is_still_checked(memory: Holdfast) -> None:
    @memory.middleware
    async def change(job: Job, call_next: CallNext) -> object:
        value = await call_next(job)
        return object() if job.task == "spoiled" else value + 1

    @memory.task(name="number")
    async def number() -> int:
        return 41

    @memory.task(name="spoiled")
    async def spoiled() -> int:
        return 1

    good, bad = await number.enqueue(), await spoiled.enqueue()
    async with memory.worker():
        assert await good.result(timeout=WAIT) == 42
        with pytest.raises(JobFailed) as failed:
            await bad.result(timeout=WAIT)
    assert failed.value.code == "BAD_RESULT"


async def test_an_error_inside_the_workers_block_reaches_the_caller_as_it_is(memory: Holdfast) -> None:
    with pytest.raises(ValueError, match="of my own"):
        async with memory.worker():
            raise ValueError("of my own")


async def test_a_listener_that_fails_does_not_hurt_the_worker(memory: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @memory.on_worker
    def listener(event: str, worker: object) -> None:
        raise ValueError(event)

    @memory.task()
    async def note() -> str:
        return "done"

    handle = await note.enqueue()
    async with memory.worker():
        assert await handle.result(timeout=WAIT) == "done"
    assert [record.getMessage() for record in caplog.records if "listener" in record.getMessage()] == [
        f"a listener of worker_{event} failed" for event in ("started", "stopping", "stopped")
    ]


def test_a_worker_is_used_once(tmp_path: Path) -> None:
    """In a process of its own: a worker that were entered twice could not be left."""
    (tmp_path / "script.py").write_text(
        "import asyncio\n"
        "from holdfast import BadSetting, Holdfast\n"
        "async def main() -> None:\n"
        "    worker = Holdfast('memory://').worker()\n"
        "    async with worker: pass\n"
        "    try:\n"
        "        async with worker: pass\n"
        "    except BadSetting as error: print(error)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    assert "app.worker(" in done.stdout, done.stderr
