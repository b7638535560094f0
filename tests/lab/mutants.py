"""Deliberate bugs of the protocol, each put in by replacing a function or a statement: the simulation must find every one.

Nothing of this is a switch in the product. A mutant that is not found means that the checker looks away.
"""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappush
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec

from holdfast.core.lease import Lease
from holdfast.core.outcome import LEASE_EXPIRED, Error
from holdfast.core.retry import Retry
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, Event, State
from holdfast.runtime import claimer, heartbeat
from holdfast.runtime.enqueuing import Enqueuer
from holdfast.runtime.housekeeping import Promoter, Reaper
from holdfast.runtime.outage import Outage
from holdfast.store.memory import MemoryStore, housekeeping
from holdfast.store.memory.model import MemoryData
from holdfast.store.memory.producing import Producing
from holdfast.store.memory.records import Attempt
from holdfast.store.memory.settling import Settling
from holdfast.store.memory.steering import Steering
from holdfast.store.memory.transaction import MemoryTransaction
from holdfast.store.memory.working import Working
from holdfast.store.port import Enqueue, Enqueued, Promoted, Settled
from holdfast.store.sqlite import _sql, settling
from holdfast.store.sqlite import housekeeping as sqlite_housekeeping

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

    statements: tuple[tuple[str, str, str], ...] = ()
    """Of the SQL of SQLite: the statement, what is replaced in it, and by what."""
    seed: int = 0
    """One that found it lately: it is tried first, and where it does not any more, all the others are."""

    @contextmanager
    def at_large(self) -> Iterator[None]:
        """Put it in for a while."""
        with ExitStack() as stack:
            for where, name, make in self.replaced:
                stack.enter_context(patch.object(where, name, make(getattr(where, name))))
            for name, text, other in self.statements:
                stack.enter_context(_restated(name, text, other))
            yield


@contextmanager
def _restated(name: str, text: str, other: str) -> Iterator[None]:
    operation, _, statement = name.partition(".")
    known = _sql._statements(operation)
    assert text in known[statement], f"{name} has changed: the mutant must follow"
    with patch.dict(known, {statement: known[statement].replace(text, other)}):
        _forget_statements()
        yield
    _forget_statements()


def _forget_statements() -> None:
    _sql.sql.cache_clear()
    _sql._with_ids.cache_clear()


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


def _frees_again(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        answer: Settled = real(self, settlement, now)
        if answer is Settled.REPEATED:
            ended = self.data.jobs[settlement.lease.job_id]
            for waiter in sorted(self.data.dependents.get(ended.chain, ())):
                again = Event.RELEASE if self.data.jobs[waiter].state is State.RUNNING else Event.REOPEN
                self.data.move(self.data.jobs[waiter], Write(again, 0), now)
        return answer

    return broken


def _passes_one_over(real: Any) -> Any:
    def broken(self: MemoryData, lane: Any) -> Any:
        record = real(self, lane)
        if record is not None and len(lane.entries) > 2:
            lane.entries.pop()  # the floor of the lane is above one that waits
        return record

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


def _promotes_what_is_not_due(_: Any) -> Any:
    async def broken(self: MemoryStore, limit: int) -> Promoted:
        del limit
        now, queues = self.environment.now(), set()
        for record in list(self.data.by_state[State.SCHEDULED].values()):
            if record.signal is None:
                self.data.move(record, Write(Event.PROMOTE, record.failures), now, actor="promoter")
                queues.add(record.job.queue)
        return Promoted(len(queues), frozenset(queues), None)

    return broken


def _gives_something_else(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        if settlement.write.result is not None:
            write = msgspec.structs.replace(settlement.write, result='"lost"')
            settlement = msgspec.structs.replace(settlement, write=write)
        return real(self, settlement, now)

    return broken


def _forgets_parts(real: Any) -> Any:
    async def broken(self: MemoryStore, checkpoints: Any) -> Any:
        answers = await real(self, checkpoints)
        for one in checkpoints:
            if (record := self.data.jobs.get(one.lease.job_id)) is not None:
                record.parts.pop(one.part.name, None)
        return answers

    return broken


def _lends_for_a_second(real: Any) -> Any:
    def broken(self: Working, record: Any, worker: Any, now: Any) -> Any:
        claimed = real(self, record, worker, now)
        record.attempts[-1].expires_at = now + timedelta(seconds=1)
        return msgspec.structs.replace(claimed, expires_at=now + timedelta(seconds=1))

    return broken


def _frees_the_key(real: Any) -> Any:
    def broken(self: Working, record: Any, worker: Any, now: Any) -> Any:
        claimed = real(self, record, worker, now)
        self.data._free_key(record, also_in_window=True)
        return claimed

    return broken


def _forgets_the_signal(real: Any) -> Any:
    async def broken(self: MemoryStore, signal: str, data: str, *, by: str = "") -> Any:
        emitted = await real(self, signal, data, by=by)
        if emitted.first and not emitted.jobs:
            del self.data.signals[signal]
        return emitted

    return broken


def _says_something_else(real: Any) -> Any:
    async def broken(self: MemoryStore, signal: str, data: str, *, by: str = "") -> Any:
        del data
        return await real(self, signal, "666", by=by)

    return broken


def _to_the_back(real: Any) -> Any:
    def broken(self: MemoryData, record: Any, *, front: bool) -> None:
        del front
        real(self, record, front=False)

    return broken


def _skips_the_slot(_: Any) -> Any:
    async def broken(self: MemoryStore, firing: Any) -> None:
        standing = self.data.schedules.get(firing.name)
        if standing is not None and standing.schedule.next_at == firing.slot:
            standing.schedule = msgspec.structs.replace(standing.schedule, next_at=firing.next_at)

    return broken


def _takes_twice(real: Any) -> Any:
    async def broken(self: claimer.Claimer, limit: int, *, look: bool, hurry: bool) -> Any:
        take = self._take

        def twice(claimed: Any, at: float) -> None:
            take(claimed, at)
            take(claimed, at)

        with patch.object(self, "_take", twice):
            return await real(self, limit, look=look, hurry=hurry)

    return broken


def _refuses_the_holder(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        held = self.data.held(settlement.lease)
        if held is not None and held[0].attempt == 1 and not held[0].failures:
            return Settled.STALE
        return real(self, settlement, now)

    return broken


def _hides_the_cancel(real: Any) -> Any:
    def broken(self: Working, lease: Lease, now: Any) -> Any:
        return msgspec.structs.replace(real(self, lease, now), cancel_requested=False)

    return broken


def _final(_: Any) -> Any:
    def broken(retry: Any, failures: int, rng: Any, **_: Any) -> Any:
        del retry, rng
        return Write(Event.EXPIRE_FAIL, failures + 1, error=Error(LEASE_EXPIRED, "it lapsed"))

    return broken


def _fails_afterwards(real: Any) -> Any:
    async def broken(self: Promoter) -> float | None:
        await real(self)
        raise ValueError("the bug")

    return broken


def _heeds_no_cancel(real: Any) -> Any:
    def broken(writing: Any, ids: Any) -> Any:
        return {job_id: held._replace(cancel_requested=0) for job_id, held in real(writing, ids).items()}

    return broken


_TOKEN_OF_MANY = "AND lease.token = substr(:tokens, 16 * known.key + 1, 16)"

ON_SQLITE = (
    Mutant("settle.plain shows any token", "sqlite", (), (("settle.plain", _TOKEN_OF_MANY, ""),), seed=43),
    Mutant(
        "extend shows any token",
        "sqlite",
        (),
        (
            ("extend.lengths", _TOKEN_OF_MANY, ""),
            ("extend.leases", " AND token = substr(:tokens, 16 * known.key + 1, 16)", ""),
        ),
        seed=8,
    ),
    Mutant("progress and checkpoint show any token", "sqlite", (), (("extend.held", "token = ?", "? IS NOT NULL"),), seed=138),
    Mutant("reap does not look at the end", "sqlite", (), (("reap.lapsed", "lease.expires_at <= ?", "? IS NOT NULL"),)),
    Mutant("a lapse costs nothing there", "sqlite", ((sqlite_housekeeping, "expire", _costs_nothing),), seed=3),
    Mutant(
        "fire does not look whether it was fired", "sqlite", (), (("fire.advance", "AND next_at = ?", "AND ? IS NOT NULL"),)
    ),
    Mutant("a claim clears one more than it takes", "sqlite", (), (("claim.remove", "seq <= ?", "seq <= ? + 1"),)),
    Mutant(
        "a claim takes from queues that are paused", "sqlite", (), (("claim.heads", "NOT EXISTS", "1 OR NOT EXISTS"),), seed=2
    ),
    Mutant("any blocker that ends frees its waiter", "sqlite", (), (("moving.waits", "ended = 0", "ended = 2"),), seed=7),
    Mutant("no blocker is found when it ends", "sqlite", (), (("moving.waiters", "ended = 0", "ended = 2"),), seed=7),
    Mutant("keys have no holder", "sqlite", (), (("moving.key_holder", "key = ?", "key = ? || 'x'"),)),
    Mutant(
        "a repeated settlement is not known", "sqlite", (), (("settle.settled_before", "token = ?", "token <> ?"),), seed=12
    ),
    Mutant("a cancel that was asked for is forgotten", "sqlite", ((settling, "_leases", _heeds_no_cancel),), seed=18),
    Mutant("what is due is not promoted", "sqlite", (), (("promote.due", "run_at <= ?", "run_at <= ? - 90000000"),)),
)

BROKEN_PROMISES = (
    Mutant("what is not due is promoted", "memory", ((MemoryStore, "promote", _promotes_what_is_not_due),)),
    Mutant("the first failure is the last", "memory", ((Retry, "exhausted", lambda _: lambda self, failures: True),)),  # noqa: ARG005
    Mutant("a lapse is the end", "memory", ((housekeeping, "expire", _final),)),
    Mutant("there is no rest between retries", "memory", ((Retry, "delay", lambda _: lambda self, failures, rng: 0.0),)),  # noqa: ARG005
    Mutant("results are lost", "memory", ((Settling, "_settle_one", _gives_something_else),)),
    Mutant("parts are lost", "memory", ((MemoryStore, "checkpoint", _forgets_parts),), seed=4),
    Mutant("leases last a second", "memory", ((Working, "_claim_one", _lends_for_a_second),)),
    Mutant("a key is free as soon as its job runs", "memory", ((Working, "_claim_one", _frees_the_key),)),
    Mutant("a signal that nobody waits for yet is lost", "memory", ((MemoryStore, "emit", _forgets_the_signal),), seed=18),
    Mutant("a signal carries something else", "memory", ((MemoryStore, "emit", _says_something_else),), seed=18),
    Mutant("what is given back goes to the back", "memory", ((MemoryData, "_line_up", _to_the_back),), seed=35),
    Mutant("slots are skipped", "memory", ((MemoryStore, "fire", _skips_the_slot),)),
    Mutant("what is claimed is run twice", "memory", ((claimer.Claimer, "_claim", _takes_twice),)),
    Mutant("the holder is called stale", "memory", ((Settling, "_settle_one", _refuses_the_holder),)),
    Mutant("a cancel does not reach who runs the job", "memory", ((Working, "_extend_one", _hides_the_cancel),), seed=95),
    Mutant("a reaper looks every 40 seconds", "memory", ((Reaper, "interval", lambda _: 40.0),), seed=16),
    Mutant("an outage costs failures", "memory", ((Outage, "undisturbed", lambda _: lambda self: None),), seed=241),  # noqa: ARG005
)

MUTANTS = (
    Mutant("a part of the worker fails by itself", "memory", ((Promoter, "tick", _fails_afterwards),)),
    Mutant("a settlement shows any token", "memory", ((Settling, "_settle_one", _settle_any),), seed=14),
    Mutant("an extension shows any token", "memory", ((Working, "_extend_one", _lease_any),), seed=9),
    Mutant("progress and checkpoints show any token", "memory", ((Working, "_write", _lease_any),), seed=210),
    Mutant("leases are reaped before they lapse", "memory", ((Attempt, "lapsed", _impatient),)),
    Mutant("a lapse costs nothing", "memory", ((housekeeping, "expire", _costs_nothing),)),
    Mutant("a lapse costs two failures", "memory", ((housekeeping, "expire", _costs_double),)),
    Mutant("the first of several blockers frees a waiter", "memory", ((MemoryData, "heed_blockers", _first_blocker_frees),)),
    Mutant(
        "a settlement that is repeated frees its waiters again", "memory", ((Settling, "_settle_one", _frees_again),), seed=101
    ),
    Mutant("the floor of a lane is raised above one that waits", "memory", ((MemoryData, "head", _passes_one_over),)),
    Mutant("waiters are not told of ends", "memory", ((MemoryData, "settle_waiters", _nobody_is_freed),)),
    Mutant("an enqueue is answered before its commit", "memory", ((Enqueuer, "_write", _answers_first),), seed=2),
    Mutant("a transaction commits without its lease", "memory", ((MemoryTransaction, "_fenced", _commits_unfenced),), seed=38),
    Mutant("a slot is fired by everybody who finds it due", "memory", ((MemoryStore, "fire", _fires_again),)),
    Mutant("the last comes first in a fifo queue", "memory", ((MemoryData, "_line_up", _jumps_the_line),), seed=3),
    Mutant(
        "an enqueue that is repeated begins the job anew", "memory", ((Producing, "_enqueue_one", _creates_again),), seed=96
    ),
    Mutant("unique keys are not looked at", "memory", ((Producing, "holder", _no_key),)),
    Mutant(
        "a worker that lost its lease goes on",
        "memory",
        ((heartbeat.Heartbeat, "_stop_overdue", _never_too_late), (heartbeat, "reason_of", _never_stops)),
        seed=424,
    ),
    Mutant("a cancel wins over a job that has ended", "memory", ((Steering, "_cancel_one", _cancels_the_dead),), seed=4),
    Mutant("the next step of a chain is forgotten", "memory", ((Settling, "_settle_one", _forgets_the_next_step),), seed=4),
    Mutant("a late settlement is said to be applied, and is not", "memory", ((Settling, "_settle_one", _says_done),), seed=13),
    *ON_SQLITE,
    *BROKEN_PROMISES,
)
