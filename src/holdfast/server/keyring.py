"""The keys of a store as the server knows them: as they were half a second ago at most.

Every request and every open page asks whose it is. One statement for each would keep the store busier with keys than with jobs
where hundreds of pages are open; so those that are asked for while another look is under way are looked up together.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from holdfast.core.environment import Environment
    from holdfast.store.port import Key, Store

K = TypeVar("K")
T = TypeVar("T")

FRESH: Final = 0.5
"""Seconds that a key is believed without asking the store: a revocation is effective within a second."""
MOST_REMEMBERED: Final = 10_000


class Keyring:
    """Knows keys, and what time it is where they are kept. Belongs to one event loop."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._seen: OrderedDict[str, tuple[float, Key | None]] = OrderedDict()
        self._clock: tuple[float, datetime] | None = None
        """When the store's clock was last read (monotonic), and what it showed: by it alone keys expire."""
        self._asked: set[str] = set()
        """Who is asked for in the next look."""
        self._next: asyncio.Task[Mapping[str, Key]] | None = None
        self._turn = asyncio.Lock()
        """Of the look that is under way."""
        self._reading = asyncio.Lock()

    async def key(self, key_id: str, *, believed: bool) -> Key | None:
        """Return the key of this id; `believed`: as it was when it was last seen, unless that is too long ago."""
        at, key = self._seen.get(key_id, (-math.inf, None))
        if not believed or self._environment.monotonic() - at >= FRESH:
            key = (await self._look(key_id)).get(key_id)
        return key

    async def ended(self, key: Key) -> bool:
        """Tell whether a key was revoked or has expired."""
        return key.revoked_at is not None or await self.expired(key)

    async def expired(self, key: Key) -> bool:
        """Tell whether a key has expired, by the store's clock."""
        return key.expires_at is not None and key.expires_at <= await self._now()

    def forget(self) -> None:
        """Believe nothing any more."""
        self._seen.clear()
        self._clock = None

    async def _look(self, key_id: str) -> Mapping[str, Key]:
        """Return what the store says of a key, and of those that were asked for meanwhile."""
        self._asked.add(key_id)
        if self._next is None:
            self._next = asyncio.create_task(self._together(), name="holdfast-keys")
            self._next.add_done_callback(_retrieved)
        return await asyncio.shield(self._next)  # others wait for it too

    async def _together(self) -> Mapping[str, Key]:
        async with self._turn:
            asked, self._asked, self._next = self._asked, set(), None
            now = self._environment.monotonic()
            found = {key.id: key for key in await self._store.keys(sorted(asked))}
            for key_id in asked:
                remember(self._seen, key_id, (now, found.get(key_id)))
            return found

    async def _now(self) -> datetime:
        """Return the store's clock, as it goes on since it was last read."""
        async with self._reading:
            now = self._environment.monotonic()
            if self._clock is None or now - self._clock[0] >= FRESH:
                self._clock = (now, await self._store.now())
        at, shown = self._clock
        return shown + timedelta(seconds=self._environment.monotonic() - at)


def remember(table: OrderedDict[K, T], name: K, value: T) -> None:
    """Keep something as the newest, in bounded memory."""
    table[name] = value
    table.move_to_end(name)
    while len(table) > MOST_REMEMBERED:
        table.popitem(last=False)


def _retrieved(task: asyncio.Task[Mapping[str, Key]]) -> None:
    """Take note of an error that nobody is left to be told of."""
    if not task.cancelled():
        task.exception()
