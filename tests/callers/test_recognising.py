"""What `conn=` takes, and what it says to everything else."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast import BadSetting
from holdfast.callers.recognising import Stack, stack_of
from holdfast.connect import Adapters

if TYPE_CHECKING:
    from pathlib import Path

POSTGRES = "postgresql://anna:secret@localhost/jobs"
SQLITE = "sqlite:///jobs.db"


class connection:  # noqa: N801  as psycopg2 has it
    __module__ = "psycopg2.extensions"


class ConnectionPool:
    __module__ = "psycopg_pool"


def made(kind: type[Any]) -> Any:
    """Return an object of a class that cannot be built without a server."""
    return object.__new__(kind)


@pytest.mark.parametrize(
    ("conn", "stack"),
    [
        (made(asyncpg.Connection), Stack.ASYNCPG),
        (made(asyncpg.pool.PoolConnectionProxy), Stack.ASYNCPG),
        (made(psycopg.Connection), Stack.PSYCOPG),
        (made(psycopg.AsyncConnection), Stack.PSYCOPG_ASYNC),
        (Session(), Stack.SQLALCHEMY),
        (async_scoped_session(lambda: None, lambda: None), Stack.SQLALCHEMY),  # type: ignore[arg-type]
    ],
    ids=lambda value: type(value).__qualname__,
)
def test_a_connection_is_known_by_its_class(conn: object, stack: Stack) -> None:
    assert stack_of(conn) is stack


def test_a_class_made_from_a_known_one_is_known_too() -> None:
    class Ours(sqlite3.Connection):
        pass

    assert stack_of(Ours(":memory:")) is Stack.SQLITE3


@pytest.mark.parametrize(
    ("conn", "says"),
    [
        (object(), r"a builtins.object. It takes a connection of asyncpg, psycopg 3, sqlite3"),
        (42, r"a builtins.int. It takes"),
        ("default", r"the text 'default'.*using="),
        (connection(), r"psycopg2 is not taken: use psycopg 3"),
        (ConnectionPool(), r"with pool.connection\(\) as connection"),
        (made(asyncpg.Pool), r"async with pool.acquire\(\)"),
        (create_engine("sqlite://"), r"with engine.begin\(\) as connection"),
        (create_async_engine("sqlite+aiosqlite://"), r"async with engine.begin\(\) as connection"),
        (sessionmaker(), r"with maker.begin\(\) as session"),
        (made(psycopg.Cursor), r"cursor.connection"),
    ],
    ids=lambda value: type(value).__qualname__,
)
def test_everything_else_is_refused_with_what_was_given_and_what_is_taken(conn: object, says: str) -> None:
    with pytest.raises(BadSetting, match=f"conn= was given.*{says}"):
        Adapters(SQLITE).caller(conn)


@pytest.mark.parametrize(
    ("url", "conn", "says"),
    [
        (
            POSTGRES,
            sqlite3.connect(":memory:"),
            r"sqlite3.Connection, a connection to sqlite, but .* postgresql://anna:\*\*\*@",
        ),
        (
            SQLITE,
            made(asyncpg.Connection),
            r"asyncpg.connection.Connection, a connection to postgresql, but .* sqlite:///jobs.db",
        ),
        (SQLITE, made(psycopg.Connection), r"psycopg.Connection, a connection to postgresql, but .* sqlite:///jobs.db"),
        (SQLITE, made(psycopg.AsyncConnection), r"psycopg.AsyncConnection, a connection to postgresql, but"),
        (POSTGRES, Session(create_engine("sqlite://")), r"Session, a connection to sqlite, but .* postgresql://"),
        (SQLITE, Session(create_engine("postgresql+psycopg://x/y")), r"Session, a connection to postgresql, but .* sqlite://"),
        ("memory://", sqlite3.connect(":memory:"), r"sqlite3.Connection, .* memory://.*no transactions.*leave conn= out"),
        ("memory://", made(asyncpg.Connection), r"asyncpg.connection.Connection, .* memory://.*no transactions"),
    ],
)
def test_a_connection_to_another_kind_of_database_is_refused_naming_both(url: str, conn: object, says: str) -> None:
    with pytest.raises(BadSetting, match=says) as refused:
        Adapters(url).caller(conn)
    assert "secret" not in str(refused.value)


def test_no_library_is_imported_to_find_out(tmp_path: Path) -> None:
    program = (
        "import sqlite3, sys\n"
        "from holdfast.connect import Adapters\n"
        "for conn in (sqlite3.connect(':memory:'), object()):\n"
        "    try: Adapters('memory://').caller(conn)\n"
        "    except ValueError: pass\n"
        "print({'asyncpg', 'psycopg', 'sqlalchemy', 'django', 'aiosqlite'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "set()"
