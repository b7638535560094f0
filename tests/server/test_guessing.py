"""How often somebody may be wrong about a key: whoever guesses learns nothing, however many guesses come at once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import HTTPConnection

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.server.door import KeyDoor
from holdfast.server.keyring import Keyring
from holdfast.server.keys import key_id, new_key
from holdfast.server.limits import TooMany
from holdfast.server.settings import ServerSettings
from holdfast.server.ui.sessions import Refused, Sessions
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Action, Role
from holdfast.system import SystemEnvironment
from tests.server.conftest import Asking
from tests.server.served import SECRET, made_key, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import Key

MANY = 60
LIMIT = 10
SETTINGS = ServerSettings(admin_secret=SECRET, failure_rate=LIMIT)


class SlowStore(MemoryStore):
    """Takes its time to look a key up: all who come meanwhile are under way together."""

    away = False

    def __init__(self, environment: SystemEnvironment) -> None:
        super().__init__(environment)
        self.asked: list[str] = []
        """What was asked of it, in order."""

    async def now(self) -> datetime:
        self.asked.append("now")
        return await super().now()

    async def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        self.asked += ["key"] * len(ids or ())
        for _ in range(MANY):
            await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("somewhere", 0.0, "gone")
        return await super().keys(ids)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore(SystemEnvironment())


@pytest.fixture
def door(store: SlowStore) -> KeyDoor:
    return door_of(store)


@pytest.fixture
def sessions(store: SlowStore) -> Sessions:
    return sessions_of(store)


def door_of(store: SlowStore, environment: SystemEnvironment | None = None) -> KeyDoor:
    own = environment or SystemEnvironment()
    return KeyDoor(store, Keyring(store, own), own, SETTINGS)


def sessions_of(store: SlowStore, environment: SystemEnvironment | None = None) -> Sessions:
    own = environment or SystemEnvironment()
    return Sessions(store, Keyring(store, own), own, SETTINGS)


def shown(key: str, address: str = "192.0.2.1") -> HTTPConnection:
    """Return a request that shows a key."""
    headers = [(b"authorization", f"Bearer {key}".encode())]
    return HTTPConnection({"type": "http", "headers": headers, "client": (address, 1)})


def wrong(key: str) -> str:
    """Return a key with the same public beginning, and another secret."""
    return key[:-1] + ("a" if key[-1] != "a" else "b")


async def came(door: KeyDoor, keys: list[str]) -> list[Any]:
    """Show keys, all at once; returns who was let in, or why not."""
    return await asyncio.gather(*(door.principal(shown(key)) for key in keys), return_exceptions=True)


# -- what is asked of the store ---------------------------------------------------------------------------------------------


async def test_a_wrong_secret_of_a_key_in_use_asks_for_as_much_as_a_key_that_nobody_has(
    door: KeyDoor, store: SlowStore
) -> None:
    used = await made_key(store, Role.WORKER, expires_at=await store.now() + timedelta(hours=1))
    assert await door.principal(shown(used)) is not None
    store.asked.clear()
    assert await door.principal(shown(used)) is not None
    assert store.asked == [], "this one is believed for a moment"
    for guess in (wrong(used), new_key()[0], wrong(used), new_key()[0], "nonsense"):
        store.asked.clear()
        assert await door.principal(shown(guess)) is None
        assert store.asked == ["key"], guess


async def test_a_key_expires_by_the_clock_of_the_store_also_where_that_of_the_server_is_behind(store: SlowStore) -> None:
    class Behind(SystemEnvironment):
        def now(self) -> datetime:
            return super().now() - timedelta(days=1)

    door, sessions = door_of(store, Behind()), sessions_of(store, Behind())
    key = await made_key(store, Role.ADMIN, expires_at=await store.now() - timedelta(hours=1))
    assert await door.principal(shown(key)) is None
    assert isinstance(await sessions.log_in(key, "192.0.2.1"), Refused)


# -- the door --------------------------------------------------------------------------------------------------------------


def test_the_wrong_secret_of_a_key_in_use_is_answered_as_a_key_that_nobody_has() -> None:
    with serving(Holdfast("memory://"), housekeeping=False, failure_rate=3.0) as served:
        ask = Asking(served)
        used = ask.key(Role.WORKER)
        assert ask.get("/server", used).status_code == 200
        guessed = [ask.get("/server", wrong(used)) for _ in range(5)]
        owner = ask.get("/server", used)
        ask.client.close()
    assert [answer.status_code for answer in guessed] == [401] * 3 + [429] * 2
    assert owner.status_code == 200


async def test_a_fleet_that_comes_at_once_from_one_address_is_let_in_before_anybody_notes_that_it_came() -> None:
    class Noting(SlowStore):
        """Notes the use of no key before all have come so far."""

        def __init__(self) -> None:
            super().__init__(SystemEnvironment())
            self.all_there = asyncio.Barrier(MANY)

        async def use_key(self, key_id: str) -> None:
            await self.all_there.wait()
            await super().use_key(key_id)

    store = Noting()
    keys = [await made_key(store, Role.WORKER, name=f"w{number}") for number in range(MANY)]
    async with asyncio.timeout(60):  # whoever is refused never comes to the barrier, at which the others wait
        answers = await came(door_of(store), keys)
    assert {answer.name for answer in answers} == {f"w{number}" for number in range(MANY)}


async def test_no_more_wrong_keys_are_looked_at_than_may_be_however_many_come_at_once(door: KeyDoor) -> None:
    answers = await came(door, [new_key()[0] for _ in range(MANY)])
    assert answers.count(None) == LIMIT
    assert sum(isinstance(answer, TooMany) for answer in answers) == MANY - LIMIT


async def test_good_keys_that_come_at_once_for_the_first_time_are_all_let_in(door: KeyDoor, store: SlowStore) -> None:
    keys = [await made_key(store, Role.WORKER, str(number)) for number in range(MANY)]
    assert [found.name for found in await came(door, keys)] == [str(number) for number in range(MANY)]
    assert (await came(door, [new_key()[0] for _ in range(MANY)])).count(None) == LIMIT, "they have spent nothing"


async def test_a_key_that_was_let_in_and_then_revoked_is_a_guess_like_any_other(door: KeyDoor, store: SlowStore) -> None:
    key = await made_key(store, Role.WORKER)
    assert await door.principal(shown(key)) is not None
    await store.revoke_key(key_id(key) or "", by="test")
    door._keyring.forget()  # half a second later
    assert await door.principal(shown(key)) is None
    assert (await came(door, [key] * MANY)).count(None) == LIMIT


async def test_a_store_that_is_away_makes_nobody_a_guesser(door: KeyDoor, store: SlowStore) -> None:
    key = await made_key(store, Role.WORKER)
    store.away = True
    assert {type(answer) for answer in await came(door, [key] * LIMIT)} == {StoreUnavailable}
    store.away = False
    assert await door.principal(shown(key)) is not None


# -- the dashboard's ---------------------------------------------------------------------------------------------------------


async def test_no_more_wrong_logins_are_looked_at_than_may_be_however_many_come_at_once(
    sessions: Sessions, store: SlowStore
) -> None:
    answers = await asyncio.gather(*(sessions.log_in("a guess", "192.0.2.1") for _ in range(MANY)))
    assert [answer.wait for answer in answers if isinstance(answer, Refused)].count(False) == LIMIT
    lines = await store.audits(limit=MANY)
    assert [line.action for line in lines] == [Action.LOGIN_FAILED] * LIMIT
    assert isinstance(await sessions.log_in(SECRET, "192.0.2.2"), tuple), "another address has its own"


async def test_people_who_log_in_at_once_from_one_address_are_all_let_in(sessions: Sessions) -> None:
    answers = await asyncio.gather(*(sessions.log_in(SECRET, "192.0.2.1") for _ in range(MANY)))
    assert {type(answer) for answer in answers} == {tuple}
