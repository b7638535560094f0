"""Hints within one process: from any thread to the event loop on which each listener wants to hear."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from holdfast.notify.joining import Gathered

if TYPE_CHECKING:
    from holdfast.notify.port import Hint, Listener


class Mailbox:
    """What one listener has yet to hear. Made on the event loop on which it will be called."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting = Gathered()
        self._closed = False

    def post(self, hint: Hint) -> bool:
        """Have the listener hear a hint in the next turn of its loop, joined with whatever else comes until then.

        Not held back any longer than that: a listener in the same process costs little, and is the one nearest to the work.
        From any thread, never raises; false when nobody is there any more.
        """
        with self._lock:
            if self._closed:
                return False
            called = bool(self._waiting)
            self._waiting.add(hint)
            if not called:
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop was closed, and nobody closed the notifier before it
                    self._closed = True
            return not self._closed

    def _deliver(self) -> None:
        with self._lock:
            hint = self._waiting.take()
        if hint or hint.shown:
            self._listener(hint)

    def close(self) -> None:
        """Deliver what has been posted; what comes later is not heard. On the listener's own loop."""
        with self._lock:
            self._closed = True
        self._deliver()


class Hub:
    """Where the notifiers of one process meet, whatever their threads and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mailboxes: set[Mailbox] = set()

    def listen(self, listener: Listener) -> Mailbox:
        """Have a listener called on the running loop for every hint sent from now on, until its mailbox leaves."""
        mailbox = Mailbox(listener)
        with self._lock:
            self._mailboxes.add(mailbox)
        return mailbox

    def leave(self, mailbox: Mailbox) -> None:
        """Deliver what has been sent, and send it nothing more. On the listener's own loop."""
        with self._lock:
            self._mailboxes.discard(mailbox)
        mailbox.close()

    def send(self, hint: Hint, but: Mailbox | None = None) -> None:
        """Reach every listener but one, where that is said. From any thread, never raises."""
        with self._lock:
            # posted under the lock: it only ever puts aside, and the set must not change meanwhile
            self._mailboxes -= {one for one in self._mailboxes if one is not but and not one.post(hint)}
