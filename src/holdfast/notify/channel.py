"""Whether a channel works, said once when it stops and once when it is back; and how long to wait in between."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.core.environment import Environment

LOG: Final = logging.getLogger("holdfast.notify")

FIRST_REST: Final = 0.1
LONGEST_REST: Final = 5.0


class Channel:
    """The state of a way on which hints of other processes come in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said = False
        self.up = False
        """Whether hints arrive now."""

    def lost(self, cause: BaseException | str) -> None:
        """Note that hints do not arrive. Logged once, however often it is said until they do."""
        self.up = False
        if not self._said:
            self._said = True
            why = str(cause) or type(cause).__name__
            LOG.warning("hints of other processes do not arrive through %s (%s): polling until they do", self._name, why)

    def restored(self) -> bool:
        """Note that hints arrive. Tells whether they did not before, so that some may have been missed."""
        self.up = True
        said, self._said = self._said, False
        if said:
            LOG.info("hints of other processes arrive through %s again", self._name)
        return said


class Backoff:
    """Growing rests between attempts, each different, so that a fleet does not come back all at once."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rest = FIRST_REST

    def next(self) -> float:
        """Return how many seconds to rest before the next attempt."""
        rest, self._rest = self._rest, min(self._rest * 2, LONGEST_REST)
        return rest * (0.5 + self._environment.random() / 2)

    def reset(self) -> None:
        """Begin with short rests again."""
        self._rest = FIRST_REST
