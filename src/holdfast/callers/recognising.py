"""Which stack does a connection belong to? Told by the names of its classes: nothing is imported to find out."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from holdfast.errors import BadSetting


class Stack(Enum):
    """What a caller may bring."""

    ASYNCPG = auto()
    PSYCOPG = auto()
    PSYCOPG_ASYNC = auto()
    SQLALCHEMY = auto()
    DJANGO = auto()
    SQLITE3 = auto()
    AIOSQLITE = auto()


_STACKS: Final = {
    "asyncpg.connection.Connection": Stack.ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": Stack.ASYNCPG,
    "psycopg.Connection": Stack.PSYCOPG,
    "psycopg.AsyncConnection": Stack.PSYCOPG_ASYNC,
    "sqlalchemy.orm.session.Session": Stack.SQLALCHEMY,
    "sqlalchemy.orm.scoping.scoped_session": Stack.SQLALCHEMY,
    "sqlalchemy.engine.base.Connection": Stack.SQLALCHEMY,
    "sqlalchemy.ext.asyncio.session.AsyncSession": Stack.SQLALCHEMY,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Stack.SQLALCHEMY,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Stack.SQLALCHEMY,
    "django.db.backends.base.base.BaseDatabaseWrapper": Stack.DJANGO,
    "django.utils.connection.ConnectionProxy": Stack.DJANGO,
    "sqlite3.Connection": Stack.SQLITE3,
    "aiosqlite.core.Connection": Stack.AIOSQLITE,
}

_INSTEAD: Final = {
    "psycopg2.extensions.connection": "psycopg2 is not taken: use psycopg 3 (pip install 'psycopg[binary]')",
    "asyncpg.pool.Pool": "take one connection out of it: async with pool.acquire() as connection, connection.transaction():",
    "psycopg_pool.ConnectionPool": "take one connection out of it: with pool.connection() as connection:",
    "psycopg_pool.AsyncConnectionPool": "take one connection out of it: async with pool.connection() as connection:",
    "psycopg.Cursor": "give the connection it belongs to: cursor.connection",
    "psycopg.AsyncCursor": "give the connection it belongs to: cursor.connection",
    "sqlite3.Cursor": "give the connection it belongs to: cursor.connection",
    "sqlalchemy.engine.base.Engine": "give a transaction on it: with engine.begin() as connection:",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "give a transaction on it: async with engine.begin() as connection:",
    "sqlalchemy.orm.session.sessionmaker": "give a session of it: with maker.begin() as session:",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "give a session of it: async with maker.begin() as session:",
}
"""What people try, and what they meant."""

_TAKEN: Final = (
    "a connection of asyncpg, psycopg 3, sqlite3 or aiosqlite; a Session, AsyncSession, Connection or AsyncConnection of "
    "SQLAlchemy; or django.db.connection"
)


def stack_of(conn: object) -> Stack:
    """Return the stack a connection belongs to, or raise `BadSetting`: what was given, and what is taken."""
    names = _names(conn)
    for name in names:
        if name in _STACKS:
            return _STACKS[name]
    for name in names:
        if name in _INSTEAD:
            raise BadSetting(f"conn= was given {title(conn)}: {_INSTEAD[name]}")
    if isinstance(conn, str):
        raise BadSetting(
            f"conn= was given the text {conn!r}. It takes {_TAKEN}; the alias of a Django database goes into using="
        )
    raise BadSetting(f"conn= was given {title(conn)}. It takes {_TAKEN}")


def title(conn: object) -> str:
    """Return what a connection is called in messages: its class."""
    name = _names(conn)[0]
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _names(conn: object) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(conn).__mro__]


def other_store(brought: str, kind: str, shown: str) -> BadSetting:
    """Return the error for a connection to another kind of database than the one that the jobs are kept in."""
    if shown.startswith("memory:"):
        fix = "That has no transactions to take part in: leave conn= out, or keep the jobs in the same database"
    else:
        fix = "A transaction holds only what is in one database: keep the jobs where the connection leads, or leave conn= out"
    return BadSetting(f"conn= was given {brought}, a connection to {kind}, but the jobs of this app are kept in {shown}. {fix}")
