"""A TCP proxy that can fall silent without hanging up, as a dropped route or a forgetful firewall does."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Stands before a server. `freeze()` makes the connections of that moment carry nothing any more."""

    def __init__(self, url: str, *, address: str = "127.0.0.1", port: int = 0) -> None:
        self._parts = urlsplit(url)
        self.port = port
        self._address = address
        """Where it listens."""
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._address, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        who = self._parts.netloc.rpartition("@")[0]
        where = f"{self._address}:{self.port}"
        self.url = urlunsplit(self._parts._replace(netloc=f"{who}@{where}" if who else where))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.freeze()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def freeze(self) -> None:
        """Forget the connections there are, without telling either end. New ones work."""
        for pump in self._pumps:
            pump.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers |= {writer, back}
        self._pumps |= {asyncio.create_task(_pump(reader, back)), asyncio.create_task(_pump(there, writer))}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()
