"""A circuit breaker as a pure state machine: whether to try something that has failed, and when again.

    closed     everything is tried; so many failures in a row open it
    open       nothing is tried until a rest is over, which doubles each time, with jitter
    half-open  one try is let through: it closes the breaker or opens it again

What is tried gets a permit, and says what came of it with that. A permit of an earlier phase says nothing about this one: an
answer that was under way when everything failed closes nothing, and a late failure opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NEVER: Final = float("-inf")


class Phase(StrEnum):
    """What a breaker lets through."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


LEVELS: Final = {Phase.CLOSED: 0, Phase.HALF_OPEN: 1, Phase.OPEN: 2}
"""A phase as a number, for metrics: the higher, the worse."""

BREAKER: Final = "redis_breaker"
"""Under which name the phase of the breaker around Redis is told, as a level."""
TRANSITIONS: Final = "redis_transitions"
"""Under which name it is counted how often each phase was entered."""
LASTS: Final = "redis_phase_seconds"
"""Under which name it is told for how many seconds the phase has lasted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a breaker opens, and how long it rests."""

    failures: int = 3
    """In a row, after which it opens."""
    first_rest: float = 0.25
    longest_rest: float = 5.0
    """Seconds; rests double from the first to the longest, each cut by up to a half: a fleet must not come back at once."""
    probe: float = 2.0
    """Seconds after which a try that said nothing is given up, and another let through."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of a breaker. Immutable: every step returns the next state."""

    limits: Limits = Limits()
    phase: Phase = Phase.CLOSED
    era: int = 0
    """Grows with every change of phase and with every probe: the permits of an earlier one are void."""
    failures: int = 0
    """In a row: single ones while it is closed, rests that did not help while it is not."""
    until: float = NEVER
    """When the rest is over (open), or the probe counts as lost (half-open)."""

    def ask(self, now: float) -> tuple[Breaker, int | None]:
        """Return the next state, and a permit; `None`: do not try."""
        if self.phase is Phase.CLOSED:
            return self, self.era
        if now < self.until:
            return self, None
        probing = replace(self, phase=Phase.HALF_OPEN, era=self.era + 1, until=now + self.limits.probe)
        return probing, probing.era

    def succeeded(self, permit: int) -> Breaker:
        """Return the next state after a try went well."""
        if permit != self.era or self.phase is Phase.OPEN:
            return self
        if self.phase is Phase.CLOSED:
            return self if not self.failures else replace(self, failures=0)
        return Breaker(self.limits, era=self.era + 1)

    def failed(self, permit: int, now: float, chance: float) -> Breaker:
        """Return the next state after a try failed; `chance` is a number in [0, 1) for the jitter."""
        if permit != self.era or self.phase is Phase.OPEN:
            return self
        if self.phase is Phase.CLOSED and self.failures + 1 < self.limits.failures:
            return replace(self, failures=self.failures + 1)
        rests = 1 if self.phase is Phase.CLOSED else self.failures + 1
        rest = min(self.limits.longest_rest, self.limits.first_rest * 2.0 ** min(rests - 1, 30))
        until = now + rest * (1.0 - chance / 2.0)
        return Breaker(self.limits, Phase.OPEN, self.era + 1, rests, until)


_ENTERED: Final = tuple(f"{TRANSITIONS}:{phase}" for phase in Phase)


def entered(figures: Mapping[str, int]) -> int:
    """Return how often the phase changed, by what a notifier tells of itself; 0 where it uses no Redis."""
    return sum(figures.get(name, 0) for name in _ENTERED) if figures else 0  # asked with every hint
