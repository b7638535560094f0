"""What a running job asks of the worker that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime

    from holdfast.core.outcome import Continued, Failed, Succeeded
    from holdfast.core.states import Event
    from holdfast.errors import StoreUnavailable
    from holdfast.store.port import Caller, Part

T = TypeVar("T")


class Channel(Protocol):
    """How a running job reports to its worker. Safe from any thread; nothing here blocks an event loop."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def now(self) -> datetime:
        """Return the store's time as far as the worker knows it: when the job was claimed, and how long ago that was."""
        ...

    def progress(self, percent: float, step: str, message: str) -> None:
        """Pass on how far the job is."""
        ...

    def stage(self, name: str, event: Event) -> None:
        """Pass on that a stage was entered or left."""
        ...

    def log(self, level: str, logger: str, message: str, fields: str) -> None:
        """Pass on a line of the job's log; `fields` is JSON text."""
        ...

    def checkpoint(self, part: Part) -> Awaitable[None]:
        """Write a part. In a thread or process: done when this returns. On the event loop: done when awaited."""
        ...

    def transactor(self) -> Transactor:
        """Return who carries out the job's transactions; raises `BadSetting` where it can have none."""
        ...


class Transactor(Protocol):
    """Who carries out the transactions of one attempt: one after another, under its lease."""

    async def begin(self, conn: Any, *, blocking: bool) -> Caller:
        """Begin a transaction: on a connection of the store, or on what the handler brought.

        `blocking` refuses a connection that needs an event loop (`BadSetting`).
        """
        ...

    def outcome(self, value: Any) -> Succeeded | Continued:
        """Return what completing the job with this value means; raises `BadResult`, or `Fatal` for a bad continuation."""
        ...

    def failure(self, why: str | BaseException, code: str | None) -> Failed:
        """Return what failing the job for good for this reason means: as if an error was raised, and no attempt is left."""
        ...

    async def commit(self, caller: Caller, outcome: Succeeded | Continued | Failed | None) -> None:
        """Settle as the last statement (without an outcome: prove the lease) and commit, or undo everything and say why.

        Raises `StaleLease` when the lease is lost, `NotCommitted` when the store failed on the way, `Retryable` with
        `KEY_TAKEN` and `Fatal` with `BAD_CONTINUATION` where the next step cannot be created.
        """
        ...

    async def rollback(self, caller: Caller, error: BaseException) -> StoreUnavailable | None:
        """Undo everything because of an error; returns the outage that it is a sign of, where it is one. Never raises."""
        ...

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the worker's event loop from one of its threads, and wait for it."""
        ...


class Stored(Awaitable[None]):
    """What a checkpoint gives that is stored already."""

    def __await__(self) -> Generator[None, None, None]:
        """Be done."""
        yield from ()
