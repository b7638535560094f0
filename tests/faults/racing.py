"""Two who race for the same jobs, each with a handle of its own, and a barrier that lets their transactions come in any order.

Before each of its transactions a party stops at the barrier. When both stand there (or one has ended), chance says who goes on:
the one, the other, or both at the same moment. Nobody holds a lock while standing there, so none can keep the other waiting.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import connect
from holdfast.store.conformance import Harness
from holdfast.store.conformance.world import World
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from holdfast.store.port import Store


class Meeting:
    """The barrier of one round."""

    def __init__(self, chance: random.Random, parties: tuple[Party, ...]) -> None:
        self._chance = chance
        self._parties = parties
        self._going = set(parties)
        self._standing: dict[Party, asyncio.Future[None]] = {}
        self._ahead: list[asyncio.Future[None]] = []

    async def stop(self, party: Party) -> None:
        """Stand at the barrier until it is this party's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._standing[party] = turn
        self._decide()
        await turn

    async def level(self, party: Party) -> None:
        """Wait until the other has come as far, so that both want the same job next."""
        if self._ahead:
            self._go_on()
            return
        self._going.discard(party)
        self._ahead.append(asyncio.get_running_loop().create_future())
        self._decide()
        await self._ahead[0]

    def leave(self, party: Party) -> None:
        """Tell that a party has done what it came for."""
        self._go_on()
        self._parties = tuple(one for one in self._parties if one is not party)
        self._going.discard(party)
        self._decide()

    def _go_on(self) -> None:
        """Let who was ahead go on."""
        if self._ahead:
            self._ahead.pop().set_result(None)
            self._going = set(self._parties)

    def _decide(self) -> None:
        if not self._standing or self._standing.keys() != self._going:
            return
        there = sorted(self._standing, key=lambda party: party.name)
        chosen = self._chance.choice([[party] for party in there] + [there])
        for party in chosen:
            self._standing.pop(party).set_result(None)


class Party:
    """One of the two: a handle whose every transaction stops at the barrier while a round is on."""

    def __init__(self, name: str, store: Store, patch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.store = store
        self.meeting: Meeting | None = None
        match store:
            case PostgresStore():
                self._hook(patch, store._db, "_run")
            case SqliteStore():
                self._hook(patch, store, "_write")
            case _:
                pytest.fail(f"{store} has no transactions of its own to be stopped")

    def _hook(self, patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        inner: Callable[[Any], Awaitable[Any]] = getattr(owner, name)

        async def stopped(operation: Any) -> Any:
            if self.meeting is not None:
                await self.meeting.stop(self)
            return await inner(operation)

        patch.setattr(owner, name, stopped)


async def race(
    chance: random.Random, parties: tuple[Party, Party], works: tuple[Coroutine[Any, Any, Any], Coroutine[Any, Any, Any]]
) -> tuple[Any, Any]:
    """Let both do their work at the same time, stopping at the barrier; returns what each gave."""
    meeting = Meeting(chance, parties)

    async def run(party: Party, work: Coroutine[Any, Any, Any]) -> Any:
        party.meeting = meeting
        try:
            return await work
        finally:
            party.meeting = None
            meeting.leave(party)

    async with asyncio.TaskGroup() as group:
        one, other = [group.create_task(run(party, work)) for party, work in zip(parties, works, strict=True)]
    return one.result(), other.result()


class UrlHarness(Harness):
    """Handles on the store of a URL, which is new and empty."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    async def clean(self) -> None:
        pass

    async def open(self) -> Store:
        store = connect(self._url)
        await store.open()
        return store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[World]:
    """Words for what tests do with an empty store; every handle is closed afterwards."""
    harness = UrlHarness(url)
    world = World(harness, await harness.open())
    try:
        yield world
    finally:
        await world.close()
