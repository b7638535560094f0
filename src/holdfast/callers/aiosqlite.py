"""aiosqlite: a sqlite3 connection in a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    import aiosqlite

T = TypeVar("T")


class AiosqliteKeeper:
    """An `aiosqlite.Connection`."""

    blocking = False

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @property
    def brought(self) -> Any:
        """What the caller brought."""
        return self._connection

    async def begin(self) -> None:
        """Leave it to who works on the connection: aiosqlite has no transactions of its own."""

    async def apart(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do blocking work on the connection, in its thread."""
        return await in_thread_of(self._connection, work)

    async def commit(self) -> None:
        """Commit."""
        await self._connection.commit()

    async def rollback(self) -> None:
        """Undo everything."""
        await self._connection.rollback()

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002  nobody here can tell
        """Tell that aiosqlite says nothing about commits."""
        return False


async def in_thread_of(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do blocking work on an aiosqlite connection, in its thread: one call, where a statement at a time would be many hops."""
    kept: Any = connection  # there is no public way into its thread
    result: T = await kept._execute(lambda: work(kept._conn))  # noqa: SLF001  as above
    return result
