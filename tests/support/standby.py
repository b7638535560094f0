"""A standby of a server: it follows by streaming, may be cut off so that it lacks what comes later, and be promoted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.daemon import StartError
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from pathlib import Path

_WAIT = 60.0


class Standby(PostgresServer):
    """A second server, made from a copy of the first, which it goes on to follow. Read-only until it is promoted."""

    def __init__(self, primary: PostgresServer, *, durable: bool = False) -> None:
        super().__init__(primary.major, durable=durable)
        self._primary = primary

    def follow(self) -> None:
        """Wait until everything that the primary has written so far is here."""
        [row] = self._primary.execute("SELECT pg_current_wal_lsn()::text AS place")
        wait(self, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn AS done", row["place"])

    def cut_off(self) -> None:
        """Let nothing more reach this server: what the primary writes from now on is the tail that it lacks."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        wait(self, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver) AS done")

    def promote(self) -> None:
        """Make it a primary; returns when it takes writes."""
        self.execute("SELECT pg_promote()")
        wait(self, "SELECT NOT pg_is_in_recovery() AS done")

    def _initdb(self, programs: Path) -> None:
        where = urlsplit(self._primary.url("postgres"))
        command = [str(programs / "pg_basebackup"), "-h", str(where.hostname), "-p", str(where.port), "-U", str(where.username)]
        command += ["-D", str(self._data), "-X", "stream", "--checkpoint=fast", "--write-recovery-conf", "--no-sync"]
        if self._spawn(command).wait() != 0:
            raise StartError(self._why("pg_basebackup failed"))


def wait(server: PostgresServer, question: str, *parameters: object) -> None:
    """Ask a server until what it answers as `done` is true."""
    deadline = time.monotonic() + _WAIT
    while not server.execute(question, *parameters)[0]["done"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_WAIT:g} s in vain for: {question}\n{server.log[-2000:]}")
        time.sleep(0.02)
