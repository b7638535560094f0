"""The way of one process to the server, and everything that can go wrong on it."""

from __future__ import annotations

import asyncio
from typing import cast

from tests.faults.cutting import CuttingProxy


class Way(CuttingProxy):
    """Stands between one process and the server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.delay = 0.0
        """Seconds that everything takes longer, each way."""
        self._silent: set[asyncio.StreamWriter] = set()

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
            asyncio.create_task(self._requests(self._slowed(reader), back, writer)),
            asyncio.create_task(self._answers(self._slowed(there), back, writer)),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps)
        self._pumps -= pumps
        if not ends & self._silent:
            for end in ends:
                end.transport.abort()
            self._writers -= ends

    def _slowed(self, reader: asyncio.StreamReader) -> asyncio.StreamReader:
        return cast("asyncio.StreamReader", _Slowed(self, reader))


class _Slowed:
    """A reader that hands out what it has read when the way says so."""

    def __init__(self, way: Way, reader: asyncio.StreamReader) -> None:
        self._way = way
        self._reader = reader

    async def read(self, size: int) -> bytes:
        data = await self._reader.read(size)
        if self._way.delay:
            await asyncio.sleep(self._way.delay)
        return data
