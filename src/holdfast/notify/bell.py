"""Being woken when somebody writes to a file, instead of looking whether somebody has."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

IN_MODIFY: Final = 0x2
"""Of inotify: somebody has written to the file."""
SOON: Final = 0.001
"""Seconds after a write within which its commit is first looked for; then twice as many each time."""


class Stop(Protocol):
    """Tells a thread when to stop, and lets it rest until then."""

    def set(self) -> None:
        """Have it stop."""
        ...

    def wait(self, seconds: float) -> bool:
        """Rest, and tell whether it is to stop; a rest may end early."""
        ...

    def close(self) -> None:
        """Let go of whatever it rests with. Not while it rests."""
        ...


def stop_or_write(path: str, shortest: float) -> Stop:
    """Return a `Stop` whose rests, those of `shortest` seconds apart, end soon after somebody has written to a file.

    Where the system cannot tell of writes, they end when they are over: as good, only later.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            return Bell(path, shortest)
    return Silent()


class Silent(threading.Event):
    """A `Stop` that knows of no writes."""

    def wait(self, timeout: float | None = None) -> bool:
        """Rest."""
        return super().wait(timeout)

    def close(self) -> None:
        """Do nothing."""


class Bell:
    """A `Stop` that hears of writes through inotify. Raises `OSError` where there is none, or too many use it.

    A write is heard of when it comes, and its commit stands only when the disk has it: so after the first rest that ends
    early, the next ones are short too.
    """

    def __init__(self, path: str, shortest: float) -> None:
        self._path = os.fsencode(path)
        self._shortest = shortest
        self._eager = 0.0
        self._set = False
        self._add_watch, self._writes = _inotify()
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._stop, select.POLLIN)
        self._poll.register(self._writes, select.POLLIN)
        self._only_stop = select.poll()
        self._only_stop.register(self._stop, select.POLLIN)

    def set(self) -> None:
        """Have it stop. From any thread."""
        if not self._set:
            self._set = True
            os.eventfd_write(self._stop, 1)

    def wait(self, seconds: float) -> bool:
        """Rest until a file is written to, at most as long as told, and tell whether to stop."""
        if seconds <= self._shortest:  # it has just found something: whatever comes meanwhile is found with the next look
            self._eager = 0.0
            self._only_stop.poll(seconds * 1000)
            return self._set
        if self._eager:
            self._only_stop.poll(min(self._eager, seconds) * 1000)
            self._eager = self._eager * 2 if self._eager < seconds else 0.0
            return self._set
        # each time anew: the log is another file when all have closed the database and somebody opens it again
        self._add_watch(self._writes, self._path, IN_MODIFY)
        if any(descriptor == self._writes for descriptor, _ in self._poll.poll(seconds * 1000)):
            self._forget()
            self._only_stop.poll(SOON * 1000)
            self._eager = 2 * SOON
        return self._set

    def _forget(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._writes, 1 << 16)

    def close(self) -> None:
        """Let go of the descriptors. Not while it rests."""
        self._set = True
        for descriptor in {self._stop, self._writes} - {-1}:
            os.close(descriptor)
        self._stop = self._writes = -1


def _inotify() -> tuple[Callable[[int, bytes, int], int], int]:
    """Return the function that adds a watch, and a descriptor to add it to."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    return library.inotify_add_watch, descriptor
