"""Running the server under uvicorn: who is let in, where it listens, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import uvicorn

from holdfast.connect import connect
from holdfast.errors import BadSetting
from holdfast.server.asgi import check_access, has_admin
from holdfast.server.keys import new_secret
from holdfast.server.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.server.asgi import Server
    from holdfast.server.settings import ServerSettings

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
                proxy_headers=False,  # which proxies are believed the server knows itself
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


def serve(
    server: Server, *, told: Callable[[str], None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Serve until a signal ends it; `told` is given the address when it listens. Raises `BadSetting` where it cannot.

    First SIGTERM or Ctrl-C: requests that are under way are answered; second: at once.
    """
    settings = server.context.settings
    running = Running(server)
    with contextlib.closing(listening(settings.host, settings.port)) as sock:
        told(url_of(sock, settings.prefix))
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(running.serve(sockets=[sock]))


def secured(url: str, settings: ServerSettings) -> tuple[ServerSettings, str | None]:
    """Return settings with which somebody can come in, and the admin secret that was made for it; `None`: none was needed.

    One is made on a loopback address alone, where there is neither a secret nor an admin's key. Where others reach the server
    it is refused without (`BadSetting`). The store is made where it is missing.
    """

    async def needs_one() -> bool:
        store = connect(url, create=True)
        try:
            await store.open()
            await check_access(store, settings)
            if settings.open or settings.admin_secret is not None or not is_loopback(settings.host):
                return False
            return not await has_admin(store)
        finally:
            await store.close()

    if not asyncio.run(needs_one()):
        return settings, None
    secret = new_secret()
    return replace(settings, admin_secret=secret), secret


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
