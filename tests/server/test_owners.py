"""Workers are known by their ids to every server, however many there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from holdfast.server.api import owners
from holdfast.server.api.owners import Owners
from holdfast.server.api.table import Refused
from holdfast.server.principal import Principal
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Role, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.port import WorkerView

WORLD = SystemEnvironment()
FARM, OTHER = Principal("farm", Role.WORKER), Principal("other", Role.WORKER)


class Watched(MemoryStore):
    """Counts the looks at workers."""

    looks = 0

    async def workers(self, **options: Any) -> list[WorkerView]:
        self.looks += 1
        return await super().workers(**options)


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    store = Watched(WORLD)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make three workers more than a look shows."""
    monkeypatch.setattr(owners, "MOST", 2)


async def came(store: Watched, *capabilities: str) -> UUID:
    worker = Worker(id=uuid4(), name="w", capabilities=capabilities, owner=FARM.name)
    await store.register(worker)
    return worker.id


async def test_whose_a_worker_is_and_what_it_has_is_known_however_many_came_since(store: Watched) -> None:
    old = await came(store, "gpu")
    for _ in range(3):
        await came(store)
    with pytest.raises(Refused):
        await Owners(store, WORLD).check(OTHER, old)
    await Owners(store, WORLD).check(FARM, old)
    assert await Owners(store, WORLD).capabilities(old) == {"gpu"}


async def test_who_could_do_more_is_known_however_many_came_since_and_are_gone(store: Watched) -> None:
    await came(store, "gpu")
    for _ in range(3):
        await store.retire(await came(store, "tape"))
    assert await Owners(store, WORLD).idle_besides(uuid4(), frozenset()) == {"gpu"}


async def test_workers_that_are_asked_for_together_are_looked_up_together(store: Watched) -> None:
    workers = [await came(store) for _ in range(2)]
    mine = Owners(store, WORLD)
    await asyncio.gather(*(mine.check(FARM, worker) for worker in workers))
    assert store.looks == 1
