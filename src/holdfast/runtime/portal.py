"""The portal: one thread with an event loop, through which blocking code reaches coroutines."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class BlockingCallOnLoop(HoldfastError, RuntimeError):
    """A `_sync` method was called where an event loop runs: it would block that loop."""


class Portal:
    """Started on first use; a daemon, so that a process that forgot to close its app can end. Safe from any thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether it has been used since it was last closed."""
        return self._loop is not None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the portal's thread and return what it gave."""
        try:
            self.refuse_on_loop(getattr(coroutine, "__qualname__", "it").rpartition(".")[2])
        except BlockingCallOnLoop:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self._started()).result()

    def refuse_on_loop(self, name: str) -> None:
        """Raise `BlockingCallOnLoop` where an event loop runs; `name` is the coroutine to use there."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise BlockingCallOnLoop(
            f"{name}_sync was called inside a running event loop, which it would block. Use: await ….{name}(…)"
        )

    def close(self) -> None:
        """End the thread. Whatever belongs to its loop must be closed before."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            self._begin()  # a forked child has its parent's loop, but not the thread that runs it
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-portal", daemon=True)
                self._thread.start()
            return self._loop
