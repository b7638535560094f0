"""What a manager writes down, also where the store does not answer at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.scaling import Scaling, begin
from holdfast.errors import StoreUnavailable
from holdfast.fleet.options import ManagerOptions
from holdfast.fleet.record import Record
from holdfast.runtime.counters import MemoryCounters
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Action
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from holdfast.core.scaling import Decision


class Failing(MemoryStore):
    """A store that is away while it is told to be."""

    away = False

    async def note(self, *args: Any, **options: Any) -> None:
        if self.away:
            raise StoreUnavailable("the store", 0.0, "away")
        await super().note(*args, **options)


def of(count: int) -> Decision:
    return begin(Scaling(default_count=count))


async def test_a_decision_that_could_not_be_written_is_written_with_a_later_sign_of_life_in_its_order() -> None:
    store = Failing(SystemEnvironment())
    await store.open()
    record = Record(store, ManagerOptions(name="m"), MemoryCounters(), uuid7())
    await record.begin()
    await record.decided(of(1))
    store.away = True
    for count in (2, 3):
        with pytest.raises(StoreUnavailable):
            await record.decided(of(count))
    store.away = False
    await record.beat()
    await record.decided(of(4))
    lines = await store.audits(limit=10, action=Action.SCALE, actor="manager m")
    assert [line.targets[0] for line in reversed(lines)] == ["1 workers", "2 workers", "3 workers", "4 workers"]
    assert lines[0].detail == "begins with 4"
    await store.close()


async def test_a_manager_that_the_registry_has_forgotten_makes_itself_known_again() -> None:
    store = Failing(SystemEnvironment())
    await store.open()
    record = Record(store, ManagerOptions(name="m"), MemoryCounters(), uuid7())
    assert not (await record.beat()).drain
    assert [view.worker.name for view in await store.workers()] == ["manager m"]
    await store.close()
