"""Transactions on which jobs are created and attempts ended: a caller's own, and those a store begins for handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port.answers import Enqueued, Settled
    from holdfast.store.port.requests import Settlement


class Caller(Protocol):
    """A transaction on somebody's own connection: what is written through it stands or falls with it.

    `blocking` says that the connection is a blocking one: then no coroutine here ever suspends, and blocking code may drive
    it by hand. An error leaves the transaction as it was before the call, and usable. Nothing is hinted here.
    """

    blocking: bool
    exclusive: bool
    """While it is open, every other writer waits: nothing can be written beside it."""

    @property
    def connection(self) -> Any:
        """What the caller brought, or the driver's connection of a transaction that the store began."""
        ...

    async def begin(self) -> None:
        """Begin a transaction where the connection has none open; the other operations refuse without one (`BadSetting`)."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs, as `Store.enqueue` does; they exist once the transaction has committed.

        Raises `KeyBusy` where somebody's open transaction holds a unique key. Takes no lock that keeps others from working
        for as long as the transaction is open, but for the unique keys: a waiter whose blocker ends before the commit is
        found by `Store.unblock`.
        """
        ...

    async def prove(self, lease: Lease) -> Settled:
        """Hold a lease in place until the end. Fenced: `STALE` when it is lost. The last thing before the commit."""
        ...

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt, as `Store.settle` does. Fenced. The last thing before the commit."""
        ...

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once when the transaction has committed; False where nobody here can tell when that is."""
        ...

    async def tell(self, text: str) -> None:
        """Send the text of a hint with the transaction: delivered at its commit, once however often it is told."""
        ...

    async def commit(self) -> None:
        """Commit. `StoreUnavailable`: the outcome is unknown."""
        ...

    async def rollback(self) -> None:
        """Undo everything. Never raises."""
        ...


class Transaction(Caller, Protocol):
    """A transaction that the store began for the handler of a job, on a connection apart from those of its own work."""

    async def execute(self, sql: str, *args: Any) -> list[Any]:
        """Run one statement of the handler's own, in the database's own dialect, and return its rows."""
        ...
