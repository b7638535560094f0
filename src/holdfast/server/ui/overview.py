"""The first page: what waits, what runs, what fails, and who works."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.core.states import Event, State
from holdfast.server.principal import Right
from holdfast.server.ui import charts, shown
from holdfast.store.port import JobFilter, Stats, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import FailureView

ASKED_FOR: Final = frozenset({Event.STOP, Event.EXPIRE_CANCEL})
"""Ends that somebody wanted."""
FAILING_FOR: Final = timedelta(hours=1)
MOST_FAILURES: Final = 1000
SHOWN_GROUPS: Final = 10
SHOWN_RUNNING: Final = 10
MOST_RUNNING: Final = 200


@dataclass(slots=True)
class Group:
    """Failures of one kind: the same task, the same code, raised at the same place."""

    task: str
    code: str
    frame: str
    message: str
    latest: datetime
    count: int = 0
    jobs: dict[UUID, None] = field(default_factory=dict)


async def overview(visit: Visit) -> Response:
    """Show the overview."""
    store = visit.store
    now, stats = await store.now(), scoped(visit, await store.stats())
    window = charts.WINDOWS.get(visit.request.query_params.get("window", ""), charts.WINDOWS[charts.DEFAULT_WINDOW])
    workers = [view for view in await store.workers() if view.state is not WorkerState.OFFLINE and not view.manages]
    page = await store.find(JobFilter(states=frozenset({State.RUNNING})), limit=MOST_RUNNING)
    running = sorted((job for job in page.jobs if visit.sees(job)), key=lambda job: job.claimed_at or now)
    oldest = max(stats.oldest_waiting.items(), key=lambda item: item[1], default=(None, None))
    return visit.render(
        "overview.html",
        title="Overview",
        section="overview",
        now=now,
        stats=stats,
        states=list(State),
        oldest=oldest,
        slots=sum(view.worker.slots for view in workers),
        taken=sum(view.running for view in workers),
        workers=workers,
        failing=await charts.failing_per_minute(store, now, visit.who.queues),
        charts=await charts.charts(store, window, now, visit.who.queues),
        window=window.name,
        windows=list(charts.WINDOWS),
        groups=(await groups(visit, now))[:SHOWN_GROUPS],
        running=running[:SHOWN_RUNNING],
        lapsed=[job for job in running if job.lapsed],
        paused=[queue for queue in await store.queues() if queue.paused_at and visit.may(Right.LOOK, queue.name)],
    )


async def groups(visit: Visit, now: datetime) -> list[Group]:
    """Return what fails of late, the most frequent kind first."""
    failures = await visit.store.failures(since=now - FAILING_FOR, limit=MOST_FAILURES)
    found: dict[tuple[str, str, str], Group] = {}
    for failure in failures:
        if failure.event in ASKED_FOR or not visit.may(Right.LOOK, failure.queue):
            continue
        kind = kind_of(failure)
        group = found.setdefault(kind, Group(*kind, message=shown.cause(failure.error)[1], latest=failure.at))
        group.count += 1
        group.jobs[failure.job_id] = None
    return sorted(found.values(), key=lambda group: -group.count)


async def failed_of(visit: Visit, kind: tuple[str, str, str], now: datetime) -> Sequence[UUID]:
    """Return the jobs of a kind of failure that stand as failed."""
    ids = [job for group in await groups(visit, now) if (group.task, group.code, group.frame) == kind for job in group.jobs]
    views = await visit.store.get(ids) if ids else []
    return [view.id for view in views if view is not None and view.state is State.FAILED and visit.sees(view)]


def kind_of(failure: FailureView) -> tuple[str, str, str]:
    """Return what tells one kind of failure from another."""
    return failure.task, shown.cause(failure.error)[0], shown.plain(shown.top_frame(failure.error.traceback))


def scoped(visit: Visit, stats: Stats) -> Stats:
    """Return the counts of the queues that somebody may see."""
    if visit.who.queues is None:
        return stats
    return Stats(
        tasks=[row for row in stats.tasks if visit.may(Right.LOOK, row.queue)],
        oldest_waiting={queue: age for queue, age in stats.oldest_waiting.items() if visit.may(Right.LOOK, queue)},
    )


def by_state(stats: Stats, *, queue: str | None, task: str | None) -> Counter[State]:
    """Return how many jobs of a queue and a task stand in each state."""
    return Counter({state: stats.count(state, queue=queue, task=task) for state in State})
