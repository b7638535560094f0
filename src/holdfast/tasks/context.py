"""The job as its handler sees it."""

from __future__ import annotations

import inspect
import logging
import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast, overload

import msgspec

from holdfast.core.states import Event
from holdfast.errors import BadJob, BadSetting, NotAllowed
from holdfast.store.port import Part, PartState
from holdfast.tasks.blockers import results_in_order, results_of_task
from holdfast.tasks.blocking import refuse_on_loop
from holdfast.tasks.continuing import Continue, continuation
from holdfast.tasks.joblog import JobLog
from holdfast.tasks.steps import Steps
from holdfast.tasks.suspending import Suspending
from holdfast.tasks.transaction import BlockingTransaction, JobTransaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Suspended
    from holdfast.store.port import BlockerView
    from holdfast.tasks.abort import Abort
    from holdfast.tasks.channel import Channel
    from holdfast.tasks.task import Task
    from holdfast.tasks.typed import Next, Results

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PROGRESS_STEP: Final = 1.0
PROGRESS_SECONDS: Final = 0.5
"""Progress is written when it moved by this many percent, or this long after the last write."""

current_job: ContextVar[Job | None] = ContextVar("holdfast_job", default=None)
"""The job that runs in this context. Log records made here belong to it."""


class Job:
    """One attempt at a job, handed to the function that asks for it with a parameter `job: Job`.

    Its reports are written under the attempt's lease: once the lease is lost they are refused, and `abort` says why.
    """

    # defaults of the class and not of each: one is made for every attempt, and few of these are ever used
    _last_percent = -PROGRESS_STEP
    _last_step = _last_message = ""
    _held_back: float | None = None
    _last_at = -math.inf
    _log: JobLog | None = None
    _steps: Steps | None = None
    _tx: JobTransaction | BlockingTransaction | None = None
    unusual = False
    """Whether its end may be another than what the function returns. For the runtime, as those below."""
    continuation: Continue | None = None
    """The next step that was named last."""
    suspension: Suspended | None = None
    """How it was left to wait without a slot."""
    settled = False
    """Whether a transaction of its own has ended it."""

    def __init__(
        self,
        claimed: Claimed,
        channel: Channel,
        abort: Abort,
        parts: Mapping[str, Part] | None = None,
        *,
        blockers: Sequence[BlockerView] = (),
        signals: Mapping[str, str] | None = None,
    ) -> None:
        self._claimed = claimed
        self.channel = channel
        """How it reports; for the runtime."""
        self.abort = abort
        self._parts: dict[str, Part] = dict(parts) if parts else {}
        self._blockers = blockers
        self._signals = signals

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self._claimed.job_id

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._claimed.task

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._claimed.queue

    @property
    def attempt(self) -> int:
        """The number of this claim, 1-based; it only grows."""
        return self._claimed.attempt

    @property
    def fence(self) -> int:
        """The attempt, to be handed to other systems: let them refuse a smaller number than they have seen."""
        return self._claimed.attempt

    @property
    def token(self) -> UUID:
        """The secret of this claim, which shows a server who holds the job: `token` in the HTTP API. Keep it out of logs."""
        return self._claimed.token

    @property
    def failures(self) -> int:
        """How many attempts have failed so far."""
        return self._claimed.failures

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued."""
        return self._claimed.created_at

    @property
    def trace(self) -> str | None:
        """The trace context it was enqueued with."""
        return self._claimed.trace

    # how far it is

    def progress(self, percent: float, message: str = "", *, step: str | None = None) -> None:
        """Say how far the job is (0-100). Returns at once; written when it moved by 1 % or half a second has passed."""
        now = self.channel.monotonic()
        name = self._last_step if step is None else step
        moved = abs(percent - self._last_percent) >= PROGRESS_STEP or (name, message) != (self._last_step, self._last_message)
        if not moved and now - self._last_at < PROGRESS_SECONDS:
            self._held_back = percent
            return
        self._last_percent, self._last_step, self._last_message, self._last_at = percent, name, message, now
        self._held_back = None
        self.channel.progress(percent, name, message)

    def close(self) -> None:
        """Pass on the last progress that was held back. For the runtime, when the function has ended."""
        if self._held_back is not None:
            self.channel.progress(self._held_back, self._last_step, self._last_message)
            self._held_back = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Name what the job does inside this `with` block: timed, in its events and its report."""
        self._last_step = name
        self.channel.stage(name, Event.STAGE_ENTER)
        try:
            yield
        except BaseException:
            self.channel.stage(name, Event.STAGE_FAIL)
            raise
        self.channel.stage(name, Event.STAGE_LEAVE)

    # its chain

    @property
    def chain_id(self) -> UUID:
        """The id of its chain's first job; its own where it is that, or alone."""
        return self._claimed.chain_id or self._claimed.job_id

    def continue_with(self, task: Next[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """End this step and go on with another task, or with this one again: `return job.continue_with(second, n + 1)`.

        The next step is created in the same transaction as the end of this one. Options (`delay`, `after`, `id`, `key`, …) are
        given with `task.options(…)`. Raises `BadArgs` that names the field and the task. What this returns is a `Continue`; to
        type checkers it is what the next task gives, for that is what the chain gives in the end.
        """
        self.continuation = continuation(cast("Task[..., R]", task), args, kwargs)
        self.unusual = True
        return cast("R", self.continuation)

    # what it waited for

    @property
    def blockers(self) -> Sequence[BlockerView]:
        """The chains it waited for, as they stood when this attempt began, in the order of `after=`."""
        return self._blockers

    if TYPE_CHECKING:

        @property
        def results(self) -> Results:
            """Return the results of the chains it waited for, with a type for each."""
            ...

    else:

        def results(self, *tasks: Task[..., Any]) -> tuple[Any, ...]:
            """Return the results of the chains it waited for, in the order of `after=`; name the task each is a result of.

            Raises `JobFailed` or `JobCanceled` for a blocker that ended so (with `on_blocker_failure="run"`), `JobNotFound` for
            one that is gone, `BadResult` for what does not decode, `BadArgs` when their number is another.
            """
            return results_in_order(self._blockers, tasks, self.task)

    def results_of(self, task: Task[..., R]) -> list[R]:
        """Return the results of those blockers that began or ended with one task, in the order of `after=`. As `results`."""
        return results_of_task(self._blockers, task, self.task)

    # what need not be done again

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once across all attempts: its result is stored under the fence, and later attempts get that.

        The function may await or not; its return annotation says how the result is stored. One that raises is not stored. A
        name means one call in each attempt. Dying between the call and the storing runs it again. Raises `StaleLease` when
        the lease is lost.
        """
        step = self._durable("step").step(name, function, args, kwargs)
        if step.stored:
            return step.recalled()
        with step:
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            await self._kept(step.given(value))
        return value

    def step_sync(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do as `step`, from a thread or process."""
        refuse_on_loop("step")
        step = self._durable("step_sync").step(name, function, args, kwargs)
        if step.stored:
            return cast("R", step.recalled())
        with step:
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value.close()
                raise BadJob(f"{name!r} awaits: use it as a step of an async function", path="step_sync", task=self.task)
            self._keep(step.given(value))
        return value

    async def sleep(self, seconds: float | timedelta, *, name: str | None = None) -> None:
        """Sleep without a slot: this attempt ends here, and a later one goes on from here once the time has passed.

        Costs no failure. Sleeps are known by their order, or by their names. Let what this raises pass.
        """
        steps = self._durable("sleep")
        with steps.alone("sleep"):
            part, suspended = steps.sleep(seconds, name, self.channel.now())
            if part is not None:
                await self._kept(part)
            self._suspend(suspended)

    def sleep_sync(self, seconds: float | timedelta, *, name: str | None = None) -> None:
        """Do as `sleep`, from a thread or process."""
        refuse_on_loop("sleep")
        part, suspended = self._durable("sleep_sync").sleep(seconds, name, self.channel.now())
        if part is not None:
            self._keep(part)
        self._suspend(suspended)

    @overload
    def wait_for(self, signal: str, *, timeout: float | timedelta | None = None) -> Coroutine[Any, Any, Any]: ...
    @overload
    def wait_for(self, signal: str, *, timeout: float | timedelta | None = None, type: type[T]) -> Coroutine[Any, Any, T]: ...
    async def wait_for(
        self,
        signal: str,
        *,
        timeout: float | timedelta | None = None,
        type: Any = Any,  # noqa: A002  as in msgspec
    ) -> Any:
        """Wait without a slot until a signal is emitted (`app.signal(name, data)`), and return what it carries.

        This attempt ends here, and a later one goes on from here; one that was emitted before is not waited for long. Costs
        no failure. Raises `TimeoutError` where the signal has not come `timeout` seconds after the first attempt asked.
        """
        steps = self._durable("wait_for")
        with steps.alone("wait_for"):
            part, suspended = steps.wait(signal, timeout, self.channel.now())
            if part is not None:
                await self._kept(part)
            self._suspend(suspended)
        return steps.received(signal, type)

    @overload
    def wait_for_sync(self, signal: str, *, timeout: float | timedelta | None = None) -> Any: ...
    @overload
    def wait_for_sync(self, signal: str, *, timeout: float | timedelta | None = None, type: type[T]) -> T: ...
    def wait_for_sync(
        self,
        signal: str,
        *,
        timeout: float | timedelta | None = None,
        type: Any = Any,  # noqa: A002  as above
    ) -> Any:
        """Do as `wait_for`, from a thread or process."""
        refuse_on_loop("wait_for")
        part, suspended = self._durable("wait_for_sync").wait(signal, timeout, self.channel.now())
        if part is not None:
            self._keep(part)
        self._suspend(suspended)
        return self._durable("wait_for_sync").received(signal, type)

    @property
    def signals(self) -> Mapping[str, str]:
        """What the signals carried that it was suspended for, as JSON text. For the runtime."""
        return self._signals or {}

    def _durable(self, what: str) -> Steps:
        if self._tx is not None:
            raise NotAllowed(f"job.{what} inside the job's transaction would not be undone with it: call it before or after")
        if self._steps is None:
            self._steps = Steps(self.task, self._parts, self.signals)
        return self._steps

    async def _kept(self, part: Part) -> None:
        await self.channel.checkpoint(part)
        self._parts[part.name] = part  # not before: what was refused must not pass for stored

    def _keep(self, part: Part) -> None:
        self.channel.checkpoint(part)  # in a thread or process it is stored when this returns
        self._parts[part.name] = part

    def _suspend(self, suspended: Suspended | None) -> None:
        if suspended is None:
            return
        self.unusual = True
        if self.suspension is None:
            self.suspension = suspended
        raise Suspending(self.suspension)

    # all or nothing

    def transaction(self, conn: Any = None) -> JobTransaction:
        """Return a transaction of the job: `async with job.transaction() as tx`, on the store's database.

        What is written in it, its end (`tx.complete(…)`, `tx.continue_with(…)` or `tx.fail(…)`), and jobs enqueued with
        `options(conn=tx)` commit together and only under the lease; an exception undoes them. Without an end it is a fenced
        write, and the job goes on. `conn` is a connection or session of your own on the same database. Raises `StaleLease` when
        the lease is lost.
        """
        return JobTransaction(self.channel.transactor(), conn, self._opened)

    def transaction_sync(self, conn: Any = None) -> BlockingTransaction:
        """Do as `transaction`, in a thread: `with job.transaction_sync() as tx`."""
        refuse_on_loop("transaction")
        return BlockingTransaction(self.channel.transactor(), conn, self._opened)

    @property
    def tx(self) -> JobTransaction:
        """The transaction that is open: that of the whole attempt, where the task is declared with `atomic=True`."""
        if isinstance(self._tx, JobTransaction):
            return self._tx
        if self._tx is not None:
            raise BadSetting("the function does not await, so its transaction is job.tx_sync")
        raise BadSetting("there is no transaction: declare the task with atomic=True, or use job.transaction()")

    @property
    def tx_sync(self) -> BlockingTransaction:
        """The transaction that is open, as `tx`, in a thread."""
        if isinstance(self._tx, BlockingTransaction):
            return self._tx
        if self._tx is not None:
            raise BadSetting("the function awaits, so its transaction is job.tx")
        raise BadSetting("there is no transaction: declare the task with atomic=True, or use job.transaction_sync()")

    def _opened(self, transaction: Any) -> None:
        """Take note of the transaction that begins, or that there is none any more."""
        if transaction is not None and self._tx is not None:
            raise NotAllowed("the job has an open transaction already: one after another, and none inside another")
        if transaction is not None and self.settled:
            raise NotAllowed("a transaction has ended this job already: nothing can be added to it")
        self._tx = transaction
        self.unusual = True

    # what need not be done again, by hand

    @property
    def parts(self) -> Mapping[str, Part]:
        """The parts written so far, by this attempt and those before it."""
        return self._parts

    def done(self, name: str) -> bool:
        """Tell whether a part is completed (or skipped), so that it need not be done again."""
        part = self._parts.get(name)
        return part is not None and part.state in (PartState.COMPLETED, PartState.SKIPPED)

    def data(self, name: str, default: Any = None) -> Any:
        """Return the data a part was written with."""
        part = self._parts.get(name)
        return default if part is None or part.data is None else msgspec.json.decode(part.data)

    def checkpoint(
        self,
        name: str,
        state: PartState | str | None = None,
        *,
        done: float | None = None,
        total: float | None = None,
        data: Any = None,
        error: str | None = None,
    ) -> Awaitable[None]:
        """Write down how far a named part of the work is, so that later attempts need not repeat it.

        Without `state` the part is completed, or in progress where `done` is less than `total`. In a thread, a process
        or a command this returns when it is stored, and raises `StaleLease` when the lease is lost. In an async function
        `await` it for the same; not awaited, it is stored before the job is settled.
        """
        part = Part(name, _state(state, done, total, error), done or 0.0, total, _json(data), error)
        confirmation = self.channel.checkpoint(part)
        self._parts[name] = part
        return confirmation

    # what it says

    @property
    def log(self) -> JobLog:
        """A logger whose lines are kept with the job, and pass through `logging` like any other."""
        if self._log is None:
            self._log = JobLog(logging.getLogger("holdfast.job"), self)
        return self._log

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} attempt {self.attempt}>"


def _state(state: PartState | str | None, done: float | None, total: float | None, error: str | None) -> PartState:
    if state is not None:
        try:
            return PartState(state)
        except ValueError:
            raise BadJob(f"{state!r} is none of {', '.join(PartState)}", path="part.state") from None
    if error is not None:
        return PartState.FAILED
    if done is not None and total is not None and done < total:
        return PartState.IN_PROGRESS
    return PartState.COMPLETED


def _json(data: Any) -> str | None:
    if data is None:
        return None
    try:
        return msgspec.json.encode(data).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise BadJob(f"cannot be stored as JSON: {error}", path="part.data") from error
