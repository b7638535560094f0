"""SQLAlchemy on PostgreSQL. Apart from the rest, for whoever is on SQLite has no driver for PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import InterfaceError as SqlalchemyInterfaceError
from sqlalchemy.exc import OperationalError as SqlalchemyOperationalError

from holdfast.callers.sqlalchemy import commits_each_statement
from holdfast.callers.statements import with_percents
from holdfast.store.postgres.caller import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from holdfast.callers.sqlalchemy import Sqlalchemy


class SqlalchemyLine:
    """Statements on PostgreSQL, through SQLAlchemy rather than on the driver's connection.

    On asyncpg SQLAlchemy begins the server's transaction with its own first statement: one sent around it would stand alone.
    """

    def __init__(self, through: Sqlalchemy) -> None:
        self._through = through
        self.blocking = through.blocking
        self.hint = through.hint
        self._numbered = through.dialect.paramstyle == "numeric_dollar"

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        return self._through.brought

    def in_transaction(self) -> bool:
        """Tell that one will be open with the next statement; that refuses where each is committed at once."""
        return True

    async def begin(self) -> None:
        """Begin a transaction where none is open; refused inside `begin_nested()`."""
        await self._through.begin()

    async def run(self, sql: str) -> None:
        """Run a command."""
        await self._through.apart(lambda connection: self._execute(connection, sql).close())

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement and return its rows."""
        statement = sql if self._numbered else with_percents(sql)
        return await self._through.apart(lambda connection: self._execute(connection, statement, parameters).fetchall())

    def _execute(self, connection: Connection, sql: str, parameters: Sequence[Any] = ()) -> Any:
        driver: Any = connection.connection.dbapi_connection
        if driver.autocommit:  # asyncpg's and psycopg's both have it
            raise commits_each_statement(self.hint)
        # a caller who streams would have the statement declared as a cursor
        return connection.exec_driver_sql(sql, tuple(parameters), execution_options={"stream_results": False})

    async def commit(self) -> None:
        """Commit."""
        await self._through.commit()

    async def rollback(self) -> None:
        """Undo everything."""
        await self._through.rollback()

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have a session call when it has committed."""
        return self._through.after_commit(call)

    def two_phase(self) -> bool:
        """Tell whether `begin_twophase` was called."""
        return self._through.two_phase()

    def trouble(self, error: BaseException) -> Trouble | None:
        """Put an error of the driver, as SQLAlchemy wraps it, into the server's terms."""
        if not isinstance(error, DBAPIError) or error.orig is None:
            return None
        state = getattr(error.orig, "sqlstate", None)
        if state is None and not isinstance(error, (SqlalchemyOperationalError, SqlalchemyInterfaceError)):
            return None
        # both drivers keep the server's words apart; asyncpg's own error is the cause of what SQLAlchemy made of it
        cause = error.orig.__cause__ or error.orig
        words = getattr(cause, "message", None) or getattr(getattr(cause, "diag", None), "message_primary", None)
        return Trouble(state, words or str(cause))
