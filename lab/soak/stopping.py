"""What Ctrl-C and SIGTERM ask for: to end the faults early and balance the books, or to give up."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Stopping:
    """Listens for signals from the beginning of a run to its end. Giving up cancels the run, so that it clears up."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.enough = asyncio.Event()
        """Set when the faults are to end here."""
        self._tell = tell
        self._run = asyncio.current_task()
        self._given_up = False
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGTERM, self._give_up)

    def _interrupted(self) -> None:
        if self.enough.is_set():
            self._give_up()
        else:
            self._tell("interrupted: the faults end here, and the books are balanced; once more to give up")
            self.enough.set()

    def _give_up(self) -> None:
        if self._run is not None and not self._given_up:
            self._given_up = True  # once: clearing up must not be given up half way
            self._tell("given up: the books are not balanced")
            self._run.cancel()
