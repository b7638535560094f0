"""What a manager tells a worker that it started, and the worker it: over a socket that the worker inherits.

Not by signals: several that come while a process stands still arrive in any order, and one that comes before the worker has
begun to listen ends it. What is sent here waits, and stays in order.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

logger = logging.getLogger("holdfast.worker")

REST: Final = b"r"
"""Claim nothing more, and end once nothing runs."""
WAKE: Final = b"w"
"""Claim again, unless you end already."""
ENDS: Final = b"e"
"""From the worker: it ends, and is not to be had back."""
THROUGH: Final = "HOLDFAST_MANAGED_THROUGH"
"""In the environment of a worker: the number of the descriptor."""
MOST: Final = 4096


class Orders:
    """The worker's end of the line. On its event loop."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def inherited(cls) -> Orders | None:
        """Return the line to the manager; `None` where no manager has started this process. What this one starts has none."""
        number = os.environ.pop(THROUGH, "")
        if not number.isdecimal():
            return None
        try:
            line = socket.socket(fileno=int(number))
        except OSError:  # it was closed on the way: then this worker cannot be taken back, and serves all the same
            logger.warning("the line to the manager is lost: it can only have this worker end")
            return None
        line.set_inheritable(False)
        line.settimeout(0)
        return cls(line)

    def heed(self, loop: asyncio.AbstractEventLoop, *, rest: Callable[[], None], wake: Callable[[], None]) -> None:
        """Have these called for what the manager says from now on, and for what it has said already."""
        self._loop = loop
        loop.add_reader(self._line, self._heard, {REST[0]: rest, WAKE[0]: wake})

    def _heard(self, does: dict[int, Callable[[], None]]) -> None:
        try:
            orders = self._line.recv(MOST)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            orders = b""
        if not orders:  # the manager is gone, of which the system tells
            self._deaf()
        for order in orders:
            does.get(order, _nothing)()

    def ends(self) -> None:
        """Tell the manager that this worker ends."""
        with suppress(OSError):  # it is gone
            self._line.send(ENDS)

    def close(self) -> None:
        """Hang up."""
        self._deaf()
        self._line.close()

    def _deaf(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._line)
            self._loop = None


def _nothing() -> None:
    """Do nothing: what a later manager may say is no order that this worker knows."""
