"""Queues and workers: what waits where, who works, and steering both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.core.breaker import BREAKER, LASTS, LEVELS, TRANSITIONS, Phase
from holdfast.core.limits import LimitKind, LimitName
from holdfast.core.states import State
from holdfast.finding import Mistake
from holdfast.server.principal import Right
from holdfast.server.ui import shown, sparklines
from holdfast.server.ui.frame import Problem
from holdfast.server.veil import flat, read
from holdfast.store.port import Action, WorkerPlace, WorkerState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import JobView, Store, WorkerView

READ: Final = 1000
"""Workers that are read at once where all that live are wanted."""
ROWS: Final = 100
SHOWN_JOBS: Final = 5
DECISIONS: Final = 10
"""Decisions of managers that are shown, the newest."""
REASON: Final = 500
SHOWN_TASKS: Final = 30
LONGEST: Final = 10**9
"""Seconds for which a phase may have lasted: what says more is no worker of ours."""
SHOWN_INFO: Final = 2_000
"""Characters of what a worker says of itself."""


async def queues(visit: Visit) -> Response:
    """Show the queues."""
    views = [queue for queue in await visit.store.queues() if visit.may(Right.LOOK, queue.name)]
    limits = await visit.store.limits([LimitName(LimitKind.QUEUE, queue.name) for queue in views])
    workers = await _living(visit.store)
    return visit.render(
        "queues.html",
        title="Queues",
        section="queues",
        now=await visit.store.now(),
        queues=views,
        most={limit.name.name: limit.rule.most for limit in limits if limit.rule is not None},
        deepest=max((queue.counts.get(State.READY, 0) for queue in views), default=0),
        slots=_slots(workers, [queue.name for queue in views]),
        sparklines=await visit.ui.sparklines.of(visit.store),
        spark=sparklines,
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


async def _living(store: Store) -> list[WorkerView]:
    """Return the workers that are not offline, however many there are and have been."""
    found: list[WorkerView] = []
    after = None
    while True:
        page = await store.workers(limit=READ, after=after)
        living = [view for view in page if view.state is not WorkerState.OFFLINE]
        found += living
        if len(living) < READ:
            return found
        after = living[-1].place


def _slots(workers: Sequence[WorkerView], queues: Sequence[str]) -> Counter[str]:
    """Return how many slots may take a job of each queue. A worker of several queues has its slots in each of them."""
    slots = Counter[str]()
    for view in workers:
        if view.state not in (WorkerState.OFFLINE, WorkerState.DISABLED) and not view.drains:
            served = view.queues
            slots.update(dict.fromkeys(queues if served is None else served, view.worker.slots))
    return slots


@dataclass(frozen=True, slots=True)
class About:
    """What a worker says of itself, as text."""

    tasks: str
    rest: str


@dataclass(frozen=True, slots=True)
class Redis:
    """How it stands with the breaker around somebody's Redis."""

    phase: Phase
    changes: int
    """How often the phase changed since the process began."""
    opened: int
    since: datetime | None
    """When the phase was entered, within a second."""

    @property
    def is_news(self) -> bool:
        """Whether it is worth a word in a list: it does not answer now, or did not once."""
        return self.phase is not Phase.CLOSED or self.opened > 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A worker with the jobs that it runs."""

    view: WorkerView
    jobs: list[JobView]
    queues: tuple[str, ...] | None
    """`None`: all."""
    redis: Redis | None
    """`None`: it uses none, or does not say."""
    about: About | None
    """`None`: it serves no queue that whoever looks may look at."""


async def workers(visit: Visit) -> Response:
    """Show the workers; with `all` also those that are gone."""
    params = visit.request.query_params
    everyone, after = "all" in params, _place(params.get("after", ""))
    found = await visit.store.workers(limit=ROWS + 1, after=after)
    wanted = found if everyone else [view for view in found if view.state is not WorkerState.OFFLINE]
    shown = wanted[:ROWS]
    ids = [job_id for view in shown for job_id in view.jobs[:SHOWN_JOBS]]
    jobs = {job.id: job for job in await visit.store.get(ids) if job is not None and visit.sees(job)} if ids else {}
    now = await visit.store.now()
    return visit.render(
        "workers.html",
        title="Workers",
        section="workers",
        now=now,
        redis=_redis(visit.ui.context.notifier.figures(), now),
        workers=[
            Shown(
                view=view,
                jobs=[jobs[job_id] for job_id in view.jobs[:SHOWN_JOBS] if job_id in jobs],
                queues=view.queues,
                redis=_redis(_counts(view), view.heartbeat_at or view.registered_at),
                about=_about(visit, view),
            )
            for view in shown
        ],
        after=_text(shown[-1].place) if len(wanted) > ROWS else None,
        first=after is None,
        everyone=everyone,
        decisions=await visit.store.audits(limit=DECISIONS, action=Action.SCALE) if after is None else [],
        WorkerState=WorkerState,
    )


def _text(place: WorkerPlace) -> str:
    """Return a place in the list as an address has it."""
    moments = (place.offline_at, place.registered_at)
    return "~".join([*("" if at is None else at.astimezone(UTC).isoformat() for at in moments), str(place.id)])


def _place(text: str) -> WorkerPlace | None:
    """Return the place that an address has; `None`: the beginning."""
    if not text:
        return None
    try:
        offline_at, registered_at, worker = text.split("~")
        gone = datetime.fromisoformat(offline_at).astimezone(UTC) if offline_at else None
        return WorkerPlace(gone, datetime.fromisoformat(registered_at).astimezone(UTC), UUID(worker))
    except (ValueError, OverflowError):
        raise Mistake(f"{text!r} is no place in the list of workers") from None


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
    for view in await visit.store.workers(ids=[wanted]):
        return view
    raise Problem(HTTPStatus.NOT_FOUND, "There is no such worker.", "The page of the workers shows those that are known.")


def _about(visit: Visit, view: WorkerView) -> About | None:
    """Return what a worker says of itself, without secrets. Any program may register one, and say what it likes."""
    own, served = visit.who.queues, view.queues
    if own is not None and served is not None and own.isdisjoint(served):
        return None
    try:
        said = msgspec.json.decode(view.worker.info, type=dict[str, Any])
    except msgspec.MsgspecError:
        return About("", shown.cut(shown.plain(view.worker.info, visit.ui.context.settings.redacted), SHOWN_INFO))
    tasks, more = said.pop("tasks", None), said.pop("more_tasks", None)
    said.pop("queues", None)
    names = [name for name in tasks if isinstance(name, str)] if isinstance(tasks, list) else []
    left = len(names[SHOWN_TASKS:]) + (more if isinstance(more, int) else 0)
    text = ", ".join(names[:SHOWN_TASKS]) + (f" and {left:,} more" if left > 0 else "")
    rest = flat(read(msgspec.json.encode(said).decode(), frozenset(visit.ui.context.settings.redacted))[0]) if said else ""
    return About(shown.cut(text, SHOWN_INFO), shown.cut(rest, SHOWN_INFO))


def _redis(figures: Mapping[str, Any], at: datetime) -> Redis | None:
    """Return how it stood with Redis at some moment, by what somebody counted; `None`: it uses none."""
    level, lasts = figures.get(BREAKER), figures.get(LASTS)
    phase = next((phase for phase, number in LEVELS.items() if number == level), None)
    if phase is None:
        return None
    since = at - timedelta(seconds=lasts) if isinstance(lasts, int) and 0 <= lasts <= LONGEST else None
    times = {phase: figures.get(f"{TRANSITIONS}:{phase}") for phase in Phase}
    known = {phase: number for phase, number in times.items() if isinstance(number, int)}
    return Redis(phase, sum(known.values()), known.get(Phase.OPEN, 0), since)


def _counts(view: WorkerView) -> dict[str, Any]:
    """Return what a worker counts. Any program may say what it likes."""
    try:
        return msgspec.json.decode(view.counters, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
