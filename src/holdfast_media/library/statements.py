"""Statements of the library on any connection: its own, a job's transaction, or one that a caller brings.

Statements are written once, with `?` for values and bare names of tables, and brought into the dialect of the database and the
driver here. Operations are coroutines; where the connection blocks they never suspend, so that blocking code may drive them by
hand (`drive`).
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from holdfast import BadSetting, BlockingTransaction, JobTransaction
from holdfast_media.library.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

T = TypeVar("T")

_TABLE: Final = re.compile(rf"\b({'|'.join(TABLES)})\b")
_PLACE: Final = re.compile(r"\?")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database spells what differs between them."""

    postgres: bool
    schema: str | None = None
    """The schema that the tables are in; `None`: there are none."""

    @classmethod
    def of_url(cls, url: str) -> Dialect:
        """Return the dialect of the store that a URL names; raises `BadSetting` for one that has no tables."""
        scheme = url.partition("://")[0]
        if scheme == "sqlite":
            return cls(postgres=False)
        if scheme in {"postgresql", "postgres"}:
            return cls(postgres=True, schema=dict(parse_qsl(urlsplit(url).query)).get("schema", "holdfast"))
        raise BadSetting(
            f"the media library lives in the database of the jobs, and {scheme}:// has none that it can use. "
            "Keep the jobs in sqlite:///jobs.db or postgresql://user@host/database"
        )

    @property
    def lock(self) -> str | None:
        """The statement that lets one session at a time make tables; `None`: none is needed."""
        return "SELECT pg_advisory_xact_lock(hashtext('holdfast_media'))" if self.postgres else None

    def text(self, sql: str, place: str) -> str:
        """Return a statement as this database takes it; `place` is how its driver writes the values (`?`, `$`, `%s`)."""
        if self.schema is not None:
            quoted = '"' + self.schema.replace('"', '""') + '"'
            sql = _TABLE.sub(lambda found: f"{quoted}.{found[1]}", sql)
        if place == "?":
            return sql
        if place == "$":
            numbers = iter(range(1, sql.count("?") + 1))
            return _PLACE.sub(lambda _: f"${next(numbers)}", sql)
        return sql.replace("?", place)


class Statements:
    """Something that runs the library's statements; `conn` is what jobs are enqueued with in the same transaction."""

    def __init__(self, conn: Any, dialect: Dialect) -> None:
        self.conn = conn
        self.dialect = dialect
        self._kind = _kind(conn)

    @property
    def blocking(self) -> bool:
        """Whether nothing here ever suspends."""
        return self._kind in _BLOCKING

    async def execute(self, sql: str, *args: Any) -> list[Sequence[Any]]:
        """Run one statement and return its rows, each a sequence of columns."""
        place = _PLACES.get(self._kind) or ("$" if self.dialect.postgres else "?")
        result = _RUN[self._kind](self.conn, self.dialect.text(sql, place), args)
        if inspect.isawaitable(result):
            result = await result
        return [tuple(row) for row in result]


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because its connection blocks."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise BadSetting("this connection has to be awaited: use the coroutine, or bring a blocking connection")


# --- the stacks that callers bring ----------------------------------------------------------------------------------------


def _kind(conn: Any) -> str:
    """Return which stack a connection belongs to, by the names of its classes: nothing is imported to find out."""
    if isinstance(conn, JobTransaction):
        return "job"
    if isinstance(conn, BlockingTransaction):
        return "blocking job"
    for kind in type(conn).__mro__:
        if (found := _STACKS.get(f"{kind.__module__}.{kind.__qualname__}")) is not None:
            return found
    raise BadSetting(
        f"conn= was given a {type(conn).__module__}.{type(conn).__qualname__}. The library takes a connection of asyncpg, "
        "psycopg 3, sqlite3 or aiosqlite, a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, "
        "django.db.connection, or the transaction of a job"
    )


_STACKS: Final = {
    "asyncpg.connection.Connection": "asyncpg",
    "asyncpg.pool.PoolConnectionProxy": "asyncpg",
    "psycopg.Connection": "psycopg",
    "psycopg.AsyncConnection": "psycopg async",
    "sqlite3.Connection": "sqlite3",
    "aiosqlite.core.Connection": "aiosqlite",
    "sqlalchemy.orm.session.Session": "sqlalchemy session",
    "sqlalchemy.orm.scoping.scoped_session": "sqlalchemy session",
    "sqlalchemy.engine.base.Connection": "sqlalchemy",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy async session",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "sqlalchemy async session",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy async",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django",
    "django.utils.connection.ConnectionProxy": "django",
}
_BLOCKING: Final = frozenset({"blocking job", "psycopg", "sqlite3", "sqlalchemy session", "sqlalchemy", "django"})
_PLACES: Final = {"psycopg": "%s", "psycopg async": "%s", "django": "%s"}


async def _psycopg_async(conn: Any, sql: str, args: Sequence[Any]) -> list[Any]:
    cursor = await conn.execute(sql, args)
    return await cursor.fetchall() if cursor.description else []


def _psycopg(conn: Any, sql: str, args: Sequence[Any]) -> list[Any]:
    cursor = conn.execute(sql, args)
    return cursor.fetchall() if cursor.description else []


async def _aiosqlite(conn: Any, sql: str, args: Sequence[Any]) -> list[Any]:
    return list(await conn.execute_fetchall(sql, args))


def _django(conn: Any, sql: str, args: Sequence[Any]) -> list[Any]:
    with conn.cursor() as cursor:
        cursor.execute(sql, args)
        return cursor.fetchall() if cursor.description else []


def _sqlalchemy(conn: Any, sql: str, args: Sequence[Any]) -> list[Any]:
    sql, named = _named(sql, args)
    result = conn.execute(_sqlalchemy_text(sql), named)
    return list(result.all()) if result.returns_rows else []


async def _sqlalchemy_async(conn: Any, sql: str, args: Sequence[Any]) -> list[Any]:
    sql, named = _named(sql, args)
    result = await conn.execute(_sqlalchemy_text(sql), named)
    return list(result.all()) if result.returns_rows else []


def _named(sql: str, args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return a statement with values by name, as SQLAlchemy takes them whatever driver is below."""
    numbers = iter(range(1, len(args) + 1))
    text = re.sub(r"\?|\$\d+", lambda _: f":p{next(numbers)}", sql)
    return text, {f"p{number}": value for number, value in enumerate(args, start=1)}


def _sqlalchemy_text(sql: str) -> Any:
    from sqlalchemy import text  # noqa: PLC0415  the caller's own package

    return text(sql)


_RUN: Final = {
    "job": lambda conn, sql, args: conn.execute(sql, *args),
    "blocking job": lambda conn, sql, args: conn.execute(sql, *args),
    "asyncpg": lambda conn, sql, args: conn.fetch(sql, *args),
    "psycopg": _psycopg,
    "psycopg async": _psycopg_async,
    "sqlite3": lambda conn, sql, args: conn.execute(sql, args).fetchall(),
    "aiosqlite": _aiosqlite,
    "django": _django,
    "sqlalchemy": _sqlalchemy,
    "sqlalchemy session": _sqlalchemy,
    "sqlalchemy async": _sqlalchemy_async,
    "sqlalchemy async session": _sqlalchemy_async,
}
