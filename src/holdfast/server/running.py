"""Running the server under uvicorn: where it listens, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Final

import uvicorn

from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.server.asgi import Server

KEPT: Final = 75
"""Seconds that an idle connection is kept."""
PATIENCE: Final = 10
"""Seconds that requests which are under way get to end."""
BACKLOG: Final = 2048
STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class Running(uvicorn.Server):
    """A server that answers those who wait before it stops, and ends as if it had been asked politely."""

    def __init__(self, server: Server, *, signals: bool = True) -> None:
        super().__init__(
            uvicorn.Config(
                server,
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="on",
                ws="none",
                timeout_keep_alive=KEPT,
                timeout_graceful_shutdown=PATIENCE,
                server_header=False,
            )
        )
        self._app = server
        self._signals = signals

    def stop(self) -> None:
        """Have it stop; asked again, it does not wait for requests that are under way."""
        self._app.close()
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the first SIGTERM or Ctrl-C, at once at the second."""
        loop = asyncio.get_running_loop()
        numbers = STOPS if self._signals else ()
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any that is free. Raises `BadSetting`."""
    # of TCP by name: only then asyncio sends at once what is written to its connections, instead of 40 ms later
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BadSetting(
            f"cannot listen on {host}, port {port}: {error.strerror or error}. Choose another with --port"
        ) from None
    return sock


def url_of(sock: socket.socket, prefix: str = "") -> str:
    """Return where a socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{prefix}"
