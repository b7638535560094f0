"""Every stack a caller may bring, each made to do the same things.

What blocks is done in one thread of its own: connections of sqlite3 and Django belong to a thread, and on an event loop
`enqueue_sync` is refused.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import aiosqlite
import asyncpg
import django
import psycopg
from django.apps import apps
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast.connect import postgres_parts, sqlite_path
from holdfast.tasks.blocking import by_hand

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from holdfast import Handle, Holdfast
    from holdfast.store.port import Caller

T = TypeVar("T")


class Stack:
    """A connection of some library, and a transaction on it. `INSERT` is the caller's own write."""

    insert = "INSERT INTO {table} (n) VALUES ({n})"

    def __init__(self, url: str, table: str) -> None:
        self.url = url
        self.database = sqlite_path(url) if url.startswith("sqlite") else postgres_parts(url)[0]
        self.table = table
        self.conn: Any = None
        """What is given to `conn=`."""

    async def open(self) -> None:
        """Connect."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Begin a transaction where the library does not by itself."""

    async def enter_block(self) -> None:
        """Enter a block of the library's own that ends a transaction, or a savepoint of it, by itself."""
        await self.begin()

    async def run(self, sql: str) -> None:
        """Run a statement of the caller's own."""
        raise NotImplementedError

    async def write(self, n: int) -> None:
        """Write a row of the caller's own."""
        await self.run(self.insert.format(table=self.table, n=n))

    async def enqueue(self, task: Any, *args: Any, **options: Any) -> Handle[Any]:
        """Enqueue in the transaction."""
        handle: Handle[Any] = await task.options(conn=self.conn, **options).enqueue(*args)
        return handle

    async def enqueue_many(self, app: Holdfast, calls: Sequence[Any]) -> list[Handle[Any]]:
        """Enqueue many in the transaction."""
        return await app.enqueue_many(calls, conn=self.conn)

    async def caller(self, app: Holdfast) -> Caller:
        """Return what works in the transaction; its operations are for `drive`."""
        return app.caller(self.conn)

    async def drive(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run an operation of the caller."""
        return await operation

    async def savepoint(self) -> None:
        """Begin a savepoint."""
        await self.run("SAVEPOINT theirs")

    async def undo_savepoint(self) -> None:
        """Roll back to it."""
        await self.run("ROLLBACK TO SAVEPOINT theirs")

    async def keep_savepoint(self) -> None:
        """Release it."""
        await self.run("RELEASE SAVEPOINT theirs")

    async def commit(self) -> None:
        """Commit."""
        raise NotImplementedError

    async def rollback(self) -> None:
        """Roll back."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of the connection, whatever state it is in."""
        raise NotImplementedError


class Blocking(Stack):
    """One that blocks."""

    def __init__(self, url: str, table: str) -> None:
        super().__init__(url, table)
        self._thread: ThreadPoolExecutor | None = None

    async def do(self, work: Callable[[], T]) -> T:
        """Do something where the connection lives."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "caller")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def enqueue(self, task: Any, *args: Any, **options: Any) -> Handle[Any]:
        return await self.do(lambda: task.options(conn=self.conn, **options).enqueue_sync(*args))

    async def enqueue_many(self, app: Holdfast, calls: Sequence[Any]) -> list[Handle[Any]]:
        return await self.do(lambda: app.enqueue_many_sync(calls, conn=self.conn))

    async def caller(self, app: Holdfast) -> Caller:
        return await self.do(lambda: app.caller(self.conn))

    async def drive(self, operation: Coroutine[Any, Any, T]) -> T:
        return await self.do(lambda: by_hand(operation))

    async def commit(self) -> None:
        await self.do(self.conn.commit)

    async def rollback(self) -> None:
        await self.do(self.conn.rollback)

    async def close(self) -> None:
        try:
            await self.do(self.close_here)
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None

    def close_here(self) -> None:
        self.conn.close()


# -- drivers ---------------------------------------------------------------------------------------------------------------


class Asyncpg(Stack):
    async def open(self) -> None:
        self.conn = await asyncpg.connect(self.database)

    async def begin(self) -> None:
        self._transaction = self.conn.transaction()
        await self._transaction.start()

    async def run(self, sql: str) -> None:
        await self.conn.execute(sql)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def close(self) -> None:
        await self.conn.close()


class AsyncpgPool(Asyncpg):
    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.database, min_size=0, max_size=1)
        self.conn = await self._pool.acquire()

    async def close(self) -> None:
        self._pool.terminate()


class Psycopg(Blocking):
    async def open(self) -> None:
        self.conn = await self.do(lambda: psycopg.connect(self.database))

    async def enter_block(self) -> None:
        self._block = self.conn.transaction()  # kept: it leaves when it is collected
        await self.do(self._block.__enter__)

    async def run(self, sql: str) -> None:
        await self.do(lambda: self.conn.execute(sql))


class PsycopgOtherRows(Psycopg):
    """With rows, cursors and prepared statements as some set them."""

    async def open(self) -> None:
        self.conn = await self.do(
            lambda: psycopg.connect(
                self.database,
                row_factory=psycopg.rows.dict_row,
                cursor_factory=psycopg.ClientCursor,
                prepare_threshold=0,
            )
        )


class PsycopgAutocommit(Psycopg):
    """Which commits by itself, except inside `with connection.transaction()`."""

    async def open(self) -> None:
        self.conn = await self.do(lambda: psycopg.connect(self.database, autocommit=True))

    async def begin(self) -> None:
        self._transaction = self.conn.transaction()
        await self.do(self._transaction.__enter__)

    async def commit(self) -> None:
        await self.do(lambda: self._transaction.__exit__(None, None, None))

    async def rollback(self) -> None:
        undo = psycopg.Rollback(self._transaction)
        await self.do(lambda: self._transaction.__exit__(psycopg.Rollback, undo, None))


class PsycopgPipeline(Psycopg):
    async def open(self) -> None:
        await super().open()
        self._pipeline = self.conn.pipeline()
        await self.do(self._pipeline.__enter__)

    def close_here(self) -> None:
        self.conn.close()


class PsycopgAsync(Stack):
    async def open(self) -> None:
        self.conn = await psycopg.AsyncConnection.connect(self.database)

    async def enter_block(self) -> None:
        self._block = self.conn.transaction()
        await self._block.__aenter__()

    async def run(self, sql: str) -> None:
        await self.conn.execute(sql)

    async def commit(self) -> None:
        await self.conn.commit()

    async def rollback(self) -> None:
        await self.conn.rollback()

    async def close(self) -> None:
        await self.conn.close()


class Sqlite3(Blocking):
    async def open(self) -> None:
        self.conn = await self.do(lambda: sqlite3.connect(self.database))

    async def begin(self) -> None:
        await self.run("BEGIN")

    async def run(self, sql: str) -> None:
        await self.do(lambda: self.conn.execute(sql).close())


class Aiosqlite(Stack):
    async def open(self) -> None:
        self.conn = await aiosqlite.connect(self.database)

    async def begin(self) -> None:
        await self.run("BEGIN")

    async def run(self, sql: str) -> None:
        await self.conn.execute(sql)

    async def commit(self) -> None:
        await self.conn.commit()

    async def rollback(self) -> None:
        await self.conn.rollback()

    async def close(self) -> None:
        await self.conn.close()


# -- SQLAlchemy ------------------------------------------------------------------------------------------------------------


def engine_url(url: str, driver: str) -> str:
    """Return the URL of a database in the words of SQLAlchemy."""
    if url.startswith("sqlite"):
        return url.replace("sqlite:", f"sqlite+{driver}:")
    return postgres_parts(url)[0].replace("postgresql:", f"postgresql+{driver}:")


class SqlalchemySession(Blocking):
    driver = "psycopg"

    async def open(self) -> None:
        self.engine = create_engine(engine_url(self.url, self.driver))
        self.conn = await self.do(lambda: Session(self.engine))

    async def enter_block(self) -> None:
        await self.savepoint()

    async def run(self, sql: str) -> None:
        await self.do(lambda: self.conn.execute(text(sql)))

    async def savepoint(self) -> None:
        self._nested = await self.do(self.conn.begin_nested)

    async def undo_savepoint(self) -> None:
        await self.do(self._nested.rollback)

    async def keep_savepoint(self) -> None:
        await self.do(self._nested.commit)

    def close_here(self) -> None:
        self.conn.close()
        self.engine.dispose()


class SqlalchemyScoped(SqlalchemySession):
    async def open(self) -> None:
        self.engine = create_engine(engine_url(self.url, self.driver))
        self.conn = scoped_session(sessionmaker(self.engine))


class SqlalchemyConnection(SqlalchemySession):
    async def open(self) -> None:
        self.engine = create_engine(engine_url(self.url, self.driver))
        self.conn = await self.do(self.engine.connect)


class SqlalchemySqlite(SqlalchemySession):
    driver = "pysqlite"


class SqlalchemySqliteConnection(SqlalchemyConnection):
    driver = "pysqlite"


class SqlalchemySqliteBegun(SqlalchemySession):
    """As SQLAlchemy's documentation has it, for savepoints that work: no transactions by the driver, BEGIN by an event."""

    driver = "pysqlite"

    async def open(self) -> None:
        await super().open()

        @event.listens_for(self.engine, "connect")
        def connected(driver: Any, _record: Any) -> None:
            driver.isolation_level = None

        @event.listens_for(self.engine, "begin")
        def begun(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")


class SqlalchemyAsync(Stack):
    driver = "asyncpg"

    async def open(self) -> None:
        self.engine = create_async_engine(engine_url(self.url, self.driver))
        self.conn = AsyncSession(self.engine)

    async def enter_block(self) -> None:
        await self.savepoint()

    async def run(self, sql: str) -> None:
        await self.conn.execute(text(sql))

    async def savepoint(self) -> None:
        self._nested = await self.conn.begin_nested()

    async def undo_savepoint(self) -> None:
        await self._nested.rollback()

    async def keep_savepoint(self) -> None:
        await self._nested.commit()

    async def commit(self) -> None:
        await self.conn.commit()

    async def rollback(self) -> None:
        await self.conn.rollback()

    async def close(self) -> None:
        await self.conn.close()
        await self.engine.dispose()


class SqlalchemyAsyncPsycopg(SqlalchemyAsync):
    driver = "psycopg"


class SqlalchemyAsyncConnection(SqlalchemyAsync):
    async def open(self) -> None:
        self.engine = create_async_engine(engine_url(self.url, self.driver))
        self.conn = await self.engine.connect()


class SqlalchemyAiosqlite(SqlalchemyAsync):
    driver = "aiosqlite"


# -- Django ----------------------------------------------------------------------------------------------------------------


class Django(Blocking):
    """A database of Django, by the proxy that `django.db.connection` is."""

    alias = "holdfast-callers"

    async def open(self) -> None:
        if not settings.configured:
            settings.configure(DATABASES={})
        if not apps.ready:
            django.setup()
        where = psycopg.conninfo.conninfo_to_dict(self.database) if self.url.startswith("postgresql") else None
        described = (
            {"ENGINE": "django.db.backends.sqlite3", "NAME": self.database}
            if where is None
            else {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": where["dbname"],
                "HOST": where["host"],
                "PORT": where["port"],
                "USER": where["user"],
            }
        )
        connections.settings[self.alias] = connections.configure_settings({"default": {}, self.alias: described})[self.alias]
        self.conn = await self.do(lambda: connections[self.alias])

    async def begin(self) -> None:
        await self.do(self._enter)

    def _enter(self) -> None:
        block = transaction.atomic(using=self.alias)
        block.__enter__()
        self._blocks = [*getattr(self, "_blocks", []), block]

    def _leave(self, *, undo: bool) -> None:
        if undo:
            self.conn.set_rollback(True)
        self._blocks.pop().__exit__(None, None, None)

    async def run(self, sql: str) -> None:
        def execute() -> None:
            with self.conn.cursor() as cursor:
                cursor.execute(sql)

        await self.do(execute)

    async def savepoint(self) -> None:
        await self.begin()

    async def undo_savepoint(self) -> None:
        await self.do(lambda: self._leave(undo=True))

    async def keep_savepoint(self) -> None:
        await self.do(lambda: self._leave(undo=False))

    async def commit(self) -> None:
        await self.do(lambda: self._leave(undo=False))

    async def rollback(self) -> None:
        await self.do(lambda: self._leave(undo=True))

    def close_here(self) -> None:
        self.conn.close()
        self.conn.in_atomic_block = False
        del connections[self.alias]
        del connections.settings[self.alias]


class DjangoUsing(Django):
    """A database of Django, by its alias."""

    async def enqueue(self, task: Any, *args: Any, **options: Any) -> Handle[Any]:
        return await self.do(lambda: task.options(using=self.alias, **options).enqueue_sync(*args))


POSTGRES: dict[str, type[Stack]] = {
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "psycopg": Psycopg,
    "psycopg-other-rows": PsycopgOtherRows,
    "psycopg-autocommit": PsycopgAutocommit,
    "psycopg-pipeline": PsycopgPipeline,
    "psycopg-async": PsycopgAsync,
    "sqlalchemy-session": SqlalchemySession,
    "sqlalchemy-scoped": SqlalchemyScoped,
    "sqlalchemy-connection": SqlalchemyConnection,
    "sqlalchemy-async-asyncpg": SqlalchemyAsync,
    "sqlalchemy-async-psycopg": SqlalchemyAsyncPsycopg,
    "sqlalchemy-async-connection": SqlalchemyAsyncConnection,
    "django": Django,
    "django-using": DjangoUsing,
}

SQLITE: dict[str, type[Stack]] = {
    "sqlite3": Sqlite3,
    "aiosqlite": Aiosqlite,
    "sqlalchemy-sqlite": SqlalchemySqlite,
    "sqlalchemy-sqlite-connection": SqlalchemySqliteConnection,
    "sqlalchemy-sqlite-begun": SqlalchemySqliteBegun,
    "sqlalchemy-aiosqlite": SqlalchemyAiosqlite,
    "django-sqlite": Django,
}
