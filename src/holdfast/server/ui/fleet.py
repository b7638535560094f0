"""Queues and workers: what waits where, who works, and steering both."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.core.breaker import LEVELS, Phase
from holdfast.core.limits import LimitKind, LimitName
from holdfast.core.states import State
from holdfast.server.principal import Right
from holdfast.server.ui.frame import Problem
from holdfast.store.port import Action, WorkerState

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import JobView, WorkerView

MOST: Final = 10_000
SHOWN: Final = 200
SHOWN_JOBS: Final = 5
DECISIONS: Final = 10
"""Decisions of managers that are shown, the newest."""
REASON: Final = 500


async def queues(visit: Visit) -> Response:
    """Show the queues."""
    views = [queue for queue in await visit.store.queues() if visit.may(Right.LOOK, queue.name)]
    limits = await visit.store.limits([LimitName(LimitKind.QUEUE, queue.name) for queue in views])
    return visit.render(
        "queues.html",
        title="Queues",
        section="queues",
        now=await visit.store.now(),
        queues=views,
        most={limit.name.name: limit.rule.most for limit in limits if limit.rule is not None},
        deepest=max((queue.counts.get(State.READY, 0) for queue in views), default=0),
        State=State,
    )


async def pause(visit: Visit) -> Response:
    """Stop claims from a queue."""
    queue = visit.field("queue")
    visit.need(Right.STEER, queue)
    await visit.store.pause(queue, by=visit.who.name, reason=visit.field("reason").strip()[:REASON])
    visit.told()
    return visit.go(visit.link("/queues"), f"The queue {queue} is paused: nothing more is claimed from it.")


async def resume(visit: Visit) -> Response:
    """Let claims from a queue go on."""
    queue = visit.field("queue")
    visit.need(Right.STEER, queue)
    await visit.store.resume(queue, by=visit.who.name)
    visit.told(queues=[queue])
    return visit.go(visit.link("/queues"), f"The queue {queue} goes on.")


@dataclass(frozen=True, slots=True)
class Shown:
    """A worker with the jobs that it runs."""

    view: WorkerView
    jobs: list[JobView]
    queues: tuple[str, ...] | None
    """`None`: all."""
    redis: str
    """What is to be said of its Redis."""


async def workers(visit: Visit) -> Response:
    """Show the workers; with `all` also those that are gone."""
    everyone = await visit.store.workers(limit=MOST)
    gone = sum(1 for view in everyone if view.state is WorkerState.OFFLINE)
    wanted = [view for view in everyone if "all" in visit.request.query_params or view.state is not WorkerState.OFFLINE]
    ids = [job_id for view in wanted[:SHOWN] for job_id in view.jobs[:SHOWN_JOBS]]
    jobs = {job.id: job for job in await visit.store.get(ids) if job is not None and visit.sees(job)} if ids else {}
    return visit.render(
        "workers.html",
        title="Workers",
        section="workers",
        now=await visit.store.now(),
        workers=[
            Shown(view, [jobs[job_id] for job_id in view.jobs[:SHOWN_JOBS] if job_id in jobs], view.queues, _redis(view))
            for view in wanted[:SHOWN]
        ],
        more=max(0, len(wanted) - SHOWN),
        gone=gone,
        everyone="all" in visit.request.query_params,
        decisions=await visit.store.audits(limit=DECISIONS, action=Action.SCALE),
        WorkerState=WorkerState,
    )


async def revoke(visit: Visit) -> Response:
    """Ask whether a worker's leases are to be taken back."""
    view = await _steered(visit)
    return visit.render(
        "revoke.html",
        still=True,
        title=f"Revoke {view.worker.name}?",
        section="workers",
        worker=view,
        what="worker",
        action=visit.link(f"/workers/{view.worker.id}/revoke"),
        back=visit.link("/workers"),
        count=view.running,
    )


async def steer(visit: Visit) -> Response:
    """Drain, disable, enable or revoke a worker."""
    view, verb, by = await _steered(visit), str(visit.request.path_params["verb"]), visit.who.name
    worker, name = view.worker.id, view.worker.name
    match verb:
        case "drain":
            await visit.store.drain(worker, by=by)
            said = f"{name} finishes what it runs, and ends."
        case "disable":
            await visit.store.disable(worker, by=by)
            said = f"{name} claims nothing more."
        case "enable":
            await visit.store.enable(worker, by=by)
            said = f"{name} may claim again."
        case "revoke":
            jobs = await visit.store.revoke(worker, by=by) or []
            said = f"{name} is disabled, and {len(jobs)} of its jobs wait for another worker."
        case _:
            raise Problem(HTTPStatus.NOT_FOUND, f"{verb!r} is nothing that is done to workers.")
    visit.told()
    return visit.go(visit.link("/workers"), said)


async def _steered(visit: Visit) -> WorkerView:
    """Return the worker of the path, or refuse who may not steer every queue that it works on."""
    visit.need(Right.STEER)
    view = await _worker(visit)
    own = visit.who.queues
    if own is not None and (view.queues is None or not own.issuperset(view.queues)):
        raise Problem(
            HTTPStatus.FORBIDDEN,
            f"{visit.who.name} may steer some queues, and {view.worker.name} works on others too.",
            "Log in with a key that may steer them all, or ask somebody who has one.",
        )
    return view


async def _worker(visit: Visit) -> WorkerView:
    wanted = UUID(str(visit.request.path_params["worker_id"]))
    for view in await visit.store.workers(limit=MOST):
        if view.worker.id == wanted:
            return view
    raise Problem(HTTPStatus.NOT_FOUND, "There is no such worker.", "The page of the workers shows those that are known.")


class _Counts(msgspec.Struct, frozen=True):
    """What a worker counts, as far as it is shown."""

    redis_breaker: int = 0


def _redis(view: WorkerView) -> str:
    """Return what is to be said of a worker's Redis; nothing while it answers, or is not used."""
    try:
        level = msgspec.json.decode(view.counters, type=_Counts).redis_breaker
    except msgspec.MsgspecError:
        return ""
    return next((f"Redis: {phase}" for phase, number in LEVELS.items() if number == level and phase is not Phase.CLOSED), "")
