"""Who holds a job: for routes of a program that stand beside the server, and take something from workers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.lease import Hold, Lease
from holdfast.core.states import State
from holdfast.errors import JobNotFound
from holdfast.runtime import counters as count
from holdfast.server.api.table import Refused, forbidden, unauthorized
from holdfast.server.principal import Right
from holdfast.store.port import Role
from holdfast.wire.problems import STALE, Holder, Problem

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

    from holdfast.server.context import Context
    from holdfast.server.principal import Principal
    from holdfast.store.port import JobView

ASK_AGAIN: Final = 0.02
MOST_ASKED: Final = 50
"""How often a lease is asked for that another statement has in hand: a second in all."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that was current a moment ago, and has been prolonged by its own length."""

    job: JobView
    """The job, with its args as JSON text."""
    first: JobView
    """The first step of its chain; the job itself where it is alone. No worker can have written its args by continuing a chain:
    decide by them what a job may do."""
    by: str
    """The name of the key."""
    expires_at: datetime | None
    """Until then nobody else is given the job, unless a person takes it away."""
    cancel_requested: bool
    may_enqueue: bool
    """Whether the key may also enqueue into the job's queue, and so have written the args itself; `False` for an admin's."""


async def held(context: Context, request: Request, job_id: str, token: str, attempt: int | None = None) -> Held:
    """Return the job that whoever makes a request holds, and prolong the lease. Fenced.

    Raises `Refused`: 401 for an unknown key, 403 for one that may not work on the job's queue, 409 for a token, or an attempt,
    that is no longer current, 503 for one that is being ended this moment. Raises `JobNotFound`.
    """
    principal = await context.door.principal(request)
    if principal is None:
        raise unauthorized()
    if not principal.may(Right.WORK):
        raise forbidden(principal, Right.WORK)
    lease = Lease(_uuid(job_id, "job"), _uuid(token, "token"))
    view = (await context.store.get([lease.job_id]))[0]
    if view is None:
        raise JobNotFound(lease.job_id)
    if not principal.may(Right.WORK, view.queue):
        raise forbidden(principal, Right.WORK, view.queue)
    extended = (await context.store.extend([lease]))[0]
    asked = 1
    while extended.hold is Hold.SETTLING and asked < MOST_ASKED:
        await asyncio.sleep(ASK_AGAIN)
        extended = (await context.store.extend([lease]))[0]
        asked += 1
    if extended.hold is Hold.SETTLING:
        problem = Problem(error="unavailable", message="another request has this lease in hand", fix="repeat it")
        raise Refused(503, problem, retry_after=1)
    if extended.hold is not Hold.HELD or (attempt is not None and view.attempt != attempt):
        raise await stale(context, lease.job_id, "extend")
    first: JobView | None = view
    if view.chain_id is not None and view.chain_id != view.id:
        first = (await context.store.get([view.chain_id]))[0]
    if first is None:
        raise JobNotFound(view.chain_id or view.id)
    return Held(
        job=view,
        first=first,
        by=principal.name,
        expires_at=extended.expires_at,
        cancel_requested=extended.cancel_requested,
        may_enqueue=_may_enqueue(principal, view.queue),
    )


async def stale(context: Context, job_id: UUID, kind: str) -> Refused:
    """Return the refusal of a token that is no longer current, with who holds the job now. Counts it, by the kind of the write.

    Workers of Holdfast count their own, and are answered one by one in batches: this is for those who do not.
    """
    view = (await context.store.get([job_id]))[0]
    if view is None:
        raise JobNotFound(job_id)
    context.counters.add(count.STALE, label=kind)
    return late(view)


def late(view: JobView) -> Refused:
    """Return the refusal of a write that came too late to a job which stands so."""
    holder = None
    where = f"the job is {view.state.value}"
    if view.state is State.RUNNING:
        holder = Holder(worker_id=view.worker_id, worker=view.worker_name, attempt=view.attempt, since=view.claimed_at)
        where = f"worker {view.worker_name!r} runs it now, attempt {view.attempt}"
    problem = Problem(
        error=STALE,
        message=f"this token is no longer current, nothing was written: {where}",
        fix="stop working on the job: whatever this attempt still does is lost",
        state=view.state,
        holder=holder,
    )
    return Refused(409, problem)


def _may_enqueue(principal: Principal, queue: str) -> bool:
    return principal.role is not Role.ADMIN and principal.may(Right.ENQUEUE, queue)


def _uuid(text: str, name: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        problem = Problem(error="bad_id", message=f"the {name} is no UUID", fix="use it as the claim gave it", path=name)
        raise Refused(400, problem) from None
