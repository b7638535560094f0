"""The stores that contestants are run on: started when the first of them needs it, emptied for each cell, gone afterwards.

    with Servers() as servers, servers.fresh("postgres") as place:
        place.url

PostgreSQL is set up as for real data (fsync and synchronous_commit on), listens on 127.0.0.1 only, and is the same server for
everybody. SQLite is a file in a temporary directory. Redis keeps nothing on disk: see redis_server.py.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, Self

from benchmarks.redis_server import MissingRedis, RedisServer
from tests.support.daemon import StartError
from tests.support.postgres import MissingServer, PostgresServer, database_of, installations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Place", "PostgresServer", "RedisServer", "Servers", "pgbench_program"]

MAJOR = 18
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
    "max_connections",
)
"""What is recorded with the figures."""


class Place(Protocol):
    """An empty store for one cell."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    def calm(self) -> None:
        """Have the server finish what it put off, so that the next measurement does not pay for the last one."""
        ...

    def usage(self) -> dict[str, float]:
        """Return what the server has counted so far, by name; nothing where it does not count."""
        ...


class Servers:
    """The running servers. Use as a context: all that was started ends with it."""

    def __init__(self, *, redis_python: Path | None = None) -> None:
        """Start nothing yet; `redis_python` is the interpreter of an environment that may carry a Redis."""
        self._stack = ExitStack()
        self._redis_python = redis_python
        self._postgres: PostgresServer | None = None
        self._redis: RedisServer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def fresh(self, store: str) -> Iterator[Place]:
        """Yield an empty store of that kind, and remove what is in it afterwards."""
        match store:
            case "postgres":
                server = self.postgres()
                database = _Database(server, server.create_database())
                try:
                    database.calm()
                    yield database
                finally:
                    server.drop_database(database.url)
            case "redis":
                redis = self.redis()
                redis.empty()
                yield _Plain(redis.url)
            case "sqlite":
                with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:  # on the disk that PostgreSQL uses, too
                    place = _Plain(f"sqlite:///{folder}/jobs.db")
                    place.calm()
                    yield place
            case _:
                raise ValueError(f"there is no store {store!r}: postgres, redis or sqlite")

    def start(self, stores: Iterable[str]) -> dict[str, str]:
        """Start the servers of these stores, and return those that cannot be had, each with the reason."""
        absent = {}
        for store in stores:
            try:
                if store == "postgres":
                    self.postgres()
                elif store == "redis":
                    self.redis()
            except (MissingServer, MissingRedis, StartError) as error:
                absent[store] = str(error)
        return absent

    def postgres(self) -> PostgresServer:
        """Return the one PostgreSQL of this run."""
        if self._postgres is None:
            self._postgres = self._stack.enter_context(PostgresServer(MAJOR, durable=True))
        return self._postgres

    def redis(self) -> RedisServer:
        """Return the one Redis of this run."""
        if self._redis is None:
            self._redis = self._stack.enter_context(RedisServer(self._redis_python))
        return self._redis

    def versions(self) -> dict[str, str]:
        """Return the versions of what was started so far, and of SQLite."""
        versions = {"sqlite": sqlite3.sqlite_version}
        if self._postgres is not None:
            [row] = self._postgres.execute("SHOW server_version")
            versions["postgres"] = row[0]
        if self._redis is not None:
            versions["redis"] = self._redis.version
        return versions

    def settings(self) -> dict[str, str]:
        """Return the settings of PostgreSQL that bear on the figures, nothing while it is not running."""
        if self._postgres is None:
            return {}
        rows = self._postgres.execute(
            "SELECT name, current_setting(name) FROM unnest($1::text[]) AS given (name)", list(SETTINGS)
        )
        return {row[0]: row[1] for row in rows}


def pgbench_program() -> str | None:
    """Return the pgbench of the PostgreSQL that is measured, else the one on PATH, else nothing."""
    installation = installations().get(MAJOR)
    if installation is not None and (beside := installation.programs / "pgbench").exists():
        return str(beside)
    return shutil.which("pgbench")


class _Plain:
    """A store whose server keeps no accounts."""

    def __init__(self, url: str) -> None:
        self.url = url

    def calm(self) -> None:
        """Let the file system write what it holds back."""
        os.sync()

    def usage(self) -> dict[str, float]:
        """Return nothing."""
        return {}


class _Database:
    """A database of its own on PostgreSQL."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.url = url
        self._server = server

    def calm(self) -> None:
        """Have the server write everything to disk."""
        self._server.execute("CHECKPOINT")

    def usage(self) -> dict[str, float]:
        """Return bytes and whole pages of WAL of the server, and the transactions of this database."""
        [row] = self._server.execute(
            "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS wal, (SELECT wal_fpi FROM pg_stat_wal) AS full_pages, "
            "(SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1) AS transactions",
            database_of(self.url),
        )
        return {name: float(value) for name, value in row.items()}
