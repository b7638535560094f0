"""Hints for those who wait: one listener of the notifier, and as many ears as there are requests that want to hear."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast.notify.port import Hint
from holdfast.runtime.service import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.notify.port import Notifier

MOST_EARS: Final = 10_000
MOST_NAMES: Final = 1_000
"""Names that a hint which nobody has fetched yet may hold: beyond that it says `anything`."""


class Full(Exception):
    """As many requests wait as may."""


class Ear:
    """What one request has yet to hear. One slot of memory, however slow it is."""

    def __init__(self) -> None:
        self._waiting = Hint()
        self.event = asyncio.Event()
        """Something is to be seen to: a hint, or the end."""

    def tell(self, hint: Hint) -> None:
        """Join a hint with what waits."""
        joined = self._waiting | hint
        if len(joined.queues) + len(joined.jobs) > MOST_NAMES:
            joined = Hint(later=True, anything=True, waiters=joined.waiters)
        self._waiting = joined
        self.event.set()

    async def hear(self, timeout: float) -> Hint:
        """Return what was hinted at, once something was or the time is up."""
        await wait_for_event(self.event, timeout)
        self.event.clear()
        hint, self._waiting = self._waiting, Hint()
        return hint


class Hearing:
    """All who listen. Belongs to one event loop."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._ears: set[Ear] = set()
        self.closing = False
        """The server is about to stop: nobody shall wait any longer."""

    @property
    def healthy(self) -> bool:
        """Whether hints of other processes arrive."""
        return self._notifier.healthy

    @property
    def full(self) -> bool:
        """Whether as many wait as may."""
        return len(self._ears) >= MOST_EARS

    async def start(self) -> None:
        """Begin to hear."""
        await self._notifier.listen(self._heard)

    def close(self) -> None:
        """Have everybody who waits answer now."""
        self.closing = True
        for ear in self._ears:
            ear.event.set()

    @contextmanager
    def ear(self) -> Iterator[Ear]:
        """Listen for a while. Raises `Full`."""
        if self.full:
            raise Full
        ear = Ear()
        self._ears.add(ear)
        try:
            yield ear
        finally:
            self._ears.discard(ear)

    def _heard(self, hint: Hint) -> None:
        for ear in self._ears if hint else ():  # what only people look at is not for those who wait for work
            ear.tell(hint)
