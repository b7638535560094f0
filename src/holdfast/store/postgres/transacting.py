"""Transactions for handlers: on connections of their own, so that claims, settlements and heartbeats never wait for them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.states import Event
from holdfast.errors import BadSetting, StoreUnavailable
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import SAVEPOINT, PostgresCaller, ended_inside
from holdfast.store.postgres.connection import LONGEST_IDLE, may_idle
from holdfast.store.postgres.handle import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.lease import Lease
    from holdfast.store.postgres.connection import Connection, Connections

LOST: Final = ("08", "57P")
"""How the codes begin of what ends a connection."""
ENDS: Final = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|;)*"
    r"(BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+((WORK|TRANSACTION)\s+)?TO))\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements that begin or end a transaction. What gets past this shows afterwards: too late for what was written."""


class PostgresTransaction(PostgresCaller):
    """The port's `Transaction`: on a connection that is given back with the commit or the rollback, whichever comes first."""

    def __init__(self, connections: Connections, connection: Connection, schema: str, channel: str, timeout: float) -> None:
        super().__init__(AsyncpgLine(connection, timeout=timeout), schema, channel, target=connections.target)
        self._connections = connections
        self._held: Connection | None = connection
        self._timeout = timeout
        self._holding = f"{may_idle(min(timeout, LONGEST_IDLE))}; {SAVEPOINT}"
        self._calls: list[Callable[[], None]] = []

    async def begin(self) -> None:
        """Begin a transaction, on another connection where the one before has ended."""
        if self._held is None:
            self._held = await self._connections.borrow()
            self._line = AsyncpgLine(self._held, timeout=self._timeout)
        try:
            await self._open()
        except BaseException:
            await self._let_go(broken=True)
            raise

    async def execute(self, sql: str, *args: Any) -> list[Any]:
        """Run one statement of the handler's own. What it raises is the driver's, unless the connection was lost."""
        self._check_open()
        if ends := ENDS.match(sql):
            raise BadSetting(f"{ends[1].upper()} is not taken here: the transaction is begun and ended by its block")
        try:
            rows = list(await self.connection.fetch(sql, *args))
        except Exception as error:
            trouble = self._line.trouble(error)
            if trouble is not None and (trouble.state is None or trouble.state.startswith(LOST)):
                raise StoreUnavailable(self._target, 0.0, trouble.message) from error
            raise
        self._check_not_ended()
        return rows

    async def commit(self) -> None:
        """Commit. `StoreUnavailable`: the outcome is unknown, and the connection is closed."""
        self._check_open()
        calls, self._calls = self._calls, []
        try:
            await super().commit()
        except BaseException as error:
            await self._let_go(broken=isinstance(error, StoreUnavailable | asyncio.CancelledError))
            raise
        await self._let_go(broken=False)
        for call in calls:
            call()

    async def rollback(self) -> None:
        """Undo everything. A connection that does not answer to that is closed."""
        self._calls.clear()
        if self._held is not None:
            await super().rollback()
            await self._let_go(broken=False)

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once after the commit."""
        self._calls.append(call)
        return True

    def _check_open(self) -> None:
        if self._held is None:
            raise BadSetting("this transaction has ended: begin another one")
        if not self._line.in_transaction():
            raise ended_inside()

    def _check_not_ended(self) -> None:
        self._check_open()

    async def _let_go(self, *, broken: bool) -> None:
        connection, self._held = self._held, None
        if connection is not None:
            await self._connections.give_back(connection, broken=broken)


class Transacting(Handle):
    """What the port says about transactions of handlers."""

    async def begin(self) -> PostgresTransaction:
        """Begin a transaction for a handler."""
        connection = await self._handlers.borrow()
        transaction = PostgresTransaction(self._handlers, connection, self._schema, self._channel, self._timeout)
        await transaction.begin()
        return transaction

    async def settled(self, lease: Lease) -> Event | None:
        """Tell how its holder has settled an attempt; whoever has the lease in hand is waited for."""
        sql = self._sql("SELECT {schema}.settled_as($1, $2)")
        event = await self._db.fetch_value(sql, lease.job_id, lease.token)
        return None if event is None else Event(event)
