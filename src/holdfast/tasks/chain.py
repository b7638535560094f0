"""A chain as the one who started it sees it: one handle for all its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.tasks.handle import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.core.states import State
    from holdfast.store.port import ChainView, EventView, JobView, LogView
    from holdfast.tasks.report import Completion, Report

R_co = TypeVar("R_co", covariant=True)


class Chain(Handle[R_co]):
    """A chain by the id of its first job. It stands where its last step stands, and its result is that of its last step.

    Events, logs and report are those of the last step; `app.job(id)` gives those of any other. Every coroutine raises
    `JobNotFound` once the chain is deleted or pruned, and has a blocking twin that ends in `_sync`.
    """

    __slots__ = ()

    async def state(self) -> State:
        """Return where the chain stands: where its last step does."""
        return (await self._view()).state

    async def view(self) -> ChainView:  # type: ignore[override]  # a chain is looked at as a whole, and is no job
        """Return its first step, how far it is and how it ended."""
        return await self._view()

    async def steps(self) -> list[JobView]:
        """Return its steps so far, the first one first."""
        return await self._desk.client().steps(self.id)

    async def cancel(self, reason: str = "") -> bool:
        """Cancel the chain: its step that waits or runs now, whichever that is, and nothing follows.

        Returns False when the chain had ended.
        """
        return (await self._desk.client().cancel_chains([self.id], reason))[0]

    async def retry(self) -> None:
        """Bring the last step back with a fresh budget, and the chain goes on from there.

        Raises `NotAllowed` while the chain is live, and where another job holds its unique key.
        """
        await self._desk.client().retry_chain(self.id)

    async def delete(self, *, cascade: bool = False, by: str = "") -> tuple[UUID, ...]:
        """Remove the chain with all its steps and records, in whatever state; returns the chains that are gone.

        With `cascade` also the chains it waited for, and those they waited for. All or nothing; a handler that runs is
        asked to stop, with the reason `not_found`. Raises `NotAllowed` while a job that stays waits for one of them.
        """
        return await self._desk.client().delete_chain(self.id, cascade=cascade, by=by)

    async def complete(self, result: Any = None, *, by: str = "") -> Completion:
        """End the step that waits or runs now as succeeded, and the chain with it. As `app.complete`."""
        return await self._desk.complete((await self._view()).step, result, by=by)

    async def fail(self, message: str = "", *, code: str = "FAILED", by: str = "") -> Completion:
        """End the step that waits or runs now as failed, and the chain with it. As `app.fail`."""
        return await self._desk.fail((await self._view()).step, message, code=code, by=by)

    async def events(self) -> Sequence[EventView]:
        """Return everything that happened to the last step, oldest first."""
        return await self._desk.client().events((await self._view()).step)

    async def logs(self, *, after: int = 0, limit: int = 1000) -> Sequence[LogView]:
        """Return what the last step logged, oldest first, from the line after number `after` on."""
        return await self._desk.client().logs((await self._view()).step, after, limit)

    async def report(self) -> Report:
        """Return how the last step went."""
        return await self._desk.client().report((await self._view()).step)

    def view_sync(self) -> ChainView:  # type: ignore[override]  # as `view`
        """Do as `view`, from blocking code."""
        return self._desk.blocking(self.view())

    def steps_sync(self) -> list[JobView]:
        """Do as `steps`, from blocking code."""
        return self._desk.blocking(self.steps())

    def delete_sync(self, *, cascade: bool = False, by: str = "") -> tuple[UUID, ...]:
        """Do as `delete`, from blocking code."""
        return self._desk.blocking(self.delete(cascade=cascade, by=by))

    def complete_sync(self, result: Any = None, *, by: str = "") -> Completion:
        """Do as `complete`, from blocking code."""
        return self._desk.blocking(self.complete(result, by=by))

    def fail_sync(self, message: str = "", *, code: str = "FAILED", by: str = "") -> Completion:
        """Do as `fail`, from blocking code."""
        return self._desk.blocking(self.fail(message, code=code, by=by))

    async def _view(self) -> ChainView:
        return (await self._desk.client().chains([self.id]))[0]
