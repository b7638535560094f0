"""A sqlite3 connection that another library keeps, and that must be used through it."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.caller import Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Caller, Enqueued, Settled, Settlement
    from holdfast.store.sqlite.caller import SqliteCaller

T = TypeVar("T")


class Keeper(Protocol):
    """A library that keeps a sqlite3 connection."""

    blocking: bool

    @property
    def brought(self) -> Any:
        """What the caller brought."""
        ...

    async def begin(self) -> None:
        """Have the library begin a transaction, where it does; raises `BadSetting` where it could not commit that."""
        ...

    async def apart(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do blocking work on the connection, in the thread that may use it."""
        ...

    async def commit(self) -> None:
        """Commit, as the library does; raises sqlite3's `OperationalError` where the file is at fault."""
        ...

    async def rollback(self) -> None:
        """Undo everything, as the library does."""
        ...

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called when the library has committed; False where it does not tell."""
        ...


class KeptCaller:
    """A transaction on such a connection."""

    exclusive = True
    """It keeps every other writer of the file waiting."""

    def __init__(self, keeper: Keeper, make: Callable[[sqlite3.Connection], SqliteCaller], path: str) -> None:
        """Use a connection through its keeper; `make` returns what works on it, `path` is the file of the jobs."""
        self._keeper = keeper
        self._make = make
        self._path = path
        self._fence = Fence()
        self._marked = False
        self.blocking = keeper.blocking

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        return self._keeper.brought

    async def begin(self) -> None:
        """Begin a transaction where none is open, and mark it."""
        await self._keeper.begin()
        await self._do(lambda caller: caller.begin())

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs; they exist once the transaction has committed."""
        return await self._do(lambda caller: caller.enqueue(jobs, caps=caps))

    async def prove(self, lease: Lease) -> Settled:
        """Hold a lease in place until the end."""
        return self._fence.heed(lease, await self._do(lambda caller: caller.prove(lease)))

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt."""
        return self._fence.heed(settlement.lease, await self._do(lambda caller: caller.settle(settlement)))

    async def tell(self, text: str) -> None:
        """Send the text of a hint with the transaction."""
        await self._do(lambda caller: caller.tell(text))

    async def _do(self, operation: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        def work(connection: sqlite3.Connection) -> T:
            # a new one each time: after a commit the library may have taken another connection
            caller = self._make(connection)
            caller.marked = self._marked
            try:
                return _run(operation(caller))
            finally:
                self._marked = caller.marked

        return await self._keeper.apart(work)

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called when the library has committed; False where it does not tell."""
        return self._keeper.after_commit(call)

    async def commit(self) -> None:
        """Commit, unless a lease that was to be held is lost: then raises `StaleLease`."""
        self._fence.check()
        try:
            await self._keeper.commit()
        except sqlite3.OperationalError as error:  # others are refusals: a deferred constraint, for one
            raise StoreUnavailable(self._path, 0.0, str(error)) from error

    async def rollback(self) -> None:
        """Undo everything."""
        with suppress(Exception):  # whatever the library says: what did not commit is gone with the connection
            await self._keeper.rollback()


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as those on a blocking connection."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError("an operation on a blocking connection was suspended")
