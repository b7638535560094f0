"""The replay: goes through what was done to the store, and says what should not have been possible.

It knows the promises and nothing of the code that keeps them: who holds a lease follows from the answers to claims, settlements
and reaps in the order in which the store gave them; what has ended stays so; what is left at the end agrees with that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.job import OnConflict
from holdfast.core.lease import Hold
from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.port import Answer, Enqueue, Settled
from lab.sim.fleet import LEASE, RETRY
from lab.sim.telling import shown

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Claimed, Lease
    from holdfast.core.settle import Write
    from holdfast.store.port import Reaped, Settlement
    from lab.sim.history import Done

CLOSE: Final = timedelta(milliseconds=1)
"""What is rounded off when moments are stored."""


@dataclass(slots=True)
class Known:
    """A job, as far as the answers tell."""

    job: NewJob
    created: int
    """How many had been created before."""
    ended: State | None = None
    token: UUID | None = None
    """Of the lease that is held now."""
    expires_at: datetime | None = None
    attempts: int = 0
    tokens: set[UUID] = field(default_factory=set)
    """Of leases that were settled by their holder."""
    then: UUID | None = None
    canceling: bool = False
    """Whether somebody was told that it will be canceled unless it ends by itself."""
    canceled: bool = False
    """Whether somebody had it canceled, or replaced."""
    due: datetime | None = None
    """It must not be claimed before."""
    in_front: bool = False
    """Whether it was given back to the front of its line."""
    parts: set[str] = field(default_factory=set)
    """What it was told that it has got done."""


class Lapse(NamedTuple):
    """A lease that was ended because it had lapsed."""

    done: Done
    reaped: Reaped
    expires_at: datetime
    holder: tuple[str, int, float]
    """Which process had claimed it, and when."""


class Replay:
    """Goes through what was done, in order."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.jobs: dict[UUID, Known] = {}
        self.fired: Counter[tuple[str, Any]] = Counter()
        self.claims: list[tuple[float, str, Claimed]] = []
        self.lapses: list[Lapse] = []
        self.holders: dict[UUID, tuple[str, int, float]] = {}
        """By the token of a lease: which process claimed it, and when."""
        self.asked_to_stop: list[tuple[Done, UUID, int, tuple[str, int, float]]] = []
        """Cancels of running jobs, with the attempt and who ran it."""
        self.early: list[str] = []
        """What was claimed before it was due, by the store's clock."""
        self.paused: set[str] = set()
        self.deleted: set[UUID] = set()

    def see(self, done: Done) -> None:
        """Take one operation into account."""
        handle = getattr(self, f"see_{done.name}", None)
        if handle is not None:
            handle(done)

    def _say(self, done: Done, what: str) -> None:
        self.wrong.append(f"at {done.time:.3f} s {done.node} {done.name}: {what}")

    # creating

    def see_enqueue(self, done: Done) -> None:
        """Take note of new jobs."""
        args, kwargs = done.given
        if (lease := kwargs.get("under")) is not None:
            self._fenced(done, lease)
        self._created(done, args[0], done.answer)

    def _created(self, done: Done, jobs: Any, answers: Any) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            match answer.status:
                case Enqueue.CREATED:
                    self._create(done, job)
                case Enqueue.REPEATED if answer.job_id not in self.jobs:
                    self._say(done, f"job {shown(answer.job_id)} is said to be there already, and never was created")
                case Enqueue.EXISTING:
                    holder = self.jobs.get(answer.job_id)
                    if holder is None or self._chain_ended(answer.job_id):
                        self._say(done, f"job {shown(answer.job_id)} is said to hold the key of {shown(job)}, and has ended")

    def _create(self, done: Done, job: NewJob) -> None:
        if job.id in self.jobs:
            self._say(done, f"{shown(job)} is created twice")
            return
        if job.unique is not None:
            key = (job.unique.scope, job.unique.key)
            for other in self.jobs.values():
                unique = other.job.unique
                if unique is None or (unique.scope, unique.key) != key or self._chain_ended(other.job.id):
                    continue
                if job.unique.on_conflict is not OnConflict.SKIP and other.token is None:
                    other.canceled = True  # it waited, and is replaced
                    self._end(done, other, State.CANCELED)
                else:
                    self._say(done, f"{shown(job)} has the unique key {key[1]} of {shown(other.job)}, which is live")
        known = self.jobs[job.id] = Known(job, len(self.jobs) + len(self.deleted))
        known.due = job.run_at or (done.now + timedelta(seconds=job.delay) if job.delay else None)

    def see_fire(self, done: Done) -> None:
        """Take note of the job of a slot."""
        firing = done.given[0][0]
        if done.answer is not None and firing.job is not None:
            self.fired[firing.name, firing.slot] += 1
            if self.fired[firing.name, firing.slot] > 1:
                self._say(done, f"the slot {firing.slot} of {firing.name} is fired twice")
            self._created(done, [firing.job], [done.answer])

    # leases

    def see_claim(self, done: Done) -> None:
        """Take note of jobs that are handed to a worker."""
        for claimed in done.answer:
            self.claims.append((done.time, done.node, claimed))
            known = self.jobs.get(claimed.job_id)
            if known is None:
                self._say(done, f"{shown(claimed)} was never created")
                continue
            if known.token is not None:
                self._say(done, f"{shown(claimed)} is claimed while {known.token.hex[:4]} holds it")
            if known.ended is not None:
                self._say(done, f"{shown(claimed)} is claimed although it has {known.ended}")
            for blocker in known.job.after:
                if not self._chain_ended(blocker):
                    self._say(done, f"{shown(claimed)} is claimed although {shown(blocker)}, which it waits for, is live")
            if claimed.attempt != known.attempts + 1:
                self._say(done, f"{shown(claimed)} follows attempt {known.attempts}")
            if known.job.queue in self.paused:
                self._say(done, f"{shown(claimed)} is claimed from a queue that is paused")
            if known.due is not None and done.now < known.due - CLOSE:
                early = (known.due - done.now).total_seconds()
                self.early.append(f"at {done.time:.3f} s {done.node} claim: {shown(claimed)} is claimed {early:.3f} s early")
            if known.job.fifo:
                self._in_line(done, known)
            self._lasts(done, claimed.expires_at)
            known.attempts = claimed.attempt
            known.token = claimed.token
            known.expires_at = claimed.expires_at
            known.due, known.in_front = None, False
            self.holders[claimed.token] = (done.node, done.life, done.time)

    def _lasts(self, done: Done, expires_at: datetime) -> None:
        if abs(expires_at - done.now - timedelta(seconds=LEASE)) > CLOSE:
            self._say(done, f"a lease lasts {(expires_at - done.now).total_seconds():.3f} s in place of {LEASE} s")

    def _in_line(self, done: Done, known: Known) -> None:
        before = [
            other
            for other in self.jobs.values()
            if other.job.queue == known.job.queue and other.job.fifo and other.created < known.created
        ]
        # what was never begun, or given back to the front: nobody may pass it
        waiting = [other for other in before if other.ended is None and other.token is None and other.due is None]
        passed = [] if known.in_front else [other for other in waiting if other.attempts == 0 or other.in_front]
        if passed:
            self._say(done, f"{shown(known.job)} passes {shown(passed[0].job)}, which came first")

    def see_extend(self, done: Done) -> None:
        """Take note of leases that are prolonged."""
        for lease, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer.hold is Hold.HELD:
                self._fenced(done, lease)
                self._lasts(done, answer.expires_at)
                if (known := self.jobs.get(lease.job_id)) is not None and known.token == lease.token:
                    known.expires_at = answer.expires_at
            else:
                self._refused(done, lease)

    def _report(self, done: Done) -> None:
        for one, answer in zip(done.given[0][0], done.answer, strict=True):
            if not answer.accepted:
                self._refused(done, one.lease)
                continue
            self._fenced(done, one.lease)
            known = self.jobs.get(one.lease.job_id)
            if known is None:
                continue
            if done.name in ("progress", "checkpoint") and known.token == one.lease.token:
                known.expires_at = done.now + timedelta(seconds=LEASE)
            if done.name == "checkpoint":
                known.parts.add(one.part.name)

    see_progress = see_checkpoint = see_log = see_mark = _report

    def see_flag_free(self, done: Done) -> None:
        """Take note of leases that are to lapse at no cost."""
        for lease, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer.accepted:
                self._fenced(done, lease)

    def _fenced(self, done: Done, lease: Lease) -> bool:
        """Tell whether a lease is held; say so where a write was accepted that showed another one."""
        known = self.jobs.get(lease.job_id)
        if known is not None and known.token == lease.token:
            return True
        holder = "nobody" if known is None or known.token is None else known.token.hex[:4]
        self._say(done, f"a write for {shown(lease)} is accepted although {holder} holds the job")
        return False

    def _refused(self, done: Done, lease: Lease) -> None:
        """Say so where the holder itself was refused."""
        known = self.jobs.get(lease.job_id)
        if known is not None and known.token == lease.token:
            self._say(done, f"a write for {shown(lease)} is refused although it holds the job")

    def see_settle(self, done: Done) -> None:
        """Take note of attempts that end."""
        for settlement, answer in zip(done.given[0][0], done.answer, strict=True):
            self._settled(done, settlement, answer)

    def _settled(self, done: Done, settlement: Settlement, answer: Settled) -> None:
        lease, write = settlement.lease, settlement.write
        known = self.jobs.get(lease.job_id)
        if answer is Settled.REPEATED:
            if known is None or lease.token not in known.tokens:
                self._say(done, f"{shown(settlement)} is said to be repeated, and never was applied")
            return
        if answer is Settled.STALE:
            self._refused(done, lease)
        if not answer.accepted or not self._fenced(done, lease) or known is None:
            return
        known.token = None
        known.tokens.add(lease.token)
        if known.canceling and write.lives_on and answer is not Settled.CANCELED:
            self._say(done, f"{shown(settlement)} goes on although its cancellation was promised")
        self._judge_rest(done, settlement)
        if answer is Settled.CANCELED:
            self._end(done, known, State.CANCELED)
        elif write.state in TERMINAL:
            self._end(done, known, write.state)
        else:
            self._waits_again(done, known, write, woken=settlement.signal is not None)
        if settlement.then is not None and answer is not Settled.CANCELED:
            self._create(done, settlement.then)
            known.then = settlement.then.id

    def _judge_rest(self, done: Done, settlement: Settlement) -> None:
        """Compare how long a job rests after a failure with what its policy says."""
        write = settlement.write
        if write.event in (Event.RETRY, Event.RETRY_LATER):
            rest = min(RETRY.initial * RETRY.factor ** (write.failures - 1), RETRY.max)
            if not (1 - RETRY.jitter) * rest <= write.delay <= (1 + RETRY.jitter) * rest:
                self._say(done, f"{shown(settlement)} rests for {write.delay:.3f} s in place of {rest:.1f} s")

    def _waits_again(self, done: Done, known: Known, write: Write, *, woken: bool = False) -> None:
        """Take note of when a job may be claimed again. One that waits for a signal may be woken at any time."""
        known.in_front = write.front
        if write.state is State.SCHEDULED and not woken:
            known.due = write.run_at or done.now + timedelta(seconds=write.delay)

    def see_reap(self, done: Done) -> None:
        """Take note of leases that end because they have lapsed."""
        for reaped in done.answer:
            known = self.jobs.get(reaped.job_id)
            if known is None or known.token is None or known.expires_at is None:
                self._say(done, f"{shown(reaped)} is reaped, and nobody holds it")
                continue
            if known.expires_at > done.now:
                self._say(done, f"{shown(reaped)} is reaped {(known.expires_at - done.now).total_seconds():.3f} s too early")
            if known.canceling and reaped.write.state not in TERMINAL:
                self._say(done, f"{shown(reaped)} goes on although its cancellation was promised")
            self.lapses.append(Lapse(done, reaped, known.expires_at, self.holders[known.token]))
            known.token = None
            if reaped.write.state in TERMINAL:
                self._end(done, known, reaped.write.state)
            else:
                self._waits_again(done, known, reaped.write)

    def see_commit(self, done: Done) -> None:
        """Take note of what a handler did in a transaction."""
        for name, args, answer in done.given[0]:
            if name == "enqueue":
                self._created(done, args[0], answer)
            elif name == "settle":
                self._settled(done, args[0], answer)
            elif name == "prove" and answer.accepted:
                self._fenced(done, args[0])

    # queues

    def see_pause(self, done: Done) -> None:
        """Take note that nothing of a queue is to be claimed."""
        self.paused.add(done.given[0][0])

    def see_resume(self, done: Done) -> None:
        """Take note that it may go on."""
        self.paused.discard(done.given[0][0])

    # ends

    def see_delete_chains(self, done: Done) -> None:
        """Take note of jobs that are gone."""
        for job_id in done.answer.jobs:
            if self.jobs.pop(job_id, None) is None:
                self._say(done, f"job {shown(job_id)} is deleted, and was not there")
            self.deleted.add(job_id)

    def _end(self, done: Done, known: Known, state: State) -> None:
        if known.ended is not None:
            self._say(done, f"{shown(known.job)} had {known.ended}, and now has {state}")
        known.ended = state

    def see_cancel(self, done: Done) -> None:
        """Take note of waiting jobs that end, and of running ones that are to."""
        self._ended_outside(done, done.given[0][0], State.CANCELED)
        for job_id, answer in zip(done.given[0][0], done.answer, strict=True):
            if (known := self.jobs.get(job_id)) is None:
                continue
            known.canceled = known.canceled or answer in (Answer.DONE, Answer.REQUESTED)
            if answer is Answer.REQUESTED:
                known.canceling = True
                if known.token is not None:
                    self.asked_to_stop.append((done, job_id, known.attempts, self.holders[known.token]))

    def see_complete(self, done: Done) -> None:
        """Take note of jobs that succeed from outside."""
        self._ended_outside(done, done.given[0][0], State.SUCCEEDED)

    def see_fail(self, done: Done) -> None:
        """Take note of jobs that fail from outside."""
        self._ended_outside(done, done.given[0][0], State.FAILED)

    def _ended_outside(self, done: Done, job_ids: Any, state: State) -> None:
        for job_id, answer in zip(job_ids, done.answer, strict=True):
            if answer is Answer.DONE and (known := self.jobs.get(job_id)) is not None:
                known.token = None
                self._end(done, known, state)

    def see_reopen(self, done: Done) -> None:
        """Take note of jobs that begin anew."""
        for job_id, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer is Answer.DONE and (known := self.jobs.get(job_id)) is not None:
                known.ended, known.canceling, known.due = None, False, None

    def _chain_ended(self, job_id: UUID) -> bool:
        known = self.jobs.get(job_id)
        while known is not None and known.then is not None:
            known = self.jobs.get(known.then)
        return known is not None and known.ended is not None
