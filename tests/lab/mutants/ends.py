"""Bugs of how jobs end: waiters, chains, keys, cancels, signals, and what is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.memory import MemoryStore, model, producing
from holdfast.store.memory.housekeeping import Housekeeping
from holdfast.store.memory.model import MemoryData
from holdfast.store.memory.producing import Producing
from holdfast.store.memory.settling import Settling
from holdfast.store.memory.steering import Steering
from holdfast.store.memory.working import Working
from holdfast.store.port import Answer, Enqueue, Enqueued, Settled
from tests.lab.mutants.mutant import Mutant

if TYPE_CHECKING:
    from holdfast.core.lease import Lease


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


def _any_end_will_do(_: Any) -> Any:
    return lambda state, waiter: state in TERMINAL  # noqa: ARG005


def _ends_its_waiter(real: Any) -> Any:
    def broken(self: MemoryData, waiter: Any, now: Any) -> None:
        for one in list(waiter.waits_for):
            last = self.last_step(one)
            if last is not None and last.state is State.SUCCEEDED and last.failures:
                self._end_waiter(waiter, one, State.FAILED, now)
                return
        real(self, waiter, now)

    return broken


def _needs_nobody(_: Any) -> Any:
    return lambda self, chain_id, inside=(): None  # noqa: ARG005


def _forgets_the_next_step(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        answer: Settled = real(self, settlement, now)
        if settlement.then is not None and (record := self.data.jobs.get(settlement.then.id)) is not None:
            self.data.move(record, Write(Event.DELETE, 0), now)
        return answer

    return broken


def _no_key(_: Any) -> Any:
    def broken(self: Producing, job: Any, now: Any) -> None:
        del self, job, now

    return broken


def _frees_the_key(real: Any) -> Any:
    def broken(self: Working, record: Any, worker: Any, now: Any) -> Any:
        claimed = real(self, record, worker, now)
        self.data._free_key(record, also_in_window=True)
        return claimed

    return broken


def _frees_with_each_step(real: Any) -> Any:
    def broken(self: MemoryData, record: Any, write: Any) -> None:
        self._free_key(record, also_in_window=False)
        real(self, record, write)

    return broken


def _creates_again(real: Any) -> Any:
    def broken(self: Producing, job: Any, earlier: Any, now: Any) -> Any:
        record = self.data.jobs.get(job.id)
        if record is not None and record.state in TERMINAL:
            self.data.move(record, Write(Event.REOPEN, 0), now)
            return Enqueued(Enqueue.CREATED, job.id)
        return real(self, job, earlier, now)

    return broken


def _cancels_the_dead(real: Any) -> Any:
    def broken(self: Steering, job_id: Any, now: Any, by: str, reason: str) -> Any:
        record = self.data.jobs.get(job_id)
        if record is not None and record.state in TERMINAL and record.state is not State.CANCELED:
            self.data.move(record, Write(Event.REOPEN, 0), now)
        return real(self, job_id, now, by, reason)

    return broken


def _hides_the_cancel(real: Any) -> Any:
    def broken(self: Working, lease: Lease, now: Any) -> Any:
        return msgspec.structs.replace(real(self, lease, now), cancel_requested=False)

    return broken


def _promises_and_forgets(real: Any) -> Any:
    def broken(self: Steering, job_id: Any, now: Any, by: str, reason: str) -> Any:
        record = self.data.jobs.get(job_id)
        if record is not None and record.state is State.READY:
            return Answer.REQUESTED, False
        return real(self, job_id, now, by, reason)

    return broken


def _keeps_the_failures(real: Any) -> Any:
    def broken(self: Steering, job_id: Any, now: Any, by: str) -> Any:
        record = self.data.jobs.get(job_id)
        before = 0 if record is None else record.failures
        answer = real(self, job_id, now, by)
        if record is not None:
            record.failures = before
        return answer

    return broken


def _fails_with_something_else(real: Any) -> Any:
    async def broken(self: MemoryStore, errors: Any, *, by: str = "") -> Any:
        return await real(self, {job_id: Error("OTHER", error.message) for job_id, error in errors.items()}, by=by)

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


def _forgets_progress(real: Any) -> Any:
    async def broken(self: MemoryStore, updates: Any) -> Any:
        answers = await real(self, updates)
        for one in updates:
            if (record := self.data.jobs.get(one.lease.job_id)) is not None:
                record.progress = 0.0
        return answers

    return broken


def _writes_nothing(_: Any) -> Any:
    async def broken(self: MemoryStore, lines: Any) -> Any:
        return [Settled.STALE if self.data.held(one.lease) is None else Settled.APPLIED for one in lines]

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


def _prunes_the_young(real: Any) -> Any:
    def broken(self: Housekeeping, job_id: Any, ages: Any, now: Any) -> int:
        pruned: int = real(self, job_id, {state: age / 4 for state, age in ages.items()}, now)
        return pruned

    return broken


def _prunes_the_live_chain(_: Any) -> Any:
    def broken(self: Housekeeping, job_id: Any, ages: Any, now: Any) -> int:
        record = self.data.jobs[job_id]
        age = ages.get(record.state)
        if age is None or record.finished_at is None or (now - record.finished_at).total_seconds() <= age:
            return 0
        return int(self.data.move(record, Write(Event.PRUNE, record.failures), now))

    return broken


ENDS = (
    Mutant("the first of several blockers frees a waiter", "memory", ((MemoryData, "heed_blockers", _first_blocker_frees),)),
    Mutant("waiters are not told of ends", "memory", ((MemoryData, "settle_waiters", _nobody_is_freed),)),
    Mutant(
        "a waiter runs though its blocker has failed",
        "memory",
        ((model, "counts_as_done", _any_end_will_do), (producing, "counts_as_done", _any_end_will_do)),
        seed=9,
    ),
    Mutant("a waiter fails though its blocker has succeeded", "memory", ((MemoryData, "heed_blockers", _ends_its_waiter),)),
    Mutant("a blocker that is waited for is deleted", "memory", ((MemoryData, "needed_by", _needs_nobody),), seed=3),
    Mutant("the next step of a chain is forgotten", "memory", ((Settling, "_settle_one", _forgets_the_next_step),), seed=3),
    Mutant("unique keys are not looked at", "memory", ((Producing, "holder", _no_key),), seed=32),
    Mutant("a key is free as soon as its job runs", "memory", ((Working, "_claim_one", _frees_the_key),), seed=38),
    Mutant(
        "a key is free after the first step of its chain",
        "memory",
        ((MemoryData, "_end_step", _frees_with_each_step),),
        seed=70,
    ),
    Mutant("a repeated enqueue begins the job anew", "memory", ((Producing, "_enqueue_one", _creates_again),), seed=28),
    Mutant("a cancel wins over a job that has ended", "memory", ((Steering, "_cancel_one", _cancels_the_dead),), seed=2),
    Mutant("a cancel does not reach who runs the job", "memory", ((Working, "_extend_one", _hides_the_cancel),), seed=209),
    Mutant("a cancel is promised and forgotten", "memory", ((Steering, "_cancel_one", _promises_and_forgets),), seed=6),
    Mutant("a job that is brought back keeps its failures", "memory", ((Steering, "_reopen_one", _keeps_the_failures),)),
    Mutant("a job is failed with something else", "memory", ((MemoryStore, "fail", _fails_with_something_else),), seed=7),
    Mutant("results are lost", "memory", ((Settling, "_settle_one", _gives_something_else),)),
    Mutant("parts are lost", "memory", ((MemoryStore, "checkpoint", _forgets_parts),), seed=4),
    Mutant("progress is lost", "memory", ((MemoryStore, "progress", _forgets_progress),), seed=4),
    Mutant("log lines are lost", "memory", ((MemoryStore, "log", _writes_nothing),), seed=420),
    Mutant("stages are lost", "memory", ((MemoryStore, "mark", _writes_nothing),), seed=4),
    Mutant("a signal that nobody waits for yet is lost", "memory", ((MemoryStore, "emit", _forgets_the_signal),), seed=70),
    Mutant("a signal carries something else", "memory", ((MemoryStore, "emit", _says_something_else),), seed=5),
    Mutant("what is young is pruned", "memory", ((Housekeeping, "_prune_one", _prunes_the_young),), seed=14),
    Mutant(
        "a chain is pruned step by step while it lives",
        "memory",
        ((Housekeeping, "_prune_one", _prunes_the_live_chain),),
        seed=103,
    ),
)
