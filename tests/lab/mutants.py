"""Deliberate bugs of the protocol, each put in by replacing a function: the simulation must find every one.

Nothing of this is a switch in the product. A mutant that is not found means that the checker looks away.
"""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappush
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec

from holdfast.core.lease import Lease
from holdfast.core.outcome import LEASE_EXPIRED, Error
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, Event, State
from holdfast.runtime import heartbeat
from holdfast.runtime.enqueuing import Enqueuer
from holdfast.runtime.housekeeping import Promoter
from holdfast.store.memory import MemoryStore, housekeeping
from holdfast.store.memory.model import MemoryData
from holdfast.store.memory.producing import Producing
from holdfast.store.memory.records import Attempt
from holdfast.store.memory.settling import Settling
from holdfast.store.memory.steering import Steering
from holdfast.store.memory.transaction import MemoryTransaction
from holdfast.store.memory.working import Working
from holdfast.store.port import Enqueue, Enqueued, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Mutant:
    """A bug: what it is, which store shows it, and how it is put in."""

    name: str
    store: str
    replaced: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
    """What is replaced where, by what is made of it."""

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def at_large(self) -> Iterator[None]:
        """Put it in for a while."""
        patches = [patch.object(where, name, make(getattr(where, name))) for where, name, make in self.replaced]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in reversed(patches):
                one.stop()


def _with_any_token(data: MemoryData, lease: Lease) -> Lease:
    record = data.jobs.get(lease.job_id)
    return lease if record is None or record.lease is None else Lease(lease.job_id, record.lease.token)


def _settle_any(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        lease = _with_any_token(self.data, settlement.lease)
        return real(self, msgspec.structs.replace(settlement, lease=lease), now)

    return broken


def _lease_any(real: Any) -> Any:
    def broken(self: Working, lease: Lease, *rest: Any) -> Any:
        return real(self, _with_any_token(self.data, lease), *rest)

    return broken


def _impatient(_: Any) -> Any:
    def broken(self: Attempt, now: Any) -> Any:
        return now >= self.expires_at - timedelta(seconds=3)

    return broken


def _costs_nothing(_: Any) -> Any:
    def broken(retry: Any, failures: int, rng: Any, **_: Any) -> Any:
        del retry, rng
        return Write(Event.EXPIRE, failures, error=Error(LEASE_EXPIRED, "it lapsed"), front=True)

    return broken


def _costs_double(real: Any) -> Any:
    def broken(retry: Any, failures: int, rng: Any, **flags: Any) -> Any:
        return real(retry, failures + 1, rng, **flags)

    return broken


def _first_blocker_frees(real: Any) -> Any:
    def broken(self: MemoryData, waiter: Any, now: Any) -> None:
        if any((last := self.last_step(one)) is not None and last.state is State.SUCCEEDED for one in waiter.waits_for):
            for one in list(waiter.waits_for):
                self._wait_no_longer(waiter, one)
        real(self, waiter, now)

    return broken


def _nobody_is_freed(_: Any) -> Any:
    def broken(self: MemoryData, now: Any) -> None:
        del now
        self._ended = []

    return broken


def _answers_first(real: Any) -> Any:
    async def broken(self: Enqueuer, batch: Any) -> None:
        for asked in batch:
            if not asked.future.done():
                asked.future.set_result([Enqueued(Enqueue.CREATED, job.id) for job in asked.jobs])
        with suppress(Exception):  # the bug
            await real(self, batch)

    return broken


def _commits_unfenced(_: Any) -> Any:
    def broken(self: MemoryTransaction, lease: Lease, act: Any, *, key: str = "") -> Any:
        del lease, key
        answer = self._rehearse(act)
        self._operations.append(lambda store: act(store) and None)
        return answer if answer.accepted else Settled.APPLIED

    return broken


def _fires_again(_: Any) -> Any:
    async def broken(self: MemoryStore, firing: Any) -> Any:
        standing = self.data.schedules.get(firing.name)
        if standing is None or firing.job is None:
            return None
        (enqueued,) = await self.enqueue([firing.job])
        standing.schedule = msgspec.structs.replace(standing.schedule, next_at=firing.next_at)
        return enqueued

    return broken


def _jumps_the_line(real: Any) -> Any:
    def broken(self: MemoryData, record: Any, *, front: bool) -> None:
        real(self, record, front=front)
        if record.job.fifo and not front:
            record.place = (True, -record.place[1])
            heappush(self.lanes[record.job.entry].entries, (record.place, record.job.id))

    return broken


def _creates_again(real: Any) -> Any:
    def broken(self: Producing, job: Any, earlier: Any, now: Any) -> Any:
        record = self.data.jobs.get(job.id)
        if record is not None and record.state in TERMINAL:
            self.data.move(record, Write(Event.REOPEN, 0), now)
            return Enqueued(Enqueue.CREATED, job.id)
        return real(self, job, earlier, now)

    return broken


def _no_key(_: Any) -> Any:
    def broken(self: Producing, job: Any, now: Any) -> None:
        del self, job, now

    return broken


def _never_too_late(_: Any) -> Any:
    def broken(self: heartbeat.Heartbeat, now: float) -> float:
        del self, now
        return math.inf

    return broken


def _never_stops(_: Any) -> Any:
    return lambda hold: None  # noqa: ARG005


def _cancels_the_dead(real: Any) -> Any:
    def broken(self: Steering, job_id: Any, now: Any, by: str, reason: str) -> Any:
        record = self.data.jobs.get(job_id)
        if record is not None and record.state in TERMINAL and record.state is not State.CANCELED:
            self.data.move(record, Write(Event.REOPEN, 0), now)
        return real(self, job_id, now, by, reason)

    return broken


def _forgets_the_next_step(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        answer: Settled = real(self, settlement, now)
        if settlement.then is not None and (record := self.data.jobs.get(settlement.then.id)) is not None:
            self.data.move(record, Write(Event.DELETE, 0), now)
        return answer

    return broken


def _says_done(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        held = self.data.held(settlement.lease)
        if held is not None and held[1].lapsed(now):
            return Settled.APPLIED
        return real(self, settlement, now)

    return broken


def _fails_afterwards(real: Any) -> Any:
    async def broken(self: Promoter) -> float | None:
        await real(self)
        raise ValueError("the bug")

    return broken


MUTANTS = (
    Mutant("a part of the worker fails by itself", "memory", ((Promoter, "tick", _fails_afterwards),)),
    Mutant("a settlement shows any token", "memory", ((Settling, "_settle_one", _settle_any),)),
    Mutant("an extension shows any token", "memory", ((Working, "_extend_one", _lease_any),)),
    Mutant("progress and checkpoints show any token", "memory", ((Working, "_write", _lease_any),)),
    Mutant("leases are reaped before they lapse", "memory", ((Attempt, "lapsed", _impatient),)),
    Mutant("a lapse costs nothing", "memory", ((housekeeping, "expire", _costs_nothing),)),
    Mutant("a lapse costs two failures", "memory", ((housekeeping, "expire", _costs_double),)),
    Mutant("the first of several blockers frees a waiter", "memory", ((MemoryData, "heed_blockers", _first_blocker_frees),)),
    Mutant("waiters are not told of ends", "memory", ((MemoryData, "settle_waiters", _nobody_is_freed),)),
    Mutant("an enqueue is answered before its commit", "memory", ((Enqueuer, "_write", _answers_first),)),
    Mutant("a transaction commits without its lease", "memory", ((MemoryTransaction, "_fenced", _commits_unfenced),)),
    Mutant("a slot is fired by everybody who finds it due", "memory", ((MemoryStore, "fire", _fires_again),)),
    Mutant("the last comes first in a fifo queue", "memory", ((MemoryData, "_line_up", _jumps_the_line),)),
    Mutant("an enqueue that is repeated begins the job anew", "memory", ((Producing, "_enqueue_one", _creates_again),)),
    Mutant("unique keys are not looked at", "memory", ((Producing, "holder", _no_key),)),
    Mutant(
        "a worker that lost its lease goes on",
        "memory",
        ((heartbeat.Heartbeat, "_stop_overdue", _never_too_late), (heartbeat, "reason_of", _never_stops)),
    ),
    Mutant("a cancel wins over a job that has ended", "memory", ((Steering, "_cancel_one", _cancels_the_dead),)),
    Mutant("the next step of a chain is forgotten", "memory", ((Settling, "_settle_one", _forgets_the_next_step),)),
    Mutant("a late settlement is said to be applied, and is not", "memory", ((Settling, "_settle_one", _says_done),)),
)
