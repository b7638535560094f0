"""The checker: replays what was done to the store, and says what should not have been possible.

It knows the promises and nothing of the code that keeps them: who holds a lease follows from the answers to claims, settlements
and reaps in the order in which the store gave them; what has ended stays so; what is left at the end agrees with that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.lease import Hold
from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.port import Answer, Enqueue, Settled
from holdfast.store.replay import replay
from lab.sim.fleet import BUDGET, LEASE
from lab.sim.plan import Ill
from lab.sim.telling import shown

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Claimed, Lease
    from holdfast.store.port import JobView, Settlement
    from lab.sim.history import Done, Found, History, Run
    from lab.sim.plan import Plan

SCAN: Final = 5.0 * 1.1
"""Seconds between two looks of a reaper, at most."""
REACTION: Final = 2.0
"""Seconds within which whoever is not frozen does what is due: requests and hints take their time."""


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


class Replay:
    """Goes through what was done, in order."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.jobs: dict[UUID, Known] = {}
        self.fired: Counter[tuple[str, Any]] = Counter()
        self.claims: list[tuple[float, str, Claimed]] = []
        self.reaps: list[tuple[Done, UUID, datetime]] = []

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
                if unique is not None and (unique.scope, unique.key) == key and not self._chain_ended(other.job.id):
                    self._say(done, f"{shown(job)} has the unique key {key[1]} of {shown(other.job)}, which is live")
        self.jobs[job.id] = Known(job, len(self.jobs))

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
            if known.job.fifo and claimed.attempt == 1:
                self._in_line(done, known)
            known.attempts = claimed.attempt
            known.token = claimed.token
            known.expires_at = claimed.expires_at

    def _in_line(self, done: Done, known: Known) -> None:
        before = [
            other
            for other in self.jobs.values()
            if other.job.queue == known.job.queue and other.job.fifo and other.created < known.created
        ]
        passed = [other for other in before if other.attempts == 0 and other.ended is None]
        if passed:
            self._say(done, f"{shown(known.job)} passes {shown(passed[0].job)}, which came first")

    def see_extend(self, done: Done) -> None:
        """Take note of leases that are prolonged."""
        for lease, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer.hold is Hold.HELD:
                self._fenced(done, lease)
                if (known := self.jobs.get(lease.job_id)) is not None and known.token == lease.token:
                    known.expires_at = answer.expires_at

    def _report(self, done: Done) -> None:
        for one, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer.accepted:
                self._fenced(done, one.lease)
                known = self.jobs.get(one.lease.job_id)
                if done.name in ("progress", "checkpoint") and known is not None and known.token == one.lease.token:
                    known.expires_at = done.now + timedelta(seconds=LEASE)

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
        if not answer.accepted or not self._fenced(done, lease) or known is None:
            return
        known.token = None
        known.tokens.add(lease.token)
        if answer is Settled.CANCELED:
            self._end(done, known, State.CANCELED)
        elif write.state in TERMINAL:
            self._end(done, known, write.state)
        if settlement.then is not None and answer is not Settled.CANCELED:
            self._create(done, settlement.then)
            known.then = settlement.then.id

    def see_reap(self, done: Done) -> None:
        """Take note of leases that end because they have lapsed."""
        for reaped in done.answer:
            known = self.jobs.get(reaped.job_id)
            if known is None or known.token is None or known.expires_at is None:
                self._say(done, f"{shown(reaped)} is reaped, and nobody holds it")
                continue
            if known.expires_at > done.now:
                self._say(done, f"{shown(reaped)} is reaped {(known.expires_at - done.now).total_seconds():.3f} s too early")
            self.reaps.append((done, reaped.job_id, known.expires_at))
            known.token = None
            if reaped.write.state in TERMINAL:
                self._end(done, known, reaped.write.state)

    def see_commit(self, done: Done) -> None:
        """Take note of what a handler did in a transaction."""
        for name, args, answer in done.given[0]:
            if name == "enqueue":
                self._created(done, args[0], answer)
            elif name == "settle":
                self._settled(done, args[0], answer)
            elif name == "prove" and answer.accepted:
                self._fenced(done, args[0])

    # ends

    def _end(self, done: Done, known: Known, state: State) -> None:
        if known.ended is not None:
            self._say(done, f"{shown(known.job)} had {known.ended}, and now has {state}")
        known.ended = state

    def see_cancel(self, done: Done) -> None:
        """Take note of waiting jobs that end; running ones are asked to."""
        self._ended_outside(done, done.given[0][0], State.CANCELED)

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
                known.ended = None

    def _chain_ended(self, job_id: UUID) -> bool:
        known = self.jobs.get(job_id)
        while known is not None and known.then is not None:
            known = self.jobs.get(known.then)
        return known is not None and known.ended is not None


def check(plan: Plan, history: History, found: Found) -> list[str]:
    """Return what is wrong."""
    replayed = Replay()
    for done in history.in_order():
        replayed.see(done)
    wrong = replayed.wrong
    wrong += _nothing_lost(history, replayed, found)
    wrong += _rows_agree(replayed, found)
    wrong += _effects(found)
    wrong += _in_time(plan, history, replayed)
    wrong += _one_at_a_time(plan, history, replayed)
    return wrong


def _nothing_lost(history: History, replayed: Replay, found: Found) -> list[str]:
    """I1: what was acknowledged is there, and has ended by now; so has everything else."""
    wrong = []
    for job_id, order in history.acknowledged.items():
        if job_id not in found.jobs:
            wrong.append(f"job {shown(job_id)} of order #{order.number} ({order.kind}) was acknowledged, and is gone")
    wrong += [f"job {shown(job_id)} was created, and is gone" for job_id in replayed.jobs if job_id not in found.jobs]
    for view in found.jobs.values():
        if view.state not in TERMINAL:
            wrong.append(f"job {shown(view.id)} ({view.task}) is stuck: {view.state}, attempt {view.attempt}")
        if view.id not in replayed.jobs:
            wrong.append(f"job {shown(view.id)} ({view.task}) is there, and nobody created it")
    return wrong


def _rows_agree(replayed: Replay, found: Found) -> list[str]:
    """I3, I5, I6: what the rows say is what the answers said, and the event log tells the same story."""
    wrong = []
    for job_id, view in found.jobs.items():
        name = f"job {shown(job_id)} ({view.task})"
        try:
            state = replay(found.events[job_id])
        except ValueError as error:
            wrong.append(f"{name}: its event log cannot be: {error}")
        else:
            if state is not view.state:
                wrong.append(f"{name} is {view.state}, its event log says {state}")
        known = replayed.jobs.get(job_id)
        if known is not None and known.ended is not None and view.state is not known.ended:
            wrong.append(f"{name} is {view.state}, and was said to have {known.ended}")
        if known is not None and view.attempt != known.attempts:
            wrong.append(f"{name} counts {view.attempt} attempts, and was claimed {known.attempts} times")
        if len(found.attempts[job_id]) != view.attempt:
            wrong.append(f"{name} counts {view.attempt} attempts, and {len(found.attempts[job_id])} are written down")
        wrong += [f"{name}: {what}" for what in _budget(view, found.events[job_id])]
    counted = Counter(view.state for view in found.jobs.values())
    for state in State:
        if counted[state] != found.counts[state]:
            wrong.append(f"{found.counts[state]} jobs are counted as {state}, and there are {counted[state]}")
    return wrong


FAILURES: Final = frozenset({Event.RETRY, Event.RETRY_LATER, Event.FAIL, Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL})


def _budget(view: JobView, events: Any) -> list[str]:
    """I5: failures are counted, once each, and stay within the budget."""
    wrong = []
    failures = 0
    for line in events:
        if line.event is Event.REOPEN:
            failures = 0
        elif line.event in FAILURES and "shutting down" not in line.detail:
            failures += 1
            if failures > BUDGET:
                wrong.append(f"it has failed {failures} times, with a budget of {BUDGET}")
            if failures == BUDGET and line.state not in TERMINAL:
                wrong.append(f"it goes on after {failures} failures, with a budget of {BUDGET}")
    # where a cancel won over a failed attempt, the failure is counted and the log says that it was stopped
    stopped = int(bool(events) and events[-1].event is Event.STOP)
    if not failures <= view.failures <= failures + stopped:
        wrong.append(f"it counts {view.failures} failures, and its event log has {failures}")
    return wrong


def _effects(found: Found) -> list[str]:
    """I4: what was done in the transaction that completed a job was done once, and for no other job."""
    wrong = []
    wanted = Counter(
        str(view.id)
        for view in found.jobs.values()
        if view.task == "effect" and found.events[view.id][-1].event is Event.SUCCEED  # and not from outside
    )
    if found.ledger is not None and Counter(found.ledger) != wanted:
        wrong.append(f"the ledger has {len(found.ledger)} lines for {wanted.total()} jobs that have succeeded")
    children = sum(view.task == "child" for view in found.jobs.values())
    if children != wanted.total():
        wrong.append(f"{wanted.total()} jobs with an effect have succeeded, and there are {children} effects")
    return wrong


def _in_time(plan: Plan, history: History, replayed: Replay) -> list[str]:
    """I5: a lease that lapses in calm weather is reaped within a scan."""
    if any(fault.ill is Ill.CLOCK for fault in plan.faults):
        return []
    wrong = []
    for done, job_id, expires_at in replayed.reaps:
        lapsed = done.time - (done.now - expires_at).total_seconds()
        if lapsed > history.calm_since + LEASE and done.time - lapsed > SCAN + REACTION:
            wrong.append(f"the lease of job {shown(job_id)} lapsed at {lapsed:.3f} s and was reaped at {done.time:.3f} s")
    return wrong


def _one_at_a_time(plan: Plan, history: History, replayed: Replay) -> list[str]:
    """Nobody who is not frozen goes on with a job that another has claimed."""
    if any(fault.ill is Ill.CLOCK for fault in plan.faults):
        return []  # a clock that jumps ahead ends leases early: that costs a repetition
    wrong = []
    runs: dict[UUID, list[Run]] = {}
    for run in history.runs:
        runs.setdefault(run.job_id, []).append(run)
    for time, node, claimed in replayed.claims:
        for run in runs.get(claimed.job_id, []):
            if run.attempt >= claimed.attempt or run.began > time:
                continue
            if _over(run, history) > time + REACTION and not _was_frozen(run, time, history):
                wrong.append(
                    f"job {shown(claimed.job_id)}: {node} claims attempt {claimed.attempt} at {time:.3f} s, and attempt "
                    f"{run.attempt} still runs on {run.node}"
                )
    return wrong


def _over(run: Run, history: History) -> float:
    if run.ended is not None:
        return run.ended
    return history.killed.get((run.node, run.life), float("inf"))


def _was_frozen(run: Run, until: float, history: History) -> bool:
    return any(node == run.node and begun <= until + REACTION and over >= run.began for node, begun, over in history.frozen)
