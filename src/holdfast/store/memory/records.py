"""What is kept: jobs with their attempts, chains, lanes, keys, signals, workers, schedules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from holdfast.core.states import State

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.limits import LimitRule
    from holdfast.core.needs import Needs
    from holdfast.core.outcome import Error
    from holdfast.core.states import Event
    from holdfast.store.port import EventView, LogView, Part, Schedule, Worker

Place: TypeAlias = tuple[bool, int]
"""Where a ready job stands in its lane: (not in front, number drawn when it became ready)."""


@dataclass(slots=True)
class Attempt:
    """One claim of a job. While it runs it is the lease; afterwards it is the record of how it ended."""

    worker: UUID
    token: UUID
    claimed_at: datetime
    expires_at: datetime
    heartbeat_at: datetime
    cancel_requested: bool = False
    cancel_reason: str = ""
    free: bool = False
    """Its expiry would not be the job's fault."""
    ended_at: datetime | None = None
    event: Event | None = None
    settled: bool = False
    """Its holder itself ended it: one that was reaped or taken back has settled nothing."""
    late: bool = False
    error: Error | None = None

    def lapsed(self, now: datetime) -> bool:
        """Tell whether the lease may be reaped."""
        return self.expires_at <= now

    def settled_with(self, token: UUID) -> bool:
        """Tell whether the holder of this token itself ended the attempt."""
        return self.token == token and self.settled


@dataclass(slots=True)
class Record:
    """A job: what was asked for (`job`, never changed) and where it stands."""

    job: NewJob
    created_at: datetime
    state: State | None = None
    """Assigned in `MemoryData.move` and nowhere else; `None` before the enqueue and after the end of everything."""
    failures: int = 0
    run_at: datetime | None = None
    """When a scheduled or blocked job is due; `None`: as soon as it can be."""
    ready_at: datetime | None = None
    start_by: datetime | None = None
    """When a job that still waits is ended; `None`: never."""
    place: Place = (True, 0)
    chain_id: UUID | None = None
    """The first step of its chain; `None` for a job that neither began as one nor has continued."""
    continued_by: UUID | None = None
    blockers: tuple[UUID, ...] = ()
    """The chains it was to wait for, in order; kept when they have ended, for their results are read then."""
    waits_for: list[UUID] = field(default_factory=list)
    signal: str | None = None
    """What a suspended job waits for."""
    attempts: list[Attempt] = field(default_factory=list)
    events: list[EventView] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    log: list[LogView] = field(default_factory=list)
    lines: set[UUID] = field(default_factory=set)
    """What the writers of its log call their lines."""
    progress: float | None = None
    step: str = ""
    message: str = ""
    finished_at: datetime | None = None
    late: bool = False
    result: str | None = None
    error: Error | None = None

    @property
    def chain(self) -> UUID:
        """Its chain, known by the first step. A job alone is a chain of one."""
        return self.chain_id or self.job.id

    @property
    def later_step(self) -> bool:
        """Whether it follows another step."""
        return self.chain != self.job.id

    @property
    def attempt(self) -> int:
        """How many times it has been claimed."""
        return len(self.attempts)

    @property
    def lease(self) -> Attempt | None:
        """The lease it runs under. Its token is current as long as this is here, whatever the clock says."""
        return self.attempts[-1] if self.state is State.RUNNING else None

    def overdue(self, now: datetime) -> bool:
        """Tell whether it should have started by now."""
        return self.start_by is not None and self.start_by <= now

    def copy(self) -> Record:
        """Return it once more, so that a change of one is none of the other. What is frozen is shared."""
        return replace(
            self,
            waits_for=list(self.waits_for),
            attempts=[replace(attempt) for attempt in self.attempts],
            events=list(self.events),
            parts=dict(self.parts),
            log=list(self.log),
            lines=set(self.lines),
        )


@dataclass(slots=True)
class Lane:
    """Ready jobs that are claimed in one order."""

    queue: str
    priority: int
    needs: Needs
    retries: bool
    """Its jobs have failed before."""
    entries: list[tuple[Place, UUID]] = field(default_factory=list)
    """A heap. Jobs that were cancelled or the like stay in it until they come to the head."""


@dataclass(slots=True)
class KeyHold:
    """Who holds a unique key, and until when; `until` is `None` where the key is held while the job is live."""

    job_id: UUID
    until: datetime | None

    def over(self, now: datetime) -> bool:
        """Tell whether the window has passed."""
        return self.until is not None and self.until <= now


@dataclass(slots=True)
class Limiting:
    """What is said about a limit, and what is left in its bucket."""

    declared: LimitRule | None = None
    override: LimitRule | None = None
    override_by: str = ""
    override_at: datetime | None = None
    tokens: float = 0.0
    filled_at: datetime | None = None
    """As of when; `None`: the bucket is full."""


@dataclass(slots=True)
class Pause:
    """Why no claim takes jobs of a queue."""

    at: datetime
    by: str
    reason: str


@dataclass(slots=True)
class Registration:
    """What is known of a worker besides what it says of itself."""

    worker: Worker
    registered_at: datetime
    heartbeat_at: datetime | None = None
    offline_at: datetime | None = None
    disabled_at: datetime | None = None
    disabled_by: str = ""
    draining_at: datetime | None = None
    counters: str = "{}"
    past: bool = False
    """It is offline for so long that it is listed no more."""


@dataclass(slots=True)
class Standing:
    """A schedule, with the slot that is next, and what it fired last."""

    schedule: Schedule
    last_at: datetime | None = None
    last_job: UUID | None = None


@dataclass(slots=True)
class Chain:
    """A job that began as a chain, or has continued: its steps, in order."""

    steps: list[UUID]

    @property
    def last(self) -> UUID:
        """The step where the chain stands."""
        return self.steps[-1]


@dataclass(slots=True)
class Emission:
    """A signal that was emitted."""

    data: str
    at: datetime
