"""The probes of a worker over HTTP: a thread of its own answers, so that a blocked event loop cannot keep it from saying so.

Small on purpose: GET alone, one request for each connection, nothing to configure. Whoever sends slowly, too much or nonsense
is hung up on; of more connections than there is room for, those that have waited longest give way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.core.health import host_and_port
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.environment import LoopThread, WorkerEnvironment
    from holdfast.core.health import Health
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.vitals import Vitals

logger = logging.getLogger("holdfast.worker")

LONGEST_REQUEST: Final = 16_384
"""Bytes of a request with its headers."""
IN_TIME: Final = 5.0
"""Seconds within which a connection must be over, its request and our answer included."""
MOST_CONNECTIONS: Final = 256
BACKLOG: Final = 1024
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class Reply(NamedTuple):
    """An answer."""

    status: HTTPStatus
    body: bytes
    kind: str = TEXT


class Endpoint:
    """Answers `/health/live`, `/health/ready` and `/metrics` of one worker."""

    def __init__(self, address: str, name: str, worker_id: UUID, vitals: Vitals, counters: Counters) -> None:
        self._address = address
        self._name = name
        self._id = worker_id
        self._vitals = vitals
        self._counters = counters
        self._thread: LoopThread | None = None
        self._stop = asyncio.Event()
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Connections, the oldest first."""

    def start(self, environment: WorkerEnvironment) -> None:
        """Listen, and start the thread. Raises `BadSetting` where it cannot listen."""
        sock = _listening(self._address)
        host, port = sock.getsockname()[:2]
        self._thread = environment.loop_thread("holdfast-health", lambda: self._main(sock))
        logger.info("health at http://%s:%d/health/live and /health/ready", f"[{host}]" if ":" in host else host, port)

    async def stop(self) -> None:
        """Have the thread end, and wait for it."""
        if self._thread is not None:
            self._thread.call(self._stop.set)
            await self._thread.join()
            self._thread = None

    async def _main(self, sock: socket.socket) -> None:
        server = await asyncio.start_server(self._connected, sock=sock, limit=LONGEST_REQUEST)
        await self._stop.wait()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MOST_CONNECTIONS:
            next(iter(self._open)).transport.abort()
        try:
            async with asyncio.timeout(IN_TIME):
                writer.write(_message(await self._reply(reader)))
                await writer.drain()
                writer.write_eof()
                while await reader.read(LONGEST_REQUEST):  # what is unread when a connection is closed takes the answer with it
                    pass
        except (OSError, TimeoutError, EOFError):  # hung up, too slow, or gone in the midst of it
            pass
        finally:
            del self._open[writer]
            writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader) -> Reply:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too long\n")
        line, *headers = head.decode("latin-1").split("\r\n")
        match line.split(" "):
            case [method, target, version] if version.startswith("HTTP/1."):
                if method != "GET":
                    return Reply(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is served\n")
                return await self._answer(target.partition("?")[0], _header(headers, "accept"))
            case _:
                return Reply(HTTPStatus.BAD_REQUEST, b"no HTTP/1.1 request\n")

    async def _answer(self, path: str, accept: str) -> Reply:
        match path:
            case "/health/live":
                return _health(self._vitals.health(await self._vitals.silence_seen_elsewhere()).live)
            case "/health/ready":
                return _health(self._vitals.health(0.0).ready)
            case "/metrics":
                return self._metrics(accept)
            case _:
                return Reply(HTTPStatus.NOT_FOUND, b"there are /health/live, /health/ready and /metrics\n")

    def _metrics(self, accept: str) -> Reply:
        try:
            from holdfast.runtime.exposing import Who, counted, told  # noqa: PLC0415  a worker need not have what it needs
        except ImportError:
            return Reply(HTTPStatus.NOT_IMPLEMENTED, b"figures need a package more: pip install prometheus-client\n")
        text, kind = told(counted({Who(self._name, str(self._id)): self._counters.snapshot()}), accept)
        return Reply(HTTPStatus.OK, text, kind)


def _listening(address: str) -> socket.socket:
    host, port = host_and_port(address)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BadSetting(f"health: cannot listen on {address}: {error.strerror or error}") from error


def _health(health: Health) -> Reply:
    return Reply(HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE, msgspec.json.encode(health), JSON)


def _header(lines: list[str], name: str) -> str:
    found = (value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip().lower() == name)
    return next(found, "")


def _message(reply: Reply) -> bytes:
    head = (
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\nContent-Type: {reply.kind}\r\n"
        f"Content-Length: {len(reply.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + reply.body
