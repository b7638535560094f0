"""Bugs of order and time: who comes first, and what is due when."""

from __future__ import annotations

from datetime import timedelta
from heapq import heappush
from typing import Any

import msgspec

from holdfast.core.retry import Retry
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.store.memory import MemoryStore, working
from holdfast.store.memory.model import MemoryData
from holdfast.store.memory.working import Working
from holdfast.store.port import Promoted
from tests.lab.mutants.mutant import Mutant


def _passes_one_over(real: Any) -> Any:
    def broken(self: MemoryData, lane: Any) -> Any:
        record = real(self, lane)
        if record is not None and len(lane.entries) > 2:
            lane.entries.pop()  # the floor of the lane is above one that waits
        return record

    return broken


def _jumps_the_line(real: Any) -> Any:
    def broken(self: MemoryData, record: Any, *, front: bool) -> None:
        real(self, record, front=front)
        if record.job.fifo and not front:
            record.place = (True, -record.place[1])
            heappush(self.lanes[record.job.entry].entries, (record.place, record.job.id))

    return broken


def _to_the_back(real: Any) -> Any:
    def broken(self: MemoryData, record: Any, *, front: bool) -> None:
        del front
        real(self, record, front=False)

    return broken


def _last_in_first_out(real: Any) -> Any:
    def broken(self: MemoryData, record: Any, *, front: bool) -> None:
        real(self, record, front=front)
        if not record.job.fifo and not front:
            record.place = (True, -record.place[1])
            number = record.job.retry_entry if record.failures else record.job.entry
            heappush(self.lanes[number].entries, (record.place, record.job.id))

    return broken


def _lowest_first(real: Any) -> Any:
    return lambda heads, turn, **about: list(reversed(real(heads, turn, **about)))


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


def _fires_again(_: Any) -> Any:
    async def broken(self: MemoryStore, firing: Any) -> Any:
        standing = self.data.schedules.get(firing.name)
        if standing is None or firing.job is None:
            return None
        (enqueued,) = await self.enqueue([firing.job])
        standing.schedule = msgspec.structs.replace(standing.schedule, next_at=firing.next_at)
        return enqueued

    return broken


def _skips_the_slot(_: Any) -> Any:
    async def broken(self: MemoryStore, firing: Any) -> None:
        standing = self.data.schedules.get(firing.name)
        if standing is not None and standing.schedule.next_at == firing.slot:
            standing.schedule = msgspec.structs.replace(standing.schedule, next_at=firing.next_at)

    return broken


def _skips_every_second_slot(real: Any) -> Any:
    async def broken(self: MemoryStore, firing: Any) -> Any:
        return await real(self, msgspec.structs.replace(firing, next_at=firing.next_at + timedelta(minutes=1)))

    return broken


def _drops_nothing(_: Any) -> Any:
    async def broken(self: MemoryStore, limit: int) -> int:
        del self, limit
        return 0

    return broken


def _knows_no_overdue(real: Any) -> Any:
    def broken(self: Working, record: Any, worker: Any, now: Any) -> Any:
        return msgspec.structs.replace(real(self, record, worker, now), overdue=False)

    return broken


TURNS = (
    Mutant("the floor of a lane is raised above one that waits", "memory", ((MemoryData, "head", _passes_one_over),)),
    Mutant("the last comes first in a fifo queue", "memory", ((MemoryData, "_line_up", _jumps_the_line),), seed=4),
    Mutant("the last comes first in a lane", "memory", ((MemoryData, "_line_up", _last_in_first_out),)),
    Mutant("what is given back goes to the back", "memory", ((MemoryData, "_line_up", _to_the_back),), seed=342),
    Mutant("the lowest priority comes first", "memory", ((working, "order", _lowest_first),), seed=4),
    Mutant("what is not due is promoted", "memory", ((MemoryStore, "promote", _promotes_what_is_not_due),)),
    Mutant("a slot is fired by everybody who finds it due", "memory", ((MemoryStore, "fire", _fires_again),), seed=1),
    Mutant("slots are skipped", "memory", ((MemoryStore, "fire", _skips_the_slot),)),
    Mutant("every second slot is skipped", "memory", ((MemoryStore, "fire", _skips_every_second_slot),), seed=103),
    Mutant("the first failure is the last", "memory", ((Retry, "exhausted", lambda _: lambda self, failures: True),)),  # noqa: ARG005
    Mutant("there is no rest between retries", "memory", ((Retry, "delay", lambda _: lambda self, failures, rng: 0.0),)),  # noqa: ARG005
    Mutant("what has expired is not dropped", "memory", ((MemoryStore, "drop_overdue", _drops_nothing),), seed=45),
    Mutant("what has expired is begun", "memory", ((Working, "_claim_one", _knows_no_overdue),), seed=8),
)
