"""What is kept about jobs, and the one way in which a job changes its state.

Nothing here waits: an operation of the store runs from its first line to its last in one step of the event loop, under
the one lock of the data, so that it is atomic without transactions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heappop, heappush
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from holdfast.core.job import BlockerPolicy
from holdfast.core.outcome import BLOCKER_CANCELED, BLOCKER_FAILED, Error
from holdfast.core.settle import Write
from holdfast.core.states import HOLDER_EVENTS, STAGE_EVENTS, TERMINAL, TRANSITIONS, WAITING, Event, State
from holdfast.core.text import clean
from holdfast.errors import CENTURY
from holdfast.store.port import TEXT_LIMIT, EventView

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import LogView, Part, Schedule, Worker

Place: TypeAlias = tuple[bool, int]
"""Where a ready job stands in its lane: (not in front, number drawn when it became ready)."""
LOGGED_WHILE_RUNNING: Final = frozenset({Event.CLAIM, Event.CANCEL, *STAGE_EVENTS})
"""Extensions, progress and the like leave a job running too, and are too many to be worth a line each."""


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
    late: bool = False
    error: Error | None = None

    def lapsed(self, now: datetime) -> bool:
        """Tell whether the lease may be reaped."""
        return self.expires_at <= now

    def settled_with(self, token: UUID) -> bool:
        """Tell whether the holder of this token itself ended the attempt: one that was reaped has settled nothing."""
        return self.token == token and self.event in HOLDER_EVENTS


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
    waits_for: list[UUID] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    events: list[EventView] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    log: list[LogView] = field(default_factory=list)
    progress: float | None = None
    step: str = ""
    message: str = ""
    finished_at: datetime | None = None
    late: bool = False
    result: str | None = None
    error: Error | None = None

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


@dataclass(slots=True)
class Lane:
    """Ready jobs that are claimed in one order."""

    queue: str
    priority: int
    requires: frozenset[str]
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
    counters: str = "{}"


@dataclass(slots=True)
class Standing:
    """A schedule, with the slot that is next, and what it fired last."""

    schedule: Schedule
    last_at: datetime | None = None
    last_job: UUID | None = None


class MemoryData:
    """The data of a memory store, which several handles may share."""

    def __init__(self) -> None:
        self.lock = RLock()
        """Held for a whole operation: handles in other threads, such as a worker's heartbeat, share this data."""
        self.jobs: dict[UUID, Record] = {}
        self.by_state: dict[State, dict[UUID, Record]] = {state: {} for state in State}
        self.counts: defaultdict[tuple[str, str], Counter[State]] = defaultdict(Counter)
        """How many jobs of each (queue, task) stand in each state."""
        self.lanes: dict[int, Lane] = {}
        self.schedule: list[tuple[datetime, UUID]] = []
        """A heap by `run_at`; as in a lane, jobs that have left stay in it until they come to the head."""
        self.waiters: defaultdict[UUID, set[UUID]] = defaultdict(set)
        """The blocked jobs that wait for a job."""
        self.keys: dict[tuple[str, str], KeyHold] = {}
        self.workers: dict[UUID, Registration] = {}
        self.pauses: dict[str, Pause] = {}
        self.schedules: dict[str, Standing] = {}
        self.log_lines = 0
        """How many lines have been logged: the number of the last one."""
        self._places = 0
        self._ended: list[UUID] = []
        """Jobs that ended in the running operation, and whose waiters have not heard of it yet."""

    # the life of a job

    def move(
        self, record: Record, write: Write, now: datetime, *, actor: str = "", reason: str = "", claim: Attempt | None = None
    ) -> bool:
        """Let an event happen to a job if the table allows it in the job's state; else change nothing and return False.

        `write` says what goes with the event; `claim` is the lease that comes with `Event.CLAIM`. The log shows `actor`
        and, where there is no error to tell of, `reason`.
        """
        before = record.state
        if (before, write.event) not in TRANSITIONS:
            return False
        after = TRANSITIONS[before, write.event]
        if after is not before:
            if before is not None:
                self._leave(record, write, now)
            record.state = after
            record.failures = write.failures
            self._enter(record, write, now, before, claim)
            self._file(record, before, after)
        if after is not State.RUNNING or write.event in LOGGED_WHILE_RUNNING:
            record.events.append(_line(record, write, now, actor, reason))
        return True

    def _leave(self, record: Record, write: Write, now: datetime) -> None:
        """Undo what belongs to the state that is left."""
        if (lease := record.lease) is not None:
            lease.ended_at, lease.event, lease.error = now, write.event, write.error
            lease.late = write.event in HOLDER_EVENTS and lease.lapsed(now)
        for blocker in list(record.waits_for):
            self._wait_no_longer(record, blocker)
        record.run_at = record.ready_at = record.finished_at = record.result = record.error = None
        record.late = False

    def _enter(self, record: Record, write: Write, now: datetime, before: State | None, claim: Attempt | None) -> None:
        """Do what belongs to the state that is entered."""
        match record.state:
            case State.BLOCKED:
                record.run_at = write.run_at
                for blocker in record.waits_for:
                    self.waiters[blocker].add(record.job.id)
            case State.SCHEDULED:
                # a delay must not lead out of the calendar, however large the `max` of a retry policy is
                record.run_at = write.run_at or now + timedelta(seconds=min(write.delay, CENTURY))
                heappush(self.schedule, (record.run_at, record.job.id))
            case State.READY:
                record.ready_at = now
                self._line_up(record, front=write.front)
            case State.RUNNING:
                if claim is None:
                    raise ValueError("a job runs under a lease, and none was given")
                record.attempts.append(claim)
            case State.SUCCEEDED | State.FAILED | State.CANCELED:
                record.finished_at, record.result, record.error = now, write.result, write.error
                record.late = before is State.RUNNING and record.attempts[-1].late
                record.start_by = None
                self._free_key(record, also_in_window=False)
                self._ended.append(record.job.id)
            case None:
                self._free_key(record, also_in_window=True)
            case _:
                assert_never(record.state)

    def _file(self, record: Record, before: State | None, after: State | None) -> None:
        """Keep the indexes and counts in step."""
        job = record.job
        counts = self.counts[job.queue, job.task]
        if before is None:
            self.jobs[job.id] = record
        else:
            del self.by_state[before][job.id]
            counts[before] -= 1
        if after is None:
            del self.jobs[job.id]
        else:
            self.by_state[after][job.id] = record
            counts[after] += 1

    def depth(self, queue: str) -> int:
        """Return how many jobs of a queue wait."""
        return sum(counts[state] for (name, _), counts in self.counts.items() if name == queue for state in WAITING)

    # the order of ready jobs

    def _line_up(self, record: Record, *, front: bool) -> None:
        """Put a job at the back of its lane, or in front at its old place. A job that has failed waits among the retries."""
        if front:
            record.place = (False, record.place[1])
        else:
            self._places += 1
            record.place = (True, self._places)
        job = record.job
        number = job.retry_entry if record.failures else job.entry
        lane = self.lanes.get(number)
        if lane is None:
            lane = self.lanes[number] = Lane(job.queue, job.priority, frozenset(job.requires), retries=number != job.entry)
        heappush(lane.entries, (record.place, job.id))

    def head(self, lane: Lane) -> Record | None:
        """Return the job that is to be claimed next from a lane."""
        while lane.entries:
            place, job_id = lane.entries[0]
            record = self.by_state[State.READY].get(job_id)
            # a job may have left and come back to another place: only the entry of its present one counts
            if record is not None and record.place == place:
                return record
            heappop(lane.entries)
        return None

    def next_scheduled(self) -> Record | None:
        """Return the scheduled job that is due first."""
        while self.schedule:
            run_at, job_id = self.schedule[0]
            record = self.by_state[State.SCHEDULED].get(job_id)
            if record is not None and record.run_at == run_at:
                return record
            heappop(self.schedule)
        return None

    # leases

    def held(self, lease: Lease) -> tuple[Record, Attempt] | None:
        """Return the job and the lease if this token is current. The fence: every write of a holder passes through here."""
        record = self.jobs.get(lease.job_id)
        if record is None or record.lease is None or record.lease.token != lease.token:
            return None
        return record, record.lease

    # blockers and waiters

    def settle_waiters(self, now: datetime) -> None:
        """Let the jobs that ended in this operation act on those that wait for them: the last step of every operation.

        In waves, not by recursion: a chain of waiters may be longer than the stack is deep.
        """
        while self._ended:
            ended, self._ended = self._ended, []
            for waiter in sorted({waiter for blocker in ended for waiter in self.waiters.get(blocker, ())}):
                self.heed_blockers(self.jobs[waiter], now)

    def heed_blockers(self, waiter: Record, now: datetime) -> None:
        """Let the blockers of a blocked job that have ended act on it."""
        for job_id in list(waiter.waits_for):
            state = self.jobs[job_id].state
            if state not in TERMINAL:
                continue
            if not counts_as_done(state, waiter.job):
                self._end_waiter(waiter, job_id, state, now)
                return
            self._wait_no_longer(waiter, job_id)
        if not waiter.waits_for:
            later = waiter.run_at is not None and waiter.run_at > now
            event = Event.UNBLOCK_LATER if later else Event.UNBLOCK
            self.move(waiter, Write(event, waiter.failures, run_at=waiter.run_at), now, actor="store")

    def _end_waiter(self, waiter: Record, blocker: UUID, state: State, now: datetime) -> None:
        event, code = Event.BLOCKER_FAIL, BLOCKER_FAILED
        if waiter.job.policy.on_blocker_failure is BlockerPolicy.CANCEL:
            event, code = Event.BLOCKER_CANCEL, BLOCKER_CANCELED
        error = Error(code, f"it waited for job {blocker}, which is {state}")
        self.move(waiter, Write(event, waiter.failures, error=error), now, actor="store")

    def _wait_no_longer(self, waiter: Record, blocker: UUID) -> None:
        waiter.waits_for.remove(blocker)
        self.waiters[blocker].remove(waiter.job.id)
        if not self.waiters[blocker]:
            del self.waiters[blocker]

    # unique keys

    def holder(self, scope: str, key: str, now: datetime) -> Record | None:
        """Return the job that holds a unique key."""
        hold = self.keys.get((scope, key))
        return None if hold is None or hold.over(now) else self.jobs[hold.job_id]

    def take_key(self, record: Record, now: datetime) -> None:
        """Give a job its unique key, from whoever has it."""
        if (unique := record.job.unique) is not None:
            until = None if unique.window is None else now + timedelta(seconds=unique.window)
            self.keys[unique.scope, unique.key] = KeyHold(record.job.id, until)

    def _free_key(self, record: Record, *, also_in_window: bool) -> None:
        if (unique := record.job.unique) is None:
            return
        hold = self.keys.get((unique.scope, unique.key))
        if hold is not None and hold.job_id == record.job.id and (hold.until is None or also_in_window):
            del self.keys[unique.scope, unique.key]


def counts_as_done(state: State | None, waiter: NewJob) -> bool:
    """Tell whether a blocker in this state holds the waiter up no longer, and does it no harm."""
    return state is State.SUCCEEDED or (state in TERMINAL and waiter.policy.on_blocker_failure is BlockerPolicy.RUN)


def _line(record: Record, write: Write, now: datetime, actor: str, reason: str) -> EventView:
    detail = reason
    if (error := write.error) is not None:
        detail = f"{error.code}: {error.message}" if error.message else error.code
    return EventView(
        event=write.event,
        at=now,
        state=record.state,
        attempt=record.attempt,
        actor=clean(actor, TEXT_LIMIT),
        detail=clean(detail, TEXT_LIMIT),
    )
