"""A proxy through which answers take their time, and connections of one name fall silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.notify.proxy import Proxy

CHUNK = 2**20


class LaggingProxy(Proxy):
    """Stands before a server. Each answer is passed on `delay` seconds after it came, in order."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.delay = 0.0
        self._said: dict[asyncio.StreamWriter, bytes] = {}
        """What each client said first, which holds the name it gives itself."""
        self._pumps_of: dict[asyncio.StreamWriter, list[asyncio.Task[None]]] = {}

    def silence(self, name: str) -> int:
        """Have the connections of this name carry nothing any more, without telling either end; returns how many there are."""
        silent = [writer for writer, said in self._said.items() if name.encode() in said and not writer.is_closing()]
        for writer in silent:
            for pump in self._pumps_of[writer]:
                pump.cancel()
        return len(silent)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:  # the server is away: so is this
            writer.close()
            return
        self._writers |= {writer, back}
        answers: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._pumps_of[writer] = [
            asyncio.create_task(self._requests(reader, back, writer)),
            asyncio.create_task(self._answers(there, answers)),
            asyncio.create_task(self._later(answers, writer)),
        ]
        self._pumps |= {*self._pumps_of[writer]}

    async def _requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, writer: asyncio.StreamWriter) -> None:
        self._said[writer] = b""
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if len(self._said[writer]) < CHUNK:
                    self._said[writer] += data
                back.write(data)
        back.close()

    async def _answers(self, there: asyncio.StreamReader, answers: asyncio.Queue[tuple[float, bytes]]) -> None:
        data = b"to begin with"
        while data:
            try:
                data = await there.read(CHUNK)
            except ConnectionError:
                data = b""
            answers.put_nowait((asyncio.get_running_loop().time() + self.delay, data))

    async def _later(self, answers: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while (answer := await answers.get())[1]:
            await asyncio.sleep(answer[0] - asyncio.get_running_loop().time())
            writer.write(answer[1])
        writer.close()
