"""What `holdfast top` shows: everything as of about one moment, and how fast jobs end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import output
from holdfast.core.states import State
from holdfast.store.port import JobFilter, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.store.port import JobView, QueueView, Stats, Store, WorkerView

MOST_RUNNING: Final = 50
WINDOW: Final = 10
"""Snapshots over which the throughput is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What stands in a store."""

    at: datetime
    queues: Sequence[QueueView]
    workers: Sequence[WorkerView]
    """Those that are not offline."""
    running: Sequence[JobView]
    """Longest running first, at most fifty."""
    stats: Stats

    @property
    def ended(self) -> int:
        """How many jobs have succeeded or failed and are not pruned."""
        return self.stats.count(State.SUCCEEDED, State.FAILED)


async def take(store: Store) -> Snapshot:
    """Look at a store."""
    page = await store.find(JobFilter(states=frozenset({State.RUNNING})), limit=MOST_RUNNING)
    now = await store.now()
    return Snapshot(
        at=now,
        queues=await store.queues(),
        workers=[view for view in await store.workers() if view.state is not WorkerState.OFFLINE],
        running=sorted(page.jobs, key=lambda job: job.claimed_at or now),
        stats=await store.stats(),
    )


@dataclass(slots=True)
class Throughput:
    """How many jobs end per second, over the last snapshots."""

    _seen: deque[tuple[datetime, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, snapshot: Snapshot) -> float | None:
        """Count a snapshot in; `None` until there are two. Pruning lowers the count, and is not taken for work undone."""
        self._seen.append((snapshot.at, snapshot.ended))
        seconds = (self._seen[-1][0] - self._seen[0][0]).total_seconds()
        if seconds <= 0:
            return None
        pairs = zip(list(self._seen), list(self._seen)[1:], strict=False)
        return sum(max(0, later - earlier) for (_, earlier), (_, later) in pairs) / seconds


def elapsed(job: JobView, now: datetime) -> float:
    """Return for how many seconds a job has been held."""
    return max(0.0, (now - job.claimed_at).total_seconds()) if job.claimed_at is not None else 0.0


def left(job: JobView, now: datetime) -> float | None:
    """Return how many seconds a job will take if it goes on as it did; `None` when that cannot be told."""
    if not job.progress:
        return None
    return elapsed(job, now) * (100.0 - job.progress) / job.progress


def as_json(snapshot: Snapshot, per_second: float | None) -> dict[str, Any]:
    """Return a snapshot as its JSON shows it."""
    from holdfast.cli.workers import worker_json  # noqa: PLC0415  only with --json

    return {
        "at": snapshot.at,
        "counts": {state: snapshot.stats.count(state) for state in State},
        "ended_per_second": per_second,
        "queues": [output.fields(queue) for queue in snapshot.queues],
        "workers": [worker_json(worker, snapshot.at) for worker in snapshot.workers],
        "running": [
            {
                "id": job.id,
                "task": job.task,
                "queue": job.queue,
                "worker": job.worker_name,
                "attempt": job.attempt,
                "shown": job.shown,
                "progress": job.progress,
                "step": job.step,
                "message": job.message,
                "elapsed": elapsed(job, snapshot.at),
                "left": left(job, snapshot.at),
            }
            for job in snapshot.running
        ],
    }
