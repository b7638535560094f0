"""A job for unit tests of handlers: it belongs to no store and keeps what it is told."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from holdfast.core.job import DEFAULT_LEASE, DEFAULT_PRIORITY, DEFAULT_QUEUE, Policy
from holdfast.core.lease import Claimed
from holdfast.core.states import State
from holdfast.errors import BadSetting
from holdfast.store.port import BlockerView, Part, PartState
from holdfast.system import SystemEnvironment
from holdfast.tasks.abort import Abort
from holdfast.tasks.channel import Stored
from holdfast.tasks.context import Job
from holdfast.tasks.joblog import JobLog
from holdfast.tasks.steps import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.abort import AbortReason
    from holdfast.core.outcome import Suspended
    from holdfast.core.states import Event
    from holdfast.tasks.channel import Transactor
    from holdfast.tasks.task import Task

NO_TASK: Final = "fake"


class Declared(Protocol):
    """A declared task, whatever its function takes: to type checkers those that ask for the job are of another class."""

    @property
    def name(self) -> str:
        """The task's name."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """Its function."""
        ...


@dataclass(slots=True)
class Records:
    """What a handler said to its job, in order."""

    progress: list[tuple[float, str]] = field(default_factory=list)
    """Percent and message of every report."""
    stages: list[tuple[str, Event]] = field(default_factory=list)
    """Stages entered, left and failed."""
    lines: list[tuple[str, str]] = field(default_factory=list)
    """Level and text of every line of its log."""
    checkpoints: list[Part] = field(default_factory=list)
    """Parts as they were written."""
    suspensions: list[Suspended] = field(default_factory=list)
    """Where it slept or waited for a signal, and until when."""


class FakeJob(Job):
    """A job that records what its handler says in `records`. Ask the handler to stop with `job.abort.set(reason)`.

    `continue_with` gives a `Continue` to look at, steps run, sleeps are over at once. It has no transactions: they need a
    store, so drain such a job instead.
    """

    __slots__ = ("records",)

    def __init__(
        self,
        claimed: Claimed,
        parts: Mapping[str, Part],
        abort: Abort,
        *,
        blockers: Sequence[BlockerView],
        signals: Mapping[str, str],
    ) -> None:
        self.records = Records()
        channel = _Recorder(self.records, claimed.claimed_at)
        super().__init__(claimed, channel, abort, parts, blockers=blockers, signals=signals)
        self._log = _RecordingLog(logging.getLogger("holdfast.job"), self)

    def _suspend(self, suspended: Suspended | None) -> None:
        """Go on as the next attempt would: after a sleep, with the signal that was given, or with a time-out."""
        if suspended is None:
            return
        self.records.suspensions.append(suspended)
        if (signal := suspended.signal) is None:
            return
        name = f"{WAIT}:{signal}"
        if (text := self.signals.get(signal)) is not None:
            self._parts[name] = Part(name, PartState.COMPLETED, data=text)
        elif suspended.until is not None:
            self._parts[name] = Part(name, PartState.FAILED)
        else:
            raise BadSetting(f"the handler waits for the signal {signal!r}: give it with fake_job(signals={{{signal!r}: …}})")


def fake_job(
    task: Declared | None = None,
    *,
    attempt: int = 1,
    failures: int | None = None,
    parts: Mapping[str, Any] | Iterable[str] = (),
    abort: AbortReason | None = None,
    created_at: datetime | None = None,
    after: Sequence[tuple[Declared, Any] | BlockerView] = (),
    signals: Mapping[str, Any] | None = None,
) -> FakeJob:
    """Return a job to call a handler with: `await render(7, job=fake_job(render))`.

    `parts` are what earlier attempts completed: names, or names with the data they were written with. `failures` is
    one less than `attempt` unless it is given. With `abort` the handler is asked to stop from the beginning. `after` is what
    it waited for: tasks with the results they gave. `signals` are those that come when the handler waits for them, with
    what they carry; where it waits for another with a time-out, the time is over.
    """
    now = datetime.now(UTC)
    declared = None if task is None else cast("Task[..., Any]", task).options_declared
    lease = DEFAULT_LEASE if declared is None else declared.lease
    world = SystemEnvironment()
    claimed = Claimed(
        job_id=world.job_id(),
        token=world.token(),
        attempt=attempt,
        failures=attempt - 1 if failures is None else failures,
        task=NO_TASK if task is None else task.name,
        queue=DEFAULT_QUEUE if declared is None else declared.queue,
        priority=DEFAULT_PRIORITY if declared is None else declared.priority,
        args="{}",
        policy=Policy() if declared is None else Policy(declared.retry, declared.timeout),
        lease_seconds=lease,
        created_at=now if created_at is None else created_at,
        claimed_at=now,
        expires_at=now + timedelta(seconds=lease),
        blockers=len(after),
    )
    asked = Abort()
    if abort is not None:
        asked.set(abort)
    return FakeJob(
        claimed,
        _parts(parts),
        asked,
        blockers=[one if isinstance(one, BlockerView) else _ended(*one) for one in after],
        signals={name: msgspec.json.encode(data).decode() for name, data in (signals or {}).items()},
    )


def _parts(parts: Mapping[str, Any] | Iterable[str]) -> dict[str, Part]:
    given = parts if isinstance(parts, Mapping) else dict.fromkeys(parts)
    return {name: value if isinstance(value, Part) else _completed(name, value) for name, value in given.items()}


def _ended(task: Declared, result: Any) -> BlockerView:
    codec = cast("Task[..., Any]", task).results
    chain_id = SystemEnvironment().job_id()
    return BlockerView(
        chain_id=chain_id, state=State.SUCCEEDED, task=task.name, step_task=task.name, result=codec.encode(result)
    )


def _completed(name: str, data: Any) -> Part:
    return Part(name, PartState.COMPLETED, data=None if data is None else msgspec.json.encode(data).decode())


class _Recorder:
    """A channel that ends in lists."""

    def __init__(self, records: Records, begun: datetime) -> None:
        self._records = records
        self._begun = begun
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Return a later time whenever it is asked: a job holds back reports that follow one another too closely."""
        self._seconds += 1.0
        return self._seconds

    def now(self) -> datetime:
        return self._begun + timedelta(seconds=self._seconds)

    def progress(self, percent: float, step: str, message: str) -> None:  # noqa: ARG002  the port's; stages are kept
        self._records.progress.append((percent, message))

    def stage(self, name: str, event: Event) -> None:
        self._records.stages.append((name, event))

    def log(self, level: str, logger: str, message: str, fields: str) -> None:  # noqa: ARG002  the port's
        self._records.lines.append((level, message))

    def checkpoint(self, part: Part) -> Awaitable[None]:
        self._records.checkpoints.append(part)
        return Stored()

    def transactor(self) -> Transactor:
        raise BadSetting(
            "a fake job has no store, and so no transaction: enqueue the job and run it with holdfast.testing.drain, on a "
            "store of the kind the handler writes to"
        )


class _RecordingLog(JobLog):
    """Records every line, whatever the level of the logger, and passes it on."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        text = str(msg) % args if args else str(msg)
        self.job.channel.log(logging.getLevelName(level).lower(), self.logger.name, text, "{}")
        super().log(level, msg, *args, **kwargs)
