"""Trying again: what may pass by itself is repeated with growing, random rests, for a bounded time."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast_media.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast_media.errors import MediaError
    from holdfast_media.storage.port import Stop

T = TypeVar("T")

POLL: Final = 0.2
"""Seconds between two looks whether to stop."""


class Transient(Exception):
    """What may pass by itself; `error` is raised when it does not."""

    def __init__(self, error: MediaError, *, after: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after
        """Seconds that the other side asks to wait."""


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long to try, and how long to rest in between."""

    seconds: float = 60.0
    """After which nothing is tried again."""
    first: float = 0.2
    longest: float = 8.0

    def repeat(self, call: Callable[[], T], stop: Stop | None = None) -> T:
        """Call until there is an answer or the patience has ended; what is not `Transient` is raised at once."""
        deadline = time.monotonic() + self.seconds
        rest = self.first
        while True:
            try:
                return call()
            except Transient as trouble:
                pause = max(trouble.after, random.uniform(rest / 2, rest))  # noqa: S311  spreads load, keeps no secret
                if time.monotonic() + pause > deadline:
                    raise trouble.error from trouble
                sleep(pause, stop)
                rest = min(rest * 2, self.longest)


def sleep(seconds: float, stop: Stop | None) -> None:
    """Rest, unless there is a reason to stop."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check(stop)
        time.sleep(min(left, POLL))
    check(stop)


def check(stop: Stop | None) -> None:
    """Raise `Stopped` where there is a reason to stop."""
    if stop is not None and (reason := stop()) is not None:
        raise Stopped(reason)
