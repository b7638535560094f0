"""The port: what every store can do, and what it promises about each operation.

Words used in the promises:

- *atomic*: the whole call happens or none of it does, also when the process dies in the middle;
- *fenced*: carries the token of a lease and changes nothing unless that token is current at that moment;
- *repeatable*: when the outcome is unknown (the connection broke), the same call may be made again: no loss, no double.

Batches go in, answers come out in the same order, one for each item. Losing a race is an answer, not an exception.
Requests and answers are msgspec structs that survive JSON, so that a store may be spoken to over HTTP. A chain is known by its
first job: `NewJob.after` makes waiters, which every operation that ends a job settles. A job held back by a limit is `ready`; a
store may keep it apart, and a claim does not return it.

Any operation may raise `StoreUnavailable`; then its outcome is unknown. Every clock reading that decides anything is the
store's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

from holdfast.core.job import NewJob, Policy
from holdfast.core.lease import Lease
from holdfast.core.numbers import check_number
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import LIVE, STAGE_EVENTS, TERMINAL, WAITING, Event, State
from holdfast.core.text import clean, flaw, name_flaw
from holdfast.errors import CENTURY, BadJob

if TYPE_CHECKING:
    from holdfast.core.lease import Claimed, Extended

STEP_LIMIT: Final = 500
TEXT_LIMIT: Final = 2_000
LOG_LIMIT: Final = 10_000
WORKER_TEXT_LIMIT: Final = 10_000
MOST_SLOTS: Final = 100_000

# --- answers ----------------------------------------------------------------------------------------------------------


class Enqueue(StrEnum):
    """What became of a job that was to be enqueued."""

    CREATED = "created"
    REPEATED = "repeated"
    """A job with this id was there already: an enqueue repeated after an unknown outcome."""
    EXISTING = "existing"
    """Its unique key is taken; the answer names the job that holds it."""


class Enqueued(msgspec.Struct, frozen=True):
    """The answer to one job of an enqueue: `job_id` is the job that now stands for it."""

    status: Enqueue
    job_id: UUID


class Settled(StrEnum):
    """What became of a settlement, or of any other fenced write."""

    APPLIED = "applied"
    LATE = "late"
    """Applied although `expires_at` had passed: nobody had reaped the lease."""
    REPEATED = "repeated"
    """Applied by an earlier call with the same token."""
    STALE = "stale"
    """Refused: the token is not current. Nothing changed."""

    @property
    def accepted(self) -> bool:
        """Whether the write stands."""
        return self is not Settled.STALE


class Answer(StrEnum):
    """What became of a client's request about a job."""

    DONE = "done"
    REQUESTED = "requested"
    """The job runs: its worker has been asked to stop."""
    REFUSED = "refused"
    """Not possible in the state the job is in. Nothing changed."""
    NOT_FOUND = "not_found"
    KEY_TAKEN = "key_taken"
    """Reopening it would give its unique key two holders. Nothing changed."""
    NEEDED = "needed"
    """A blocked job waits for it. Nothing changed."""


class Signal(msgspec.Struct, frozen=True):
    """The answer to a worker's sign of life."""

    disabled: bool = False
    """A person has disabled it: it is to claim nothing more."""


class WorkerKind(StrEnum):
    """Where a worker runs."""

    LOCAL = "local"
    """Beside the database."""
    REMOTE = "remote"
    """Behind the HTTP API."""


# --- requests ---------------------------------------------------------------------------------------------------------


class Settlement(msgspec.Struct, frozen=True):
    """One attempt's end: the lease it was run under and what to write."""

    lease: Lease
    write: Write


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
    on a notification, on a poll, after idling. `first` and `retries_first` are for `core.fairness.order`.
    """

    worker: UUID
    tasks: frozenset[str]
    limit: int
    queues: frozenset[str] | None = None
    capabilities: frozenset[str] = frozenset()
    look: bool = False
    first: str | None = None
    """The queue whose lanes come first this time."""
    retries_first: bool = False
    """Whether lanes of retries come first this time."""

    def __post_init__(self) -> None:
        """Refuse names that no store could hold."""
        for field in ("tasks", "queues", "capabilities"):
            for name in getattr(self, field) or ():
                if (reason := flaw(name)) is not None:
                    raise BadJob(reason, path=field)


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it introduces itself. Kept for ever: jobs name who processed them."""

    id: UUID
    name: str
    info: str = "{}"
    """JSON text about it (host, process, queues, tasks), at most 10 KB."""
    kind: WorkerKind = WorkerKind.LOCAL
    version: str = ""
    slots: int = 1
    capabilities: tuple[str, ...] = ()
    """At most 10 KB in all."""

    def __post_init__(self) -> None:
        """Refuse what no store could keep."""
        for field, name in (("name", self.name), *(("capabilities", name) for name in self.capabilities)):
            if (reason := name_flaw(name)) is not None:
                raise BadJob(reason, path=f"worker.{field}")
        for field in ("info", "version"):
            if (reason := flaw(getattr(self, field))) is not None:
                raise BadJob(reason, path=f"worker.{field}")
        for field, text in (("info", self.info), ("capabilities", "".join(self.capabilities))):
            if len(text.encode()) > WORKER_TEXT_LIMIT:
                raise BadJob(f"is longer than {WORKER_TEXT_LIMIT:,} bytes", path=f"worker.{field}")
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


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds terminal jobs are kept, per state. `None`: for ever."""

    succeeded: float | None = None
    failed: float | None = None
    canceled: float | None = None

    def __post_init__(self) -> None:
        """Refuse an age that is none."""
        for state, age in self.seconds().items():
            check_number(age, f"retention.{state}", least=0.0, most=CENTURY)

    def seconds(self) -> Mapping[State, float]:
        """Return the states that are pruned at all, with their age."""
        ages = {State.SUCCEEDED: self.succeeded, State.FAILED: self.failed, State.CANCELED: self.canceled}
        return {state: age for state, age in ages.items() if age is not None}


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a list shows. Everything given must hold."""

    states: frozenset[State] | None = None
    task: str | None = None
    queue: str | None = None
    tag: str | None = None
    key: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None

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


# --- views ------------------------------------------------------------------------------------------------------------


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as people see it: what was asked, where it stands, how it went."""

    id: UUID
    task: str
    queue: str
    priority: int
    state: State
    args: str
    attempt: int
    failures: int
    created_at: datetime
    lease_seconds: float
    policy: Policy
    run_at: datetime | None = None
    """When a scheduled or blocked job is due."""
    ready_at: datetime | None = None
    """Since when a ready job waits."""
    start_by: datetime | None = None
    """A job that still waits then is ended as canceled with the code `EXPIRED`."""
    key: str | None = None
    scope: str | None = None
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    chain_id: UUID | None = None
    trace: str | None = None
    waits_for: tuple[UUID, ...] = ()
    """The chains a blocked job still waits for."""
    worker_id: UUID | None = None
    worker_name: str | None = None
    claimed_at: datetime | None = None
    expires_at: datetime | None = None
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None
    late: bool = False
    """Settled after its lease had lapsed, before anyone reaped it."""
    cancel_requested: bool = False
    result: str | None = None
    error: Error | None = None
    progress: float | None = None
    step: str = ""
    message: str = ""
    paused: bool = False
    """Its queue is paused."""
    lapsed: bool = False
    """It runs under a lease that has expired and is not reaped yet."""

    @property
    def shown(self) -> str:
        """The finer state shown to people; derived, never stored."""
        if self.lapsed:
            return "expired"
        if self.state is State.READY and self.paused:
            return "paused"
        if self.state is State.SCHEDULED and self.failures:
            return "retrying"
        return self.state


class Page(msgspec.Struct, frozen=True):
    """A page of a list, newest first."""

    jobs: Sequence[JobView]
    after: UUID | None = None
    """The cursor of the next page; `None` when the list is at its end."""
    searched_all: bool = True
    """False when the search stopped at its bound before the page was full: go on from `after` for older jobs."""


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of a job and how it ended."""

    attempt: int
    worker_id: UUID | None
    worker_name: str | None
    claimed_at: datetime
    ended_at: datetime | None = None
    event: Event | None = None
    """How it ended; `None` while it runs."""
    late: bool = False
    error: Error | None = None


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's event log."""

    event: Event
    at: datetime
    state: State | None
    """Where the job stood afterwards."""
    attempt: int = 0
    actor: str = ""
    detail: str = ""


class WorkerState(StrEnum):
    """What a worker is doing; derived, never stored."""

    IDLE = "idle"
    """Nothing to do."""
    ACTIVE = "active"
    """Some of its slots run jobs."""
    BUSY = "busy"
    """All of its slots run jobs."""
    OFFLINE = "offline"
    """It has stopped, or has not been heard of for too long. For people: only the expiry of its leases decides anything."""
    DISABLED = "disabled"
    """A person has disabled it: it claims nothing."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as people see it."""

    worker: Worker
    registered_at: datetime
    heartbeat_at: datetime | None = None
    offline_at: datetime | None = None
    """Since when it counts as gone; its next sign of life clears it."""
    disabled_at: datetime | None = None
    disabled_by: str = ""
    running: int = 0
    """How many leases it holds."""
    jobs: tuple[UUID, ...] = ()
    """The jobs it holds, at most a hundred."""
    counters: str = "{}"

    @property
    def state(self) -> WorkerState:
        """What it is doing."""
        if self.offline_at is not None:
            return WorkerState.OFFLINE
        if self.disabled_at is not None:
            return WorkerState.DISABLED
        if not self.running:
            return WorkerState.IDLE
        return WorkerState.BUSY if self.running >= self.worker.slots else WorkerState.ACTIVE


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's log."""

    no: int
    """Grows with every line of the store: the cursor of those who follow the log."""
    at: datetime
    attempt: int
    level: str
    logger: str
    message: str
    fields: str


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, when it fires next and what it fired last."""

    schedule: Schedule
    """With the `next_at` that stands now."""
    due_in: float
    """Seconds until `next_at` by the store's clock; 0 or less: it is due."""
    last_at: datetime | None = None
    """The last slot that became a job."""
    last_job: UUID | None = None


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: how much it holds, and whether and why it is paused."""

    name: str
    counts: Mapping[State, int]
    oldest_waiting: float | None = None
    """Seconds the oldest ready job has waited."""
    paused_at: datetime | None = None
    paused_by: str = ""
    reason: str = ""


class TaskCounts(msgspec.Struct, frozen=True):
    """How many jobs of one task in one queue stand in each state."""

    queue: str
    task: str
    counts: Mapping[State, int]


class Stats(msgspec.Struct, frozen=True):
    """Exact counts, and how long the oldest ready job of each queue has waited."""

    tasks: Sequence[TaskCounts] = ()
    oldest_waiting: Mapping[str, float] = {}

    def count(self, *states: State, queue: str | None = None, task: str | None = None) -> int:
        """Return how many jobs stand in these states (all when none is named), optionally of one queue or task."""
        wanted = states or tuple(State)
        return sum(
            row.counts.get(state, 0)
            for row in self.tasks
            if queue in (None, row.queue) and task in (None, row.task)
            for state in wanted
        )

    @property
    def live(self) -> int:
        """How many jobs are not terminal."""
        return self.count(*LIVE)

    @property
    def waiting(self) -> int:
        """How many jobs are blocked, scheduled or ready."""
        return self.count(*WAITING)

    @property
    def terminal(self) -> int:
        """How many jobs have ended and are not pruned."""
        return self.count(*TERMINAL)


class Promoted(msgspec.Struct, frozen=True):
    """What a promotion did: how many jobs became ready, in which queues, and when the next one is due."""

    count: int
    queues: frozenset[str] = frozenset()
    next_due: float | None = None
    """Seconds until the next scheduled job is due (0 or less: now); `None` when none is."""


class Reaped(msgspec.Struct, frozen=True):
    """One lapsed lease that was settled: whose it was and what was written."""

    job_id: UUID
    task: str
    queue: str
    attempt: int
    worker_id: UUID | None
    write: Write


class Pruned(msgspec.Struct, frozen=True):
    """How many jobs were deleted, and where to go on; `after` is `None` when the archive has been walked to its end."""

    count: int
    after: UUID | None = None


# --- the port ---------------------------------------------------------------------------------------------------------


class Store(Protocol):
    """Where jobs are kept."""

    async def open(self) -> None:
        """Connect, and check the schema; create a missing one where that is allowed. Safe to call again.

        Raises `SchemaMissing`, `SchemaTooOld`, `SchemaTooNew`, `StoreUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads. Safe to call again."""
        ...

    # producing

    async def enqueue(
        self, jobs: Sequence[NewJob], *, under: Lease | None = None, caps: Mapping[str, int] | None = None
    ) -> list[Enqueued]:
        """Create jobs. Atomic; repeatable by id; with `under` fenced by that lease (raises `StaleLease`).

        A job with a past or no time becomes ready, one with a future time scheduled, one with unfinished `after` chains
        blocked. Ready jobs of one call keep their order. A taken unique key is answered as the job's `on_conflict` says.
        A job is claimable once the call has returned. `after` must name jobs that exist (raises `BadJob`).

        `caps` says how many waiting jobs (blocked, scheduled, ready) a queue may hold: a call that creates a job in a queue
        and would leave more there creates nothing (raises `QueueFull`); concurrent calls do not get past it together.
        """
        ...

    # working

    async def register(self, worker: Worker) -> None:
        """Make a worker known, or change what it says of itself. Atomic; repeatable. Must precede its first claim.

        A worker that registers again is no longer offline; one that was disabled stays so.
        """
        ...

    async def beat(self, beat: Beat) -> Signal:
        """Note that a worker is alive, and its counters; clears an offline mark. Repeatable. Raises `UnknownWorker`."""
        ...

    async def retire(self, worker: UUID) -> None:
        """Note that a worker has stopped: it is offline at once. Repeatable; an unknown one is ignored."""
        ...

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Take ready jobs and receive leases. Atomic; each job goes to one claimer.

        Order: `core.fairness.order` over lanes, within a lane first in first out with released jobs in front. Jobs of
        unknown tasks, paused queues and missing capabilities stay where they are; in a `fifo` lane nothing passes a job
        of an unknown task. Raises `UnknownWorker`. Not repeatable: leases whose answer was lost are found by `holding`.
        Jobs that have failed before wait in a lane of their own beside their lane's (`NewJob.retry_entry`).
        """
        ...

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease this worker holds: what it does not know of, it should release."""
        ...

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases by their own length from the store's now. Fenced one by one; repeatable.

        Never waits for another writer. A lapsed lease that nobody has reaped is extended too.
        """
        ...

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress and extend the leases. Fenced one by one; repeatable."""
        ...

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts of jobs. Fenced one by one; repeatable. Extends the leases too."""
        ...

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job in the order they were first written."""
        ...

    async def log(self, lines: Sequence[LogLine]) -> list[Settled]:
        """Append lines to the logs of jobs, in order. Fenced one by one. A repetition may write lines twice."""
        ...

    async def logs(self, job_id: UUID, *, limit: int, after: int = 0) -> list[LogView]:
        """Return the log of a job, oldest first, from the line after number `after` on. Kept as long as the job is."""
        ...

    async def mark(self, marks: Sequence[StageMark]) -> list[Settled]:
        """Write stages entered and left into event logs, in order. Fenced one by one. A repetition may write lines twice."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts. Atomic as a batch, fenced one by one; repeatable: archive and attempt records keep the token.

        In the same transaction: the unique key is freed and waiters are unblocked when the job is terminal, the attempt
        is recorded unless it simply succeeded, the event is logged. A token dies with its lease, not at `expires_at`.
        """
        ...

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault (the worker shuts down). Fenced; repeatable."""
        ...

    # housekeeping: any process may run it, several at once do no harm

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled jobs ready, in `run_at` order. Atomic; repeatable."""
        ...

    async def reap(self, limit: int, *, tasks: frozenset[str] = frozenset(), up_for: float | None = None) -> list[Reaped]:
        """Settle lapsed leases by the policy stored with each job; those of `tasks` first. Atomic; repeatable.

        One guarded statement decides against a heartbeat or settle that comes at the same moment. Leases longer than
        `up_for` seconds (how long the caller has been undisturbed) are left alone, and so are those longer than the
        database has been up or this connection has been back: an outage must not spend budgets.
        """
        ...

    async def drop_overdue(self, limit: int) -> int:
        """End waiting jobs whose `start_by` has passed, as canceled with the code `EXPIRED`. Atomic; repeatable.

        Returns how many it looked at: below `limit`, none is left. A job that runs at its `start_by` is left alone; when
        it waits again and is claimed, the claim says `overdue`.
        """
        ...

    async def mark_offline(self, after: float) -> list[UUID]:
        """Mark workers offline that gave no sign of life for `after` seconds, from registration where there never was one.

        One conditional update: of several callers, one is told of each worker.
        """
        ...

    async def unblock(self, limit: int) -> int:
        """Settle waiters whose blockers ended unseen; returns how many left `blocked`. Atomic; repeatable."""
        ...

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None = None) -> Pruned:
        """Delete terminal jobs older than their state's retention, with all their records. Atomic; repeatable.

        Looks at no more than `limit` archived jobs from `after` on; go on from the answer's `after`.
        """
        ...

    # steering

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop. Atomic; repeatable."""
        ...

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> list[Answer]:
        """End live jobs as succeeded from outside. Atomic; a lease it ends is dead at once."""
        ...

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> list[Answer]:
        """End live jobs as failed from outside. Atomic; a lease it ends is dead at once."""
        ...

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records, in whatever state. Atomic; a lease it ends is dead at once."""
        ...

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready with their budget restored; attempts go on counting. Atomic."""
        ...

    async def disable(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker claim nothing more; it learns of it with its next sign of life. Returns whether it is known."""
        ...

    async def enable(self, worker: UUID) -> bool:
        """Let a disabled worker claim again. Returns whether it is known."""
        ...

    # schedules

    async def schedule(self, schedules: Sequence[Schedule]) -> None:
        """Make schedules known. One whose task, cron, timezone and spec are known keeps its place; else it begins anew.

        Atomic; repeatable.
        """
        ...

    async def unschedule(self, names: Sequence[str]) -> None:
        """Forget schedules. Jobs they have enqueued stay. Repeatable."""
        ...

    async def schedules(self) -> list[ScheduleView]:
        """Return the known schedules by name."""
        ...

    async def fire(self, firing: Firing) -> Enqueued | None:
        """Advance a schedule from one slot to the next and enqueue the job of the slot, in one transaction.

        `None`: another caller has fired this slot (or the schedule is gone), nothing changed. Where the slot is passed over
        the answer is `None` too. Repeatable: the slot guards it.
        """
        ...

    async def now(self) -> datetime:
        """Return the store's clock, the one that decides."""
        ...

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> None:
        """Stop claims from a queue: none that begins after this call returned takes a job of it. Repeatable."""
        ...

    async def resume(self, queue: str) -> None:
        """Let claims from a queue go on. Repeatable."""
        ...

    # looking

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, all as of one moment."""
        ...

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return jobs newest first, as of one moment, from the cursor on. Searches a bounded number and says so."""
        ...

    async def attempts(self, job_id: UUID) -> list[AttemptView]:
        """Return every claim of a job, oldest first."""
        ...

    async def events(self, job_id: UUID) -> list[EventView]:
        """Return the event log of a job, oldest first. Replayed through `TRANSITIONS` it gives the job's state."""
        ...

    async def queues(self) -> list[QueueView]:
        """Return the known queues by name."""
        ...

    async def workers(self, *, limit: int = 1000) -> list[WorkerView]:
        """Return the registered workers, newest first."""
        ...

    async def stats(self) -> Stats:
        """Return exact counts and oldest waits. Cheap whatever the tables hold."""
        ...

    # testing

    async def rewind(self, seconds: float) -> None:
        """Make everything stored `seconds` older, as if that time had passed. For tests, instead of sleeping."""
        ...
