"""SQLAlchemy: sessions and connections, blocking and not, and the sqlite3 connections under them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import Connection, TwoPhaseTransaction, event
from sqlalchemy.exc import OperationalError as SqlalchemyOperationalError
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from holdfast.errors import BadSetting

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from sqlalchemy import URL, Engine
    from sqlalchemy.engine.interfaces import Dialect
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import SessionTransaction

T = TypeVar("T")

LOG: Final = logging.getLogger("holdfast")

DRIVERS: Final = {"postgresql": ("asyncpg", "psycopg", "psycopg_async"), "sqlite": ("pysqlite", "aiosqlite")}

_ASYNC_HINT: Final = "async with async_sessionmaker(engine).begin() as session:"

_CALLS: Final = "holdfast.after_commit"
"""Where a session's `info` keeps what is to be called when its transaction has committed."""


class Sqlalchemy:
    """A session or a connection of SQLAlchemy, whichever the caller brought."""

    def __init__(self, brought: object) -> None:
        self.brought = brought
        self._async: AsyncSession | AsyncConnection | None = None
        self._sync: Session | Connection
        if any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(brought).__mro__):
            self._async, self._sync = _both_sides(brought)
        else:
            whole: Any = brought() if isinstance(brought, scoped_session) else brought
            self._sync = whole
        self.blocking = self._async is None

    @property
    def dialect(self) -> Dialect:
        """What it speaks."""
        return self._bind.dialect

    @property
    def url(self) -> URL:
        """Where it leads."""
        return self._bind.engine.url

    @property
    def _bind(self) -> Engine | Connection:
        try:
            return self._sync.get_bind() if isinstance(self._sync, Session) else self._sync
        except UnboundExecutionError as error:
            raise BadSetting(
                "conn= was given a session that has no bind of its own, so it cannot be said which database is meant: "
                "give the connection, conn=session.connection(bind_arguments={…})"
            ) from error

    @property
    def hint(self) -> str:
        """The line to write for one that commits each statement."""
        return "with sessionmaker(engine).begin() as session:" if self.blocking else _ASYNC_HINT

    async def apart(self, work: Callable[[Connection], T]) -> T:
        """Do blocking work on the connection of the transaction, which begins where there is none."""
        if self._async is None:
            return work(self._connection())
        return await self._async.run_sync(lambda _: work(self._connection()))

    def _connection(self) -> Connection:
        if isinstance(self._sync, Session):
            return self._sync.connection()
        if not self._sync.in_transaction():
            self._sync.begin()  # as its own first statement would: what it does not know of it does not commit
        return self._sync

    async def begin(self) -> None:
        """Begin a transaction where none is open; raises `BadSetting` where a commit would not be the last word."""
        if self._sync.in_nested_transaction():
            raise _within("is inside begin_nested() already, so that a commit would be one of its savepoint")
        if not self._sync.in_transaction() and isinstance(self._bind, Connection) and self._bind.in_transaction():
            raise _within("joins a transaction on somebody's connection, which its own commit does not end")
        await self.apart(lambda _: None)

    async def commit(self) -> None:
        """Commit."""
        if self._async is None:
            self._sync.commit()
        else:
            await self._async.commit()

    async def rollback(self) -> None:
        """Undo everything."""
        if self._async is None:
            self._sync.rollback()
        else:
            await self._async.rollback()

    def two_phase(self) -> bool:
        """Tell whether the transaction on the connection was begun with `begin_twophase`."""
        connection = self._bind
        return isinstance(connection, Connection) and isinstance(connection.get_transaction(), TwoPhaseTransaction)

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have a session call when it has committed. A connection tells before it commits, which is of no use."""
        session = self._sync
        if not isinstance(session, Session) or isinstance(session.get_bind(), Connection):
            return False  # a session on somebody's connection: its commit is not the last word
        if _CALLS not in session.info:
            # once in the life of a session, and gone with it: listeners for one transaction would be removed while they run
            session.info[_CALLS] = []
            event.listen(session, "after_commit", _committed)
            event.listen(session, "after_transaction_end", _ended)
        session.info[_CALLS].append(call)
        return True


def _both_sides(brought: Any) -> tuple[AsyncSession | AsyncConnection, Session | Connection]:
    """Return an async session or connection, and the blocking one inside it."""
    # needs greenlet, which those who only block need not have
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session  # noqa: PLC0415  as said

    whole: Any = brought() if isinstance(brought, async_scoped_session) else brought
    if isinstance(whole, AsyncSession):
        return whole, whole.sync_session
    if whole.sync_connection is None:
        raise BadSetting("conn= was given an AsyncConnection that was not started: async with engine.begin() as connection:")
    return whole, whole.sync_connection


def _within(what: str) -> BadSetting:
    return BadSetting(
        f"the session or connection {what}: open job.transaction(conn=…) outside of it, where it begins and commits by itself"
    )


def _committed(session: Session) -> None:
    if session.in_nested_transaction():
        return  # a savepoint was released: SQLAlchemy calls that a commit, too
    calls, session.info[_CALLS] = session.info[_CALLS], []
    for call in calls:
        try:
            call()
        except Exception:  # the caller's commit stands, and a hint only saves time
            LOG.warning("could not tell workers of a commit: they find the jobs at their next look", exc_info=True)


def _ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info[_CALLS].clear()


class SqlalchemyKeeper:
    """The sqlite3 connection under a session or a connection of SQLAlchemy."""

    def __init__(self, through: Sqlalchemy) -> None:
        self._through = through
        self._found = False
        self.blocking = through.blocking
        if through.blocking and through.dialect.is_async:
            raise BadSetting("conn= was given the blocking side of an AsyncSession on aiosqlite: give the AsyncSession itself")

    @property
    def brought(self) -> Any:
        """What the caller brought."""
        return self._through.brought

    async def begin(self) -> None:
        """Begin a transaction where none is open; refused inside `begin_nested()`."""
        await self._through.begin()

    async def apart(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do blocking work on the connection, in the thread that may use it."""
        if self.blocking:
            return await self._through.apart(lambda connection: work(self._checked(connection.connection.driver_connection)))
        from holdfast.callers.aiosqlite import in_thread_of  # noqa: PLC0415  only where it is used

        driver: Any = await self._through.apart(lambda connection: connection.connection.driver_connection)
        return await in_thread_of(driver, lambda connection: work(self._checked(connection)))

    def _checked(self, connection: Any) -> sqlite3.Connection:
        kept: sqlite3.Connection = connection
        if not self._found and not kept.in_transaction and kept.isolation_level is None:
            raise commits_each_statement(self._through.hint)
        self._found = True  # one that is not open later was ended by somebody: whoever works on the connection says so
        return kept

    async def commit(self) -> None:
        """Commit."""
        try:
            await self._through.commit()
        except SqlalchemyOperationalError as error:
            raise (error.orig or error) from error

    async def rollback(self) -> None:
        """Undo everything."""
        await self._through.rollback()

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have a session call when it has committed."""
        return self._through.after_commit(call)


def commits_each_statement(hint: str) -> BadSetting:
    """Return the error for a connection that has no transactions; `hint` is the line that opens one."""
    return BadSetting(
        "conn= was given a connection of SQLAlchemy with isolation_level='AUTOCOMMIT': it commits every statement by itself, "
        f"so there is no transaction for the jobs to stand or fall with. Use an engine without it: {hint}"
    )
