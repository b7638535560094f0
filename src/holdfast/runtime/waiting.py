"""Waiting for the end of jobs: one look for all that are awaited, more seldom the longer it takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.core.states import TERMINAL
from holdfast.errors import HoldfastError, JobNotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.store.port import JobView, Store

FIRST: Final = 0.005
LONGEST: Final = 0.25
BATCH: Final = 500


class Waiter:
    """Looks for the end of awaited jobs while there are any. One event loop."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._awaited: dict[UUID, list[asyncio.Future[JobView]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._rest = FIRST

    async def wait(self, job_id: UUID, timeout: float | None) -> JobView:
        """Return the job once it is terminal; raises `TimeoutError` and `JobNotFound`."""
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
                await self._look_once(list(self._awaited))
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

    async def _look_once(self, ids: list[UUID]) -> None:
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            for job_id, view in zip(batch, await self._store.get(batch), strict=True):
                if view is None:
                    error = JobNotFound(job_id)
                    self._give([job_id], lambda future, error=error: future.set_exception(error))  # type: ignore[misc]
                elif view.state in TERMINAL:
                    self._give([job_id], lambda future, view=view: future.set_result(view))  # type: ignore[misc]

    def _give(self, ids: list[UUID], give: Callable[[asyncio.Future[JobView]], None]) -> None:
        for job_id in ids:
            for future in self._awaited.pop(job_id, []):
                if not future.done():
                    give(future)
