"""The first page: what waits, what runs, what fails, and who works."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.core.states import Event, State
from holdfast.errors import StoreUnavailable
from holdfast.explaining import GONE, longest_wait
from holdfast.server.alerts.delivering import delivers
from holdfast.server.principal import Right
from holdfast.server.ui import charts, shown
from holdfast.server.ui.trouble import Seen, troubles
from holdfast.store.port import RunningView, Stats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import FailureView, WorkerView

logger = logging.getLogger("holdfast.server")

T = TypeVar("T")

ASKED_FOR: Final = frozenset({Event.STOP, Event.EXPIRE_CANCEL})
"""Ends that somebody wanted."""
FAILING_FOR: Final = timedelta(hours=1)
FAILURES: Final = 1000
"""Failures that one look reads: with their tracebacks they may be large."""
MOST_PAGES: Final = 20
"""Looks for failures of one kind among all that fails."""
SHOWN_GROUPS: Final = 10
SHOWN_RUNNING: Final = 10
SHOWN_PAUSED: Final = 5


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
    store, clock = visit.store, visit.ui.context.environment.monotonic
    begun = clock()
    now, stats = await store.now(), scoped(visit, await store.stats())
    everyone, queues = await store.workers(), await store.queues()
    took = clock() - begun
    window = charts.WINDOWS.get(visit.request.query_params.get("window", ""), charts.WINDOWS[charts.DEFAULT_WINDOW])
    workers = [view for view in everyone if runs_jobs(view)]
    live = [view for view in workers if view.state not in GONE]
    own, rest = visit.who.queues, Rest()
    running = await rest.read(lambda: store.running(limit=SHOWN_RUNNING, queues=own), RunningView([], 0))
    ended = await rest.read(lambda: charts.ended(store, now, own), charts.Ended())
    none: tuple[list[Group], bool] = ([], False)
    failing, more_failing = await rest.read(lambda: groups(visit, now), none)
    drawn = await rest.read(lambda: charts.charts(store, window, now, own), list[charts.Chart]())
    seen = Seen(
        now=now,
        stats=stats,
        queues=queues,
        workers=workers
        if own is None
        else [view for view in workers if view.queues is None or not own.isdisjoint(view.queues)],
        lapsed=running.lapsed,
        ended=ended,
        groups=failing,
        took=took,
        left_out=rest.left_out,
    )
    paused = [queue for queue in queues if queue.paused_at and visit.may(Right.LOOK, queue.name)]
    return visit.render(
        "overview.html",
        title="Overview",
        section="overview",
        now=now,
        stats=stats,
        states=list(State),
        oldest=longest_wait(stats, queues, everyone),
        troubles=troubles(seen),
        left_out=rest.left_out,
        slots=sum(view.worker.slots for view in live),
        taken=sum(view.running for view in live),
        workers=live,
        gone=len(workers) - len(live),
        failing=ended.badly_a_minute,
        charts=drawn,
        window=window.name,
        windows=list(charts.WINDOWS),
        groups=failing[:SHOWN_GROUPS],
        more_failing=more_failing,
        looked_at=FAILURES,
        running=running.jobs,
        lapsed=running.lapsed,
        paused=paused[:SHOWN_PAUSED],
        more_paused=len(paused[SHOWN_PAUSED:]),
    )


@dataclass
class Rest:
    """What the overview can do without: where the store is too slow for some of it, it is asked for no more."""

    left_out: bool = False

    async def read(self, ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """Return what the store says, if it says it in time."""
        if not self.left_out:
            try:
                return await ask()
            except StoreUnavailable as error:
                logger.warning("the overview leaves out what could not be read: %s", error)
                self.left_out = True
        return otherwise


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


def runs_jobs(view: WorkerView) -> bool:
    """Tell whether a worker is one that runs people's jobs: no manager, and no server that delivers alerts."""
    return not view.manages and not delivers(view)


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
