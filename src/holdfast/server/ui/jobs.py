"""The list of jobs."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from holdfast.core.states import State
from holdfast.finding import Mistake, job_id
from holdfast.server.ui import query
from holdfast.server.ui.overview import by_state, scoped
from holdfast.server.ui.steering import CAP
from holdfast.throttling import marked

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import Stats

ROWS: Final = 50


async def jobs(visit: Visit) -> Response:
    """Show the jobs that match a search, newest first."""
    params = visit.request.query_params
    text = query.checked(params.get("q", "").strip())
    now, stats = await visit.store.now(), scoped(visit, await visit.store.stats())
    flaw = ""
    try:
        search = query.parse(text, now)
        if search.job is not None:
            found = await job_id(visit.store, search.job)
            return RedirectResponse(visit.link(f"/jobs/{found}"), status_code=HTTPStatus.SEE_OTHER)
        rows, after, whole = await query.find(
            visit.store, search, visit.sees, limit=ROWS, after=query.cursor(params.get("after")), most=_most(stats, search)
        )
        rows = await marked(visit.store, rows)
    except Mistake as mistake:
        flaw, search = str(mistake), query.parse("", now)
        rows, after, whole = [], None, True
    where = search.where
    counts = by_state(stats, queue=where.queue, task=where.task)
    return visit.render(
        "jobs.html",
        title="Jobs",
        section="jobs",
        now=now,
        q=text,
        flaw=flaw,
        jobs=rows,
        after=after,
        whole=whole,
        first=params.get("after") is None,
        states=list(State),
        chosen=where.states,
        counts=counts if search.counted else None,
        total=sum(counts.values()),
        matching=_most(stats, search) if search.counted else None,
        cap=CAP,
        tasks=sorted({row.task for row in stats.tasks})[:500],
        queues=sorted({row.queue for row in stats.tasks})[:500],
    )


def _most(stats: Stats, search: query.Search) -> int:
    """Return how many jobs there are in the states, the queue and of the task that are searched: no more can match."""
    where = search.where
    counts = by_state(stats, queue=where.queue, task=where.task)
    return sum(counts[state] for state in where.states or State)
