"""How often somebody may come: buckets of tokens, in bounded memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.core.environment import Environment

MOST_BUCKETS: Final = 10_000


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

    def wait(self, name: str) -> float:
        """Return in how many seconds there will be a token, without taking it; 0: there is one."""
        level = self._level(name)
        return 0.0 if level >= 1 else (1 - level) / self._rate

    def _level(self, name: str) -> float:
        level, at = self._levels.get(name, (self._burst, 0.0))
        return min(self._burst, level + self._rate * (self._environment.monotonic() - at)) if at else self._burst

    def _keep(self, name: str, level: float) -> None:
        self._levels[name] = (level, self._environment.monotonic())
        self._levels.move_to_end(name)
        while len(self._levels) > MOST_BUCKETS:
            self._levels.popitem(last=False)
