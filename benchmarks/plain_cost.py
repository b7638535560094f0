"""What a plain job costs its store, counted and not timed: nothing here depends on how fast the machine is.

    python -m benchmarks.plain_cost                      PostgreSQL 18 and SQLite, servers and files of its own
    python -m benchmarks.plain_cost --json counts.json   also as JSON
    python -m benchmarks.plain_cost --rounds 5           several rounds, with the largest difference between them

A plain job has no key, no chain, nothing it waits for, and is enqueued on nobody's connection. It is enqueued with the public
API, claimed and settled through the port, alone and in batches of a fixed size; at last a worker with one slot runs jobs that
do nothing. On PostgreSQL everything goes through a proxy that reads the protocol, and the server says what the one session of
the store has touched and logged. Of SQLite the statements are traced, and the pages counted that come into the log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
import struct
import sys
import tempfile
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg

from holdfast import Holdfast
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from holdfast.core.lease import Claimed
    from holdfast.store.port import Store
    from holdfast.tasks.task import AsyncTask

Counts = dict[str, float]
"""What was counted, by its name."""

Phases = dict[str, Counts]
"""What was counted for each job, by what was done with it."""

BATCH = 100
ROUNDS = 4
"""Batches of each kind."""
SINGLES = 200
WARM = 10
"""Calls of each kind that go first: plans are made and catalogs read once, not for each job."""
SUCCEED = Write(Event.SUCCEED, 0, result="null")


class Still(SystemEnvironment):
    """A world in which no time passes and ids come in order: what is due every second never is, and indexes grow alike."""

    def __init__(self) -> None:
        self._drawn = 0

    def monotonic(self) -> float:
        """Return the same moment for ever."""
        return 1000.0

    def random(self) -> float:
        """Return the middle."""
        return 0.5

    def token(self) -> UUID:
        """Return the next one."""
        return self.job_id()

    def job_id(self) -> UUID:
        """Return the next one, in the form of a UUIDv7."""
        self._drawn += 1
        return UUID(int=(0x0199_0000_0000_7000_8 << 60) | self._drawn)


class Meter(Protocol):
    """Counts what a store does meanwhile."""

    async def begin(self, store: Store) -> None:
        """Start at nothing."""
        ...

    async def end(self, store: Store) -> Counts:
        """Return what was counted since."""
        ...

    def kinds(self) -> Counter[str]:
        """Return how often each statement was sent since the beginning."""
        ...


# --- what is done --------------------------------------------------------------------------------------------------------


async def count_phases(url: str, meter: Meter) -> Phases:
    """Enqueue, claim and settle plain jobs, alone and in batches; returns what each took for one job."""
    app = Holdfast(url, environment=Still())

    @app.task(name="noop")
    async def noop(user_id: int) -> None: ...

    try:
        return await _script(app, noop, meter)
    finally:
        await app.close()


async def _script(app: Holdfast, noop: AsyncTask[[int], None], meter: Meter) -> Phases:
    await app.stats()  # opens the store
    store = app.client().store  # the very store that the app enqueues with
    await _no_vacuum(store)
    worker = Worker(id=app.new_id(), name="counted")
    await store.register(worker)
    held: list[list[Claimed]] = []

    async def one() -> None:
        await noop.enqueue(42)

    async def many() -> None:
        await app.enqueue_many([noop.call(42) for _ in range(BATCH)])

    def claim(limit: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            held.append(await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=limit)))
            if len(held[-1]) != limit:
                sys.exit(f"{len(held[-1])} jobs were claimed where {limit} waited")

        return work

    async def settle() -> None:
        answers = await store.settle([Settlement(job.lease, SUCCEED) for job in held.pop(0)])
        if not all(answer.accepted for answer in answers):
            sys.exit("a settlement was refused")

    async def look() -> None:
        await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=1, look=True))

    steps = [
        ("enqueue one", one, SINGLES, 1),
        ("claim one", claim(1), SINGLES, 1),
        ("settle one", settle, SINGLES, 1),
        (f"enqueue {BATCH}", many, ROUNDS, BATCH),
        (f"claim {BATCH}", claim(BATCH), ROUNDS, BATCH),
        (f"settle {BATCH}", settle, ROUNDS, BATCH),
    ]
    await one()
    await look()  # makes the lane known; the job it takes stays with this worker
    for _, work, _, _ in steps:
        for _ in range(WARM):
            await work()
    phases: Phases = {}
    for name, work, times, jobs in steps:
        await meter.begin(store)
        for _ in range(times):
            await work()
        phases[name] = {what: round(count / (times * jobs), 4) for what, count in (await meter.end(store)).items()}
    return phases


async def _no_vacuum(store: Store) -> None:
    """Keep the server from vacuuming in the midst of a count."""
    database = getattr(store, "_db", None)
    if database is not None:
        rows = await database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
        for [table] in rows:
            await database.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = off)")


async def count_worker(url: str, meter: Meter) -> Counts:
    """Have a worker with one slot run plain jobs; returns how many statements it sent for each.

    What a worker does by the clock is left out: statements of a kind that was sent for fewer than nine jobs of ten.
    """
    app = Holdfast(url)
    done = asyncio.Event()

    @app.task(name="noop")
    async def noop(user_id: int) -> None:
        if user_id == SINGLES - 1:
            done.set()

    try:
        await app.enqueue_many([noop.call(n) for n in range(SINGLES)])
        store = app.client().store
        await meter.begin(store)
        async with app.worker(concurrency=1):
            await asyncio.wait_for(done.wait(), 120.0)
        await meter.end(store)
    finally:
        await app.close()
    by_the_job = {kind: count for kind, count in meter.kinds().items() if count >= SINGLES * 0.9}
    return {"statements": sum(by_the_job.values()) / SINGLES}


# --- PostgreSQL ----------------------------------------------------------------------------------------------------------


@dataclass
class PostgresMeter:
    """Reads what clients send to a server, and asks the server what one session has touched and written."""

    url: str
    """Of a database, straight at the server."""
    statements: Counter[str] = field(default_factory=Counter)
    round_trips: int = 0
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

    async def begin(self, store: Any) -> None:
        """Start at nothing."""
        self._before = await self._session(store)
        self.statements.clear()
        self.round_trips = 0

    async def end(self, store: Any) -> Counts:
        """Return what the session of the store did since."""
        counts: Counts = {"statements": self.statements.total(), "round_trips": self.round_trips}
        after = await self._session(store)
        return counts | {what: after[what] - self._before[what] for what in after}

    def kinds(self) -> Counter[str]:
        """Return how often each statement was sent since the beginning."""
        return Counter(self.statements)

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
        prepared: dict[bytes, str] = {}
        head = await reader.readexactly(4)
        rest = await reader.readexactly(struct.unpack("!i", head)[0] - 4)
        back.write(head + rest)
        told = rest[4:].split(b"\0")
        # the store's own sessions; that of the notifier speaks as often as the clock says
        counted = dict(zip(told[::2], told[1::2], strict=False)).get(b"application_name") == b"holdfast"
        try:
            while True:
                head = await reader.readexactly(5)
                rest = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
                if counted:
                    self._note(head[:1], rest, prepared)
                back.write(head + rest)
                await back.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            back.close()
            await answers

    def _note(self, kind: bytes, rest: bytes, prepared: dict[bytes, str]) -> None:
        if kind == b"P":
            name, sql, _ = rest.split(b"\0", 2)
            prepared[name] = sql.decode()
        elif kind == b"B":
            self.statements[prepared[rest.split(b"\0", 2)[1]]] += 1
        elif kind == b"Q":
            self.statements[rest[:-1].decode()] += 1
        if kind in {b"Q", b"S", b"H"}:  # whoever sends these waits for the answer
            self.round_trips += 1


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while some := await reader.read(65536):
            writer.write(some)
            await writer.drain()
    writer.close()


async def count_postgres(server_url: str, worker_url: str) -> Phases:
    """Count on two empty databases of a PostgreSQL 18. Raises `CheckpointError` where one fell into it: count again."""
    meter = PostgresMeter(server_url)
    async with meter.proxied() as url:
        phases = await count_phases(url, meter)
    if any(counts["wal_fpi"] for counts in phases.values()):
        raise CheckpointError
    meter = PostgresMeter(worker_url)
    async with meter.proxied() as url:
        phases["worker"] = await count_worker(url, meter)
    return phases


class CheckpointError(Exception):
    """A checkpoint fell into the count, and whole pages were logged after it: the bytes say nothing."""


# --- SQLite --------------------------------------------------------------------------------------------------------------


_BY_THE_CLOCK = frozenset({"PRAGMA data_version", "PRAGMA wal_checkpoint(PASSIVE)"})
_NOBODYS = ("BEGIN", "COMMIT", "SELECT scheduled.", "SELECT min(run_at)")
"""Statements of a worker that are not sent for a job: the promoter looks when the file has changed since it last did, which it
sees more often on a slow machine."""


@dataclass
class SqliteMeter:
    """Traces every statement on a file, and counts the pages that come into its log."""

    path: Path
    statements: Counter[str] = field(default_factory=Counter)
    _pinned: sqlite3.Connection | None = None
    _size: int = 0

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Have every connection that is opened meanwhile tell what it runs."""
        real = sqlite3.connect

        def connect(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = real(*args, **options)
            connection.set_trace_callback(self._note)
            return connection

        sqlite3.connect = connect  # type: ignore[assignment]
        try:
            yield
        finally:
            sqlite3.connect = real
            if self._pinned is not None:
                self._pinned.close()

    def _note(self, sql: str) -> None:
        kind = " ".join(sql.split()[:4])
        if kind not in _BY_THE_CLOCK:
            self.statements[kind] += 1

    async def begin(self, store: Store) -> None:  # noqa: ARG002  as the protocol has it
        """Start at nothing, with a reader that keeps the log from being started anew: so it only grows."""
        if self._pinned is None:
            self._pinned = sqlite3.connect(self.path, isolation_level=None)
            self._pinned.execute("BEGIN")
            self._pinned.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self._size = self._log()
        self.statements.clear()

    async def end(self, store: Store) -> Counts:  # noqa: ARG002  as the protocol has it
        """Return what was counted since."""
        page = 4096 + 24  # each with its header
        return {"statements": self.statements.total(), "pages": (self._log() - self._size) / page}

    def kinds(self) -> Counter[str]:
        """Return how often each statement was run since the beginning, told by its first words; without what frames them."""
        return Counter({kind: count for kind, count in self.statements.items() if not kind.startswith(_NOBODYS)})

    def _log(self) -> int:
        return Path(f"{self.path}-wal").stat().st_size


async def count_sqlite(folder: Path) -> Phases:
    """Count in files of this folder."""
    meter = SqliteMeter(folder / "phases.db")
    with meter.tracing():
        phases = await count_phases(f"sqlite:///{meter.path}", meter)
    meter = SqliteMeter(folder / "worker.db")
    with meter.tracing():
        phases["worker"] = await count_worker(f"sqlite:///{meter.path}", meter)
    return phases


# --- telling -------------------------------------------------------------------------------------------------------------


def spread(rounds: list[Phases]) -> float:
    """Return the largest ratio between two rounds of anything counted."""
    worst = 1.0
    for phase, counts in rounds[0].items():
        for what in counts:
            values = [counted[phase].get(what, 0.0) for counted in rounds]
            if min(values) != max(values):
                worst = max(worst, max(values) / min(values) if min(values) else float("inf"))
    return worst


def show(store: str, phases: Phases) -> None:
    """Print what one job costs."""
    columns = list(next(iter(phases.values())))
    print(f"\n{store}, for each job")
    print(" " * 16 + "".join(f"{column:>14}" for column in columns))
    for phase, counts in phases.items():
        print(f"{phase:<16}" + "".join(f"{counts[column]:>14.4f}" for column in columns if column in counts))


def main() -> None:
    """Count, print, and write JSON where asked to."""
    from tests.support.postgres import PostgresServer  # noqa: PLC0415  starts servers: for this program alone

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds: dict[str, list[Phases]] = {"postgres": [], "sqlite": []}
    with PostgresServer(18, settings={"checkpoint_timeout": "1d", "max_wal_size": "4GB"}) as server:
        for _ in range(options.rounds):
            databases = server.create_database(), server.create_database()
            rounds["postgres"].append(asyncio.run(count_postgres(*databases)))
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="holdfast-plain-") as folder:
            rounds["sqlite"].append(asyncio.run(count_sqlite(Path(folder))))
    for store, counted in rounds.items():
        show(store, counted[0])
        if options.rounds > 1:
            print(f"largest difference between {options.rounds} rounds: {spread(counted):.4f}x")
    if options.json:
        options.json.write_text(json.dumps({store: counted[0] for store, counted in rounds.items()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
