"""How jobs are claimed: each once at a time, when it may be, and in order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.core.fairness import AGING_TURN
from holdfast.core.job import BlockerPolicy
from holdfast.core.states import State
from lab.sim.fleet import LEASE
from lab.sim.replay.creating import Creating
from lab.sim.replay.known import CLOSE, Holder
from lab.sim.telling import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.core.lease import Claimed
    from lab.sim.history import Done
    from lab.sim.replay.known import Known


class Claiming(Creating):
    """Takes note of jobs that are handed to workers."""

    def see_claim(self, done: Done) -> None:
        """Take note of jobs that are handed to a worker."""
        process = (done.node, done.life)
        turn, self.turns[process] = self.turns[process], self.turns[process] + 1
        for claimed in done.answer:
            self.claims.append((done.time, done.node, claimed))
            known = self.jobs.get(claimed.job_id)
            if known is None:
                self.say(done, f"{shown(claimed)} was never created")
                continue
            self._may_be_claimed(done, claimed, known)
            self._as_it_stands(done, claimed, known)
            if not known.job.fifo:
                self._in_lane(done, known)
                if not done.given[0][0].retries_first and self.aging.get(process) != turn % AGING_TURN:
                    self._by_priority(done, known, process, turn % AGING_TURN)
            else:
                self._in_line(done, known)
            self.lasts(done, claimed.expires_at)
            known.attempts = claimed.attempt
            known.token = claimed.token
            known.expires_at = claimed.expires_at
            known.due, known.in_front, known.free = None, False, False
            self.holders[claimed.token] = Holder(done.node, done.life, done.time)
            self.to_recall[claimed.job_id, claimed.attempt] = frozenset(known.parts)
        if done.answer:
            held = [self.holders[one.token].process for one in self.jobs.values() if one.token is not None]
            self.loads.append((done, held.count(process)))

    def _may_be_claimed(self, done: Done, claimed: Claimed, known: Known) -> None:
        if known.token is not None:
            self.say(done, f"{shown(claimed)} is claimed while {known.token.hex[:4]} holds it")
        if known.ended is not None:
            self.say(done, f"{shown(claimed)} is claimed although it has {known.ended}")
        anyhow = known.job.policy.on_blocker_failure is BlockerPolicy.RUN
        for blocker in known.job.after:
            end = self.chain_end(blocker)
            if end is None:
                self.say(done, f"{shown(claimed)} is claimed although {shown(blocker)}, which it waits for, is live")
            elif end is not State.SUCCEEDED and not anyhow:
                self.say(done, f"{shown(claimed)} is claimed although {shown(blocker)}, which it waits for, has {end}")
        if known.job.queue in self.paused:
            self.say(done, f"{shown(claimed)} is claimed from a queue that is paused")
        if known.due is not None and done.now < known.due - CLOSE:
            self.say_by_clock(done, f"{shown(claimed)} is claimed {(known.due - done.now).total_seconds():.3f} s early")

    def _as_it_stands(self, done: Done, claimed: Claimed, known: Known) -> None:
        """Compare what the worker is told of the job with what is known of it."""
        if claimed.attempt != known.attempts + 1:
            self.say(done, f"{shown(claimed)} follows attempt {known.attempts}")
        if claimed.failures != known.failures:
            self.say(done, f"{shown(claimed)} comes with {claimed.failures} failures, and had {known.failures}")
        if known.start_by is not None and done.now >= known.start_by + CLOSE:
            self.overdue.add((claimed.job_id, claimed.attempt))
        if claimed.overdue and (known.start_by is None or done.now < known.start_by - CLOSE):
            self.say(done, f"{shown(claimed)} is said to be overdue, and is in time")

    def lasts(self, done: Done, expires_at: datetime) -> None:
        """Compare the end of a lease that begins now with its length."""
        if abs(expires_at - done.now - timedelta(seconds=LEASE)) > CLOSE:
            self.say(done, f"a lease lasts {(expires_at - done.now).total_seconds():.3f} s in place of {LEASE} s")

    # in order

    def _in_line(self, done: Done, known: Known) -> None:
        """Of a queue that keeps its order, what was never begun or was given back to the front is passed by nobody."""
        if known.in_front:
            return

        def first(other: Known) -> bool:
            in_line = other.job.fifo and other.job.queue == known.job.queue and other.created < known.created
            return in_line and other.waits and other.due is None and (other.attempts == 0 or other.in_front)

        self._passes(done, known, first, self.say)

    def _in_lane(self, done: Done, known: Known) -> None:
        """Of one lane, what came first is claimed first, and of what waited for its time what was due first."""
        if known.attempts or known.job.after or known.job.unique is not None:
            return

        def first(other: Known) -> bool:
            return other.created < known.created and other.first_due is None and _new(other) and other.lane == known.lane

        def sooner(other: Known) -> bool:
            due, its = known.first_due, other.first_due
            return due is not None and its is not None and its < due - CLOSE and _new(other) and other.lane == known.lane

        if known.first_due is None:
            self._passes(done, known, first, self.say)
        else:
            self._passes(done, known, sooner, self.say_by_clock)

    def _by_priority(self, done: Done, known: Known, process: tuple[str, int], turn: int) -> None:
        """Of one queue, the higher priority comes first, but in every tenth claim and in those that are for retries."""

        def higher(other: Known) -> bool:
            ready = _new(other) and other.first_due is None and other.job.queue == known.job.queue
            return ready and not other.job.fifo and other.job.priority > known.job.priority

        if process in self.aging:
            self._passes(done, known, higher, self.say)
        elif any(higher(other) for other in self.jobs.values()):
            self.aging[process] = turn

    def _passes(self, done: Done, known: Known, first: Callable[[Known], bool], say: Callable[[Done, str], Any]) -> None:
        """Say so where a job is claimed before another one that comes first. What was claimed with it is no longer there."""
        passed = next((other for other in self.jobs.values() if first(other)), None)
        if passed is not None:
            say(done, f"{shown(known.job)} passes {shown(passed.job)}, which comes first")


def _new(known: Known) -> bool:
    """Tell whether a job waits for nothing but a worker, or its time, and never was begun: all of that the answers tell."""
    return known.waits and not known.attempts and not known.job.after and known.start_by is None and known.job.unique is None
