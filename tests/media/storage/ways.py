"""The way to a server, for clients that block: a proxy on an event loop of its own, in a thread, that cuts and slows."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.notify.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 16_384


class Cutting(Proxy):
    """Hangs up on the next `cuts` connections once so many bytes have passed in one direction; `rest` slows every chunk."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.cuts = 0
        self.cut = 0
        """How often it has hung up."""
        self.requests_after: int | None = None
        self.answers_after: int | None = None
        self.rest = 0.0
        self.passed = 0
        """Bytes of all answers."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:  # the server is away
            writer.transport.abort()
            return
        ends = (writer, back)
        self._writers |= set(ends)
        pumps = {
            asyncio.create_task(self._carry(reader, back, ends, "requests_after")),
            asyncio.create_task(self._carry(there, writer, ends, "answers_after")),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps)
        self._pumps -= pumps
        for end in ends:
            end.transport.abort()
        self._writers -= set(ends)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, ends: Any, limit: str) -> None:
        carried = 0
        try:
            while data := await source.read(CHUNK):
                if self.rest:
                    await asyncio.sleep(self.rest)
                carried += len(data)
                after = getattr(self, limit)
                if after is not None and carried > after and self.cut < self.cuts:
                    self.cut += 1
                    for end in ends:
                        end.transport.abort()
                    return
                if limit == "answers_after":
                    self.passed += len(data)
                target.write(data)
                await target.drain()
            target.close()
        except ConnectionError:
            for end in ends:
                end.transport.abort()


@contextmanager
def way(url: str) -> Iterator[Cutting]:
    """Stand before a server until the block ends."""
    proxy = Cutting(url)
    up, down = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def run() -> None:
        async with proxy:
            up.set()
            await ended.wait()

    def in_thread() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            loop.close()
            down.set()

    thread = threading.Thread(target=in_thread, name="way-of-the-tests")
    thread.start()
    try:
        assert up.wait(10)
        yield proxy
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        assert down.is_set()
