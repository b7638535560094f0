"""What a store shows, and what its housekeeping tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from holdfast.core.figures import Figure
from holdfast.core.job import Policy
from holdfast.core.limits import Bucket, LimitKey, LimitKind, LimitName, LimitRule, Room, names_over, ruling
from holdfast.core.needs import Needs
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.spans import span
from holdfast.core.states import LIVE, TERMINAL, WAITING, Event, State
from holdfast.store.port.answers import Answer
from holdfast.store.port.requests import Schedule, Worker


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
    prefers: Mapping[str, float] = {}
    """What it would rather have, and for how many seconds it is left to an idle worker that has it."""
    limit: LimitKey | None = None
    """The key that it shares a limit by."""
    fifo: bool = False
    """It waits in one order with all tasks of its queue and priority."""
    chain_id: UUID | None = None
    trace: str | None = None
    continued_by: UUID | None = None
    """The step that follows it in its chain."""
    after: tuple[UUID, ...] = ()
    """The chains it was to wait for, in the order they were named."""
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
    throttled: bool = False
    """A limit over it is used up. Told where people look (`holdfast.throttling`): no store spends a word on it by itself."""

    @property
    def limits_over(self) -> tuple[LimitName, ...]:
        """The limits that may hold it back, whether or not anybody has set them."""
        return tuple(names_over(self.queue, self.task, Needs(frozenset(), {}, self.limit), fifo=self.fifo))

    @property
    def shown(self) -> str:
        """The finer state shown to people; derived, never stored."""
        if self.lapsed:
            return "expired"
        if self.state is State.READY and self.paused:
            return "paused"
        if self.state is State.READY and self.throttled:
            return "throttled"
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


class RunningView(msgspec.Struct, frozen=True):
    """The running jobs that a person should see first, and how many have stalled."""

    jobs: Sequence[JobView]
    lapsed: int = 0
    """How many leases have lapsed and are not reaped yet, shown or not."""


class ChainView(msgspec.Struct, frozen=True, kw_only=True):
    """A chain: its first step, how far it is, how it ended."""

    id: UUID
    """Of its first step."""
    task: str
    queue: str
    created_at: datetime
    key: str | None = None
    tags: tuple[str, ...] = ()
    steps: int = 1
    """How many there are so far."""
    step: UUID
    """The last one: the one that is live, or ended last."""
    step_task: str
    state: State
    """Of that step, and so of the chain."""
    finished_at: datetime | None = None
    result: str | None = None
    error: Error | None = None


class ChainPage(msgspec.Struct, frozen=True):
    """A page of a list of chains, newest first. As `Page`."""

    chains: Sequence[ChainView]
    after: UUID | None = None
    searched_all: bool = True


class BlockerView(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that a job waited for, as it stands now."""

    chain_id: UUID
    state: State | None
    """`None`: it was deleted or pruned."""
    task: str = ""
    """Of its first step."""
    step_task: str = ""
    """Of its last step."""
    result: str | None = None
    error: Error | None = None


class ChainsDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion of chains did: all that was asked for, or nothing."""

    answer: Answer
    """DONE; NOT_FOUND: `chain` does not exist; NEEDED: the live job `needed_by` waits for `chain`, or will read its result."""
    chains: tuple[UUID, ...] = ()
    """The chains that are gone, blockers included where those were asked for."""
    jobs: tuple[UUID, ...] = ()
    """Their steps."""
    chain: UUID | None = None
    needed_by: UUID | None = None


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a signal."""

    first: bool
    """Whether it was emitted by this call: a signal is emitted once, and what came first stands."""
    jobs: tuple[UUID, ...] = ()
    """The jobs that waited for it and are ready now."""
    queues: frozenset[str] = frozenset()
    """Their queues."""


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


SILENT: Final = 60.0
"""Seconds without a sign of life after which a worker is doubted, which gives one every 20."""
MANAGER_SILENT: Final = 15.0
"""The same of a manager, which gives one every 5."""


class _Said(msgspec.Struct, frozen=True):
    """What a worker says of itself, as far as everybody wants to know it."""

    queues: tuple[str, ...] | None = None


class _Counted(msgspec.Struct, frozen=True):
    """What is sent with the counts: by a manager its reason, by a worker whether it drains."""

    reason: str = ""
    draining: int = 0


class WorkerPlace(msgspec.Struct, frozen=True):
    """A place in the list of workers: a page of it goes on behind the last one's."""

    offline_at: datetime | None
    registered_at: datetime
    id: UUID

    @property
    def rank(self) -> tuple[bool, datetime, datetime, UUID]:
        """By what workers are listed, the highest first."""
        return self.offline_at is None, self.offline_at or self.registered_at, self.registered_at, self.id


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as people see it."""

    worker: Worker
    registered_at: datetime
    heartbeat_at: datetime | None = None
    offline_at: datetime | None = None
    """Since when it counts as gone; its next sign of life clears it."""
    disabled_at: datetime | None = None
    disabled_by: str = ""
    draining_at: datetime | None = None
    """Since when a person wants it to finish and end; `drains` tells whether it does, whoever asked."""
    running: int = 0
    """How many leases it holds."""
    jobs: tuple[UUID, ...] = ()
    """The jobs it holds, at most a hundred."""
    counters: str = "{}"

    @property
    def place(self) -> WorkerPlace:
        """Where it is listed."""
        return WorkerPlace(self.offline_at, self.registered_at, self.worker.id)

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that it says it serves; `None`: all of them, or it does not say. Any program may register one."""
        try:
            return msgspec.json.decode(self.worker.info, type=_Said).queues
        except msgspec.MsgspecError:
            return None

    @property
    def manages(self) -> bool:
        """Whether it runs no jobs itself, having no slots: a manager of workers."""
        return not self.worker.slots

    @property
    def reason(self) -> str:
        """Of a manager: why there are as many workers as there are, by its last sign of life; empty where it does not say."""
        return self._counted.reason if self.manages else ""

    @property
    def drains(self) -> bool:
        """Whether it is about to end and claims nothing more: a person wants it to, or it says so, as after SIGTERM."""
        return self.state is not WorkerState.OFFLINE and (self.draining_at is not None or bool(self._counted.draining))

    @property
    def _counted(self) -> _Counted:
        try:
            return msgspec.json.decode(self.counters, type=_Counted)
        except msgspec.MsgspecError:  # any program may send what it likes
            return _Counted()

    def silence(self, now: datetime) -> float:
        """Return for how many seconds it has given no sign of life."""
        return (now - (self.heartbeat_at or self.registered_at)).total_seconds()

    def silent(self, now: datetime) -> float | None:
        """Return for how many seconds it was not heard of, where that is too long for one that lives; `None` otherwise.

        It was killed, its machine is gone, or the store does not hear it. After five minutes it is marked offline.
        """
        seconds = self.silence(now)
        usual = MANAGER_SILENT if self.manages else SILENT
        return seconds if self.state is not WorkerState.OFFLINE and seconds > usual else None

    def doing(self, now: datetime) -> str:
        """Return its state in words, with whether it is about to end; of one that is silent nobody knows."""
        if (seconds := self.silent(now)) is not None:
            return f"silent for {span(seconds)}"
        does = "manages" if self.manages and self.state is WorkerState.IDLE else str(self.state)
        return f"{does}, draining" if self.drains else does

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


def living_first(views: Iterable[WorkerView], after: WorkerPlace | None = None) -> list[WorkerView]:
    """Return workers in the order in which stores list them, those behind a place."""
    ordered = sorted(views, key=lambda view: view.place.rank, reverse=True)
    return ordered if after is None else [view for view in ordered if view.place.rank < after.rank]


MOST_LIMITS: Final = 1000


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """A limit: what it says, who said it, and how far it is used."""

    name: LimitName
    declared: LimitRule | None = None
    """What programs say."""
    override: LimitRule | None = None
    """What people have set."""
    override_by: str = ""
    override_at: datetime | None = None
    running: int = 0
    """How many leases count for it. For all keys of a scope together: of the scope's own row."""
    tokens: float | None = None
    """What is in the bucket of a rate, as of now; `None`: it is full, or there is no rate."""
    inherited: LimitRule | None = None
    """Of a single key: what holds for every key of its scope."""

    @property
    def rule(self) -> LimitRule | None:
        """What holds; `None`: nothing."""
        if self.name.key is not None:
            return ruling(self.override, self.inherited, None)
        return ruling(None, self.override, self.declared)

    @property
    def room(self) -> Room | None:
        """What it leaves for jobs that would start now; `None`: it holds nothing back, or is a scope, whose keys do."""
        rule = self.rule
        if rule is None or (self.name.kind is LimitKind.KEY and self.name.key is None):
            return None
        return Room(rule, self.running, None if self.tokens is None else Bucket(self.tokens, 0.0), 0.0)


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


class Grain(StrEnum):
    """Over which time figures are added up."""

    MINUTE = "minute"
    HOUR = "hour"
    ALL = "all"

    def begin(self, at: datetime) -> datetime | None:
        """Return the beginning of the minute or hour that a moment falls into; `None` for all time."""
        return None if self is Grain.ALL else at - (at - _EPOCH) % _LENGTHS[self]

    @property
    def kept(self) -> float | None:
        """For how many seconds figures of this grain are kept; `None`: for ever."""
        return _KEPT.get(self)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTHS: Final = {Grain.MINUTE: timedelta(minutes=1), Grain.HOUR: timedelta(hours=1)}
_KEPT: Final = {Grain.MINUTE: 86_400.0, Grain.HOUR: 90 * 86_400.0}


class FigureView(msgspec.Struct, frozen=True, kw_only=True):
    """What was added up since `at`, over one minute or hour, or since the store was made."""

    at: datetime | None
    """The beginning of the minute or hour, by the store's clock; `None` for all time."""
    figure: Figure


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that ended badly, and whose it was."""

    job_id: UUID
    task: str
    queue: str
    key: str | None
    attempt: int
    at: datetime
    event: Event
    error: Error


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


class Storage(msgspec.Struct, frozen=True):
    """How much room a store takes, and how much there is for more; `None` where nobody can say."""

    bytes_used: int | None = None
    bytes_free: int | None = None


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
