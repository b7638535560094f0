"""An outage of the store, as a whole worker sees it: told of once when it begins and once when it is over."""

from __future__ import annotations

import logging
import math
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.core.environment import Environment

logger = logging.getLogger("holdfast.worker")

FIRST_REST: Final = 0.1
LONGEST_REST: Final = 5.0
FLAPPING: Final = 10.0
"""Seconds after the end of an outage in which another one is told of only when it lasts: a full disk still lets one read."""
LASTING: Final = 1.0
HOPELESS: Final = 600.0
"""Seconds after which a store that fails again and again, and answers in between, counts as one that is within reach: else
nobody would ever see to what the dead have left."""
QUIET: Final = 1.0
"""Seconds without a failure after which an outage is over: what was under way when it began may still succeed in its midst."""


class Outage:
    """Shared by all loops of a worker, so that one outage is one line in the log and not a storm. Safe from any thread."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._since: float | None = None
        self._last = -math.inf
        self._answered: float | None = None
        """When the store first answered again after the last failure."""
        self._noted = False
        """Whether something has failed that is not over yet."""
        self._told = False
        self._ended = -FLAPPING
        self._flaps = False
        """Whether the store has answered in the midst of the outage, and failed again."""
        self._back_since: float | None = None
        """When the last outage was over that lasted."""
        self._heard = -math.inf
        """When the store last answered anybody."""

    @property
    def going_on(self) -> bool:
        """Whether the store was unreachable when last tried."""
        return self._since is not None and self._answered is None

    def unheard(self) -> float | None:
        """Return for how many seconds the store has said nothing; `None`: it failed when last asked, or never answered."""
        heard = self._heard
        return None if self._last >= heard else self._environment.monotonic() - heard

    def heard(self) -> None:
        """Note that the store answered somebody just now."""
        self._heard = self._environment.monotonic()

    def undisturbed(self) -> float | None:
        """Return for how many seconds the store has been within reach; `None`: there was no outage that lasted.

        Leases that lapse in an outage say nothing about who holds them. One that is over in a moment costs no lease.
        """
        with self._lock:
            now = self._environment.monotonic()
            if self._since is not None and self._flaps and now - self._since >= HOPELESS:
                return None
            if self._since is not None and (self._answered or now) - self._since >= LASTING:
                return now - (self._answered or now)
            return None if self._back_since is None else now - self._back_since

    def backoff(self) -> Backoff:
        """Return what one loop rests by; each has its own, for the failures of the others say nothing about it."""
        return Backoff(self, self._environment)

    def failed(self, error: BaseException) -> None:
        """Note a failure; the first of an outage is told of."""
        with self._lock:
            now = self._environment.monotonic()
            if self._since is None:
                self._since, self._told, self._noted, self._flaps = now, False, True, False
            self._flaps = self._flaps or self._answered is not None
            self._last, self._answered = now, None
            tells = not self._told and (now - self._ended >= FLAPPING or now - self._since >= LASTING)
            self._told = self._told or tells
        if tells:
            logger.warning("the store does not answer; trying again until it does: %s", error)

    def succeeded(self) -> None:
        """Note that the store answers. The outage is over, and that is told, when nothing has failed for a moment."""
        if not self._noted:  # nearly always: no lock for that
            return
        with self._lock:
            now = self._environment.monotonic()
            if self._since is None:
                return
            if self._answered is None:
                self._answered = now
            if now - self._last < QUIET:
                return
            lasted, tells = self._answered - self._since, self._told
            if lasted >= LASTING:
                self._back_since = self._answered
            self._since, self._answered, self._told, self._noted = None, None, False, False
            if tells:
                self._ended = now
        if tells:
            logger.warning("the store answers again after %.1f s", lasted)


class Backoff:
    """How long one loop rests after failures in a row: longer each time, with jitter."""

    def __init__(self, outage: Outage, environment: Environment) -> None:
        self._outage = outage
        self._environment = environment
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Note a failure; returns how many seconds to rest before trying again."""
        self._outage.failed(error)
        self._failures += 1
        rest = min(LONGEST_REST, FIRST_REST * 2 ** min(self._failures, 10))
        return float(rest * (0.5 + self._environment.random() / 2))

    def succeeded(self) -> None:
        """Note that the store answers."""
        self._failures = 0
        self._outage.succeeded()

    def answered(self) -> None:
        """Note that the store has just answered: a loop may also succeed because it had nothing to ask."""
        self._outage.heard()
        self.succeeded()
