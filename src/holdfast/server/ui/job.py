"""One job: where it stands and why, how its attempts went, what it was given and what it gave."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.core.outcome import Error
from holdfast.core.states import LIVE, TERMINAL, Event, State
from holdfast.errors import JobNotFound
from holdfast.explaining import look, reasons
from holdfast.finding import Mistake
from holdfast.server.principal import Right
from holdfast.server.ui import shown
from holdfast.server.ui.frame import Problem
from holdfast.store.port import Answer, JobFilter
from holdfast.tasks.report import make_report
from holdfast.throttling import marked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from starlette.responses import Response

    from holdfast.server.ui.frame import Ui, Visit
    from holdfast.store.port import AttemptView, JobView, LogView
    from holdfast.tasks.report import Report

LINES: Final = 200
"""Lines of a log that a page shows, the last ones."""
READ: Final = 1000
MOST_READS: Final = 20
MOST_TAILS: Final = 1000
SHOWN_LANES: Final = 200
SHOWN_EVENTS: Final = 200
READ_EVENTS: Final = 2000
"""The end of the log, by which waits are measured and stages are known."""
SHOWN_STEPS: Final = 20
SHOWN_PARTS: Final = 200
SCALE: Final = 1000.0
THINNEST: Final = 4.0
"""Of the scale: what took no time is seen too."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One attempt in the timeline: where on the scale it waited and where it ran."""

    attempt: AttemptView
    waited: float | None
    """`None`: since when it waited is not in what was read of the log."""
    ran: float | None
    wait_x: float
    wait_width: float
    run_x: float
    run_width: float
    kind: str
    """How it ended, as a colour."""


async def job(visit: Visit) -> Response:
    """Show a job."""
    (view,) = await marked(visit.store, [await _job(visit)])
    store, now = visit.store, await visit.store.now()
    attempts, parts = await store.attempts(view.id, last=SHOWN_LANES), await store.parts(view.id)
    events = await store.events(view.id, last=READ_EVENTS)
    report = make_report(view, attempts, events, parts, now)
    chain_id = view.chain_id or (view.id if view.continued_by else None)
    steps = await store.find(JobFilter(chain_id=chain_id), limit=SHOWN_STEPS) if chain_id is not None else None
    log, skipped = await _tail(visit.ui, view.id)
    why = reasons(await look(store, view, shown.moment))
    return visit.render(
        "job.html",
        title=f"{view.task} {shown.short(view.id)}",
        section="jobs",
        now=now,
        job=view,
        report=report,
        lanes=_lanes(view, attempts, report, now, known_from=events[0].attempt if len(events) == READ_EVENTS else -1),
        more_lanes=attempts[0].attempt - 1 if attempts else 0,
        ends=view.finished_at or now,
        events=events[-SHOWN_EVENTS:],
        more_events=len(events) > SHOWN_EVENTS,
        parts=parts[:SHOWN_PARTS],
        more_parts=max(0, len(parts) - SHOWN_PARTS),
        log=log,
        skipped=skipped,
        reasons=why,
        outside=any(reason.code == "outside" for reason in why),
        blockers=await store.blockers(view.id) if view.after else [],
        steps=list(reversed(steps.jobs)) if steps is not None else [],
        chain_id=chain_id,
        live=view.state in LIVE,
        ended=view.state in TERMINAL,
        steers=visit.may(Right.STEER, view.queue),
    )


async def complete(visit: Visit) -> Response:
    """End a job from outside, as succeeded with a result or as failed."""
    view = await _job(visit)
    visit.need(Right.STEER, view.queue)
    text = visit.field("result").strip()
    if visit.field("verb") == "fail":
        answer = (await visit.store.fail({view.id: Error("FAILED", text)}, by=visit.who.name))[0]
    else:
        try:
            msgspec.json.decode(text or "null", type=msgspec.Raw)
        except msgspec.MsgspecError as error:
            raise Mistake(f"the result is no JSON: {error}") from None
        answer = (await visit.store.complete({view.id: text or "null"}, by=visit.who.name))[0]
    visit.told([view.id])
    said = "It has ended as you said." if answer is Answer.DONE else "Refused: it had ended before."
    return visit.go(visit.link(f"/jobs/{view.id}"), said)


async def _job(visit: Visit) -> JobView:
    job_id = UUID(str(visit.request.path_params["job_id"]))
    view = (await visit.store.get([job_id]))[0]
    if view is None:
        raise JobNotFound(job_id)
    if not visit.sees(view):
        raise Problem(HTTPStatus.FORBIDDEN, f"The key of {visit.who.name} does not open the queue {view.queue!r}.")
    return view


def _lanes(view: JobView, attempts: Sequence[AttemptView], report: Report, now: datetime, *, known_from: int) -> list[Lane]:
    """Return the timeline. What was logged before the attempt `known_from` is over, or in it, may not have been read."""
    end = view.finished_at or now
    whole = max(0.001, (end - view.created_at).total_seconds())

    def place(at: datetime) -> float:
        return min(SCALE, max(0.0, (at - view.created_at).total_seconds() / whole * SCALE))

    lanes = []
    for attempt, row in zip(attempts, report.attempts, strict=True):
        begin, finish = place(attempt.claimed_at), place(attempt.ended_at or end)
        width = max(THINNEST, finish - begin)
        known = attempt.attempt > known_from
        waited = row.waited / whole * SCALE if known else 0.0
        lanes.append(
            Lane(
                attempt=attempt,
                waited=row.waited if known else None,
                ran=row.seconds,
                wait_x=max(0.0, begin - waited),
                wait_width=min(begin, waited),
                run_x=min(begin, SCALE - width),
                run_width=width,
                kind=_kind(attempt, view),
            )
        )
    return lanes


def _kind(attempt: AttemptView, view: JobView) -> str:
    if attempt.event is None:
        return "running" if view.state is State.RUNNING else str(view.state)
    if attempt.event in (Event.SUCCEED, Event.CONTINUE, Event.COMPLETE_OUTSIDE):
        return "succeeded"
    if attempt.event in (Event.STOP, Event.EXPIRE_CANCEL):
        return "canceled"
    return "failed" if attempt.error is not None else "scheduled"


async def _tail(ui: Ui, job_id: UUID) -> tuple[list[LogView], bool]:
    """Return the end of a job's log, and whether there is more before it.

    A log is read from its beginning on. Where its shown end began is remembered, so that a page that is open reads only that.
    """
    after = start = ui.tails.pop(job_id, 0)
    lines: list[LogView] = []
    for _ in range(MOST_READS):
        read = await ui.store.logs(job_id, limit=READ, after=after)
        lines = (lines + read)[-2 * LINES :]
        if len(read) < READ:
            break
        after = read[-1].no
    if len(lines) > LINES:
        start = lines[-LINES - 1].no
    ui.tails[job_id] = start
    while len(ui.tails) > MOST_TAILS:
        ui.tails.pop(next(iter(ui.tails)))
    return lines[-LINES:], start > 0
