"""A receiver of webhooks on loopback that answers as it is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
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
        self._handlers: set[asyncio.Task[None]] = set()
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
        if self._handlers:
            await asyncio.wait(self._handlers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if (handler := asyncio.current_task()) is not None:
            self._handlers.add(handler)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.received.append(Received(head[0].split()[1], headers, body))
        if not self._silent:
            await self._respond(writer)

    async def _respond(self, writer: asyncio.StreamWriter) -> None:
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        writer.write(f"HTTP/1.1 {status} -\r\n{self._headers}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


class Endless(Hook):
    """Answers with a beginning, and then with one piece after another until it is hung up on."""

    def __init__(self, beginning: str, piece: bytes, *, rest: float = 0.0) -> None:
        super().__init__()
        self._beginning = beginning
        self._piece = piece
        self._rest = rest
        self.sent = 0

    async def _respond(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self._beginning.encode())
        with suppress(ConnectionError):
            while True:
                writer.write(self._piece)
                await writer.drain()
                self.sent += len(self._piece)
                await asyncio.sleep(self._rest)  # what it is slow at
