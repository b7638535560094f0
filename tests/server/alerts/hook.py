"""A receiver of webhooks on loopback that answers as it is told."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


class Hook:
    """Listens on a free port of 127.0.0.1. `statuses` are what it answers, one after another; the last one stays."""

    def __init__(self, *statuses: int, headers: str = "", silent: bool = False) -> None:
        self._statuses = list(statuses) or [204]
        self._headers = headers
        self._silent = silent
        self._writers: set[asyncio.StreamWriter] = set()
        self.received: list[Received] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.received.append(Received(head[0].split()[1], headers, body))
        if self._silent:
            return
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        writer.write(f"HTTP/1.1 {status} -\r\n{self._headers}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
