"""An outage of the store, as a whole worker sees it: told of once when it begins and once when it is over."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.core.environment import Environment

logger = logging.getLogger("holdfast.worker")

FIRST_REST: Final = 0.1
LONGEST_REST: Final = 5.0
SETTLED_AFTER: Final = 1.0


class Outage:
    """Shared by all loops of a worker, so that one outage is one line in the log and not a storm. Safe from any thread."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._since: float | None = None
        self._last = 0.0
        self._failures = 0

    @property
    def going_on(self) -> bool:
        """Whether the store was unreachable when last tried."""
        return self._since is not None

    def failed(self, error: BaseException) -> float:
        """Note a failure; returns how long to rest before trying again: longer each time, with jitter."""
        with self._lock:
            first = self._since is None
            if self._since is None:
                self._since = self._environment.monotonic()
            self._failures += 1
            self._last = self._environment.monotonic()
            rest = min(LONGEST_REST, FIRST_REST * 2 ** min(self._failures, 10))
        if first:
            logger.warning("the store does not answer; trying again until it does: %s", error)
        return float(rest * (0.5 + self._environment.random() / 2))

    def succeeded(self) -> None:
        """Note that the store answers. It is over when nothing has failed for a moment: a full disk still lets one read."""
        if self._since is None or self._environment.monotonic() - self._last < SETTLED_AFTER:
            return
        with self._lock:
            since, self._since, self._failures = self._since, None, 0
        if since is not None:
            logger.warning("the store answers again after %.1f s", self._environment.monotonic() - since)
