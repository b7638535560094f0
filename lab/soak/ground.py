"""What the fleet stands on: a PostgreSQL server or a SQLite file, with tables of the user's own beside the jobs."""

from __future__ import annotations

import asyncio
import os
import platform
import random
import shutil
import signal
import sqlite3
import time
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import asyncpg

from holdfast import StoreUnavailable, connect
from holdfast.core.states import State
from holdfast.store.port import JobFilter
from lab.soak.disk import Disk
from lab.soak.needs import DISK, NETWORK, POOLER
from lab.soak.pooler import Pooler
from lab.soak.proxy import Way
from lab.soak.tasks import RELAY
from tests.faults.machine.network import Namespace
from tests.support.postgres import MAJORS, PostgresServer
from tests.support.standby import Standby, wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.store.port import Stats, Store

TABLES: Final = (
    "CREATE TABLE ledger (job text NOT NULL, attempt int NOT NULL, amount int NOT NULL)",
    "CREATE TABLE orders (job text PRIMARY KEY, number bigint NOT NULL)",
)
SERVER_NOTES_SLOTS: Final = (
    "CREATE TABLE public.fired (slot double precision NOT NULL, job text NOT NULL)",
    """
    CREATE FUNCTION public.note_slot() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.fired (slot, job) VALUES (extract(epoch FROM NEW.last_at), NEW.last_job);
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER note_slot AFTER UPDATE OF last_job ON holdfast.schedule FOR EACH ROW WHEN (NEW.last_job IS NOT NULL)
    EXECUTE FUNCTION public.note_slot()
    """,
)
"""A job does not know which slot it was made for, and its schedule only knows the last: a trigger writes down each."""
FILE_NOTES_SLOTS: Final = (
    "CREATE TABLE fired (slot REAL NOT NULL, job TEXT NOT NULL)",
    """
    CREATE TRIGGER note_slot AFTER UPDATE OF last_job ON holdfast_schedule WHEN NEW.last_job IS NOT NULL
    BEGIN
        INSERT INTO fired (slot, job) VALUES (NEW.last_at / 1e6, lower(hex(NEW.last_job)));
    END
    """,
)
MOST_HELD: Final = 1000
AWAY: Final = (
    StoreUnavailable,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    sqlite3.OperationalError,
    OSError,
)
"""What is raised while the server is away, or coming back."""


class Server(PostgresServer):
    """A server that can be made to crash, and to come back."""

    def crash(self) -> None:
        """End it at once, without a checkpoint."""
        self._end_process(signal.SIGQUIT)

    def come_back(self) -> None:
        """Start it on the same port and data."""
        self._launch(self._programs(), port=urlsplit(self._admin_url).port)


class Successor(Server, Standby):
    """A standby that every commit of its primary waits for, and that takes the primary's place."""

    def keep_up(self) -> None:
        """Follow the primary until it has everything, and from then on let nothing be acknowledged that is not here too."""
        self.follow()
        self._synchronize("*")
        wait(self._primary, "SELECT count(*) > 0 AS done FROM pg_stat_replication WHERE sync_state = 'sync'")

    def be_dismissed(self) -> None:
        """Be followed by nobody, and gone."""
        self._synchronize("")
        self.stop()

    def _synchronize(self, names: str) -> None:
        self._primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self._primary.execute("SELECT pg_reload_conf()")

    def take_over(self) -> None:
        """Lose the primary for good, and be found where it was: at first as a standby, then as the primary."""
        address = urlsplit(self._primary.url("postgres"))
        self._primary.stop()
        self._end_process(signal.SIGINT)
        self._launch(self._programs(), port=address.port)
        self.promote()


class Ground(ABC):
    """A store, past every fault that is injected on the way of others."""

    name = ""
    url = ""
    store: Store
    ways: dict[str, Way]
    pooler: Pooler | None = None
    disk: Disk | None = None
    network: Namespace | None = None
    """The one of a machine that is not this one."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    @abstractmethod
    async def way(self, place: str, *, pooled: bool = False, network: Namespace | None = None) -> str:
        """Return the URL by which a process reaches the store, through the pooler where there is one, or from a network."""
        ...

    @abstractmethod
    async def query(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement on the database of the jobs, committed at once."""
        ...

    @abstractmethod
    async def probe(self) -> None:
        """Ask for hardly anything, as a heartbeat would."""
        ...

    @abstractmethod
    def version(self) -> str:
        """Return what the store is, for the record."""
        ...

    async def held(self, worker: str | None = None, kind: str | None = None) -> list[tuple[str, int]]:
        """Return the jobs that all hold, or one worker, or those of one kind, each with its attempt.

        Later attempts of a relay are left out: they take their time whoever runs them, and would pass for slow recoveries.
        """

        async def look() -> list[tuple[str, int]]:
            page = await self.store.find(JobFilter(states=frozenset({State.RUNNING})), limit=MOST_HELD)
            return [
                (str(view.id), view.attempt)
                for view in page.jobs
                if worker in (None, view.worker_name)
                and kind in (None, view.task)
                and not (view.task == RELAY and view.attempt > 1)
            ]

        held: list[tuple[str, int]] = await patiently(look)
        return held

    async def answered(self) -> float | None:
        """Return the seconds that the store takes for hardly anything, nothing while it is away."""
        begun = time.monotonic()
        try:
            await self.probe()
        except AWAY:
            return None
        return time.monotonic() - begun

    async def stats(self) -> Stats | None:
        """Return the counts, nothing while the store does not answer."""
        try:
            return await asyncio.wait_for(self.store.stats(), 5.0)
        except (StoreUnavailable, TimeoutError):
            return None


async def patiently(ask: Callable[[], Awaitable[Any]], within: float = 60.0) -> Any:
    """Ask until the store answers."""
    deadline = time.monotonic() + within
    while True:
        try:
            return await ask()
        except AWAY:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


class PostgresGround(Ground):
    """A server of our own, with a way to it for each process."""

    name = "postgres"

    def __init__(self, folder: Path, needs: frozenset[str]) -> None:  # noqa: ARG002  a server has a folder of its own
        self._needs = needs
        self.server: Server = Server(MAJORS[-1], durable=True)
        self._successor: Successor | None = None
        self.ways = {}
        self._probing: asyncpg.Connection[asyncpg.Record] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop_servers)
            await asyncio.to_thread(self.server.start)
            self.url = await asyncio.to_thread(self.server.create_database, "soak")
            self.store = connect(self.url)
            stack.push_async_callback(self.store.close)
            await self.store.open()
            for text in (*TABLES, *SERVER_NOTES_SLOTS):
                await self.query(text)
            if POOLER in self._needs:
                self.pooler = Pooler(self.server)
                stack.push_async_callback(asyncio.to_thread, self.pooler.stop)
                await asyncio.to_thread(self.pooler.start)
            if NETWORK in self._needs:
                self.network = stack.enter_context(Namespace(random.Random(0)))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _stop_servers(self) -> None:
        if self._probing is not None:
            self._probing.terminate()
        for server in (self._successor, self.server):
            if server is not None:
                await asyncio.to_thread(server.stop)

    async def way(self, place: str, *, pooled: bool = False, network: Namespace | None = None) -> str:
        """Return the URL of a proxy of this process's own."""
        url = self.pooler.url(self.url) if pooled and self.pooler is not None else self.url
        address = "127.0.0.1" if network is None else network.here
        self.ways[place] = await self._stack.enter_async_context(Way(url, address=address))
        return self.ways[place].url

    async def stand_by(self) -> None:
        """Build a standby, and have every commit wait for it from now on."""
        self._successor = Successor(self.server, durable=True)
        try:
            await asyncio.to_thread(self._successor.start)
            await asyncio.to_thread(self._successor.keep_up)
        except BaseException:
            await asyncio.to_thread(self._successor.be_dismissed)
            self._successor = None
            raise

    async def fail_over(self) -> None:
        """Lose the server, and go on with its standby, at the same address."""
        assert self._successor is not None
        await asyncio.to_thread(self._successor.take_over)
        self.server, self._successor = self._successor, None

    async def query(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""

        async def run() -> list[tuple[Any, ...]]:
            connection = await self.connection()
            try:
                return [tuple(row) for row in await connection.fetch(text)]
            finally:
                await connection.close(timeout=5)

        answer: list[tuple[Any, ...]] = await patiently(run)
        return answer

    async def probe(self) -> None:
        """Ask on a connection that is kept: how long it takes to begin one says little."""
        if self._probing is None or self._probing.is_closed():
            self._probing = await self.connection()
        await self._probing.execute("SELECT")

    async def connection(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return a connection past the proxies, in the name of nobody that is struck."""
        return await asyncpg.connect(self.url, timeout=10, server_settings={"application_name": "soak"})

    def version(self) -> str:
        """Return the version of the server."""
        return f"PostgreSQL {self.server.execute('SHOW server_version')[0][0]}"


class SqliteGround(Ground):
    """A file, on a disk of its own where that is to be filled."""

    name = "sqlite"

    def __init__(self, folder: Path, needs: frozenset[str]) -> None:
        self.path = folder / "jobs.db"
        self.ways = {}
        self._folder = folder
        self._needs = needs
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        with self._stack as stack:
            if DISK in self._needs:
                self.disk = stack.enter_context(Disk())
                self.path = self.disk.path / "jobs.db"
            self.url = f"sqlite:///{self.path}"
            self.store = connect(self.url)
            await self.store.open()
            for text in (*TABLES, *FILE_NOTES_SLOTS):
                await self.query(text)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._stack:
            await self.store.close()
            if self.disk is not None:  # for whoever looks into it: the disk is gone in a moment
                await asyncio.to_thread(shutil.copy, self.path, self._folder)

    async def way(
        self,
        place: str,  # noqa: ARG002  all go the same way
        *,
        pooled: bool = False,  # noqa: ARG002
        network: Namespace | None = None,  # noqa: ARG002
    ) -> str:
        """Return the URL of the file: there is nothing between."""
        return self.url

    async def query(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement in a thread."""
        return await asyncio.to_thread(self._query, text)

    async def probe(self) -> None:
        """Wait for the turn to write, and write nothing."""
        await asyncio.to_thread(self._probe)

    def _probe(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")

    def _query(self, text: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            return connection.execute(text).fetchall()

    def version(self) -> str:
        """Return the version of the library."""
        return f"SQLite {sqlite3.sqlite_version}"

    def writable(self) -> bool:
        """Tell whether nobody is inside a write."""
        with closing(sqlite3.connect(self.path, timeout=0.3, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            return True

    def writer(self) -> int | None:
        """Return the id of the process that is inside a write, by the locks that the kernel shows."""
        shared = Path(f"{self.path}-shm")
        with suppress(OSError):
            node = shared.stat().st_ino
            for line in Path("/proc/locks").read_text().splitlines():
                words = line.split()
                if words[3:4] == ["WRITE"] and words[5].endswith(f":{node}") and words[6] == WRITE_LOCK:
                    return int(words[4])
        return None


WRITE_LOCK: Final = "120"
"""The byte of the shared memory file that a writer has locked."""

GROUNDS: Final[dict[str, Callable[[Path, frozenset[str]], Ground]]] = {"postgres": PostgresGround, "sqlite": SqliteGround}


def machine() -> dict[str, Any]:
    """Return what figures depend on, and nothing that tells whose machine it is."""
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
