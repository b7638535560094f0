"""Bugs of the fence: who may write under which token, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.lease import Lease
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.store.memory.records import Attempt
from holdfast.store.memory.settling import Settling
from holdfast.store.memory.transaction import MemoryTransaction
from holdfast.store.memory.working import Working
from holdfast.store.port import Settled
from tests.lab.mutants.mutant import Mutant

if TYPE_CHECKING:
    from holdfast.store.memory.model import MemoryData


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


def _commits_unfenced(_: Any) -> Any:
    def broken(self: MemoryTransaction, lease: Lease, act: Any, *, key: str = "") -> Any:
        del lease, key
        answer = self._rehearse(act)
        self._operations.append(lambda store: act(store) and None)
        return answer if answer.accepted else Settled.APPLIED

    return broken


def _says_done(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        held = self.data.held(settlement.lease)
        if held is not None and held[1].lapsed(now):
            return Settled.APPLIED
        return real(self, settlement, now)

    return broken


def _refuses_the_holder(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        held = self.data.held(settlement.lease)
        if held is not None and held[0].attempt == 1 and not held[0].failures:
            return Settled.STALE
        return real(self, settlement, now)

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


def _late_passes_for_in_time(real: Any) -> Any:
    def broken(self: Settling, settlement: Any, now: Any) -> Any:
        answer: Settled = real(self, settlement, now)
        return Settled.APPLIED if answer is Settled.LATE else answer

    return broken


def _reaped_passes_for_settled(_: Any) -> Any:
    def broken(self: Attempt, token: Any) -> bool:
        return bool(self.token == token)

    return broken


FENCES = (
    Mutant("a settlement shows any token", "memory", ((Settling, "_settle_one", _settle_any),), seed=3),
    Mutant("an extension shows any token", "memory", ((Working, "_extend_one", _lease_any),), seed=5),
    Mutant("progress and checkpoints show any token", "memory", ((Working, "_write", _lease_any),), seed=289),
    Mutant("a repeated settlement frees its waiters again", "memory", ((Settling, "_settle_one", _frees_again),), seed=1318),
    Mutant("a transaction commits without its lease", "memory", ((MemoryTransaction, "_fenced", _commits_unfenced),), seed=197),
    Mutant("a late settlement is said to be applied, and is not", "memory", ((Settling, "_settle_one", _says_done),), seed=5),
    Mutant(
        "a late settlement passes for one in time", "memory", ((Settling, "_settle_one", _late_passes_for_in_time),), seed=5
    ),
    Mutant(
        "an attempt that was reaped passes for settled",
        "memory",
        ((Attempt, "settled_with", _reaped_passes_for_settled),),
        seed=5,
    ),
    Mutant("the holder is called stale", "memory", ((Settling, "_settle_one", _refuses_the_holder),)),
)
