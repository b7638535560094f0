"""Bugs of leases: how long they last, when they are reaped, and what that costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from holdfast.core.outcome import LEASE_EXPIRED, Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.runtime.housekeeping import Reaper
from holdfast.runtime.outage import Outage
from holdfast.store.memory import MemoryStore, housekeeping
from holdfast.store.memory.records import Attempt
from holdfast.store.memory.working import Working
from holdfast.store.port import Settled
from tests.lab.mutants.mutant import Mutant


def _impatient(_: Any) -> Any:
    def broken(self: Attempt, now: Any) -> Any:
        return now >= self.expires_at - timedelta(seconds=3)

    return broken


def costs_nothing(_: Any) -> Any:
    """Return a reaper that does not count what has lapsed."""

    def broken(retry: Any, failures: int, rng: Any, **_: Any) -> Any:
        del retry, rng
        return Write(Event.EXPIRE, failures, error=Error(LEASE_EXPIRED, "it lapsed"), front=True)

    return broken


def _costs_double(real: Any) -> Any:
    def broken(retry: Any, failures: int, rng: Any, **flags: Any) -> Any:
        return real(retry, failures + 1, rng, **flags)

    return broken


def _final(_: Any) -> Any:
    def broken(retry: Any, failures: int, rng: Any, **_: Any) -> Any:
        del retry, rng
        return Write(Event.EXPIRE_FAIL, failures + 1, error=Error(LEASE_EXPIRED, "it lapsed"))

    return broken


def _no_second_rest(real: Any) -> Any:
    def broken(*args: Any, **flags: Any) -> Any:
        write = real(*args, **flags)
        return msgspec.structs.replace(write, event=Event.EXPIRE, delay=0.0) if write.event is Event.EXPIRE_LATER else write

    return broken


def _forgets_the_flag(_: Any) -> Any:
    async def broken(self: MemoryStore, leases: Any) -> Any:
        return [Settled.STALE if self.data.held(lease) is None else Settled.APPLIED for lease in leases]

    return broken


def _goes_on_though_canceled(real: Any) -> Any:
    def broken(*args: Any, free: bool = False, **_: Any) -> Any:
        return real(*args, free=free)

    return broken


def _lends_for_a_second(real: Any) -> Any:
    def broken(self: Working, record: Any, worker: Any, now: Any) -> Any:
        claimed = real(self, record, worker, now)
        record.attempts[-1].expires_at = now + timedelta(seconds=1)
        return msgspec.structs.replace(claimed, expires_at=now + timedelta(seconds=1))

    return broken


LAPSES = (
    Mutant("leases are reaped before they lapse", "memory", ((Attempt, "lapsed", _impatient),)),
    Mutant("a lapse costs nothing", "memory", ((housekeeping, "expire", costs_nothing),)),
    Mutant("a lapse costs two failures", "memory", ((housekeeping, "expire", _costs_double),)),
    Mutant("a lapse is the end", "memory", ((housekeeping, "expire", _final),)),
    Mutant("there is no rest after a second lapse", "memory", ((housekeeping, "expire", _no_second_rest),)),
    Mutant("a lapse costs although it was flagged", "memory", ((MemoryStore, "flag_free", _forgets_the_flag),), seed=208),
    Mutant(
        "a job goes on that lapsed after its cancel", "memory", ((housekeeping, "expire", _goes_on_though_canceled),), seed=16
    ),
    Mutant("leases last a second", "memory", ((Working, "_claim_one", _lends_for_a_second),)),
    Mutant("a reaper looks every 40 seconds", "memory", ((Reaper, "interval", lambda _: 40.0),), seed=23),
    Mutant("an outage costs failures", "memory", ((Outage, "undisturbed", lambda _: lambda self: None),), seed=42),  # noqa: ARG005
)
