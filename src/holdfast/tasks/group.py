"""Several jobs that were enqueued together: fanned out, and awaited as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from holdfast.core.states import State
    from holdfast.tasks.handle import Desk, Handle

R_co = TypeVar("R_co", covariant=True)


class Group(Sequence["Handle[R_co]"]):
    """The handles of jobs that were enqueued together, in order. Every coroutine has a blocking twin that ends in `_sync`.

    It lives in this process alone: in the store there are its jobs. In `after=` it stands for all of them.
    """

    __slots__ = ("_desk", "_handles")

    def __init__(self, handles: Sequence[Handle[R_co]], desk: Desk) -> None:
        self._handles = tuple(handles)
        self._desk = desk

    async def results(self, timeout: float | None = None) -> list[R_co]:
        """Wait for all of them and return their results, in order.

        Raises what `Handle.result` would as soon as one of them did not succeed, and `TimeoutError` after `timeout` seconds.
        The others go on.
        """
        waits = [asyncio.ensure_future(handle.result(timeout)) for handle in self._handles]
        try:
            return list(await asyncio.gather(*waits))
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def states(self) -> list[State]:
        """Return where each of them stands, as of one moment; of one that continued, where its chain does."""
        return [chain.state for chain in await self._desk.client().chains([handle.id for handle in self._handles])]

    async def cancel(self, reason: str = "") -> int:
        """Cancel all that have not ended, with what they continued with; returns how many those were."""
        return sum(await self._desk.client().cancel_chains([handle.id for handle in self._handles], reason))

    def results_sync(self, timeout: float | None = None) -> list[R_co]:
        """Do as `results`, from blocking code."""
        return self._desk.blocking(self.results(timeout))

    def states_sync(self) -> list[State]:
        """Do as `states`, from blocking code."""
        return self._desk.blocking(self.states())

    def cancel_sync(self, reason: str = "") -> int:
        """Do as `cancel`, from blocking code."""
        return self._desk.blocking(self.cancel(reason))

    @overload
    def __getitem__(self, index: int) -> Handle[R_co]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Handle[R_co]]: ...
    def __getitem__(self, index: int | slice) -> Handle[R_co] | Sequence[Handle[R_co]]:
        return self._handles[index]

    def __len__(self) -> int:
        return len(self._handles)

    def __repr__(self) -> str:
        return f"<Group of {len(self)}>"
