"""How often somebody may come: buckets of tokens, in bounded memory."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError
from holdfast.runtime.service import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.environment import Environment

MOST_BUCKETS: Final = 10_000
MINUTE: Final = 60.0
LONGEST_WAIT: Final = 10.0
"""Seconds that somebody waits at most for the guesses of others to end."""


class TooMany(HoldfastError):
    """Somebody came too often; `retry_after` says when to come again."""

    def __init__(self, message: str, retry_after: float) -> None:
        self.retry_after = max(1, math.ceil(retry_after))
        super().__init__(message)


class Buckets:
    """One bucket for each name: it holds `burst` tokens at most and gets `rate` a second. The oldest are forgotten."""

    def __init__(self, environment: Environment, *, rate: float, burst: float) -> None:
        self._environment = environment
        self._rate = rate
        self._burst = burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take a token; returns 0, or in how many seconds there will be one."""
        level = self._level(name)
        if level < 1:
            return (1 - level) / self._rate
        self._keep(name, level - 1)
        return 0.0

    def give_back(self, name: str) -> None:
        """Put a token back that was taken."""
        self._keep(name, min(self._burst, self._level(name) + 1))

    def _level(self, name: str) -> float:
        level, at = self._levels.get(name, (self._burst, 0.0))
        return min(self._burst, level + self._rate * (self._environment.monotonic() - at)) if at else self._burst

    def _keep(self, name: str, level: float) -> None:
        self._levels[name] = (level, self._environment.monotonic())
        self._levels.move_to_end(name)
        while len(self._levels) > MOST_BUCKETS:
            self._levels.popitem(last=False)


@dataclass(slots=True)
class Guess:
    """Somebody shows a secret."""

    right: bool = False
    """To be set when it was the right one."""


@dataclass(slots=True)
class _UnderWay:
    count: int = 0
    one_ended: asyncio.Event = field(default_factory=asyncio.Event)


class Guesses:
    """How many wrong secrets a minute an address may show. Belongs to one event loop.

    A guess is counted before it is looked at, and given back when it was right, or was not looked at after all: however many
    come at once, no more wrong ones are looked at than may be. Those that come at once and are right do not stand in each
    other's way: who finds none left, and others under way, waits for these.
    """

    def __init__(self, environment: Environment, *, a_minute: float) -> None:
        self._environment = environment
        self._buckets = Buckets(environment, rate=a_minute / MINUTE, burst=a_minute)
        self._under_way: dict[str, _UnderWay] = {}

    @asynccontextmanager
    async def guess(self, address: str, refusal: str) -> AsyncIterator[Guess]:
        """Look at a secret inside the block. Raises `TooMany` with these words for an address that has to wait."""
        await self._take(address, refusal)
        under_way = self._under_way.setdefault(address, _UnderWay())
        under_way.count += 1
        guess = Guess()
        try:
            yield guess
        except Exception:  # nobody was told whether it was right
            guess.right = True
            raise
        finally:
            if guess.right:
                self._buckets.give_back(address)
            under_way.count -= 1
            if not under_way.count:
                del self._under_way[address]
            under_way.one_ended.set()
            under_way.one_ended = asyncio.Event()

    async def _take(self, address: str, refusal: str) -> None:
        deadline = self._environment.monotonic() + LONGEST_WAIT
        while wait := self._buckets.take(address):
            under_way, left = self._under_way.get(address), deadline - self._environment.monotonic()
            if under_way is None or left <= 0:
                raise TooMany(refusal, wait)
            await wait_for_event(under_way.one_ended, left)
