"""The job as its handler sees it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast.core.states import Event
from holdfast.errors import Aborted, BadJob
from holdfast.store.port import Part, PartState

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.abort import AbortReason
    from holdfast.core.lease import Claimed

PROGRESS_STEP: Final = 1.0
PROGRESS_SECONDS: Final = 0.5
"""Progress is written when it moved by this many percent, or this long after the last write."""

current_job: ContextVar[Job | None] = ContextVar("holdfast_job", default=None)
"""The job that runs in this context. Log records made here belong to it."""


class Channel(Protocol):
    """How a running job reports to its worker. Safe from any thread; nothing here blocks an event loop."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def progress(self, percent: float, step: str, message: str) -> None:
        """Pass on how far the job is."""
        ...

    def stage(self, name: str, event: Event) -> None:
        """Pass on that a stage was entered or left."""
        ...

    def log(self, level: str, logger: str, message: str, fields: str) -> None:
        """Pass on a line of the job's log; `fields` is JSON text."""
        ...

    def checkpoint(self, part: Part) -> Awaitable[None]:
        """Write a part. In a thread or process: done when this returns. On the event loop: done when awaited."""
        ...


class Stored(Awaitable[None]):
    """What a checkpoint gives that is stored already."""

    def __await__(self) -> Generator[None, None, None]:
        """Be done."""
        yield from ()


class Abort:
    """Tells a handler that it should stop, and why. Safe to set and read from any thread."""

    __slots__ = ("_event", "_lock", "_reason")

    def __init__(self) -> None:
        self._reason: AbortReason | None = None
        self._event: threading.Event | None = None
        self._lock: threading.Lock | None = None

    @property
    def reason(self) -> AbortReason | None:
        """Why to stop; `None`: go on."""
        return self._reason

    def is_set(self) -> bool:
        """Tell whether to stop."""
        return self._reason is not None

    def check(self) -> None:
        """Raise `Aborted` if the handler should stop: for loops in threads and processes."""
        if self._reason is not None:
            raise Aborted(self._reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the handler should stop, or for `timeout` seconds; returns whether it should. For threads."""
        with _ABORTS:
            if self._reason is not None:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout)

    def set(self, reason: AbortReason) -> bool:
        """Ask the handler to stop; the first reason stands. Returns whether this was the first. For the worker."""
        with _ABORTS:
            if self._reason is not None:
                return False
            self._reason = reason
            if self._event is not None:
                self._event.set()
            return True


_ABORTS: Final = threading.Lock()
"""One lock for all aborts: they are rare, and a lock for each job would be made a million times for nothing."""


class Job:
    """One attempt at a job, handed to the function that asks for it with a parameter `job: Job`.

    Its reports are written under the attempt's lease: once the lease is lost they are refused, and `abort` says why.
    """

    __slots__ = (
        "_claimed",
        "_held_back",
        "_last_at",
        "_last_message",
        "_last_percent",
        "_last_step",
        "_log",
        "_parts",
        "abort",
        "channel",
    )

    def __init__(self, claimed: Claimed, channel: Channel, abort: Abort, parts: Mapping[str, Part] | None = None) -> None:
        self._claimed = claimed
        self.channel = channel
        """How it reports; for the runtime."""
        self.abort = abort
        self._parts: dict[str, Part] = dict(parts) if parts else {}
        self._last_percent = -PROGRESS_STEP
        self._last_step = self._last_message = ""
        self._held_back: float | None = None
        self._last_at = float("-inf")
        self._log: JobLog | None = None

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

    # what need not be done again

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


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """A standard logger that knows its job: `job.log.info("rendered %s", name, width=1920)`."""

    def __init__(self, logger: logging.Logger, job: Job) -> None:
        super().__init__(logger, {})
        self.job = job

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Keep what is not logging's own as fields of the record."""
        known = {name: kwargs.pop(name) for name in ("exc_info", "stack_info", "stacklevel", "extra") if name in kwargs}
        fields = dict(kwargs)
        kwargs.clear()
        kwargs.update(known)
        kwargs["extra"] = {**(known.get("extra") or {}), "holdfast_fields": fields, "holdfast_job": self.job}
        return msg, kwargs

    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log for those who look closely."""
        self.log(logging.DEBUG, msg, *args, **kwargs)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what happens."""
        self.log(logging.INFO, msg, *args, **kwargs)

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what may need somebody."""
        self.log(logging.WARNING, msg, *args, **kwargs)

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what went wrong."""
        self.log(logging.ERROR, msg, *args, **kwargs)


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
