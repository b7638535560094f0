"""Creating jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.job import OF_KEY, BlockerPolicy, OnConflict, policy_text
from holdfast.core.outcome import REPLACED, Error
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, WAITING, Event, State
from holdfast.errors import BadJob, QueueFull, StaleLease
from holdfast.store.port import Enqueue, Enqueued
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.access import write_line
from holdfast.store.sqlite.moving import Standing, blocker_write, key_holder, landing, last_step, locate, move, settle_waiters
from holdfast.store.sqlite.packing import listed, pack, portions
from holdfast.store.sqlite.values import due, microseconds, names_text, uuid_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob, Unique
    from holdfast.core.lease import Lease
    from holdfast.store.port import Audit
    from holdfast.store.sqlite.writing import Writing


def enqueue(
    writing: Writing,
    jobs: Sequence[NewJob],
    under: Lease | None = None,
    caps: Mapping[str, int] | None = None,
    audit: Audit | None = None,
) -> list[Enqueued]:
    """Create jobs; see the port."""
    if under is not None:
        held = writing.connection.execute(sql("enqueue.holder"), (under.job_id.bytes, under.token.bytes)).fetchone()
        if held is None:
            raise StaleLease(f"job {under.job_id} is no longer held under this token: nothing was enqueued for it")
    known = _known(writing, [job.id.bytes for job in jobs])
    check_blockers(writing, jobs, known)
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
    if audit is not None and (line := audit.line(jobs, enqueuing.answers)) is not None:
        write_line(writing, line)
    return enqueuing.answers


def _check_depths(writing: Writing, caps: Mapping[str, int], queues: set[str]) -> None:
    """Refuse what would leave more jobs waiting in a queue than it takes: what has been written so far is rolled back."""
    writing.write_counts()
    for queue in sorted(queues.intersection(caps)):
        (depth,) = writing.connection.execute(sql("enqueue.depth"), (queue, *_WAITING_WORDS)).fetchone()
        if depth > caps[queue]:
            raise QueueFull(queue, depth, caps[queue])


_WAITING_WORDS: Final = tuple(state.value for state in WAITING)


def _known(writing: Writing, ids: Sequence[bytes]) -> set[bytes]:
    if not ids or writing.connection.execute(sql("enqueue.any_since"), (min(ids),)).fetchone() is None:
        return set()
    return {
        job_id
        for statement, chunk in in_chunks("enqueue.known", ids)
        for (job_id,) in writing.connection.execute(statement, chunk)
    }


def check_blockers(writing: Writing, jobs: Sequence[NewJob], known: set[bytes]) -> None:
    """Refuse a job that waits for one which neither is there nor comes earlier in the call, whatever else became of it.

    And one that waits for a later step: what can be waited for is the chain.
    """
    named = {blocker.bytes for job in jobs for blocker in job.after}
    if not named:
        return
    chains = dict(
        row for statement, ids in in_chunks("enqueue.chains_of", named) for row in writing.connection.execute(statement, ids)
    )
    for job in jobs:
        for index, blocker in enumerate(job.after if job.id.bytes not in known else ()):
            path = f"after[{index}]"
            if blocker.bytes not in chains:
                raise BadJob(f"there is no job {blocker} to wait for", path=path, task=job.task)
            if (chain := chains[blocker.bytes] or blocker.bytes) != blocker.bytes:
                raise BadJob(f"job {blocker} is a step of chain {uuid_of(chain)}: name the chain", path=path, task=job.task)
        chains.setdefault(job.id.bytes, None)


@dataclass(slots=True)
class Alike:
    """Jobs that differ in nothing but id and args, to be written with one statement."""

    columns: dict[str, object]
    lane: int
    entry: int
    state: State
    ids: list[bytes]
    args: list[str]


class Enqueuing:
    """One enqueue under way: plain jobs are gathered and written together, the others one by one, all in the order given."""

    def __init__(self, writing: Writing, known: set[bytes]) -> None:
        self.writing = writing
        self.answers: list[Enqueued] = []
        self._known = known
        self._stand_ins: dict[UUID, UUID] = {}
        """Jobs of this call whose key was taken, and who holds it."""
        self._begin()

    def _begin(self) -> None:
        """Have nothing gathered."""
        self._alike: dict[tuple[object, ...], Alike] = {}
        self._ready: dict[int, tuple[list[bytes], list[int]]] = {}
        """Ids and the order in which they came, by lane."""
        self._placed = 0
        self._lanes: dict[int, tuple[object, ...]] = {}
        self._scheduled: list[tuple[int, bytes]] = []
        self._deadlines: list[tuple[int, bytes]] = []
        self._chains: list[tuple[bytes, bytes]] = []
        self._edges: list[tuple[bytes, bytes, int, int]] = []

    def add(self, job: NewJob, *, step_of: bytes | None = None) -> None:
        """Take in one job and answer it; a later step of a chain comes with that chain."""
        job_id, now = job.id.bytes, self.writing.now
        if job_id in self._known:
            self.answers.append(Enqueued(Enqueue.REPEATED, job.id))
            return
        run_at = now if not job.delay and job.run_at is None else due(now, job.delay, job.run_at)
        if job.unique is not None:
            holder, run_at = self._take_key(job, job.unique, run_at, step_of)
            if holder is not None:
                self._stand_ins.setdefault(job.id, holder)
                self.answers.append(Enqueued(Enqueue.EXISTING, holder))
                return
        self._known.add(job_id)
        if job.chain_id is not None:
            self._chains.append((job_id, job_id))
            step_of = job_id
        if job.after:
            self._place_waiter(job, job_id, run_at, step_of)
        else:
            self._place(job, job_id, run_at, step_of)
        self.answers.append(Enqueued(Enqueue.CREATED, job.id))

    def write(self) -> None:
        """Write what has been gathered."""
        if not self._alike:
            return
        writing = self.writing
        execute, executemany = writing.connection.execute, writing.connection.executemany
        executemany(sql("enqueue.lane"), self._lanes.values())
        for alike in self._alike.values():
            for portion in portions(alike.ids, alike.args):
                execute(sql("enqueue.job"), alike.columns | portion._asdict())
            writing.count(alike.lane, None, alike.state, len(alike.ids))
        if self._placed:
            first = writing.numbers(self._placed)[0]
            for lane, (ids, places) in self._ready.items():
                line = {"lane": lane, "ids": pack(ids), "places": listed(places), "first": first, "now": writing.now}
                execute(sql("enqueue.ready"), line)
            waiting = (alike for alike in self._alike.values() if alike.entry & OF_KEY and alike.state is State.READY)
            if keys := [(alike.lane, alike.entry) for alike in waiting]:
                executemany(sql("enqueue.waiting_key"), keys)
        for name, rows in (
            ("enqueue.scheduled", self._scheduled),
            ("enqueue.deadline", self._deadlines),
            ("enqueue.chain", self._chains),
            ("enqueue.blocker", self._edges),
        ):
            if rows:
                executemany(sql(name), rows)
        self._begin()

    def _place(self, job: NewJob, job_id: bytes, run_at: int, chain: bytes | None, blockers: int | None = None) -> None:
        """Put a job that waits for nobody where its time leaves it."""
        if run_at > self.writing.now:
            self._gather(job, job_id, Event.ENQUEUE_LATER, chain, blockers)
            self._scheduled.append((run_at, job_id))
            return
        entry = self._gather(job, job_id, Event.ENQUEUE, chain, blockers).entry
        if (line := self._ready.get(entry)) is None:
            line = self._ready[entry] = ([], [])
        line[0].append(job_id)
        line[1].append(self._placed)
        self._placed += 1

    def _gather(self, job: NewJob, job_id: bytes, born: Event, chain: bytes | None, blockers: int | None) -> Alike:
        key = (
            *(born, job.queue, job.task, job.priority, job.fifo, job.lease, id(job.policy)),
            *(job.entry_needs, job.tags, job.trace, job.unique, chain, blockers),
        )
        if (alike := self._alike.get(key)) is None:
            alike = self._alike[key] = self._unlike_others(job, born, chain, blockers)
        alike.ids.append(job_id)
        alike.args.append(job.args)
        if job.expires_in is not None:
            self._deadlines.append((due(self.writing.now, job.expires_in, None), job_id))
        return alike

    def _unlike_others(self, job: NewJob, born: Event, chain: bytes | None, blockers: int | None) -> Alike:
        lane, entry, unique = job.lane, job.entry, job.unique
        if lane not in self._lanes:
            self._lanes[lane] = _lane_row(lane, job, job.task)
        if entry not in self._lanes:
            self._lanes[entry] = _lane_row(entry, job, "") if job.fifo else _lane_row(entry, job, job.task, job.entry_needs)
        columns: dict[str, object] = {
            "born": born.value,
            "created_at": self.writing.now,
            "lane": lane,
            "entry": entry,
            "queue": job.queue,
            "task": job.task,
            "priority": job.priority,
            "lease": job.lease,
            "policy": policy_text(job.policy),
            "scope": None if unique is None else unique.scope,
            "key": None if unique is None else unique.key,
            "held_for": None if unique is None else unique.window,
            "requires": names_text(job.needs),
            "tags": names_text(job.tags),
            "chain_id": chain,
            "blockers": blockers,
            "trace": job.trace,
        }
        return Alike(columns, lane, entry, landing(None, born), [], [])

    def _take_key(self, job: NewJob, unique: Unique, run_at: int, step_of: bytes | None) -> tuple[UUID | None, int]:
        """Give a job its key and say when it is due; or name the job that keeps the key."""
        execute, now = self.writing.connection.execute, self.writing.now
        holder = key_holder(self.writing, unique.scope, unique.key, self.write)
        if holder is not None:
            if holder.chain == step_of:  # what its own chain holds stays where it is
                return None, run_at
            if not replaceable(unique, holder):
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

    def _place_waiter(self, job: NewJob, job_id: bytes, run_at: int, chain: bytes | None) -> None:
        """Put a job that names blockers where those leave it."""
        policy = job.policy.on_blocker_failure
        standing = self._blockers(job)
        edges = [(blocker, job_id, n, int(state in TERMINAL)) for n, (blocker, state) in enumerate(standing.items())]
        open_ones = [
            (blocker, state)
            for blocker, state in standing.items()
            if not (state is State.SUCCEEDED or (policy is BlockerPolicy.RUN and state in TERMINAL))
        ]
        if not open_ones:
            self._place(job, job_id, run_at, chain, len(edges))
            self._edges += edges
            return
        later = run_at if run_at > self.writing.now else None
        born = self._gather(job, job_id, Event.ENQUEUE_BLOCKED, chain, len(edges))
        self._edges += edges
        self.write()
        self.writing.connection.execute(sql("enqueue.blocked"), (job_id, later))
        failed = next(((blocker, state) for blocker, state in open_ones if state in TERMINAL), None)
        if failed is not None:
            keyed, expires = job.unique is not None, job.expires_in is not None
            waiter = Standing(job_id, born.state, born.lane, born.entry, 0, 0, keyed, expires, chain, later)
            move(self.writing, waiter, blocker_write(policy, *failed), actor="store")

    def _blockers(self, job: NewJob) -> dict[bytes, State]:
        """Return the chains a job is to wait for, in order, and where they stand."""
        found: dict[bytes, State] = {}
        for blocker_id in job.after:
            # one of this very call whose key was taken is stood for by the job that holds the key
            blocker = self._locate(self._stand_ins.get(blocker_id, blocker_id).bytes)
            if blocker is None:
                raise ValueError(f"job {blocker_id} was there, and is not")
            found[blocker.chain] = last_step(self.writing, blocker).state
        return found

    def _locate(self, job_id: bytes) -> Standing | None:
        self.write()  # it may be one of those gathered before
        return locate(self.writing, job_id)


def replaceable(unique: Unique, holder: Standing) -> bool:
    """Tell whether a job may take its key from the one that holds it: a waiting one, which no step before it led to."""
    return unique.on_conflict is not OnConflict.SKIP and holder.state in WAITING and not holder.later_step


def _lane_row(lane: int, job: NewJob, task: str, needs: tuple[str, ...] | None = None) -> tuple[object, ...]:
    return (lane, job.queue, task, job.priority, names_text(tuple(sorted(job.needs if needs is None else needs))) or "[]")
