"""Functions in threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.abort import AbortReason
from holdfast.core.outcome import Failed
from holdfast.errors import Aborted, BadArgs, Fatal
from holdfast.runtime.executor.port import RemoteError
from holdfast.runtime.executor.thread import ThreadExecutor
from holdfast.system import SystemEnvironment
from holdfast.tasks.context import Job, current_job
from tests.runtime.executing import WAIT, Attempt, task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

colour: ContextVar[str] = ContextVar("colour", default="none")


@pytest.fixture
async def executor() -> AsyncIterator[ThreadExecutor]:
    executor = ThreadExecutor(2)
    await executor.open()
    yield executor
    await executor.close()


class Gate:
    """A function that says when it has begun, and ends when it is let."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let = threading.Event()
        self.passed = False
        self._loop = asyncio.get_running_loop()

    def pass_through(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        self.let.wait(WAIT)
        self.passed = True
        return "through"


async def test_a_function_runs_in_a_named_thread_with_the_context_of_the_caller(executor: ThreadExecutor) -> None:
    def look(job: Job) -> list[Any]:
        return [threading.current_thread().name, colour.get(), current_job.get() is job]

    colour.set("green")
    assert await Attempt(executor, task(look)).run() == ["holdfast-thread-1", "green", True]


async def test_what_a_function_sets_does_not_reach_the_next(executor: ThreadExecutor) -> None:
    def paint(name: str) -> str:
        before = colour.get()
        colour.set(name)
        return before

    assert await Attempt(executor, task(paint), '{"name":"red"}').run() == "none"
    assert await Attempt(executor, task(paint), '{"name":"blue"}').run() == "none"


async def test_a_thread_serves_many_attempts_and_there_are_no_more_than_slots(executor: ThreadExecutor) -> None:
    gates = [Gate() for _ in range(3)]
    running = [Attempt(executor, task(gate.pass_through)).begin() for gate in gates]
    async with asyncio.timeout(WAIT):
        await gates[0].begun.wait()
        await gates[1].begun.wait()
    assert not gates[2].begun.is_set()
    for gate in gates:
        gate.let.set()
    assert await asyncio.gather(*running) == ["through"] * 3
    assert executor._started == 2


async def test_what_a_function_raises_is_raised(executor: ThreadExecutor) -> None:
    def fail() -> None:
        raise Fatal("no", code="NO")

    with pytest.raises(Fatal) as raised:
        await Attempt(executor, task(fail)).run()
    assert raised.value.code == "NO"
    assert raised.traceback[-1].name == "fail"


async def test_args_that_do_not_decode_are_bad_args(executor: ThreadExecutor) -> None:
    def half(number: int) -> float:
        return number / 2

    with pytest.raises(BadArgs):
        await Attempt(executor, task(half), '{"number":"four"}').run()


@pytest.mark.parametrize("error", [StopIteration("enough"), SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_what_would_wreck_the_event_loop_becomes_a_failure(executor: ThreadExecutor, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RemoteError) as raised:
        await Attempt(executor, task(fail)).run()
    match raised.value.outcome:
        case Failed(told, fatal=False):
            assert told.code == type(error).__name__
            assert "in fail" in told.traceback
        case other:
            pytest.fail(repr(other))
    assert await Attempt(executor, task(_one)).run() == 1


def _one() -> int:
    return 1


async def test_a_function_that_awaits_gets_a_loop_of_its_own(executor: ThreadExecutor) -> None:
    async def slow() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert await Attempt(executor, task(slow)).run() == "holdfast-thread-1"


async def test_a_function_sees_its_abort(executor: ThreadExecutor) -> None:
    def patient(job: Job) -> None:
        job.progress(1)
        job.abort.wait(WAIT)
        job.abort.check()

    attempt = Attempt(executor, task(patient))
    running = attempt.begin()
    attempt.job.abort.set(AbortReason.SHUTDOWN)
    executor.stop(attempt.job, AbortReason.SHUTDOWN)
    with pytest.raises(Aborted):
        await running


async def test_a_cancelled_run_ends_when_its_thread_does(executor: ThreadExecutor) -> None:
    gate = Gate()
    running = Attempt(executor, task(gate.pass_through)).begin()
    async with asyncio.timeout(WAIT):
        await gate.begun.wait()
    for _ in range(2):
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=0.05)
        assert not done
    gate.let.set()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_close_abandons_a_thread_that_is_stuck() -> None:
    executor = ThreadExecutor(1)
    gate = Gate()
    running = Attempt(executor, task(gate.pass_through)).begin()
    async with asyncio.timeout(WAIT):
        await gate.begun.wait()
        await executor.close()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not gate.passed
        with pytest.raises(asyncio.CancelledError):
            await Attempt(executor, task(_one)).run()
    gate.let.set()


def test_a_process_with_a_stuck_thread_can_exit() -> None:
    code = (
        "import asyncio, threading\n"
        "from holdfast.runtime.executor.thread import ThreadExecutor\n"
        "async def main():\n"
        "    executor, begun, loop = ThreadExecutor(1), asyncio.Event(), asyncio.get_running_loop()\n"
        "    def stuck():\n"
        "        loop.call_soon_threadsafe(begun.set)\n"
        "        threading.Event().wait()\n"
        "    running = asyncio.ensure_future(executor.blocking(stuck))\n"
        "    await begun.wait()\n"
        "    await executor.close()\n"
        "    await asyncio.wait([running])\n"
        "asyncio.run(main())\n"
        "print('out')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.stdout, done.stderr) == ("out\n", "")


async def test_a_thread_that_ends_after_its_loop_says_nothing() -> None:
    let, ended = threading.Event(), threading.Event()

    def stuck() -> None:
        let.wait(WAIT)
        threading.Thread(target=ended.set).start()

    def elsewhere() -> None:
        async def main() -> None:
            executor = ThreadExecutor(1)
            running = asyncio.ensure_future(executor.blocking(stuck))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await executor.close()
            await asyncio.wait([running])

        asyncio.run(main())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    let.set()
    assert ended.wait(WAIT)  # an exception in the thread would fail the test: warnings are errors


async def test_threads_can_come_from_an_environment() -> None:
    executor = ThreadExecutor(1, SystemEnvironment().runner)
    assert await Attempt(executor, task(_one)).run() == 1
    await executor.close()
