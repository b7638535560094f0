"""Django: the connection of a database alias, inside `transaction.atomic` and outside."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import InterfaceError, OperationalError, connections, transaction
from django.utils.connection import ConnectionDoesNotExist, ConnectionProxy

from holdfast.errors import BadSetting, StoreUnavailable
from holdfast.store.sqlite.caller import Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Caller, Enqueued, Settled, Settlement


def wrapper_of(alias: str) -> Any:
    """Return this thread's connection of a database alias; raises `BadSetting`."""
    try:
        return connections[alias]
    except ConnectionDoesNotExist as error:
        known = ", ".join(repr(name) for name in connections)
        raise BadSetting(f"using={alias!r} names no database of Django: settings.DATABASES has {known}") from error


class DjangoCaller:
    """A transaction on a connection of Django.

    Inside `atomic` everything is part of it. Outside, where Django commits every statement by itself, each operation is a
    transaction of its own: as Django's own writes do.
    """

    blocking = True

    def __init__(self, brought: Any, driven: Callable[[Any], Caller], shown: str) -> None:
        """Use a database wrapper; `driven` returns what works on its driver's connection, `shown` is where that leads."""
        self._brought = brought
        self._wrapper = wrapper_of(brought.alias) if isinstance(brought, ConnectionProxy) else brought
        self._driven = driven
        self._shown = shown
        self._fence = Fence()
        self.exclusive = self._wrapper.vendor == "sqlite"
        """Whether it keeps every other writer waiting."""
        self._begun: Any = None
        self._marked: Caller | None = None

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        return self._brought

    async def begin(self) -> None:
        """Enter `atomic`, and mark the transaction: Django does not see a COMMIT among somebody's statements."""
        with _explained():
            if self._wrapper.in_atomic_block:
                raise BadSetting(
                    "the connection is inside transaction.atomic() already, which commits when its block ends: "
                    "open job.transaction(conn=…) outside of it, where it begins and commits by itself"
                )
            if not self._wrapper.get_autocommit():
                raise BadSetting(
                    "the connection was given set_autocommit(False), so that Django leaves the commit to you: open "
                    "job.transaction(conn=…) outside of that, where it begins and commits by itself"
                )
            self._begun = transaction.atomic(using=self._wrapper.alias)
            self._begun.__enter__()
            try:
                marked = self._driven(self._wrapper.connection)
                await marked.begin()
            except BaseException:
                await self.rollback()
                raise
            self._marked = marked

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs; they exist once the transaction has committed."""
        with self._transaction() as caller:
            return await caller.enqueue(jobs, caps=caps)

    async def prove(self, lease: Lease) -> Settled:
        """Hold a lease in place until the end."""
        with self._transaction() as caller:
            return self._fence.heed(lease, await caller.prove(lease))

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt."""
        with self._transaction() as caller:
            return self._fence.heed(settlement.lease, await caller.settle(settlement))

    async def tell(self, text: str) -> None:
        """Send the text of a hint with the transaction."""
        with self._transaction() as caller:
            await caller.tell(text)

    @contextmanager
    def _transaction(self) -> Iterator[Caller]:
        """Give what works on the driver's connection, in a transaction."""
        wrapper = self._wrapper
        with _explained():
            wrapper.ensure_connection()
            wrapper.validate_thread_sharing()
            if wrapper.in_atomic_block or not wrapper.get_autocommit():
                # what works there makes a savepoint of its own; a second one of Django's would say nothing more
                wrapper.validate_no_broken_transaction()
                yield self._marked or self._driven(wrapper.connection)
            else:
                with transaction.atomic(using=wrapper.alias):
                    yield self._driven(wrapper.connection)

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have Django call when the outermost `atomic` has committed: at once where there is none."""
        if not self._wrapper.in_atomic_block and not self._wrapper.get_autocommit():
            return False  # set_autocommit(False): Django does not see the end of such a transaction
        transaction.on_commit(call, using=self._wrapper.alias, robust=True)
        return True

    async def commit(self) -> None:
        """Leave `atomic`, unless a lease that was to be held is lost: then raises `StaleLease`."""
        self._fence.check()
        begun, self._begun, self._marked = self._begun, None, None
        try:
            begun.__exit__(None, None, None)
        except (InterfaceError, OperationalError) as error:  # others are refusals: a deferred constraint, for one
            raise StoreUnavailable(self._shown, 0.0, str(error)) from error

    async def rollback(self) -> None:
        """Leave `atomic`, undoing everything."""
        begun, self._begun, self._marked = self._begun, None, None
        if begun is not None:
            with suppress(Exception):
                self._wrapper.set_rollback(True)
                begun.__exit__(None, None, None)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except SynchronousOnlyOperation as error:
        error.add_note(
            "Holdfast: the connections of Django block, so async code enqueues in Django's thread: "
            "await sync_to_async(task.options(using=…).enqueue_sync)(…)"
        )
        raise
