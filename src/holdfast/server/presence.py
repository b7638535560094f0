"""Whether a server was there: what it may conclude from leases that lapsed, when remote workers could not reach it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

from holdfast.runtime.outage import HOPELESS, LASTING, LONGEST_REST, Outage

if TYPE_CHECKING:
    from holdfast.core.environment import Environment

logger = logging.getLogger("holdfast.server")

PULSE: Final = 0.25
"""Seconds between two looks at the clock."""
APART: Final = 60.0
"""Seconds after a standstill in which another one belongs to it: an overloaded server stands still again and again."""


class Presence(Outage):
    """An outage as a server sees it: that it was away itself is one too, for remote workers extend their leases through it.

    Its start ends one, and so does each standstill of its event loop (a stopped process, a machine that was asleep).
    """

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._clock = environment.monotonic
        self._pulse: float | None = None
        self._back = self._first_back = -math.inf
        """When it was there again, after the last standstill and after the first of those that belong together."""

    def pulse(self) -> None:
        """Note that the event loop moves; the first time, that the server has started."""
        now = self._clock()
        if self._pulse is None:
            self._came_back(now)
        elif (stood := now - self._pulse) >= LASTING + PULSE:
            logger.warning("this server stood still for %.1f s: every lease is left alone for its own length", stood)
            self._came_back(now)
        self._pulse = now

    def undisturbed(self) -> float | None:
        """Return for how many seconds store and server have been within reach of everybody who holds a lease.

        A worker that found nobody tries again after `LONGEST_REST` at the latest: its lease's own length begins only then.
        """
        self.pulse()  # first: after a standstill this may be the first thing that the event loop does
        outage, now = super().undisturbed(), self._clock()
        if self._back - self._first_back >= HOPELESS:  # else nobody would ever see to what the dead have left
            return outage
        there = max(0.0, now - self._back - LONGEST_REST)
        return there if outage is None else min(outage, there)

    def _came_back(self, now: float) -> None:
        if now - self._back > APART:
            self._first_back = now
        self._back = now


class Watch:
    """Keeps feeling the pulse of the event loop."""

    interval = PULSE

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    async def tick(self) -> float | None:
        """Look at the clock."""
        self._presence.pulse()
        return None
