"""The real world behind `core.environment`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime
from queue import SimpleQueue
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID, SafeUUID, uuid4

from uuid_utils import uuid7

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

_NEW: Final = object.__new__
_SET_INT: Final = vars(UUID)["int"].__set__
_SET_SAFE: Final = vars(UUID)["is_safe"].__set__
_SAFE: Final = SafeUUID.unknown
_CHANCE: Final = SystemRandom()


class ThreadRunner:
    """A thread of its own for blocking calls, in turn.

    An executor of the standard library would do, for a third more of the time that a short transaction on a file takes.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` in the thread and return what it gave. One whose caller is cancelled before its turn is not run."""
        if self._closed:
            raise RuntimeError(f"{self._thread.name} is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((function, future))
        return await future

    def close(self) -> None:
        """End the thread after what it was given."""
        self._closed = True
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            if not future.cancelled():
                answer = _answer(function)
                with contextlib.suppress(RuntimeError):  # the loop has ended: there is nobody left to tell
                    future.get_loop().call_soon_threadsafe(_give, future, *answer)
            # whoever asked must not be kept alive by a thread that waits for the next one
            call = function = future = answer = None  # type: ignore[assignment]


def _answer(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:  # noqa: BLE001  handed to whoever asked
        return None, error


def _give(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():  # its caller was cancelled meanwhile
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


class SystemLoopThread:
    """A daemon thread with an event loop: it must not keep a process alive whose handlers are stuck."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def _run(self) -> None:
        try:
            asyncio.run(self._announced())
        except BaseException as error:  # noqa: BLE001  handed to whoever joins
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)
        finally:
            self._started.set()

    async def _announced(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._main()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on that event loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: there is nobody left to tell
                self._loop.call_soon_threadsafe(function)

    async def join(self) -> None:
        """Wait until the coroutine has ended; raises what it raised."""
        try:
            await asyncio.shield(asyncio.wrap_future(self._ended))  # whoever is cancelled here does not take it back
        finally:
            if self._ended.done():
                self._thread.join()  # which takes no time: there is nothing left for it to do


class SystemEnvironment:
    """The machine's own clock, randomness and threads."""

    def now(self) -> datetime:
        """Return the wall clock, UTC."""
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)
    """Return seconds that never go back. The clock itself: it is read several times for every job."""

    random = staticmethod(_CHANCE.random)
    """Return a number in [0, 1). Not from the module `random`: its generator is the program's, which may have seeded it."""

    lot = staticmethod(_CHANCE.random)
    """Return a number in [0, 1) that decides whose turn it is among equals."""

    def token(self) -> UUID:
        """Return a fresh secret."""
        return uuid4()

    def job_id(self) -> UUID:
        """Return a fresh job id: a UUIDv7, ordered by time."""
        # as uuid_utils.compat does it, in half the time: this is a sixth of what a call in a batch costs its caller
        made = _NEW(UUID)
        _SET_INT(made, uuid7().int)
        _SET_SAFE(made, _SAFE)
        return made

    def runner(self, name: str) -> ThreadRunner:
        """Start a thread."""
        return ThreadRunner(name)

    def alarm(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` called after some time, by a thread of its own; returns what calls it off."""
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def loop_thread(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> SystemLoopThread:
        """Start a thread that runs `main` on an event loop of its own."""
        return SystemLoopThread(name, main)
