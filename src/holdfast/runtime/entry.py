"""A task made ready to run: its function behind the middlewares and its executor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.core.outcome import Continued, Succeeded
from holdfast.errors import BadArgs, HoldfastError
from holdfast.runtime.executor.calling import overlooked
from holdfast.runtime.executor.command import CommandExecutor
from holdfast.runtime.executor.port import Encoded
from holdfast.runtime.executor.process import ProcessExecutor
from holdfast.runtime.executor.thread import ThreadExecutor
from holdfast.tasks.continuing import Continue, next_step
from holdfast.tasks.options import Executor as Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from contextlib import AsyncExitStack

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from holdfast.runtime.executor.port import Executor
    from holdfast.tasks.channel import Channel
    from holdfast.tasks.context import Job
    from holdfast.tasks.task import Task

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
CallNext: TypeAlias = "Callable[[Job], Awaitable[Any]]"
Middleware: TypeAlias = "Callable[[Job, CallNext], Awaitable[Any]]"
"""Wraps every attempt: `async def middleware(job, call_next): … return await call_next(job)`. The first is the outermost."""


async def prepare(
    tasks: Iterable[Task[..., Any]], middlewares: Sequence[Middleware], slots: int, stack: AsyncExitStack
) -> dict[str, Entry]:
    """Make tasks ready to run, with the executors they need and no others; the stack closes those."""
    kinds: dict[Kind, Callable[[], Executor]] = {
        Kind.THREAD: lambda: ThreadExecutor(slots),
        Kind.PROCESS: lambda: ProcessExecutor(slots),
        Kind.COMMAND: lambda: CommandExecutor(slots),
    }
    made: dict[Kind, Executor] = {}
    entries = {}
    for task in tasks:
        if task.executor in kinds and task.executor not in made:
            executor = made[task.executor] = kinds[task.executor]()
            await executor.open()
            stack.push_async_callback(executor.close)
        entries[task.name] = Entry(task, made.get(task.executor), middlewares)
    return entries


class UnreadableArgs(HoldfastError):
    """The args of a job do not decode under this worker's declaration of the task."""


class Entry:
    """How a worker runs one task."""

    __slots__ = ("_executor", "_middlewares", "_plain", "cancellable", "task")

    def __init__(self, task: Task[..., Any], executor: Executor | None, middlewares: Sequence[Middleware]) -> None:
        task.args.evolution.check()  # here, and not when the first old job is met
        self.task = task
        self._executor = executor
        self._middlewares = tuple(middlewares)
        self._plain = executor is None and not self._middlewares and not task.options_declared.atomic
        """Whether running it is calling its function and nothing else."""
        self.cancellable = task.executor is not Kind.THREAD
        """Whether cancelling it stops it. A thread is only asked; what it gives in the end may still count."""

    async def run(self, claimed: Claimed, job: Job, channel: Channel) -> Outcome | None:
        """Run one attempt and return what it gave, `None` where a transaction has settled it; raises what the function did."""
        try:
            arguments = self.task.args.decode(claimed.args)
        except BadArgs as error:
            raise UnreadableArgs(str(error)) from error
        if self._plain:
            args, kwargs = arguments
            if (name := self.task.job_parameter) is not None:
                kwargs[name] = job
            value = await self.task.function(*args, **kwargs)
        elif not self._middlewares:
            value = await self._run(claimed, channel, arguments, job)
        else:
            call: CallNext = partial(self._run, claimed, channel, arguments)
            for middleware in reversed(self._middlewares):
                call = partial(_through, middleware, call)
            value = await call(job)
        if job.unusual or isinstance(value, (Encoded, Continue)):
            return self._unusual(value, job)
        return Succeeded(self.task.results.encode(value))

    def _unusual(self, value: Any, job: Job) -> Outcome | None:
        """Return what an attempt gave that did more than return a value."""
        if job.settled:
            return None
        if (suspended := overlooked(job, value)) is not None:
            return suspended
        if isinstance(value, Continue):
            return Continued(next_step(self.task, value))
        return Succeeded(value.text if isinstance(value, Encoded) else self.task.results.encode(value))

    async def _run(
        self, claimed: Claimed, channel: Channel, arguments: tuple[tuple[Any, ...], dict[str, Any]], job: Job
    ) -> Any:
        if self._executor is not None:
            return await self._executor.run(self.task, claimed, job, channel)
        args, kwargs = arguments
        if (name := self.task.job_parameter) is not None:
            kwargs[name] = job
        if not self.task.options_declared.atomic:
            return await self.task.function(*args, **kwargs)
        async with job.transaction() as transaction:
            value = await self.task.function(*args, **kwargs)
            transaction.give(value)
        return value

    def stop(self, job: Job) -> None:
        """Pass on that a running attempt should stop by itself."""
        if self._executor is not None and job.abort.reason is not None:
            self._executor.stop(job, job.abort.reason)


async def _through(middleware: Middleware, call_next: CallNext, job: Job) -> Any:
    return await middleware(job, call_next)
