"""Ending attempts, and what follows from it: the next step of a chain, or a wait without a slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.outcome import CANCELED, Error
from holdfast.core.settle import Write
from holdfast.core.states import HOLDER_EVENTS, TRANSITIONS, Event, State
from holdfast.errors import BadJob
from holdfast.store.memory.producing import Producing, gives_way
from holdfast.store.memory.records import Record
from holdfast.store.port import CIRCLE, Settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Settlement

SETTLING: Final = frozenset(event for event in HOLDER_EVENTS if TRANSITIONS[State.RUNNING, event] is not State.RUNNING)
"""The holder's events that end an attempt."""
WRITTEN: Final = frozenset({Settled.APPLIED, Settled.LATE})
"""The answers that may tell of waiters instead. That a cancel has won is not covered by anything."""


class Settling(Producing):
    """What the port says about settling."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts."""
        return self.settle_now(settlements, self.environment.now())

    async def settled(self, lease: Lease) -> Event | None:
        """Tell how its holder has settled an attempt."""
        record = self.data.jobs.get(lease.job_id)
        attempts = () if record is None else record.attempts
        return next((attempt.event for attempt in attempts if attempt.settled_with(lease.token)), None)

    def settle_now(self, settlements: Sequence[Settlement], now: datetime) -> list[Settled]:
        """End attempts, all that are current or none."""
        for settlement in settlements:
            if settlement.write.event not in SETTLING:
                raise ValueError(f"'{settlement.write.event}' does not settle a job")
        self._check_next_steps(settlements)  # before the first change: all of the call happens or none of it
        freed_before = self.data.freed
        answers = [self._settle_one(settlement, now) for settlement in settlements]
        self.data.settle_waiters(now)
        told = next((index for index, answer in enumerate(answers) if answer in WRITTEN), None)
        if self.data.freed > freed_before and told is not None:
            answers[told] = Settled.FREED
        return answers

    def _check_next_steps(self, settlements: Sequence[Settlement]) -> None:
        ending: set[UUID] = set()
        created: set[UUID] = set()
        waits: dict[UUID, Sequence[UUID]] = {}
        """What the chains of this call will wait for."""
        for settlement in settlements:
            held, then = self.data.held(settlement.lease), settlement.then
            first = settlement.lease.token not in ending
            ending.add(settlement.lease.token)
            if then is None or held is None or not first or held[1].cancel_requested:
                continue  # it ends without a next step, if at all
            record, _ = held
            if then.id in self.data.jobs or then.id in created:
                raise BadJob(f"there is a job {then.id} already", path="then.id", task=then.task)
            self.check_after(then)
            waits[record.chain] = then.after
            if self._waits_for(record.chain, waits):
                raise BadJob(CIRCLE, path="then.after", task=then.task)
            created.add(then.id)

    def _waits_for(self, chain: UUID, waits: Mapping[UUID, Sequence[UUID]]) -> bool:
        """Tell whether a chain would wait for its own end, by itself or through others."""
        seen: set[UUID] = set()
        front = list(waits[chain])
        while front:
            if (one := front.pop()) == chain:
                return True
            if one not in seen:
                seen.add(one)
                last = self.data.last_step(one)
                front += waits.get(one, () if last is None else last.waits_for)
        return False

    def _settle_one(self, settlement: Settlement, now: datetime) -> Settled:
        lease, write, then = settlement.lease, settlement.write, settlement.then
        if (held := self.data.held(lease)) is None:
            return self._settled_before(lease)
        record, attempt = held
        if attempt.cancel_requested and write.lives_on:  # although its cancellation was promised
            stop = Write(Event.STOP, write.failures, error=Error(CANCELED, attempt.cancel_reason))
            self.data.move(record, stop, now, actor=self.worker_name(attempt.worker) or "")
            return Settled.CANCELED
        holder = None if then is None else self._other_holder(record, then, now)
        if then is not None and holder is not None and not gives_way(holder, then):
            return Settled.KEY_TAKEN
        self.data.move(record, write, now, actor=self.worker_name(attempt.worker) or "")
        if then is not None:
            following = Record(then, created_at=now, blockers=then.after)
            self.data.follow(record, following)
            self.bring_in(following, holder, now)
        if settlement.signal is not None and record.state is State.SCHEDULED:
            self.data.await_signal(record, settlement.signal, now)
        return Settled.LATE if attempt.late else Settled.APPLIED

    def _other_holder(self, record: Record, then: NewJob, now: datetime) -> Record | None:
        """Return who holds the key of the next step, unless that is a step of its own chain: then it is no obstacle."""
        holder = self.holder(then, now)
        return None if holder is None or holder.chain == record.chain else holder

    def _settled_before(self, lease: Lease) -> Settled:
        record = self.data.jobs.get(lease.job_id)
        if record is not None and any(attempt.settled_with(lease.token) for attempt in record.attempts):
            return Settled.REPEATED
        return Settled.STALE
