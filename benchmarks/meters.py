"""Counts what a program does to a store, whatever the machine's speed: statements, round trips, pages, calls of functions.

On PostgreSQL everything goes through a proxy that reads the protocol, and the server says what a session has touched and
logged. Of SQLite the statements are traced, and the pages counted that come into the log. Calls are counted by the
interpreter, in every thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import struct
import sys
import threading
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import asyncpg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import FrameType

    from holdfast.store.port import Store

Counts = dict[str, float]
"""What was counted, by its name."""


class Meter(Protocol):
    """Counts what a store does meanwhile."""

    async def begin(self, store: Store | None = None) -> None:
        """Start at nothing; with a store also the counts of its session."""
        ...

    async def end(self, store: Store) -> Counts:
        """Return what was counted since."""
        ...

    def kinds(self) -> Counter[str]:
        """Return how often each statement was sent since the beginning."""
        ...

    def waits(self) -> Counter[str]:
        """Return how often somebody waited since the beginning, by what for."""
        ...


# --- PostgreSQL ----------------------------------------------------------------------------------------------------------


@dataclass
class PostgresMeter:
    """Reads what clients send to a server, and asks the server what one session has touched and written."""

    url: str
    """Of a database, straight at the server."""
    everybody: bool = False
    """Whether to count all sessions, not the stores' alone: that of a notifier speaks as often as the clock says."""
    statements: Counter[str] = field(default_factory=Counter)
    round_trips: Counter[str] = field(default_factory=Counter)
    _before: Counts = field(default_factory=dict)
    _serving: set[asyncio.Task[Any]] = field(default_factory=set)

    @asynccontextmanager
    async def proxied(self) -> AsyncIterator[str]:
        """Return the URL under which the server is reached through here."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            parts = urlsplit(self.url)
            place = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}"
            yield urlunsplit(parts._replace(netloc=place, query="sslmode=disable"))
        finally:
            server.close()
            await asyncio.gather(*self._serving)  # each ends when its client has gone

    async def begin(self, store: Any = None) -> None:
        """Start at nothing; with a store also the counts of its session."""
        if store is not None:
            self._before = await self._session(store)
        self.statements.clear()
        self.round_trips.clear()

    async def end(self, store: Any) -> Counts:
        """Return what the session of the store did since."""
        counts: Counts = {"statements": self.statements.total(), "round_trips": self.round_trips.total()}
        after = await self._session(store)
        return counts | {what: after[what] - self._before[what] for what in after}

    def kinds(self) -> Counter[str]:
        """Return how often each statement was sent since the beginning."""
        return Counter(self.statements)

    def waits(self) -> Counter[str]:
        """Return how often a client waited for an answer since the beginning, by the statement it had sent."""
        return Counter(self.round_trips)

    async def _session(self, store: Any) -> Counts:
        """Ask what the session has done so far. It reports at most once a second unless it is told to."""
        pid = await store._db.fetch_value("SELECT pg_backend_pid() FROM pg_stat_force_next_flush()")  # noqa: SLF001  that very session
        connection = await asyncpg.connect(self.url)
        try:
            row = await connection.fetchrow(
                "SELECT w.wal_bytes::bigint, w.wal_records, w.wal_fpi, "
                "(SELECT sum(coalesce(hits, 0) + coalesce(reads, 0) + coalesce(extends, 0)) FROM pg_stat_get_backend_io($1) "
                "WHERE object = 'relation')::bigint AS buffers FROM pg_stat_get_backend_wal($1) w",
                pid,
            )
        finally:
            await connection.close()
        assert row is not None
        return dict(row)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._serving.add(task)
        parts = urlsplit(self.url)
        there, back = await asyncio.open_connection(parts.hostname, parts.port)
        answers = asyncio.create_task(_pass_on(there, writer))
        session = _Session(self)
        head = await reader.readexactly(4)
        rest = await reader.readexactly(struct.unpack("!i", head)[0] - 4)
        back.write(head + rest)
        told = rest[4:].split(b"\0")
        counted = self.everybody or dict(zip(told[::2], told[1::2], strict=False)).get(b"application_name") == b"holdfast"
        try:
            while True:
                head = await reader.readexactly(5)
                rest = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
                if counted:
                    session.note(head[:1], rest)
                back.write(head + rest)
                await back.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            back.close()
            await answers


class _Session:
    """What one session is told."""

    def __init__(self, meter: PostgresMeter) -> None:
        self._meter = meter
        self._prepared: dict[bytes, str] = {}
        self._latest = ""

    def note(self, kind: bytes, rest: bytes) -> None:
        """Count a message."""
        if kind == b"P":
            name, sql, _ = rest.split(b"\0", 2)
            self._prepared[name] = self._latest = sql.decode()
        elif kind == b"B":
            self._latest = self._prepared[rest.split(b"\0", 2)[1]]
            self._meter.statements[self._latest] += 1
        elif kind == b"Q":
            self._latest = rest[:-1].decode()
            self._meter.statements[self._latest] += 1
        if kind in {b"Q", b"S", b"H"}:  # whoever sends these waits for the answer
            self._meter.round_trips[self._latest] += 1


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while some := await reader.read(65536):
            writer.write(some)
            await writer.drain()
    writer.close()


async def written(url: str) -> int:
    """Return how many bytes of log the server has written so far, whoever had it do so."""
    connection = await asyncpg.connect(url)
    try:
        position: int = await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    finally:
        await connection.close()
    return int(position)


# --- SQLite --------------------------------------------------------------------------------------------------------------


_BY_THE_CLOCK = frozenset({"PRAGMA data_version", "PRAGMA wal_checkpoint(PASSIVE)"})
_NOBODYS = ("BEGIN", "COMMIT", "SELECT scheduled.", "SELECT min(run_at)")
"""Statements of a worker that are not sent for a job: the promoter looks when the file has changed since it last did, which it
sees more often on a slow machine."""
_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


@dataclass
class SqliteMeter:
    """Traces every statement on a file, and counts the pages that come into its log."""

    path: Path
    statements: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    """Of transactions that wrote: each is one fsync."""
    _pinned: sqlite3.Connection | None = None
    _size: int = 0

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Have every connection that is opened meanwhile tell what it runs."""
        real = sqlite3.connect

        def connect(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = real(*args, **options)
            connection.set_trace_callback(_Trace(self))
            return connection

        sqlite3.connect = connect  # type: ignore[assignment]
        try:
            yield
        finally:
            sqlite3.connect = real
            if self._pinned is not None:
                self._pinned.close()

    async def begin(self, store: Store | None = None) -> None:
        """Start at nothing; with a store also the pages of the log, which a reader pins, so that it only grows."""
        if store is not None:
            if self._pinned is None:
                self._pinned = sqlite3.connect(self.path, isolation_level=None)
                self._pinned.execute("BEGIN")
                self._pinned.execute("SELECT count(*) FROM sqlite_master").fetchone()
            self._size = self._log()
        self.statements.clear()
        self.commits = 0

    async def end(self, store: Store) -> Counts:  # noqa: ARG002  as the protocol has it
        """Return what was counted since."""
        page = 4096 + 24  # each with its header
        return {
            "statements": self.statements.total(),
            "pages": (self._log() - self._size) / page,
            "commits": self.commits,
        }

    def kinds(self) -> Counter[str]:
        """Return how often each statement was run since the beginning, told by its first words; without what frames them."""
        return Counter({kind: count for kind, count in self.statements.items() if not kind.startswith(_NOBODYS)})

    def waits(self) -> Counter[str]:
        """Return how many transactions were committed since the beginning that wrote something."""
        return Counter({"COMMIT": self.commits})

    def _log(self) -> int:
        return Path(f"{self.path}-wal").stat().st_size


class _Trace:
    """What one connection runs."""

    def __init__(self, meter: SqliteMeter) -> None:
        self._meter = meter
        self._wrote = False

    def __call__(self, sql: str) -> None:
        kind = " ".join(sql.split()[:4])
        if kind in _BY_THE_CLOCK:
            return
        self._meter.statements[kind] += 1
        if kind.startswith("COMMIT"):
            self._meter.commits += self._wrote
        self._wrote = not kind.startswith(("BEGIN", "COMMIT", "ROLLBACK")) and (self._wrote or kind.startswith(_WRITES))


# --- Python --------------------------------------------------------------------------------------------------------------


@dataclass
class CallMeter:
    """Counts the calls of functions, in Python and in C, and the turns of coroutines, in this thread and in those it starts."""

    calls: int = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count meanwhile."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, arg: Any) -> None:  # noqa: ARG002  as the interpreter calls it
        if event in {"call", "c_call"}:
            self.calls += 1
