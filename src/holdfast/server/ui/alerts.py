"""Alerts: where they go, what was delivered, and delivering again. A delivery is a job of Holdfast's own queue."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.states import LIVE, TERMINAL
from holdfast.server.alerts.delivering import QUEUE, TASK, told_of
from holdfast.server.alerts.kinds import AlertKind
from holdfast.server.principal import Right
from holdfast.server.ui.frame import Problem
from holdfast.server.ui.query import cursor
from holdfast.store.port import Answer, JobFilter

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.core.outcome import Error
    from holdfast.server.alerts.delivering import Told
    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import JobView, Store

ROWS: Final = 50
ANSWERS: Final = {
    Answer.DONE: "It is delivered again.",
    Answer.KEY_TAKEN: "Refused: another alert of this kind is on its way to this target, or was a moment ago.",
    Answer.NOT_FOUND: "It is not there any more.",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A delivery, as the log shows it."""

    job: JobView
    told: Told
    error: Error | None
    """What went wrong last."""
    ended: bool


async def alerts(visit: Visit) -> Response:
    """Show where alerts go, and what was delivered, newest first."""
    params = visit.request.query_params
    sees = visit.may(Right.LOOK, QUEUE)
    rows, after = [], None
    if sees:
        page = await visit.store.find(JobFilter(task=TASK, queue=QUEUE), limit=ROWS, after=cursor(params.get("after")))
        rows = [Row(job, told_of(job), await _last_error(visit.store, job), ended=job.state in TERMINAL) for job in page.jobs]
        after = page.after
    return visit.render(
        "alerts.html",
        title="Alerts",
        section="alerts",
        now=await visit.store.now(),
        targets=visit.ui.context.alerts,
        kinds=len(AlertKind),
        rows=rows,
        after=after,
        first=params.get("after") is None,
        sees=sees,
        redelivers=visit.may(Right.AUDIT, QUEUE),
    )


async def redeliver(visit: Visit) -> Response:
    """Deliver an alert again, once it has been or has failed."""
    visit.need(Right.AUDIT, QUEUE)
    job_id = UUID(str(visit.request.path_params["job_id"]))
    view = (await visit.store.get([job_id]))[0]
    if view is None or (view.task, view.queue) != (TASK, QUEUE):
        raise Problem(HTTPStatus.NOT_FOUND, "There is no such delivery.", "The page of the alerts shows those there are.")
    answer = (await visit.store.reopen([job_id], by=visit.who.name))[0]
    visit.told([job_id], [QUEUE])
    return visit.go(visit.back("/alerts"), ANSWERS.get(answer, "Refused: it is on its way."))


async def _last_error(store: Store, job: JobView) -> Error | None:
    """Return what went wrong last: a job that will be tried again has no error of its own yet."""
    if job.state not in LIVE or not job.failures:
        return job.error
    return next((one.error for one in reversed(await store.attempts(job.id)) if one.error is not None), None)
