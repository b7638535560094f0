"""Waiting for the end of jobs: one look for all that are awaited, more seldom the longer it takes."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.core.states import TERMINAL
from holdfast.errors import HoldfastError, JobNotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.store.port import JobView, Store

T = TypeVar("T")

FIRST: Final = 0.005
LONGEST: Final = 0.25
BATCH: Final = 500


class Waiter:
    """Looks for the end of awaited jobs while there are any. One event loop.

    A job that continued has become a chain, and is awaited until that ends. The store knows the last step of a chain, so it is
    never walked: a loop of thousands of steps costs as little as one.
    """

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._awaited: dict[UUID, list[asyncio.Future[JobView]]] = {}
        self._chains: dict[UUID, UUID] = {}
        """The chains of awaited jobs that have continued."""
        self._looking: asyncio.Task[None] | None = None
        self._rest = FIRST

    async def wait(self, job_id: UUID, timeout: float | None) -> JobView:
        """Return the job, or the last step of the chain it continued, once that is terminal.

        Raises `TimeoutError` and `JobNotFound`.
        """
        future: asyncio.Future[JobView] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(job_id, []).append(future)
        self._rest = FIRST
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="holdfast-waiter")
        try:
            done, _ = await asyncio.wait({future}, timeout=timeout)
            if not done:
                raise TimeoutError(f"job {job_id} has not ended within {timeout:g} s; it goes on")
            return future.result()
        finally:
            future.cancel()
            waiting = self._awaited.get(job_id, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._awaited.pop(job_id, None)
                self._chains.pop(job_id, None)
            if not self._awaited and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def close(self) -> None:
        """Stop looking; those who still wait are told so."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for futures in self._awaited.values():
            for future in futures:
                if not future.done():
                    future.set_exception(
                        HoldfastError("the app was closed while the end of a job was awaited; the job goes on")
                    )

    async def _look(self) -> None:
        while self._awaited:
            try:
                await self._look_at_jobs()
                await self._look_at_chains()
            except StoreUnavailable:
                self._rest = LONGEST  # an outage may pass; the timeout of those who wait bounds it
            except Exception as error:  # noqa: BLE001  whoever waits must hear of it
                for futures in list(self._awaited.values()):
                    for future in futures:
                        if not future.done():
                            future.set_exception(error)
                return
            await asyncio.sleep(self._rest * (0.75 + self._environment.random() / 2))
            self._rest = min(LONGEST, self._rest * 1.5)

    async def _look_at_jobs(self) -> None:
        for batch in _batches(job_id for job_id in self._awaited if job_id not in self._chains):
            for job_id, view in zip(batch, await self._store.get(batch), strict=True):
                if view is None:
                    self._missing(job_id)
                elif view.continued_by is not None:
                    self._chains[job_id] = view.chain_id or view.id
                elif view.state in TERMINAL:
                    self._ended(job_id, view)

    async def _look_at_chains(self) -> None:
        for batch in _batches(self._chains.items()):
            views = await self._store.chains([chain_id for _, chain_id in batch])
            ended: list[tuple[UUID, UUID]] = []
            for (job_id, _), view in zip(batch, views, strict=True):
                if view is None:
                    self._missing(job_id)
                elif view.state in TERMINAL:
                    ended.append((job_id, view.step))
            steps = await self._store.get([step for _, step in ended]) if ended else []
            for (job_id, _), step in zip(ended, steps, strict=True):
                # one that was brought back in between goes on, and is looked for again
                if step is not None and step.state in TERMINAL and step.continued_by is None:
                    self._ended(job_id, step)

    def _missing(self, job_id: UUID) -> None:
        self._give(job_id, lambda future: future.set_exception(JobNotFound(job_id)))

    def _ended(self, job_id: UUID, view: JobView) -> None:
        self._give(job_id, lambda future: future.set_result(view))

    def _give(self, job_id: UUID, give: Callable[[asyncio.Future[JobView]], None]) -> None:
        self._chains.pop(job_id, None)
        for future in self._awaited.pop(job_id, []):
            if not future.done():
                give(future)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Go through what is there now; what is added meanwhile is for the next look."""
    rest = iter(list(items))
    while batch := list(islice(rest, BATCH)):
        yield batch
