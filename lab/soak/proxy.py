"""The way of one process to the server, and everything that can go wrong on it."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from tests.faults.cutting import CuttingProxy

READ_WITHIN: Final = 1.0
"""Seconds within which a server has read what it was sent."""


class Way(CuttingProxy):
    """Stands between one process and the server."""

    def __init__(self, url: str, *, address: str = "127.0.0.1") -> None:
        super().__init__(url, address=address)
        self.delay = 0.0
        """Seconds that everything takes longer, each way."""
        self._silent: set[asyncio.StreamWriter] = set()
        self._wanted: tuple[bytes, ...] = ()
        """What the request has that is to be held."""
        self._holding = asyncio.Event()
        self._delivered = asyncio.Event()

    def cut(self) -> int:
        """Hang up on both ends of every connection there is; returns how many ends there were."""
        ends = [writer for writer in self._writers if writer not in self._silent]
        for writer in ends:
            writer.transport.abort()
        return len(ends)

    def fall_silent(self) -> int:
        """Carry nothing any more on the connections there are, and tell neither end; returns how many ends there were."""
        ends = self._writers - self._silent
        self.freeze()
        self._silent |= ends
        return len(ends)

    def speak_again(self) -> None:
        """Hang up on the silent ones, as the keep-alive of either end would in the end."""
        for writer in self._silent:
            writer.transport.abort()
        self._writers -= self._silent
        self._silent.clear()

    async def hold(self, *texts: bytes, within: float) -> bool:
        """Hold the next request that has all these texts until `deliver` is called; tells whether one came in time."""
        self._holding.clear()
        self._delivered.clear()
        self._wanted = texts
        try:
            async with asyncio.timeout(within):
                await self._holding.wait()
        except TimeoutError:
            self._wanted = ()
        return self._holding.is_set()

    def deliver(self) -> None:
        """Send on what was held; its sender may be gone by now."""
        self._wanted = ()
        self._delivered.set()

    async def passed(self, data: bytes) -> bool:
        """Return when a request may go on its way; tells whether it was held."""
        if not self._wanted or not all(text in data for text in self._wanted):
            return False
        self._wanted = ()
        self._holding.set()
        await self._delivered.wait()
        return True

    def lose_nothing(self) -> None:
        """Forget which answer was to be lost."""
        self._answer = self._request = None
        self._commit = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:  # the server is away: so is whoever stands before it
            writer.transport.abort()
            return
        ends = {writer, back}
        self._writers |= ends
        pumps = {
            asyncio.create_task(self._requests(self._slowed(reader, held=True), back, writer)),
            asyncio.create_task(self._answers(self._slowed(there), back, writer)),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps)
        self._pumps -= pumps
        if not ends & self._silent:
            for end in ends:
                end.transport.abort()
            self._writers -= ends

    def _slowed(self, reader: asyncio.StreamReader, *, held: bool = False) -> asyncio.StreamReader:
        return cast("asyncio.StreamReader", _Slowed(self, reader, held=held))


class _Slowed:
    """A reader that hands out what it has read when the way says so."""

    def __init__(self, way: Way, reader: asyncio.StreamReader, *, held: bool) -> None:
        self._way = way
        self._reader = reader
        self._held = held
        self._rest = 0.0

    async def read(self, size: int) -> bytes:
        if self._rest:
            await asyncio.sleep(self._rest)
        data = await self._reader.read(size)
        if self._way.delay:
            await asyncio.sleep(self._way.delay)
        # the server shall have read what was held before it hears that the sender is gone
        self._rest = READ_WITHIN if self._held and await self._way.passed(data) else 0.0
        return data
