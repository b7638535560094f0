"""The memory store as a whole."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.store.memory.housekeeping import Housekeeping
from holdfast.store.memory.looking import Looking
from holdfast.store.memory.producing import Producing
from holdfast.store.memory.steering import Steering
from holdfast.store.memory.working import Working

if TYPE_CHECKING:
    from holdfast.store.memory.model import Attempt, KeyHold, Pause, Record

Struct = TypeVar("Struct", bound=msgspec.Struct)


class MemoryStore(Producing, Working, Housekeeping, Steering, Looking):
    """Jobs in memory: they end with the process. `MemoryStore(environment, other.data)` is a second handle on the same jobs."""

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Do nothing: the data lives as long as somebody refers to it."""

    async def rewind(self, seconds: float) -> None:
        """Make everything stored `seconds` older, as if that time had passed."""
        by, data = timedelta(seconds=seconds), self.data
        for record in data.jobs.values():
            _age(record, by)
            for attempt in record.attempts:
                _age(attempt, by)
            record.events = [_aged(line, by) for line in record.events]
            record.parts = {name: _aged(part, by) for name, part in record.parts.items()}
        for hold in data.keys.values():
            _age(hold, by)
        for pause in data.pauses.values():
            _age(pause, by)
        data.workers = {worker.id: _aged(worker, by) for worker in data.workers.values()}
        data.schedule = [(run_at - by, job_id) for run_at, job_id in data.schedule]  # still a heap: the order is the same


def _age(thing: Record | Attempt | KeyHold | Pause, by: timedelta) -> None:
    for field in fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, datetime):
            setattr(thing, field.name, value - by)


def _aged(struct: Struct, by: timedelta) -> Struct:
    times = {name: value - by for name, value in msgspec.structs.asdict(struct).items() if isinstance(value, datetime)}
    return msgspec.structs.replace(struct, **times)
