"""A proxy that hangs up at the worst moment: the server has done what it was asked, and nobody hears of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

from tests.notify.proxy import Proxy

CHUNK = 2**20
COMMIT = b"COMMIT"


class CuttingProxy(Proxy):
    """Stands before a server. Told to, it cuts the connection in place of passing on an answer."""

    def __init__(self, url: str, *, address: str = "127.0.0.1") -> None:
        super().__init__(url, address=address)
        self.cuts = 0
        self._answer: bytes | None = None
        self._request: bytes | None = None
        self._commit = False
        self._committing: set[asyncio.StreamWriter] = set()
        """Where the request that was waited for has passed: the answer to the COMMIT that follows is cut."""
        self._deaf: set[asyncio.StreamWriter] = set()

    def cut_the_answer_with(self, text: str) -> None:
        """Cut the connection in place of the next answer that holds this text."""
        self._answer = text.encode()

    def cut_the_answer_to(self, text: str | UUID) -> None:
        """Cut the connection in place of the answer to the next request that holds this text, or this id."""
        self._request = text.bytes if isinstance(text, UUID) else text.encode()

    def cut_the_answer_to_the_commit_of(self, text: str) -> None:
        """Cut the connection in place of the answer to the COMMIT that follows the next request which holds this text."""
        self._request, self._commit = text.encode(), True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers |= {writer, back}
        self._pumps |= {
            asyncio.create_task(self._requests(reader, back, writer)),
            asyncio.create_task(self._answers(there, back, writer)),
        }

    async def _requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, writer: asyncio.StreamWriter) -> None:
        heard = b""
        try:
            while data := await reader.read(CHUNK):
                heard = self._hear(heard + data, writer)
                back.write(data)
        except ConnectionError:  # a client that was killed: the server must hear of it, or it keeps its locks for ever
            back.transport.abort()
        else:
            back.close()

    def _hear(self, said: bytes, writer: asyncio.StreamWriter) -> bytes:
        """Take notice of what a client said; returns the end of it, with which what is waited for may have begun.

        A read is as much as happened to be there: half of a request, or two of them.
        """
        if self._request is not None and self._request in said:
            said = said.partition(self._request)[2]  # a COMMIT before it is that of something else
            (self._committing if self._commit else self._deaf).add(writer)
            self._request, self._commit = None, False
        if writer in self._committing and COMMIT in said:
            self._deaf.add(writer)
        longest = max(len(self._request or b""), len(COMMIT))
        return said[1 - longest :]  # one byte less than all of it: what has passed is not heard twice

    async def _answers(self, there: asyncio.StreamReader, back: asyncio.StreamWriter, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await there.read(CHUNK):
                if writer in self._deaf or (self._answer is not None and self._answer in data):
                    self._answer = None
                    self.cuts += 1
                    back.transport.abort()
                    writer.transport.abort()
                    return
                writer.write(data)
        writer.close()
