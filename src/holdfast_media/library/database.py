"""The library's own connections to the database of the jobs, for what is not asked inside a job or a caller's transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast import MissingExtra, StoreUnavailable, connect
from holdfast_media.library import schema
from holdfast_media.library.statements import Dialect, Statements

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PATIENCE: Final = 10.0
"""Seconds that a writer waits for others, and a connection for its server."""


MOST_CONNECTIONS: Final = 4
"""To PostgreSQL, for each event loop: what is asked here is short and rare beside what the jobs do."""


class Database:
    """The database that a store's URL names; nothing is opened before it is used.

    A SQLite file is opened for each transaction, which costs less than to keep it; to PostgreSQL there are a few connections
    for each event loop, which `close` lets go of.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._made: str | None = None
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[str, Any]] = weakref.WeakKeyDictionary()

    @property
    def dialect(self) -> Dialect:
        """How this database spells things; raises `BadSetting` for a store without tables."""
        return Dialect.of_url(self._url())

    async def make(self) -> None:
        """Make the tables where they are missing, once for each process."""
        url = self._url()
        dialect = Dialect.of_url(url)
        if self._made == url:
            return
        store = connect(url)  # makes the schema of the jobs, which the tables are put beside
        try:
            await store.open()
        finally:
            await store.close()
        async with self._connected(url, dialect) as statements:
            await schema.create(statements)
        self._made = url

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Statements]:
        """Give statements in one transaction, committed at the end of the block, undone by what is raised in it."""
        await self.make()
        url = self._url()
        async with self._connected(url, Dialect.of_url(url)) as statements:
            yield statements

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Statements]:
        """Give statements that only read; holds up nobody."""
        await self.make()
        url = self._url()
        async with self._connected(url, Dialect.of_url(url), write=False) as statements:
            yield statements

    async def close(self) -> None:
        """Let go of the connections of this event loop. Safe to call again; use opens them anew."""
        found = self._pools.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[1].close()

    def _connected(self, url: str, dialect: Dialect, *, write: bool = True) -> Any:
        return self._postgres(url, dialect) if dialect.postgres else _sqlite(url, dialect, write=write)

    @asynccontextmanager
    async def _postgres(self, url: str, dialect: Dialect) -> AsyncIterator[Statements]:
        pool = await self._pool(url)
        try:
            connection = await pool.acquire(timeout=PATIENCE)
        except Exception as error:  # whatever the driver has for a server that is away; of our own there is nothing in it
            raise StoreUnavailable(urlsplit(url).hostname or "PostgreSQL", PATIENCE, f"{error}") from error
        try:
            async with connection.transaction():
                yield Statements(connection, dialect)
        finally:
            await pool.release(connection)

    async def _pool(self, url: str) -> Any:
        loop = asyncio.get_running_loop()
        known = self._pools.get(loop)
        if known is not None and known[0] == url:
            return known[1]
        await self.close()
        pool = _postgres_pool(url)
        self._pools[loop] = (url, pool)
        await pool
        return pool


@asynccontextmanager
async def _sqlite(url: str, dialect: Dialect, *, write: bool) -> AsyncIterator[Statements]:
    """Give a connection to the file. Statements take microseconds: they block the loop less than a thread would cost."""
    path = url.removeprefix("sqlite:///")
    try:
        # a writer waits for its turn below, without keeping the loop; a reader has to wait for next to nobody
        connection = sqlite3.connect(path, isolation_level=None, timeout=0 if write else PATIENCE, check_same_thread=False)
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # the workers see to that
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(path, 0.0, str(error)) from error
    try:
        if not write:
            yield Statements(connection, dialect)
            return
        await _begin(connection, path)
        try:
            yield Statements(connection, dialect)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
    finally:
        connection.close()


async def _begin(connection: sqlite3.Connection, path: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    rest = 0.002
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if loop.time() >= deadline or "locked" not in str(error):
                raise StoreUnavailable(path, PATIENCE, str(error)) from error
            await asyncio.sleep(rest)
            rest = min(0.05, rest * 1.5)
        else:
            return


def _postgres_pool(url: str) -> Any:
    """Return a pool that opens no connection before it is needed."""
    try:
        import asyncpg  # noqa: PLC0415  an extra, loaded on demand
    except ImportError as missing:
        raise MissingExtra("postgres", "a media library on PostgreSQL", missing.name or "") from missing
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    rest = urlencode([(name, value) for name, value in query if name not in {"schema", "prepare"}])
    return asyncpg.create_pool(
        urlunsplit(parts._replace(scheme="postgresql", query=rest)),
        min_size=0,
        max_size=MOST_CONNECTIONS,
        timeout=PATIENCE,
        statement_cache_size=0 if dict(query).get("prepare") == "off" else 100,
    )
