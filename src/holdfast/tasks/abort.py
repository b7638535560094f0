"""How a handler learns that it should stop."""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from holdfast.core.abort import AbortReason
from holdfast.errors import Aborted


class Abort(msgspec.Struct, eq=False, gc=False):
    """Tells a handler that it should stop, and why. Safe to set and read from any thread."""

    _reason: AbortReason | None = None
    _event: threading.Event | None = None

    @property
    def reason(self) -> AbortReason | None:
        """Why to stop; `None`: go on."""
        return self._reason

    def is_set(self) -> bool:
        """Tell whether to stop."""
        return self._reason is not None

    def check(self) -> None:
        """Raise `Aborted` if the handler should stop: for loops in threads and processes."""
        if self._reason is not None:
            raise Aborted(self._reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the handler should stop, or for `timeout` seconds; returns whether it should. For threads."""
        with _ABORTS:
            if self._reason is not None:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout)

    def set(self, reason: AbortReason) -> bool:
        """Ask the handler to stop; the first reason stands. Returns whether this was the first. For the worker."""
        with _ABORTS:
            if self._reason is not None:
                return False
            self._reason = reason
            if self._event is not None:
                self._event.set()
            return True


_ABORTS: Final = threading.Lock()
"""One lock for all aborts: they are rare, and a lock for each job would be made a million times for nothing."""
