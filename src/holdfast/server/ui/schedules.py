"""Schedules: what is enqueued again and again, and running one now."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.job import DEFAULT_PREFER_FOR, DEFAULT_PRIORITY, DEFAULT_QUEUE, NewJob, Unique
from holdfast.server.principal import Right
from holdfast.server.ui.cronwords import explained
from holdfast.server.ui.frame import Problem
from holdfast.store.port import Action, Audit, Enqueue

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast.server.ui.frame import Visit
    from holdfast.store.port import ScheduleView


class _Spec(msgspec.Struct, frozen=True):
    """What a worker wrote down about a schedule, as far as it matters here."""

    queue: str | None = None
    priority: int | None = None


async def schedules(visit: Visit) -> Response:
    """Show the schedules."""
    views = [view for view in await visit.store.schedules() if visit.may(Right.LOOK, _spec(view).queue or DEFAULT_QUEUE)]
    last = await visit.store.get([view.last_job for view in views if view.last_job is not None])
    return visit.render(
        "schedules.html",
        title="Schedules",
        section="schedules",
        now=await visit.store.now(),
        schedules=views,
        words={view.schedule.name: explained(view.schedule.cron) for view in views},
        queues={view.schedule.name: _spec(view).queue or DEFAULT_QUEUE for view in views},
        last={job.id: job for job in last if job is not None and visit.sees(job)},
    )


async def run(visit: Visit) -> Response:
    """Enqueue the job of a schedule now; its slots stay as they are."""
    name = visit.field("name")
    view = next((view for view in await visit.store.schedules() if view.schedule.name == name), None)
    if view is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"There is no schedule {name!r}.", "Those there are stand on their page.")
    job = await _job(visit, view)
    visit.need(Right.STEER, job.queue)
    audit = Audit(by=visit.who.name, action=Action.FIRE, targets=(name,), detail=f"job {job.id}")
    (answer,) = await visit.store.enqueue([job], audit=audit)
    visit.told(queues=[job.queue])
    if answer.status is Enqueue.EXISTING:
        return visit.go(visit.link("/schedules"), f"{name} was not enqueued: job {answer.job_id} holds its unique key.")
    return visit.go(visit.link("/schedules"), f"{name} was enqueued as job {job.id}.")


async def _job(visit: Visit, view: ScheduleView) -> NewJob:
    """Return the job of a schedule: as its task is declared, where this server was given the app."""
    task = visit.ui.context.tasks.get(view.schedule.task)
    return await _like_the_last(visit, view) if task is None else task.call().job


async def _like_the_last(visit: Visit, view: ScheduleView) -> NewJob:
    """Return a job like the schedule's last one; where there is none left, one by what the schedule says of itself.

    It has all that is told of the last one: without its key, it would run beside what the key keeps apart.
    """
    spec = _spec(view)
    last = None if view.last_job is None else (await visit.store.get([view.last_job]))[0]
    job_id = visit.ui.context.environment.job_id()
    if last is None:
        priority = DEFAULT_PRIORITY if spec.priority is None else spec.priority
        return NewJob(id=job_id, task=view.schedule.task, queue=spec.queue or DEFAULT_QUEUE, priority=priority)
    return NewJob(
        id=job_id,
        task=view.schedule.task,
        queue=last.queue,
        args=last.args,
        priority=last.priority,
        lease=last.lease_seconds,
        policy=last.policy,
        # How long its key is held is not told of a job: at least while this one lives, then.
        unique=None if last.key is None else Unique(key=last.key, scope=last.scope or last.task),
        requires=last.requires,
        prefers=tuple(last.prefers),
        prefer_for=max(last.prefers.values(), default=DEFAULT_PREFER_FOR),
        fifo=last.fifo,
        tags=last.tags,
        # A job that has ended has no deadline any more: then this one has none either.
        expires_in=None if last.start_by is None else (last.start_by - last.created_at).total_seconds(),
        limit=last.limit,
    )


def _spec(view: ScheduleView) -> _Spec:
    try:
        return msgspec.json.decode(view.schedule.spec, type=_Spec)
    except msgspec.MsgspecError:
        return _Spec()
