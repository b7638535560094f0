"""psycopg 3: its connections, blocking and not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from holdfast.callers.statements import with_percents
from holdfast.store.postgres.caller import Trouble, inside_block

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

C = TypeVar("C", bound="psycopg.Connection[Any] | psycopg.AsyncConnection[Any]")


class _Line(Generic[C]):
    """What can be said of a connection without asking the server."""

    def __init__(self, connection: C) -> None:
        self._connection = connection

    @property
    def connection(self) -> C:
        """What the caller brought."""
        return self._connection

    def in_transaction(self) -> bool:
        """Tell whether a transaction is open, or will be with the next statement."""
        if not self._connection.autocommit:
            return True  # psycopg begins one by itself
        # in a pipeline the server may not have answered a BEGIN yet; of a closed connection the next statement will tell
        return self._connection.info.transaction_status is not TransactionStatus.IDLE

    def two_phase(self) -> bool:
        """Tell whether `tpc_begin` was called."""
        return self._connection._tpc is not None  # noqa: SLF001  the status is that of any transaction

    def _to_begin(self) -> bool:
        """Tell whether a transaction has yet to be begun; refuse where psycopg forbids to commit it."""
        if self.two_phase():
            raise inside_block("a two-phase transaction (tpc_begin)")
        if self._connection._num_transactions:  # noqa: SLF001  as above
            raise inside_block("a block of its own (with connection.transaction())")
        return not self.in_transaction()

    def _in_pipeline(self) -> bool:
        return not self._connection.closed and self._connection.info.pipeline_status is not PipelineStatus.OFF

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002  nobody here can tell
        """Tell that psycopg says nothing about commits."""
        return False

    def trouble(self, error: BaseException) -> Trouble | None:
        """Put an error of the driver into the server's terms."""
        return trouble(error)


class PsycopgLine(_Line["psycopg.Connection[Any]"]):
    """Statements on a `psycopg.Connection`."""

    blocking = True
    hint = "with connection.transaction():"

    async def begin(self) -> None:
        """Begin a transaction where none is open; refused inside `transaction()` and in two phases."""
        if self._to_begin():
            await self.run("BEGIN")

    async def run(self, sql: str) -> None:
        """Run a command."""
        with self._cursor() as cursor, self._answered():
            cursor.execute(sql.encode(), prepare=False)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows. Not prepared: behind PgBouncer the next one may meet another server process."""
        with self._cursor() as cursor:
            with self._answered():
                cursor.execute(with_percents(sql).encode(), parameters, prepare=False)
            return cursor.fetchall()

    def _cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        # not connection.cursor(): the caller may have asked for other kinds of cursors and rows
        return psycopg.Cursor(self._connection, row_factory=tuple_row)

    def _answered(self) -> AbstractContextManager[Any]:
        """Have an error come at its statement: a pipeline in a pipeline ends with a sync, without which nothing more is run."""
        return self._connection.pipeline() if self._in_pipeline() else nullcontext()

    async def commit(self) -> None:
        """Commit."""
        self._connection.commit()

    async def rollback(self) -> None:
        """Undo everything."""
        self._connection.rollback()


class AsyncPsycopgLine(_Line["psycopg.AsyncConnection[Any]"]):
    """Statements on a `psycopg.AsyncConnection`. As `PsycopgLine`, in everything."""

    blocking = False
    hint = "async with connection.transaction():"

    async def begin(self) -> None:
        """Begin a transaction where none is open; refused inside `transaction()` and in two phases."""
        if self._to_begin():
            await self.run("BEGIN")

    async def run(self, sql: str) -> None:
        """Run a command."""
        async with self._cursor() as cursor, self._answered():
            await cursor.execute(sql.encode(), prepare=False)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        async with self._cursor() as cursor:
            async with self._answered():
                await cursor.execute(with_percents(sql).encode(), parameters, prepare=False)
            return await cursor.fetchall()

    def _cursor(self) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        return psycopg.AsyncCursor(self._connection, row_factory=tuple_row)

    def _answered(self) -> AbstractAsyncContextManager[Any]:
        return self._connection.pipeline() if self._in_pipeline() else nullcontext()

    async def commit(self) -> None:
        """Commit."""
        await self._connection.commit()

    async def rollback(self) -> None:
        """Undo everything."""
        await self._connection.rollback()


def trouble(error: BaseException | None) -> Trouble | None:
    """Return what an error of psycopg says: the server's code and words, or no code where the connection itself failed."""
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate is not None:
        return Trouble(error.sqlstate, error.diag.message_primary or str(error))
    return Trouble(None, str(error)) if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) else None
