"""The portal: one thread with an event loop, through which blocking code reaches coroutines."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.tasks.blocking import BlockingCallOnLoop, refuse_on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Portal:
    """Started on first use; a daemon, so that a process that forgot to close its app can end. Safe from any thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: PortalThread | None = None

    @property
    def running(self) -> bool:
        """Whether it has been used since it was last closed."""
        return self._thread is not None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the portal's thread and return what it gave."""
        try:
            self.refuse_on_loop(getattr(coroutine, "__qualname__", "it").rpartition(".")[2])
        except BlockingCallOnLoop:
            coroutine.close()
            raise
        try:
            return self.post(coroutine).result()
        except CancelledError:
            raise HoldfastError("the app was closed meanwhile; what was asked for may or may not have been done") from None

    def post(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Have a coroutine run in the portal's thread, and do not wait for it."""
        if self._process != os.getpid():
            self._begin()  # a forked child has its parent's loop, but not the thread that runs it
        with self._lock:  # so that nothing is handed to a thread that is about to end
            if self._thread is None:
                self._thread = PortalThread()
            return asyncio.run_coroutine_threadsafe(coroutine, self._thread.loop)

    def refuse_on_loop(self, name: str) -> None:
        """Raise `BlockingCallOnLoop` where an event loop runs; `name` is the coroutine to use there."""
        refuse_on_loop(name)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """End the thread; calls under way end with an error. `last` is run there after them: it closes what they had opened."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end(last)


class PortalThread:
    """A thread that runs an event loop until it is told to end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._last: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-portal", daemon=True)
        self._thread.start()

    def end(self, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Cancel what still runs there, run one thing more, and wait until the thread has ended."""
        self._last = last
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:  # which cancels what is left when it closes
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._over.wait()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if self._last is not None:
            await self._last()
