"""Creating jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.job import BlockerPolicy, OnConflict, policy_text
from holdfast.core.outcome import REPLACED, Error
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, WAITING, Event, State
from holdfast.errors import BadJob, QueueFull, StaleLease
from holdfast.store.port import Enqueue, Enqueued
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.moving import Standing, blocker_write, landing, locate, move, settle_waiters
from holdfast.store.sqlite.values import due, microseconds, names_text, uuid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob, Unique
    from holdfast.core.lease import Lease
    from holdfast.store.sqlite.writing import Writing


def enqueue(
    writing: Writing, jobs: Sequence[NewJob], under: Lease | None = None, caps: Mapping[str, int] | None = None
) -> list[Enqueued]:
    """Create jobs; see the port."""
    if under is not None:
        held = writing.connection.execute(sql("enqueue.holder"), (under.job_id.bytes, under.token.bytes)).fetchone()
        if held is None:
            raise StaleLease(f"job {under.job_id} is no longer held under this token: nothing was enqueued for it")
    known = _known(writing, [job.id.bytes for job in jobs])
    _check_blockers(writing, jobs, known)
    enqueuing = Enqueuing(writing, known)
    for job in jobs:
        enqueuing.add(job)
        if writing.ended:  # one job after the other: the next may take a key that a waiter of this one frees
            enqueuing.write()
            settle_waiters(writing)
    enqueuing.write()
    if caps:
        answered = zip(jobs, enqueuing.answers, strict=True)
        _check_depths(writing, caps, {job.queue for job, answer in answered if answer.status is Enqueue.CREATED})
    return enqueuing.answers


def _check_depths(writing: Writing, caps: Mapping[str, int], queues: set[str]) -> None:
    """Refuse what would leave more jobs waiting in a queue than it takes: what has been written so far is rolled back."""
    writing.write_counts()
    for queue in sorted(queues.intersection(caps)):
        (depth,) = writing.connection.execute(sql("enqueue.depth"), (queue, *_WAITING_WORDS)).fetchone()
        if depth > caps[queue]:
            raise QueueFull(queue, depth, caps[queue])


_WAITING_WORDS: Final = tuple(state.value for state in WAITING)


def _known(writing: Writing, ids: Iterable[bytes]) -> set[bytes]:
    return {
        job_id
        for statement, chunk in in_chunks("enqueue.known", ids)
        for (job_id,) in writing.connection.execute(statement, chunk)
    }


def _check_blockers(writing: Writing, jobs: Sequence[NewJob], known: set[bytes]) -> None:
    """Refuse a job that waits for one which neither is there nor comes earlier in the call, whatever else became of it."""
    named = {blocker.bytes for job in jobs for blocker in job.after}
    if not named:
        return
    there = _known(writing, named)
    for job in jobs:
        for index, blocker in enumerate(job.after):
            if job.id.bytes not in known and blocker.bytes not in there:
                raise BadJob(f"there is no job {blocker} to wait for", path=f"after[{index}]", task=job.task)
        there.add(job.id.bytes)


class Enqueuing:
    """One enqueue under way: plain jobs are gathered and written together, the others one by one, all in the order given."""

    def __init__(self, writing: Writing, known: set[bytes]) -> None:
        self.writing = writing
        self.answers: list[Enqueued] = []
        self._known = known
        self._stand_ins: dict[UUID, UUID] = {}
        """Jobs of this call whose key was taken, and who holds it."""
        self._jobs: list[tuple[object, ...]] = []
        self._ready: list[tuple[bytes, int]] = []
        self._scheduled: list[tuple[int, bytes]] = []
        self._deadlines: list[tuple[int, bytes]] = []
        self._lanes: dict[int, tuple[object, ...]] = {}

    def add(self, job: NewJob) -> None:
        """Take in one job and answer it."""
        if job.id.bytes in self._known:
            self.answers.append(Enqueued(Enqueue.REPEATED, job.id))
            return
        run_at = due(self.writing.now, job.delay, job.run_at)
        if job.unique is not None:
            holder, run_at = self._take_key(job, job.unique, run_at)
            if holder is not None:
                self._stand_ins.setdefault(job.id, holder)
                self.answers.append(Enqueued(Enqueue.EXISTING, holder))
                return
        self._known.add(job.id.bytes)
        if job.after:
            self._place_waiter(job, run_at)
        elif run_at > self.writing.now:
            self._gather(job, Event.ENQUEUE_LATER)
            self._scheduled.append((run_at, job.id.bytes))
        else:
            self._gather(job, Event.ENQUEUE)
            self._ready.append((job.id.bytes, job.entry))
        self.answers.append(Enqueued(Enqueue.CREATED, job.id))

    def write(self) -> None:
        """Write what has been gathered."""
        executemany, now = self.writing.connection.executemany, self.writing.now
        if not self._jobs:
            return
        executemany(sql("enqueue.lane"), self._lanes.values())
        executemany(sql("enqueue.job"), self._jobs)
        if self._ready:
            numbers = self.writing.numbers(len(self._ready))
            rows = [(entry, seq, job_id, now) for (job_id, entry), seq in zip(self._ready, numbers, strict=True)]
            executemany(sql("enqueue.ready"), rows)
        if self._scheduled:
            executemany(sql("enqueue.scheduled"), self._scheduled)
        if self._deadlines:
            executemany(sql("enqueue.deadline"), self._deadlines)
        for gathered in (self._jobs, self._ready, self._scheduled, self._deadlines):
            gathered.clear()
        self._lanes.clear()

    def _gather(self, job: NewJob, born: Event) -> State:
        lane, entry, unique = job.lane, job.entry, job.unique
        if lane not in self._lanes:
            self._lanes[lane] = _lane_row(lane, job, job.task)
        if entry not in self._lanes:
            self._lanes[entry] = _lane_row(entry, job, "")
        self._jobs.append(
            (
                job.id.bytes,
                born.value,
                self.writing.now,
                lane,
                entry,
                job.queue,
                job.task,
                job.priority,
                job.lease,
                policy_text(job.policy),
                None if unique is None else unique.scope,
                None if unique is None else unique.key,
                None if unique is None else unique.window,
                names_text(job.requires),
                names_text(job.tags),
                None if job.chain_id is None else job.chain_id.bytes,
                job.trace,
                job.args,
            )
        )
        if job.expires_in is not None:
            self._deadlines.append((due(self.writing.now, job.expires_in, None), job.id.bytes))
        state = landing(None, born)
        self.writing.count(lane, None, state)
        return state

    def _take_key(self, job: NewJob, unique: Unique, run_at: int) -> tuple[UUID | None, int]:
        """Give a job its key and say when it is due; or name the job that keeps the key."""
        execute, now = self.writing.connection.execute, self.writing.now
        hold = execute(sql("enqueue.holder_of_key"), (unique.scope, unique.key)).fetchone()
        if hold is not None and (hold[1] is None or hold[1] > now):
            holder = self._locate(hold[0])
            if holder is None:
                raise ValueError(f"the key {unique.key!r} is held by a job that does not exist")
            if unique.on_conflict is OnConflict.SKIP or holder.state not in WAITING:
                return uuid_of(holder.job_id), run_at
            if unique.on_conflict is OnConflict.REPLACE:
                run_at = min(run_at, now if holder.run_at is None else holder.run_at)
            error = Error(REPLACED, f"replaced by job {job.id}")
            move(self.writing, holder, Write(Event.CANCEL, holder.failures, error=error), actor="store")
            self.write()  # its waiters come before the job that replaces it, which may wait for one of them
            settle_waiters(self.writing)
        until = None if unique.window is None else now + microseconds(unique.window)
        execute(sql("enqueue.take_key"), (unique.scope, unique.key, job.id.bytes, until))
        return None, run_at

    def _place_waiter(self, job: NewJob, run_at: int) -> None:
        """Put a job that names blockers where those leave it."""
        policy = job.policy.on_blocker_failure
        job_id, later = job.id.bytes, run_at if run_at > self.writing.now else None
        standing = self._blockers(job)
        open_ones = [
            blocker
            for blocker in standing
            if not (blocker.state is State.SUCCEEDED or (policy is BlockerPolicy.RUN and blocker.state in TERMINAL))
        ]
        if not open_ones:
            self._gather(job, Event.ENQUEUE if later is None else Event.ENQUEUE_LATER)
            if later is None:
                self._ready.append((job_id, job.entry))
            else:
                self._scheduled.append((later, job_id))
            return
        state = self._gather(job, Event.ENQUEUE_BLOCKED)
        self.write()
        execute, executemany = self.writing.connection.execute, self.writing.connection.executemany
        execute(sql("enqueue.blocked"), (job_id, later))
        executemany(sql("enqueue.blocker"), [(one.job_id, job_id, n) for n, one in enumerate(open_ones)])
        failed = next((blocker for blocker in open_ones if blocker.state in TERMINAL), None)
        if failed is not None:
            waiter = Standing(
                job_id, state, job.lane, job.entry, 0, 0, job.unique is not None, job.expires_in is not None, later
            )
            move(self.writing, waiter, blocker_write(policy, failed.job_id, failed.state), actor="store")

    def _blockers(self, job: NewJob) -> list[Standing]:
        found: dict[bytes, Standing] = {}
        for blocker_id in job.after:
            # one of this very call whose key was taken is stood for by the job that holds the key
            blocker = self._locate(self._stand_ins.get(blocker_id, blocker_id).bytes)
            if blocker is None:
                raise ValueError(f"job {blocker_id} was there, and is not")
            found[blocker.job_id] = blocker
        return list(found.values())

    def _locate(self, job_id: bytes) -> Standing | None:
        self.write()  # it may be one of those gathered before
        return locate(self.writing, job_id)


def _lane_row(lane: int, job: NewJob, task: str) -> tuple[object, ...]:
    return (lane, job.queue, task, job.priority, names_text(tuple(sorted(job.requires))) or "[]")
