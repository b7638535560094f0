"""What blocks, kept away from the event loop: readers of a storage, and work that takes long."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

from starlette.responses import StreamingResponse

from holdfast_media.transfer.uploads import Busy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

logger = logging.getLogger("holdfast.media")

T = TypeVar("T")

PIECE: Final = 256 * 1024


async def apart(work: Callable[[], T]) -> T:
    """Do it in a thread, to its end: also where who waits for it is canceled before it has begun."""
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))


class Reading:
    """A reader that is opened, read and closed in threads alone.

    Whoever is canceled while a thread is inside of it leaves at once; that thread closes it when it has come back. To close it
    from the event loop would wait for the read: of a storage that does not answer, for a minute.
    """

    def __init__(self) -> None:
        self._reader: BinaryIO | None = None
        self._lock = threading.Lock()
        self._inside = False
        self._unwanted = False

    @classmethod
    async def of(cls, opening: Callable[[], BinaryIO]) -> Reading:
        """Open; raises what that raises."""
        reading = cls()

        def work() -> None:
            reading._reader = opening()

        try:
            await reading._apart(work)
        except BaseException:
            reading.close()
            raise
        return reading

    async def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        reader = self._reader
        return b"" if reader is None else await self._apart(lambda: reader.read(size))

    def close(self) -> None:
        """Have it closed: now, or by the thread that is inside. Never waits. Safe to call again."""
        with self._lock:
            self._unwanted = True
            if self._inside or self._reader is None:
                return
        with suppress(RuntimeError):  # no thread is to be had: the program ends, and everything is closed
            asyncio.get_running_loop().run_in_executor(None, self._end)

    async def _apart(self, work: Callable[[], T]) -> T:
        with self._lock:
            self._inside = True

        def inside() -> T:
            try:
                return work()
            finally:
                with self._lock:
                    self._inside = False
                    unwanted = self._unwanted
                if unwanted:
                    self._end()

        return await apart(inside)

    def _end(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                reader.close()
            except Exception as error:  # noqa: BLE001  nothing more is wanted of it
                logger.debug("a reader could not be closed: %s", error)


class Sent(StreamingResponse):
    """Sends bytes of a reader, and lets go of it whether it was begun or not.

    `again` is awaited between pieces after so many seconds each: what it raises ends the answer early.
    """

    def __init__(
        self,
        reading: Reading,
        name: str,
        length: int,
        status: int,
        headers: Mapping[str, str],
        *,
        again: tuple[float, Callable[[], Awaitable[Any]]] | None = None,
        piece: int = PIECE,
    ) -> None:
        super().__init__(self._content(length, piece), status, headers)
        self._reading = reading
        self._name = name
        self._again = again

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reading.close()

    async def _content(self, left: int, piece: int) -> AsyncIterator[bytes]:
        asked = time.monotonic()
        while left:
            data = await self._reading.read(min(piece, left))
            if not data:
                logger.warning("%s ended early while it was sent", self._name)
                return
            left -= len(data)
            yield data
            if self._again is not None and time.monotonic() - asked > self._again[0]:
                await self._again[1]()
                asked = time.monotonic()


class Heavy:
    """Work that takes long, each in a thread of its own, and only so many at once.

    The threads of the event loop are few and shared with every request: completions of large files would keep all of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = threading.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """Do it; raises `Busy` where as many as may be are being done. It goes on where who asked for it hangs up."""
        if not self._free.acquire(blocking=False):
            raise Busy(f"{self._most} long requests are being worked on, which is the most")
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()

        def alone() -> None:
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001  raised where it is awaited
                self._free.release()
                done.set_exception(error)
            else:
                self._free.release()
                done.set_result(value)

        threading.Thread(target=alone, name="holdfast-media-heavy").start()
        return await asyncio.wrap_future(done)
