"""What the server knows of keys: looked up together, believed for a moment, and by the store's clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.server import keyring
from holdfast.server.keyring import Keyring
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Key, Role
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Sequence

MANY = 500


class Gated(MemoryStore):
    """Answers when it is let, and counts what it was asked."""

    def __init__(self) -> None:
        super().__init__(SystemEnvironment())
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.looks: list[list[str]] = []
        self.clocks = 0
        self.away = False

    async def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        self.looks.append(list(ids or ()))
        self.asked.set()
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("somewhere", 0.0, "gone")
        return await super().keys(ids)

    async def now(self) -> datetime:
        self.clocks += 1
        await self.gate.wait()
        return await super().now()


def key(number: int, *, expires_at: datetime | None = None) -> Key:
    return Key(id=f"{number:012d}", name=f"k{number}", role=Role.WORKER, digest=f"{number:064x}", expires_at=expires_at)


@pytest.fixture
async def store() -> Gated:
    store = Gated()
    for number in range(MANY):
        await store.add_key(key(number))
    return store


async def test_those_that_are_asked_for_while_a_look_is_under_way_are_looked_up_together(store: Gated) -> None:
    known = Keyring(store, SystemEnvironment())
    first = asyncio.create_task(known.key(key(0).id, believed=True))
    await store.asked.wait()
    others = [asyncio.create_task(known.key(key(number).id, believed=True)) for number in range(1, MANY)]
    nobody = asyncio.create_task(known.key("9" * 12, believed=True))
    await asyncio.sleep(0)
    store.gate.set()
    names = [found.name for found in await asyncio.gather(first, *others) if found is not None]
    assert names == [f"k{number}" for number in range(MANY)]
    assert await nobody is None
    assert [len(look) for look in store.looks] == [1, MANY]


async def test_a_key_is_believed_for_a_moment_and_looked_up_again_after_it(
    store: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.gate.set()
    known = Keyring(store, SystemEnvironment())
    for _ in range(3):
        assert await known.key(key(1).id, believed=True) is not None
    assert len(store.looks) == 1
    await known.key(key(1).id, believed=False)
    assert len(store.looks) == 2
    await store.revoke_key(key(1).id)
    monkeypatch.setattr(keyring, "FRESH", 0.0)
    found = await known.key(key(1).id, believed=True)
    assert found is not None
    assert await known.ended(found)


async def test_one_who_gives_up_takes_nobody_else_along(store: Gated) -> None:
    known = Keyring(store, SystemEnvironment())
    gone, stays = (asyncio.create_task(known.key(key(number).id, believed=True)) for number in (1, 2))
    await store.asked.wait()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    store.gate.set()
    found = await stays
    assert found is not None
    assert found.name == "k2"


async def test_a_store_that_is_away_is_told_to_all_who_asked_and_asked_again_by_the_next(store: Gated) -> None:
    known = Keyring(store, SystemEnvironment())
    store.gate.set()
    store.away = True
    told = await asyncio.gather(*(known.key(key(n).id, believed=True) for n in range(3)), return_exceptions=True)
    assert {type(one) for one in told} == {StoreUnavailable}
    store.away = False
    assert await known.key(key(1).id, believed=True) is not None


async def test_the_clock_of_the_store_is_read_once_for_all_who_ask_at_once(store: Gated) -> None:
    known, now = Keyring(store, SystemEnvironment()), await MemoryStore.now(store)
    past, coming = (key(1, expires_at=now + timedelta(hours=hours)) for hours in (-1, 1))
    asked = [asyncio.create_task(known.expired(one)) for one in (past, coming) * 100]
    await asyncio.sleep(0)
    store.gate.set()
    assert await asyncio.gather(*asked) == [True, False] * 100
    assert store.clocks == 1
    assert not await known.expired(key(2))
