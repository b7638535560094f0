"""The memory store as a whole."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.store.memory.access import Access
from holdfast.store.memory.chains import Chains
from holdfast.store.memory.figures import Figures
from holdfast.store.memory.housekeeping import Housekeeping
from holdfast.store.memory.journal import Journal
from holdfast.store.memory.limiting import Limits
from holdfast.store.memory.looking import Looking
from holdfast.store.memory.registry import Registry
from holdfast.store.memory.scheduling import Scheduling
from holdfast.store.memory.settling import Settling
from holdfast.store.memory.signals import Signals
from holdfast.store.memory.steering import Steering
from holdfast.store.memory.transaction import MemoryTransaction
from holdfast.store.memory.working import Working

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.store.memory.handle import Handle
    from holdfast.store.memory.records import Attempt, Emission, KeyHold, Limiting, Pause, Record, Registration, Standing

Struct = TypeVar("Struct", bound=msgspec.Struct)
Store = TypeVar("Store")
T = TypeVar("T")


def _one_at_a_time(kind: type[Store]) -> type[Store]:
    """Have every operation hold the lock of the data. None suspends, so that holding it blocks nobody for long."""
    for name in dir(kind):
        method = getattr(kind, name)
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            setattr(kind, name, _locked(method))
    return kind


def _locked(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    @wraps(method)
    async def locked(self: Handle, *args: Any, **kwargs: Any) -> T:
        with self.data.lock:
            return await method(self, *args, **kwargs)

    return locked


@_one_at_a_time
class MemoryStore(
    Scheduling, Registry, Settling, Working, Journal, Housekeeping, Steering, Looking, Chains, Signals, Limits, Access, Figures
):
    """Jobs in memory: they end with the process. `MemoryStore(environment, other.data)` is a second handle on the same jobs."""

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Do nothing: the data lives as long as somebody refers to it."""

    async def begin(self) -> MemoryTransaction:
        """Begin a transaction for a handler. It keeps nobody waiting, and so has no limit of time."""
        return MemoryTransaction(self.environment, self.data)

    async def rewind(self, seconds: float) -> None:
        """Make everything stored `seconds` older, as if that time had passed."""
        by, data = timedelta(seconds=seconds), self.data
        for record in data.jobs.values():
            _age(record, by)
            for attempt in record.attempts:
                _age(attempt, by)
            record.events = [_aged(line, by) for line in record.events]
            record.parts = {name: _aged(part, by) for name, part in record.parts.items()}
            record.log = [_aged(line, by) for line in record.log]
        for hold in data.keys.values():
            _age(hold, by)
        for emission in data.signals.values():
            _age(emission, by)
        for pause in data.pauses.values():
            _age(pause, by)
        for limiting in data.limits.values():
            _age(limiting, by)
        for known in data.workers.values():
            _age(known, by)
        for standing in data.schedules.values():
            _age(standing, by)
            standing.schedule = _aged(standing.schedule, by)
        data.access = {key_id: _aged(key, by) for key_id, key in data.access.items()}
        data.audit = [_aged(line, by) for line in data.audit]
        data.figures = {(grain, at and at - by, key): figure for (grain, at, key), figure in data.figures.items()}
        data.schedule = [(run_at - by, job_id) for run_at, job_id in data.schedule]  # still a heap: the order is the same


def _age(thing: Record | Attempt | Emission | KeyHold | Limiting | Pause | Registration | Standing, by: timedelta) -> None:
    for field in fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, datetime):
            setattr(thing, field.name, value - by)


def _aged(struct: Struct, by: timedelta) -> Struct:
    times = {name: value - by for name, value in msgspec.structs.asdict(struct).items() if isinstance(value, datetime)}
    return msgspec.structs.replace(struct, **times)
