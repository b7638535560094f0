"""What a manager sees in the store: the backlog of its queues, and what its own workers do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.backlog import backlog
from holdfast.store.port import Grain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.backlog import Backlog
    from holdfast.store.port import Store, WorkerView

MEASURED: Final = timedelta(minutes=2)
"""Over which time it is measured how long a job takes."""
MEASURE_EVERY: Final = 5.0
"""Seconds between two looks at that; workers write it every ten."""
FIRST: Final = 500
"""Workers that are looked through first: the living come first."""
ALL: Final = 1_000_000


class Observer:
    """Looks at a store for one manager: only at jobs that its workers would run."""

    def __init__(self, store: Store, tasks: Collection[str], queues: frozenset[str] | None) -> None:
        self._store = store
        self._tasks = frozenset(tasks)
        self._queues = queues
        self._service: float | None = None
        self._measure_at = 0.0

    async def backlog(self) -> Backlog:
        """Return what waits and runs, whoever runs it."""
        return await backlog(self._store, lambda row: self._is_mine(row.queue, row.task))

    async def service(self, now: float) -> float | None:
        """Return how many seconds a job takes, by what workers wrote lately; as it was last known where nothing ended."""
        if now >= self._measure_at:
            self._measure_at = now + MEASURE_EVERY
            since = await self._store.now() - MEASURED
            figures = [view.figure for view in await self._store.figures(Grain.MINUTE, since=since)]
            timed = [figure for figure in figures if self._is_mine(figure.queue, figure.task) and any(figure.runs)]
            if number := sum(sum(figure.runs) for figure in timed):
                self._service = sum(figure.ran for figure in timed) / number
        return self._service

    async def workers(self, own: Mapping[int, str], host: str) -> dict[int, WorkerView]:
        """Return the workers of this manager that are up, by their processes; `own` are these with their names."""
        if not own:
            return {}
        views = await self._store.workers(limit=FIRST)
        found = _by_process(views, own, host)
        if len(found) < len(own) and len(views) == FIRST and views[-1].offline_at is None:  # there are more that live
            found = _by_process(await self._store.workers(limit=ALL), own, host)
        return found

    def _is_mine(self, queue: str, task: str) -> bool:
        return task in self._tasks and (self._queues is None or queue in self._queues)


def _by_process(views: Sequence[WorkerView], own: Mapping[int, str], host: str) -> dict[int, WorkerView]:
    """Return those that are up. Containers may share the name of their host and the numbers of processes: names decide."""
    found = {}
    for view in reversed(views):  # the newest of a process id that came again is the last
        info = _info(view)
        if view.offline_at is None and info.host == host and own.get(info.process) == view.worker.name:
            found[info.process] = view
    return found


class _Info(msgspec.Struct, frozen=True):
    """What a worker says of itself, as far as it matters here."""

    host: str = ""
    process: int = 0


def _info(view: WorkerView) -> _Info:
    try:
        return msgspec.json.decode(view.worker.info, type=_Info)
    except msgspec.MsgspecError:  # any program may register one
        return _Info()
