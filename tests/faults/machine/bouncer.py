"""A real PgBouncer before a server, started by this process and gone with it."""

from __future__ import annotations

import signal
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from tests.support.daemon import Daemon, StartError, free_port
from tests.support.postgres import _unprivileged, database_of

if TYPE_CHECKING:
    import subprocess

    from tests.support.postgres import Server

_START_SECONDS = 30
_TRIES = 5

_SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 1000
server_idle_timeout = 5
"""
"""What a user has who read no further than the first page: few connections, no settings let through, nothing prepared."""


class PgBouncer(Daemon):
    """PgBouncer in transaction mode before a server, with `pool` connections to each database."""

    def __init__(self, server: Server, *, pool: int = 5) -> None:
        super().__init__("pgbouncer", end_with=signal.SIGQUIT, identity=_unprivileged())
        self._parts = urlsplit(server.url("any"))
        self._pool = pool
        self._port = 0

    def url(self, url: str) -> str:
        """Return the way through here to the database of `url`, as a user of Holdfast writes it."""
        return self.plain_url(url) + "?prepare=off"

    def plain_url(self, url: str) -> str:
        """Return the way through here to the database of `url`, for any driver."""
        netloc = f"{self._parts.username}@127.0.0.1:{self._port}"
        return urlunsplit(self._parts._replace(netloc=netloc, path=f"/{database_of(url)}"))

    def _begin(self) -> None:
        for _ in range(_TRIES):
            self._port = free_port()
            assert self._home is not None
            settings = self._home / "pgbouncer.ini"
            settings.write_text(
                _SETTINGS.format(
                    host=self._parts.hostname,
                    port=self._parts.port,
                    user=self._parts.username,
                    listen=self._port,
                    pool=self._pool,
                )
            )
            settings.chmod(0o644)
            if self._answers(self._start_process(["/usr/sbin/pgbouncer", str(settings)])):
                return
            self._end_process(signal.SIGQUIT)
        raise StartError(f"PgBouncer did not start. The end of its log:\n{self._end_of_log()}")

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return process.poll() is None
        return False
