"""asyncpg connections as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

from holdfast.errors import HoldfastError
from holdfast.store.postgres.caller import Trouble, inside_block

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class AsyncpgLine:
    """A connection of asyncpg, out of a pool or not. `timeout` bounds each statement; `None`: as the connection says."""

    blocking = False
    hint = "async with connection.transaction():"

    def __init__(self, connection: Any, *, timeout: float | None = None) -> None:
        self._connection = connection
        self._timeout = timeout

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        return self._connection

    def in_transaction(self) -> bool:
        """Tell whether a transaction is open. Of a connection that was lost, or given back, the next statement tells more."""
        return self._lost() or bool(self._connection.is_in_transaction())

    async def begin(self) -> None:
        """Begin a transaction where none is open, at the level that ending an attempt takes; refused inside `transaction()`."""
        if not self.in_transaction():
            await self.run("BEGIN ISOLATION LEVEL READ COMMITTED")
        elif not self._lost() and self._connection._top_xact is not None:  # noqa: SLF001  a plain BEGIN looks the same outside
            raise inside_block("a block of its own (async with connection.transaction())")

    async def run(self, sql: str) -> None:
        """Run a command; never prepared, for a failed transaction takes no such."""
        await self._connection.execute(sql, timeout=self._timeout)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement and return its rows."""
        rows: Sequence[Sequence[Any]] = await self._connection.fetch(sql, *parameters, timeout=self._timeout)
        return rows

    async def commit(self) -> None:
        """Commit. The server answers the COMMIT of a failed transaction with a rollback, and no error."""
        if await self._connection.execute("COMMIT", timeout=self._timeout) != "COMMIT":
            raise HoldfastError(
                "a statement of this transaction had failed before, and the error was not raised: nothing was committed. "
                "Let errors of statements leave the block of the transaction, or put a savepoint around them: "
                'await tx.execute("SAVEPOINT part"), and ROLLBACK TO part after an error'
            )

    async def rollback(self) -> None:
        """Roll back."""
        if self._connection.is_in_transaction():
            await self.run("ROLLBACK")

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002  the line's signature
        """Say no: asyncpg tells nobody of a commit."""
        return False

    def two_phase(self) -> bool:
        """Say no: asyncpg knows nothing of two-phase commit."""
        return False

    def trouble(self, error: BaseException) -> Trouble | None:
        """Return what an exception of asyncpg says."""
        match error:
            case asyncpg.PostgresError():
                return Trouble(error.sqlstate, str(error))
            case OSError() | TimeoutError():
                return Trouble(None, str(error).rstrip(".") or type(error).__name__)
            case asyncpg.InterfaceError() | asyncpg.InternalClientError() if self._lost():
                return Trouble(None, "the connection is closed: it was lost, or given back to its pool")
            case _:
                return None

    def _lost(self) -> bool:
        try:
            return bool(self._connection.is_closed())
        except asyncpg.InterfaceError:  # its pool has taken it back, as it does by itself when it is lost
            return True
