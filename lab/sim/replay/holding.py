"""What holders of leases write, and how leases end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.core.lease import Hold
from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.port import Settled
from lab.sim.fleet import LEASE, RETRY
from lab.sim.replay.claiming import Claiming
from lab.sim.replay.known import Ending, Lapse
from lab.sim.telling import shown

if TYPE_CHECKING:
    from holdfast.core.lease import Lease
    from holdfast.core.settle import Write
    from holdfast.store.port import Reaped, Settlement
    from lab.sim.history import Done
    from lab.sim.replay.known import Known


class Holding(Claiming):
    """Takes note of what is written under leases, and of their ends."""

    def see_extend(self, done: Done) -> None:
        """Take note of leases that are prolonged."""
        for lease, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer.hold is not Hold.HELD:
                self._refused(done, lease)
            elif self.fenced(done, lease):
                self.lasts(done, answer.expires_at)
                self.jobs[lease.job_id].expires_at = answer.expires_at

    def _reports(self, done: Done) -> None:
        for one, answer in zip(done.given[0][0], done.answer, strict=True):
            if not answer.accepted:
                self._refused(done, one.lease)
            elif self.fenced(done, one.lease):
                self._reported(done, self.jobs[one.lease.job_id], one)

    see_progress = see_checkpoint = see_log = see_mark = _reports

    def _reported(self, done: Done, known: Known, one: Any) -> None:
        if done.name in ("progress", "checkpoint"):
            known.expires_at = done.now + timedelta(seconds=LEASE)
        if done.name == "checkpoint":
            known.parts.add(one.part.name)
        elif done.name == "log":
            known.lines.add(one.message)
        elif done.name == "mark":
            known.marks.add((known.attempts, one.event, one.name))

    def see_flag_free(self, done: Done) -> None:
        """Take note of leases that are to lapse at no cost."""
        for lease, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer.accepted and self.fenced(done, lease):
                self.jobs[lease.job_id].free = True

    def _refused(self, done: Done, lease: Lease) -> None:
        """Say so where the holder itself was refused."""
        known = self.jobs.get(lease.job_id)
        if known is not None and known.token == lease.token:
            self.say(done, f"a write for {shown(lease)} is refused although it holds the job")

    # attempts end

    def see_settle(self, done: Done) -> None:
        """Take note of attempts that end."""
        for settlement, answer in zip(done.given[0][0], done.answer, strict=True):
            self._settled(done, settlement, answer)

    def see_commit(self, done: Done) -> None:
        """Take note of what a handler did in a transaction."""
        for name, args, answer in done.given[0]:
            if name == "enqueue":
                self.created(done, args[0], answer)
            elif name == "settle":
                self._settled(done, args[0], answer)
            elif name == "prove" and answer.accepted:
                self.fenced(done, args[0])

    def _settled(self, done: Done, settlement: Settlement, answer: Settled) -> None:
        lease, write = settlement.lease, settlement.write
        known = self.jobs.get(lease.job_id)
        applied_before = known is not None and lease.token in known.tokens
        if answer is Settled.REPEATED and not applied_before:
            self.say(done, f"{shown(settlement)} is said to be repeated, and never was applied")
        if answer is Settled.STALE:
            self._refused(done, lease)
            if applied_before:
                self.say(done, f"{shown(settlement)} is called stale, and was applied before")
        if answer is Settled.REPEATED or not answer.accepted or not self.fenced(done, lease) or known is None:
            return
        self._judge_lateness(done, known, settlement, answer)
        if known.canceling and write.lives_on and answer is not Settled.CANCELED:
            self.say(done, f"{shown(settlement)} goes on although its cancellation was promised")
        self._judge_rest(done, shown(settlement), write)
        if done.name == "settle":
            self.endings.append(Ending(done, lease.job_id, known.attempts, "" if write.error is None else write.error.code))
        known.failures = write.failures
        known.token = None
        known.tokens.add(lease.token)
        if answer is Settled.CANCELED:
            self.end(done, known, State.CANCELED)
        elif write.state in TERMINAL:
            known.effective = write.event is Event.SUCCEED
            self.end(done, known, write.state)
        else:
            self._waits_again(done, known, write, woken=settlement.signal is not None)
        if settlement.then is not None and answer is not Settled.CANCELED:
            self.create(done, settlement.then)
            known.then = settlement.then.id

    def _judge_lateness(self, done: Done, known: Known, settlement: Settlement, answer: Settled) -> None:
        late = known.expires_at is not None and known.expires_at <= done.now
        if late:
            known.late.add(known.attempts)
        if answer in (Settled.APPLIED, Settled.LATE) and (answer is Settled.LATE) is not late:
            self.say(done, f"{shown(settlement)} is {answer}, and is {'' if late else 'not '}late")

    def _judge_rest(self, done: Done, what: str, write: Write) -> None:
        """Compare how long a job rests after a failure with what its policy says."""
        if write.event in (Event.RETRY, Event.RETRY_LATER, Event.EXPIRE, Event.EXPIRE_LATER):
            rest = min(RETRY.initial * RETRY.factor ** (write.failures - 1), RETRY.max)
            if not (1 - RETRY.jitter) * rest <= write.delay <= (1 + RETRY.jitter) * rest:
                self.say(done, f"{what} rests for {write.delay:.3f} s in place of {rest:.1f} s")

    def _waits_again(self, done: Done, known: Known, write: Write, *, woken: bool = False) -> None:
        """Take note of when a job may be claimed again. One that waits for a signal may be woken at any time."""
        known.in_front = write.front
        if write.state is State.SCHEDULED and not woken:
            known.due = write.run_at or done.now + timedelta(seconds=write.delay)

    # leases lapse

    def see_reap(self, done: Done) -> None:
        """Take note of leases that end because they have lapsed."""
        for reaped in done.answer:
            known = self.jobs.get(reaped.job_id)
            if known is None or known.token is None or known.expires_at is None:
                self.say(done, f"{shown(reaped)} is reaped, and nobody holds it")
                continue
            if known.expires_at > done.now:
                self.say(done, f"{shown(reaped)} is reaped {(known.expires_at - done.now).total_seconds():.3f} s too early")
            if known.canceling and reaped.write.state not in TERMINAL:
                self.say(done, f"{shown(reaped)} goes on although its cancellation was promised")
            self._judge_cost(done, known, reaped)
            self.lapses.append(Lapse(done, reaped, known.expires_at, self.holders[known.token]))
            known.failures = reaped.write.failures
            known.token = None
            if reaped.write.state in TERMINAL:
                self.end(done, known, reaped.write.state)
            else:
                self._waits_again(done, known, reaped.write)

    def _judge_cost(self, done: Done, known: Known, reaped: Reaped) -> None:
        costs = reaped.write.failures - known.failures
        if costs != (0 if known.free or known.canceling else 1):
            self.say(done, f"{shown(reaped)} costs {costs} failures{', and was flagged' if known.free else ''}")
        if known.failures and not known.free:  # a first lapse goes on at once
            self._judge_rest(done, shown(reaped), reaped.write)
