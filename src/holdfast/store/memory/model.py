"""All that is kept, and the one way in which a job changes its state.

Nothing here waits: an operation of the store runs from its first line to its last in one step of the event loop, under
the one lock of the data, so that it is atomic without transactions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from heapq import heappop, heappush
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeVar, assert_never
from uuid import UUID

from holdfast.core.job import BlockerPolicy
from holdfast.core.needs import needs_of
from holdfast.core.outcome import blocker_error
from holdfast.core.settle import Write
from holdfast.core.states import HOLDER_EVENTS, LIVE, STAGE_EVENTS, TERMINAL, TRANSITIONS, WAITING, Event, State
from holdfast.core.text import clean
from holdfast.errors import CENTURY
from holdfast.store.memory.records import Chain, Emission, KeyHold, Lane
from holdfast.store.port import TEXT_LIMIT, EventView

if TYPE_CHECKING:
    from collections.abc import Container
    from datetime import datetime

    from holdfast.core.figures import Figure
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.core.limits import LimitName
    from holdfast.store.memory.records import Attempt, Limiting, Pause, Record, Registration, Standing
    from holdfast.store.port import AuditView, Grain, Key

_Name = TypeVar("_Name", UUID, str)

LOGGED_WHILE_RUNNING: Final = frozenset({Event.CLAIM, Event.CANCEL, *STAGE_EVENTS})
"""Extensions, progress and the like leave a job running too, and are too many to be worth a line each."""


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
        """The blocked jobs that wait for a chain."""
        self.dependents: defaultdict[UUID, set[UUID]] = defaultdict(set)
        """The jobs that were to wait for a chain and will be, or have been, handed its result."""
        self.chains: dict[UUID, Chain] = {}
        """Those that began as one, and those that have continued."""
        self.signals: dict[str, Emission] = {}
        self.suspended: defaultdict[str, set[UUID]] = defaultdict(set)
        """The scheduled jobs that wait for a signal."""
        self.keys: dict[tuple[str, str], KeyHold] = {}
        self.workers: dict[UUID, Registration] = {}
        self.pauses: dict[str, Pause] = {}
        self.limits: dict[LimitName, Limiting] = {}
        self.schedules: dict[str, Standing] = {}
        self.access: dict[str, Key] = {}
        """The keys of people and machines, by id."""
        self.audit: list[AuditView] = []
        self.figures: dict[tuple[Grain, datetime | None, tuple[str, str, str, str]], Figure] = {}
        self.freed = 0
        """How many waiters have gone on: who has an operation end chains may tell whether it let some go."""
        self.log_lines = 0
        """How many lines have been logged: the number of the last one."""
        self.audit_lines = 0
        """The same of the audit log."""
        self._places = 0
        self._ended: list[UUID] = []
        """Chains that ended in the running operation, and whose waiters have not heard of it yet."""

    def copy(self) -> MemoryData:
        """Return a copy in which something can be tried out. It has the same lock, which must be held."""
        copy = MemoryData()
        copy.lock = self.lock
        copy.jobs = {job_id: record.copy() for job_id, record in self.jobs.items()}
        copy.by_state = {state: {one: copy.jobs[one] for one in records} for state, records in self.by_state.items()}
        copy.lanes = {number: replace(lane, entries=list(lane.entries)) for number, lane in self.lanes.items()}
        copy.schedule = list(self.schedule)
        copy.chains = {chain_id: Chain(list(chain.steps)) for chain_id, chain in self.chains.items()}
        copy.keys = {name: replace(hold) for name, hold in self.keys.items()}
        copy.signals = {name: replace(emission) for name, emission in self.signals.items()}
        copy.workers = {worker: replace(known) for worker, known in self.workers.items()}
        copy.limits = {name: replace(limiting) for name, limiting in self.limits.items()}
        copy.pauses = {queue: replace(pause) for queue, pause in self.pauses.items()}
        copy.schedules = {name: replace(standing) for name, standing in self.schedules.items()}
        copy.access, copy.audit, copy.figures = dict(self.access), list(self.audit), dict(self.figures)
        copy.counts.update({place: Counter(counts) for place, counts in self.counts.items()})
        copy.waiters.update({chain_id: set(jobs) for chain_id, jobs in self.waiters.items()})
        copy.dependents.update({chain_id: set(jobs) for chain_id, jobs in self.dependents.items()})
        copy.suspended.update({signal: set(jobs) for signal, jobs in self.suspended.items()})
        copy.freed, copy.log_lines, copy._places = self.freed, self.log_lines, self._places
        copy.audit_lines = self.audit_lines
        return copy

    def adopt(self, copy: MemoryData) -> None:
        """Take over all that was tried out on a copy, at once. Nothing may have changed since the copy was made."""
        vars(self).update(vars(copy))

    # the life of a job

    def move(
        self,
        record: Record,
        write: Write,
        now: datetime,
        *,
        actor: str = "",
        reason: str = "",
        claim: Attempt | None = None,
        revoked: bool = False,
    ) -> bool:
        """Let an event happen to a job if the table allows it in the job's state; else change nothing and return False.

        `write` says what goes with the event; `claim` is the lease that comes with `Event.CLAIM`. The log shows `actor`
        and, where there is no error to tell of, `reason`. `revoked`: not the holder ends the attempt, it is taken from it.
        """
        before = record.state
        if (before, write.event) not in TRANSITIONS:
            return False
        after = TRANSITIONS[before, write.event]
        if after is not before:
            if before is not None:
                self._leave(record, write, now, revoked=revoked)
            record.state = after
            record.failures = write.failures
            self._enter(record, write, now, before, claim)
            self._file(record, before, after)
        if after is not State.RUNNING or write.event in LOGGED_WHILE_RUNNING:
            record.events.append(_line(record, write, now, actor, reason))
        return True

    def _leave(self, record: Record, write: Write, now: datetime, *, revoked: bool) -> None:
        """Undo what belongs to the state that is left."""
        if (lease := record.lease) is not None:
            lease.ended_at, lease.event, lease.error = now, write.event, write.error
            lease.settled = write.event in HOLDER_EVENTS and not revoked
            lease.late = lease.settled and lease.lapsed(now)
        for blocker in list(record.waits_for):
            self._wait_no_longer(record, blocker)
        if record.signal is not None:
            _discard(self.suspended, record.signal, record.job.id)
            record.signal = None
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
                if write.event is Event.SUSPEND:
                    record.start_by = None  # it has begun: what it waits for now is its own business
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
                self._end_step(record, write)
            case None:
                self._free_key(record, also_in_window=True)
            case _:
                assert_never(record.state)

    def _end_step(self, record: Record, write: Write) -> None:
        """Free the keys that the end of a step frees, and note the end of its chain where that is one."""
        if record.later_step or write.event is not Event.CONTINUE:
            self._free_key(record, also_in_window=False)
        if write.event is not Event.CONTINUE:
            self._free_key(self.jobs[record.chain], also_in_window=False)  # the chain's: its first step was given it
            self._ended.append(record.chain)

    def _file(self, record: Record, before: State | None, after: State | None) -> None:
        """Keep the indexes and counts in step."""
        job = record.job
        counts = self.counts[job.queue, job.task]
        if before is None:
            self.jobs[job.id] = record
            if record.chain_id == job.id:
                self.chains[job.id] = Chain([job.id])
            for blocker in record.blockers:
                self.dependents[blocker].add(job.id)
        else:
            del self.by_state[before][job.id]
            counts[before] -= 1
        if after is None:
            del self.jobs[job.id]
            self.chains.pop(job.id, None)  # its steps go with it
            for blocker in record.blockers:
                _discard(self.dependents, blocker, job.id)
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
            lane = self.lanes[number] = Lane(job.queue, job.priority, needs_of(job.entry_needs), retries=number != job.entry)
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

    # chains

    def last_step(self, chain_id: UUID) -> Record | None:
        """Return the step where a chain stands; `None` where this is no chain, or a later step of one."""
        if (chain := self.chains.get(chain_id)) is not None:
            return self.jobs[chain.last]
        record = self.jobs.get(chain_id)
        return None if record is None or record.later_step else record

    def steps(self, chain_id: UUID) -> list[Record]:
        """Return the steps of a chain that is there, in order."""
        chain = self.chains.get(chain_id)
        return [self.jobs[step] for step in ([chain_id] if chain is None else chain.steps)]

    def follow(self, record: Record, then: Record) -> None:
        """Make a record that is not filed yet the step after one that has continued."""
        record.chain_id = then.chain_id = record.chain
        record.continued_by = then.job.id
        self.chains.setdefault(record.chain, Chain([record.job.id])).steps.append(then.job.id)

    def needed_by(self, chain_id: UUID, inside: Container[UUID] = ()) -> UUID | None:
        """Return a live job that waits for a chain or will be handed its result, and is of no chain `inside`."""
        jobs = (self.jobs[job_id] for job_id in sorted(self.dependents.get(chain_id, ())))
        return next((one.job.id for one in jobs if one.state in LIVE and one.chain not in inside), None)

    # signals

    def await_signal(self, record: Record, signal: str, now: datetime) -> None:
        """Have a job that was just suspended wait for a signal, which may be there already."""
        record.signal = signal
        self.suspended[signal].add(record.job.id)
        if signal in self.signals:
            self.wake(record, now)

    def wake(self, record: Record, now: datetime, *, actor: str = "store") -> None:
        """Make a job ready whose signal was emitted."""
        self.move(record, Write(Event.WAKE, record.failures), now, actor=actor)

    # blockers and waiters

    def settle_waiters(self, now: datetime) -> None:
        """Let the chains that ended in this operation act on those who wait for them: the last step of every operation.

        In waves, not by recursion: a row of waiters may be longer than the stack is deep.
        """
        while self._ended:
            ended, self._ended = self._ended, []
            for waiter in sorted({waiter for blocker in ended for waiter in self.waiters.get(blocker, ())}):
                self.heed_blockers(self.jobs[waiter], now)

    def heed_blockers(self, waiter: Record, now: datetime) -> None:
        """Let the blockers of a blocked job that have ended act on it."""
        for chain_id in list(waiter.waits_for):
            last = self.last_step(chain_id)
            if last is None or last.state not in TERMINAL:
                continue
            if not counts_as_done(last.state, waiter.job):
                self._end_waiter(waiter, chain_id, last.state, now)
                return
            self._wait_no_longer(waiter, chain_id)
        if not waiter.waits_for:
            later = waiter.run_at is not None and waiter.run_at > now
            event = Event.UNBLOCK_LATER if later else Event.UNBLOCK
            self.move(waiter, Write(event, waiter.failures, run_at=waiter.run_at), now, actor="store")
            self.freed += 1

    def _end_waiter(self, waiter: Record, blocker: UUID, state: State, now: datetime) -> None:
        policy = waiter.job.policy.on_blocker_failure
        event = Event.BLOCKER_CANCEL if policy is BlockerPolicy.CANCEL else Event.BLOCKER_FAIL
        write = Write(event, waiter.failures, error=blocker_error(blocker, state, policy))
        self.move(waiter, write, now, actor="store")

    def _wait_no_longer(self, waiter: Record, blocker: UUID) -> None:
        waiter.waits_for.remove(blocker)
        _discard(self.waiters, blocker, waiter.job.id)

    # unique keys

    def holder(self, scope: str, key: str, now: datetime) -> Record | None:
        """Return the job that holds a unique key: of a chain's, its first step."""
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


def _discard(index: dict[_Name, set[UUID]], name: _Name, job_id: UUID) -> None:
    """Take a job out of an index, and the entry with it that would be left empty."""
    index[name].discard(job_id)
    if not index[name]:
        del index[name]


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
