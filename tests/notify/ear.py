"""A listener that remembers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from holdfast.notify.port import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 30.0


class Ear:
    """Keeps the hints it hears, and the threads in which it was called."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []
        self.threads: set[int] = set()

    def __call__(self, hint: Hint) -> None:
        self.hints.append(hint)
        self.threads.add(threading.get_ident())

    @property
    def said(self) -> Hint:
        """All that was heard, as one hint."""
        said = Hint()
        for hint in self.hints:
            said |= hint
        return said

    async def hears(self, what: Hint) -> None:
        """Wait until all of `what` has been heard."""
        await eventually(lambda: self.said | what == self.said)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  what is waited for happens in servers, threads and other processes
            await asyncio.sleep(0.002)
