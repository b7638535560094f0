"""Functions that block: run in threads of the worker."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.runtime.executor.calling import arguments, call, raisable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.abort import AbortReason
    from holdfast.core.environment import Runner
    from holdfast.core.lease import Claimed
    from holdfast.tasks.channel import Channel
    from holdfast.tasks.context import Job
    from holdfast.tasks.task import Task

T = TypeVar("T")


class ThreadExecutor:
    """Runs functions in at most `slots` threads, each with the context variables of whoever called `run`.

    A thread cannot be killed: a run that is cancelled ends when its function does, and until then its slot is taken. What
    still runs at `close` is left alone: its run raises `CancelledError`, and its thread does not keep the process alive.
    """

    def __init__(self, slots: int, runner: Callable[[str], Runner] | None = None) -> None:
        self._free = asyncio.Semaphore(slots)
        self._runner = runner or DaemonThread
        self._idle: list[Runner] = []
        self._started = 0
        self._running: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def open(self) -> None:
        """Get ready: nothing to do, threads are started when they are needed."""

    async def run(self, task: Task[..., Any], claimed: Claimed, job: Job, channel: Channel) -> Any:  # noqa: ARG002  the port's
        """Run one attempt; returns or raises what the function did, in a form that the event loop survives."""
        value, error = await self.blocking(partial(_attempt, task, claimed, job))
        if error is not None:
            raise raisable(task, error)
        return value

    async def blocking(self, function: Callable[[], T]) -> T:
        """Run `function`, which raises nothing, in a thread with the context of the caller."""
        async with self._free:
            if self._closed:
                raise asyncio.CancelledError
            thread = self._idle.pop() if self._idle else self._start()
            context = contextvars.copy_context()
            running = asyncio.ensure_future(thread.run(partial(context.run, function)))
            self._running.add(running)
            running.add_done_callback(partial(self._ended, thread))
            return await _until_ended(running)

    def stop(self, job: Job, reason: AbortReason) -> None:
        """Do nothing: the function has `job.abort`."""

    async def close(self) -> None:
        """Let the threads go. One whose function does not end is abandoned, not waited for."""
        self._closed = True
        for running in list(self._running):
            running.cancel()
        for thread in self._idle:
            thread.close()
        self._idle.clear()

    def _start(self) -> Runner:
        self._started += 1
        return self._runner(f"holdfast-thread-{self._started}")

    def _ended(self, thread: Runner, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if self._closed:
            thread.close()
        else:
            self._idle.append(thread)


class DaemonThread:
    """A thread for blocking calls in turn, which neither `close` nor the end of the process waits for.

    The threads of `concurrent.futures` are joined when the interpreter exits: one stuck handler would keep it from ending.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True).start()

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread and return what it gave."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def here() -> None:
            try:
                tell = partial(_settle, done, function(), None)
            except BaseException as error:  # noqa: BLE001  the thread outlives whatever a function raises
                tell = partial(_settle, done, None, error)
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:
                return  # the loop was closed meanwhile: nobody waits any more

        self._calls.put(here)
        return await done

    def close(self) -> None:
        """End the thread after what it is doing."""
        self._calls.put(None)


def _attempt(task: Task[..., Any], claimed: Claimed, job: Job) -> tuple[Any, BaseException | None]:
    """Run the attempt; an exception is handed over as a value, because not every one can be set on a future."""
    try:
        return call(task, *arguments(task, claimed.args, job), job), None
    except BaseException as error:  # noqa: BLE001  whatever it is, it is the attempt's outcome
        return None, error


async def _until_ended(running: asyncio.Future[T]) -> T:
    """Wait for a thread. Cancelled, go on waiting and raise it afterwards: a thread has no other end."""
    cancelled = False
    while True:
        try:
            value = await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.done():
                raise
            cancelled = True
        else:
            if cancelled:
                raise asyncio.CancelledError
            return value


def _serve(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (function := calls.get()) is not None:
        function()
        del function  # it holds the args and the result of the attempt


def _settle(done: asyncio.Future[T], value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
