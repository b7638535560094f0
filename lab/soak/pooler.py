"""The PgBouncer that some workers go through."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults.machine.bouncer import PgBouncer
from tests.support.daemon import StartError

if TYPE_CHECKING:
    import subprocess

    from tests.support.postgres import Server

PROGRAM: Final = Path("/usr/sbin/pgbouncer")
CONNECTIONS: Final = 10
SETTINGS: Final = "server_login_retry = 1\n"
"""As whoever has leases of 3 s would set it: by default it does not try for 15 s to reach a server that was away."""


class Pooler(PgBouncer):
    """PgBouncer in transaction mode, which can be ended and come back on the same port."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, pool=CONNECTIONS)
        self._command: list[str] = []

    def restart(self) -> None:
        """Hang up on everybody, and come back."""
        self._end_process(signal.SIGKILL)  # asked in any other way it may wait for its clients
        if not self._answers(super()._start_process(self._command)):
            raise StartError(f"PgBouncer did not come back. The end of its log:\n{self._end_of_log()}")

    def _start_process(self, command: list[str]) -> subprocess.Popen[bytes]:
        with Path(command[-1]).open("a") as settings:
            settings.write(SETTINGS)
        self._command = command
        return super()._start_process(command)
