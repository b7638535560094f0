"""How many jobs are due when: patterns over time, each with the asked rate as its average."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

BURST_EVERY: Final = 10.0
WAVE_EVERY: Final = 60.0
BURST_SHARE: Final = 0.1
"""The share of a burst's period in which its jobs come."""
SPIKE: Final = (0.45, 0.55)
"""Between which shares of the whole time the spike is."""
CALM: Final = 0.5
"""The rate outside of the spike, by the average; inside it is eleven times that."""


class Pattern(StrEnum):
    """How the rate goes over time."""

    STEADY = "steady"
    BURST = "burst"
    WAVE = "wave"
    SPIKE = "spike"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A plan: so many jobs a second on average, for so long, in this pattern."""

    pattern: Pattern
    rate: float
    seconds: float

    @property
    def total(self) -> int:
        """How many jobs in all."""
        return round(self.rate * self.seconds)

    def due(self, elapsed: float) -> int:
        """Return how many jobs should have been enqueued by then. Never falls; all of them at the end."""
        if elapsed >= self.seconds:
            return self.total
        return min(self.total, int(self.total * self._share(max(0.0, elapsed) / self.seconds) + 1e-9))

    def _share(self, time: float) -> float:
        """Return which share of the jobs is due at a share of the time."""
        match self.pattern:
            case Pattern.STEADY:
                return time
            case Pattern.BURST:
                whole, part = divmod(time * self._periods(BURST_EVERY), 1.0)
                return (whole + min(1.0, part / BURST_SHARE)) / self._periods(BURST_EVERY)
            case Pattern.WAVE:
                turns = 2 * math.pi * self._periods(WAVE_EVERY)
                return time - math.sin(turns * time) / turns
            case Pattern.SPIKE:
                begin, end = SPIKE
                height = (1 - CALM * (1 - (end - begin))) / (end - begin)
                return CALM * (min(time, begin) + max(0.0, time - end)) + height * min(max(0.0, time - begin), end - begin)
            case _:
                assert_never(self.pattern)

    def _periods(self, every: float) -> int:
        return max(1, round(self.seconds / every))
