"""The first page: what waits, what runs, what fails, and who works."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.core.states import Event, State
from holdfast.explaining import longest_wait
from holdfast.server.principal import Right
from holdfast.server.ui import charts, shown
from holdfast.store.port import Stats, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import FailureView

ASKED_FOR: Final = frozenset({Event.STOP, Event.EXPIRE_CANCEL})
"""Ends that somebody wanted."""
FAILING_FOR: Final = timedelta(hours=1)
FAILURES: Final = 1000
"""Failures that one look reads: with their tracebacks they may be large."""
MOST_PAGES: Final = 20
"""Looks for failures of one kind among all that fails."""
SHOWN_GROUPS: Final = 10
SHOWN_RUNNING: Final = 10


@dataclass(slots=True)
class Group:
    """Failures of one kind: the same task, the same code, raised at the same place."""

    task: str
    code: str
    frame: str
    message: str
    latest: datetime
    count: int = 0


async def overview(visit: Visit) -> Response:
    """Show the overview."""
    store = visit.store
    now, stats = await store.now(), scoped(visit, await store.stats())
    window = charts.WINDOWS.get(visit.request.query_params.get("window", ""), charts.WINDOWS[charts.DEFAULT_WINDOW])
    everyone, queues = await store.workers(), await store.queues()
    workers = [view for view in everyone if view.state is not WorkerState.OFFLINE and not view.manages]
    running = await store.running(limit=SHOWN_RUNNING, queues=visit.who.queues)
    failing, more_failing = await groups(visit, now)
    return visit.render(
        "overview.html",
        title="Overview",
        section="overview",
        now=now,
        stats=stats,
        states=list(State),
        oldest=longest_wait(stats, queues, everyone),
        slots=sum(view.worker.slots for view in workers),
        taken=sum(view.running for view in workers),
        workers=workers,
        failing=await charts.failing_per_minute(store, now, visit.who.queues),
        charts=await charts.charts(store, window, now, visit.who.queues),
        window=window.name,
        windows=list(charts.WINDOWS),
        groups=failing[:SHOWN_GROUPS],
        more_failing=more_failing,
        looked_at=FAILURES,
        running=running.jobs,
        lapsed=running.lapsed,
        paused=[queue for queue in queues if queue.paused_at and visit.may(Right.LOOK, queue.name)],
    )


async def groups(visit: Visit, now: datetime) -> tuple[list[Group], bool]:
    """Return what fails of late, the most frequent kind first, and whether more has failed than was looked at."""
    failures = await visit.store.failures(since=now - FAILING_FOR, limit=FAILURES)
    found: dict[tuple[str, str, str], Group] = {}
    redacted = visit.ui.context.settings.redacted
    for failure in failures:
        if not _counts(visit, failure):
            continue
        kind = kind_of(failure)
        message = shown.cause(failure.error, redacted)[1]
        group = found.setdefault(kind, Group(*kind, message=message, latest=failure.at))
        group.count += 1
    return sorted(found.values(), key=lambda group: -group.count), len(failures) == FAILURES


async def failed_of(
    visit: Visit, kind: tuple[str, str, str], before: datetime | None, *, limit: int, late: Callable[[], bool]
) -> tuple[list[UUID], bool]:
    """Return the jobs of a kind of failure that stand as failed, the latest first, and whether there may be more."""
    store = visit.store
    before = before or await store.now()
    found: dict[UUID, None] = {}
    last: FailureView | None = None
    for _ in range(MOST_PAGES):
        failures = await store.failures(since=before - FAILING_FOR, limit=FAILURES, after=last)
        alike = [one for one in failures if one.at <= before and one.task == kind[0] and _counts(visit, one)]
        ids = list(dict.fromkeys(one.job_id for one in alike if one.job_id not in found and kind_of(one) == kind))
        views = await store.get(ids) if ids else []
        found |= {view.id: None for view in views if view is not None and view.state is State.FAILED and visit.sees(view)}
        if len(failures) < FAILURES:
            return list(found)[:limit], len(found) > limit
        if len(found) >= limit or late():
            break
        last = failures[-1]
    return list(found)[:limit], True


def _counts(visit: Visit, failure: FailureView) -> bool:
    return failure.event not in ASKED_FOR and visit.may(Right.LOOK, failure.queue)


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
