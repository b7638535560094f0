"""Whom a manager takes for its own: its processes on its host, under the names that it gave them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from holdfast.fleet import observing
from holdfast.fleet.observing import Observer
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(SystemEnvironment())
    await store.open()
    yield store
    await store.close()


async def came(store: MemoryStore, name: str, process: int, host: str = "here") -> UUID:
    identity = uuid4()
    await store.register(Worker(id=identity, name=name, info=json.dumps({"host": host, "process": process})))
    return identity


async def found(store: MemoryStore, own: dict[int, str]) -> dict[int, UUID]:
    views = await Observer(store, (), None).workers(own, "here")
    return {process: view.worker.id for process, view in views.items()}


async def test_workers_are_known_by_host_process_and_name(store: MemoryStore) -> None:
    one = await came(store, "m.1", 11)
    await came(store, "m.2", 12, host="there")
    await came(store, "w", 13)
    assert await found(store, {11: "m.1", 12: "m.2", 13: "m.3"}) == {11: one}


async def test_the_worker_of_another_container_with_the_same_host_and_process_is_not_taken_for_its_own(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await came(store, "m.1", 11)
    await came(store, "other.1", 11)
    assert await found(store, {11: "m.1"}) == {11: own}
    assert await found(store, {11: "m.2"}) == {}
    monkeypatch.setattr(observing, "FIRST", 1)
    assert await found(store, {11: "m.1"}) == {11: own}, "behind one that came since"


async def test_of_a_process_that_came_again_the_newest_counts(store: MemoryStore) -> None:
    await came(store, "m.1", 11)
    newer = await came(store, "m.1", 11)
    assert await found(store, {11: "m.1"}) == {11: newer}
