"""What is asked of a store. Checked when it is made, so that every store refuses the same things."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

from holdfast.core.job import NewJob
from holdfast.core.lease import Lease
from holdfast.core.numbers import check_number
from holdfast.core.settle import Write
from holdfast.core.states import STAGE_EVENTS, Event, State
from holdfast.core.text import clean, flaw, name_flaw
from holdfast.errors import CENTURY, BadJob
from holdfast.store.port.answers import WorkerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STEP_LIMIT: Final = 500
TEXT_LIMIT: Final = 2_000
LOG_LIMIT: Final = 10_000
WORKER_TEXT_LIMIT: Final = 10_000
MOST_SLOTS: Final = 100_000
SEARCH_LIMIT: Final = 5_000
"""Jobs that one `find` looks through, in a store that says it stopped there (`Page.searched_all`)."""


CIRCLE: Final = "a step cannot wait for the end of its own chain, nor for what itself waits for that: neither would ever end"
"""Why a continuation is refused that would close a circle of waiters."""

_CONTINUE: Final = Event.CONTINUE
"""Read for every job: a name of this module is found in a tenth of the time that an enum takes to find its member."""


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One attempt's end: the lease it was run under and what to write.

    `then` comes with `Event.CONTINUE`: the next step. `signal` comes with `Event.SUSPEND`, where that waits for one.
    """

    lease: Lease
    write: Write
    then: NewJob | None = None
    signal: str | None = None

    def __post_init__(self) -> None:
        """Refuse what belongs to another event."""
        if (self.then is None) is (self.write.event is _CONTINUE):
            raise BadJob("a step continues with the next one, and nothing else does", path="settlement.then")
        if self.then is not None and (self.then.chain_id is not None or self.then.id == self.lease.job_id):
            raise BadJob("the next step is another job, and belongs to the chain of this one", path="id", task=self.then.task)
        if self.signal is not None:
            if self.write.event is not Event.SUSPEND:
                raise BadJob("only a suspended job waits for a signal", path="settlement.signal")
            if (reason := name_flaw(self.signal)) is not None:
                raise BadJob(reason, path="settlement.signal")


class Progress(msgspec.Struct, frozen=True):
    """How far a running job is: percent (0-100), and what it does."""

    lease: Lease
    percent: float
    step: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        """Bring percent into 0-100 and the texts into a storable form: progress never fails a job."""
        percent = self.percent if math.isfinite(self.percent) else 0.0
        force_setattr(self, "percent", min(100.0, max(0.0, float(percent))))
        force_setattr(self, "step", clean(self.step, STEP_LIMIT))
        force_setattr(self, "message", clean(self.message, TEXT_LIMIT))


class PartState(StrEnum):
    """The state of one checkpointed part of a job."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Part(msgspec.Struct, frozen=True):
    """One named part of a job's work, as the job last wrote it. Survives retries."""

    name: str
    state: PartState
    done: float = 0.0
    total: float | None = None
    data: str | None = None
    error: str | None = None
    started_at: datetime | None = None
    """When it first left `pending`; kept by the store."""
    completed_at: datetime | None = None
    """When it became completed, failed or skipped; kept by the store."""

    def __post_init__(self) -> None:
        """Refuse a name or data that no store could keep; make the error storable."""
        if (reason := name_flaw(self.name)) is not None:
            raise BadJob(reason, path="part.name")
        for field in ("done", "total"):
            value = getattr(self, field)
            if value is not None and not math.isfinite(value):
                raise BadJob(f"must be a number, not {value}", path=f"part.{field}")
        if self.data is not None and (reason := flaw(self.data)) is not None:
            raise BadJob(reason, path="part.data")
        if self.error is not None:
            force_setattr(self, "error", clean(self.error, TEXT_LIMIT))

    @property
    def percent(self) -> float | None:
        """How much of it is done, where a total is known."""
        return None if not self.total else min(100.0, 100.0 * self.done / self.total)


class Checkpoint(msgspec.Struct, frozen=True):
    """A part to be written by the holder of a lease."""

    lease: Lease
    part: Part


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for: at most `limit` jobs of these tasks (and queues: `None` for all) that it can run.

    `look` asks the store to look for itself before it answers, instead of trusting what it saw within the last second:
    on a notification, on a poll, after idling. `hurry` says with it that a moment ago there was nothing, and that now there
    is a hint of work: a store for which a look takes long may first try what it knows, by priority, and bring one job of it:
    there may be more. `first` and `retries_first` are for `core.fairness.order`.
    """

    worker: UUID
    tasks: frozenset[str]
    limit: int
    queues: frozenset[str] | None = None
    capabilities: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    """What other workers have that could do more (`Signal.idle`): jobs that prefer it are left to them for a while."""
    look: bool = False
    hurry: bool = False
    first: str | None = None
    """The queue whose lanes come first this time."""
    retries_first: bool = False
    """Whether lanes of retries come first this time."""

    def __post_init__(self) -> None:
        """Refuse names that no store could hold."""
        for field in ("tasks", "queues", "capabilities", "idle"):
            for name in getattr(self, field) or ():
                if (reason := flaw(name)) is not None:
                    raise BadJob(reason, path=field)


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it introduces itself. Its id and name are kept for ever: jobs name who processed them."""

    id: UUID
    name: str
    info: str = "{}"
    """JSON text about it (host, process, queues, tasks), at most 10 KB."""
    kind: WorkerKind = WorkerKind.LOCAL
    version: str = ""
    slots: int = 1
    capabilities: tuple[str, ...] = ()
    """At most 10 KB in all."""
    owner: str = ""
    """Of a remote one the name of the key that it came with: no other may speak for it."""

    def __post_init__(self) -> None:
        """Refuse what no store could keep."""
        for field, name in (("name", self.name), *(("capabilities", name) for name in self.capabilities)):
            if (reason := name_flaw(name)) is not None:
                raise BadJob(reason, path=f"worker.{field}")
        for field in ("info", "version", "owner"):
            if (reason := flaw(getattr(self, field))) is not None:
                raise BadJob(reason, path=f"worker.{field}")
        for field, text in (("info", self.info), ("capabilities", "".join(self.capabilities))):
            if (size := len(text.encode())) > WORKER_TEXT_LIMIT:
                reason = (
                    f"has {size:,} bytes, and a worker may say {WORKER_TEXT_LIMIT:,} bytes of itself there at most: "
                    "leave out what nobody looks for, and say where the rest is"
                )
                raise BadJob(reason, path=f"worker.{field}", what="worker")
        if type(self.slots) is not int or not 0 <= self.slots <= MOST_SLOTS:
            raise BadJob(f"must be a whole number from 0 to {MOST_SLOTS:,}, not {self.slots}", path="worker.slots")


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life of a worker."""

    worker: UUID
    counters: str = "{}"
    """JSON text: what it has counted since it started."""

    def __post_init__(self) -> None:
        """Refuse what no store could keep."""
        if (reason := flaw(self.counters)) is not None:
            raise BadJob(reason, path="beat.counters")


HEARD_EVERY: Final = 20.0
"""Seconds for which a worker that was heard of is not noted as heard of again (`Store.heard`): as often as workers beat."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a running job wrote to its log."""

    lease: Lease
    message: str
    level: str = "info"
    logger: str = ""
    fields: str = "{}"
    """JSON text: what was logged besides the message."""
    age: float = 0.0
    """How many seconds ago it was written: the store's clock minus this is its time."""
    id: UUID | None = None
    """A name of its writer's own making: a line that is sent again by it, because nobody answered, is there once."""

    def __post_init__(self) -> None:
        """Bring the texts into a storable form: a log line never fails a job."""
        force_setattr(self, "message", clean(self.message, LOG_LIMIT))
        force_setattr(self, "level", clean(self.level, STEP_LIMIT))
        force_setattr(self, "logger", clean(self.logger, STEP_LIMIT))
        if flaw(self.fields) is not None or len(self.fields) > LOG_LIMIT:
            force_setattr(self, "fields", "{}")
        force_setattr(self, "age", _checked_age(self.age))


class StageMark(msgspec.Struct, frozen=True, kw_only=True):
    """A running job enters or leaves a stage of its work: a line in its event log, with the stage's name as detail."""

    lease: Lease
    name: str
    event: Event
    """One of `STAGE_EVENTS`."""
    age: float = 0.0
    """How many seconds ago it happened."""

    def __post_init__(self) -> None:
        """Refuse an event of another kind; make the rest storable."""
        if self.event not in STAGE_EVENTS:
            raise BadJob(f"{self.event} is none of a stage", path="stage.event")
        force_setattr(self, "name", clean(self.name, STEP_LIMIT))
        force_setattr(self, "age", _checked_age(self.age))


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What is enqueued again and again: `cron` in `timezone`, and `spec`, JSON text that tells one definition from another."""

    name: str
    task: str
    cron: str
    timezone: str
    next_at: datetime
    """The slot that is to be fired next, as a first or changed definition begins; a known one keeps its own."""
    spec: str = "{}"

    def __post_init__(self) -> None:
        """Refuse what no store could keep."""
        for field in ("name", "task"):
            if (reason := name_flaw(getattr(self, field))) is not None:
                raise BadJob(reason, path=f"schedule.{field}")
        for field in ("cron", "timezone", "spec"):
            if (reason := flaw(getattr(self, field))) is not None:
                raise BadJob(reason, path=f"schedule.{field}")
        if self.next_at.tzinfo is None:
            raise BadJob("must have a time zone", path="schedule.next_at")


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a schedule that is to become a job, and the slot after it."""

    name: str
    slot: datetime
    """The `next_at` the caller saw: who comes second finds another one, and changes nothing."""
    next_at: datetime
    job: NewJob | None
    """`None`: the slot is passed over."""

    def __post_init__(self) -> None:
        """Refuse a schedule that would stand still."""
        if self.slot.tzinfo is None or self.next_at.tzinfo is None or self.next_at <= self.slot:
            raise BadJob("the next slot must be later than this one, both with a time zone", path="firing.next_at")


SOME_WORKERS: Final = 1_000
"""Workers that are offline for too long, of which one look lets so many go: the next goes on."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds terminal jobs are kept, per state. `None`: for ever."""

    succeeded: float | None = None
    failed: float | None = None
    canceled: float | None = None
    signals: float | None = None
    """How long a signal is kept after it was emitted."""
    enqueues: float | None = None
    """How long the audit log keeps a line about an enqueue; all others it keeps for ever."""
    workers: float | None = None
    """How long a worker that is offline is listed. Who it was is kept for ever: jobs name who processed them."""

    def __post_init__(self) -> None:
        """Refuse an age that is none."""
        for state, age in self.seconds().items():
            check_number(age, f"retention.{state}", least=0.0, most=CENTURY)
        for name, kept in (("signals", self.signals), ("enqueues", self.enqueues), ("workers", self.workers)):
            if kept is not None:
                check_number(kept, f"retention.{name}", least=0.0, most=CENTURY)

    def seconds(self) -> Mapping[State, float]:
        """Return the states that are pruned at all, with their age."""
        ages = {State.SUCCEEDED: self.succeeded, State.FAILED: self.failed, State.CANCELED: self.canceled}
        return {state: age for state, age in ages.items() if age is not None}


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs or chains a list shows. Everything given must hold.

    Of a chain, `states` is about the chain, everything else about its first step. `chain_id` is for jobs alone: the
    steps of that chain.
    """

    states: frozenset[State] | None = None
    task: str | None = None
    queue: str | None = None
    tag: str | None = None
    key: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    chain_id: UUID | None = None

    def __post_init__(self) -> None:
        """Refuse what no store could compare with."""
        for field in ("task", "queue", "tag", "key"):
            if (text := getattr(self, field)) is not None and (reason := flaw(text)) is not None:
                raise BadJob(reason, path=field)
        for field in ("created_from", "created_before"):
            if (at := getattr(self, field)) is not None and at.tzinfo is None:
                raise BadJob("must have a time zone: use datetime.now(UTC) or .astimezone()", path=field)


def _checked_age(age: float) -> float:
    return min(CENTURY, max(0.0, float(age))) if math.isfinite(age) else 0.0


class Notice:
    """What may be sent to other processes with a commit, so that they hear of it at once; told back whether it was."""

    __slots__ = ("sent", "text")

    def __init__(self, text: Callable[[], str | None]) -> None:
        self.text = text
        """Asked by a store that can send something: what. `None`: nothing, now."""
        self.sent = False
