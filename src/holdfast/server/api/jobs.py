"""Jobs: enqueued, looked at and canceled by clients; read by workers."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.lease import Lease
from holdfast.core.redact import redact
from holdfast.core.text import checked_name, clean
from holdfast.errors import BadJob, HoldfastError, JobNotFound, StaleLease
from holdfast.explaining import look, reasons
from holdfast.notify.port import Hint
from holdfast.runtime.enqueuing import hint_of
from holdfast.server.api.table import Asked, Refused, refuse_own
from holdfast.server.api.trace import trace_of
from holdfast.server.principal import Right
from holdfast.server.proving import late
from holdfast.server.veil import veiled, veiled_error
from holdfast.store.port import TEXT_LIMIT, Answer, Audit, ChainView, JobView
from holdfast.tasks.values import MAX_DEPTH, find_fault, short
from holdfast.throttling import marked
from holdfast.wire.jobs import (
    BlockerInfo,
    BlockersAnswer,
    CancelAnswer,
    CancelManyAnswer,
    ChainInfo,
    ChainsAnswer,
    EnqueueAnswer,
    EnqueuedJob,
    JobInfo,
    JobsAnswer,
    PartInfo,
    PartsAnswer,
    ReasonInfo,
    SignalsAnswer,
    WhyAnswer,
)
from holdfast.wire.leases import SettledAnswer, lease_of
from holdfast.wire.problems import NOT_ALLOWED, Problem
from holdfast.wire.values import shown

if TYPE_CHECKING:
    from holdfast.wire.jobs import CancelManyRequest, CancelRequest, EnqueueRequest, IdsRequest, SignalsRequest
    from holdfast.wire.leases import TokenBody

V = TypeVar("V", JobView, ChainView)


async def enqueue(asked: Asked[EnqueueRequest]) -> EnqueueAnswer:
    """Create jobs, all or none."""
    body = asked.body
    jobs = [spec.job(asked.environment.job_id) for spec in body.jobs]
    if trace := trace_of(asked.request.headers):
        jobs = [replace(job, trace=trace) if job.trace is None else job for job in jobs]
    for number, job in enumerate(jobs):
        _check_args(job.args, f"jobs[{number}].")
        refuse_own(job.task)
    for queue in sorted({job.queue for job in jobs}):
        asked.allow(Right.ENQUEUE, queue)
        refuse_own(queue)
    for queue in body.caps:
        checked_name(queue, "caps")
    under = None if body.under is None else lease_of(body.under)
    if under is not None:
        await asked.allow_jobs(Right.ENQUEUE, [under.job_id])
    audit = Audit(by=asked.principal.name, detail="" if under is None else f"for job {under.job_id}")
    try:
        answers = await asked.store.enqueue(jobs, under=under, caps=body.caps or None, audit=audit)
    except StaleLease as error:
        raise await _late(asked, under, error) from None
    if hint := hint_of(jobs, answers):
        asked.notifier.hint(hint)
    return EnqueueAnswer([EnqueuedJob(answer.status, answer.job_id) for answer in answers])


async def _late(asked: Asked[Any], under: Lease | None, error: StaleLease) -> HoldfastError:
    """Return the refusal of children whose parent is no longer held: with who holds it now, to who may know."""
    view = None if under is None else (await asked.store.get([under.job_id]))[0]
    if view is None or not any(asked.principal.may(right, view.queue) for right in (Right.GET, Right.WORK)):
        return error
    return late(view)


def _check_args(text: str, before: str) -> None:
    """Refuse args that no task could take: what `task.enqueue` would refuse, and what is neither an object nor encrypted."""
    path = f"{before}args"
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise BadJob(f"nested deeper than {MAX_DEPTH} levels", path=path) from None
    except msgspec.MsgspecError as error:
        raise BadJob(f"cannot be read: {error}", path=path) from None
    if not isinstance(value, dict | str):
        raise BadJob(f'must be an object, such as {{"user": 42}}, not {short(value)}', path=path)
    if (fault := find_fault([("args", value)])) is not None:
        raise BadJob(fault.reason, path=f"{before}{fault.path}")


async def get(asked: Asked[None]) -> JobInfo:
    """Return a job."""
    (view,) = await marked(asked.store, [await visible(asked)])
    return JobInfo.of(_veiled(asked, view))


async def why(asked: Asked[None]) -> WhyAnswer:
    """Say why a job is not running."""
    (view,) = await marked(asked.store, [await visible(asked)])
    found = reasons(await look(asked.store, view, lambda at: at.astimezone(UTC).isoformat()))
    names = asked.settings.redacted if asked.principal.is_veiled else ()
    told = [ReasonInfo(code=one.code, text=redact(one.text, names), fix=one.fix) for one in found]
    return WhyAnswer(id=view.id, state=view.state, shown=view.shown, reasons=told)


async def get_many(asked: Asked[IdsRequest]) -> JobsAnswer:
    """Return jobs; null for those that are not there, and for those in queues that the key may not see."""
    found = await asked.store.get(asked.body.ids)
    seen = await marked(asked.store, [view for view in found if view is not None and asked.sees(view.queue)])
    told = {view.id: JobInfo.of(_veiled(asked, view)) for view in seen}
    return JobsAnswer([told.get(job_id) for job_id in asked.body.ids])


async def get_chains(asked: Asked[IdsRequest]) -> ChainsAnswer:
    """Return chains; null for those that are not there, and for those in queues that the key may not see."""
    views = await asked.store.chains(asked.body.ids)
    return ChainsAnswer(
        [ChainInfo.of(_veiled(asked, view)) if view is not None and asked.sees(view.queue) else None for view in views]
    )


async def parts(asked: Asked[None]) -> PartsAnswer:
    """Return the parts of a job."""
    await visible(asked, Right.WORK)
    return PartsAnswer([PartInfo.of(part) for part in await asked.store.parts(asked.id)])


async def blockers(asked: Asked[None]) -> BlockersAnswer:
    """Return the chains that a job was to wait for."""
    await visible(asked, Right.WORK)
    return BlockersAnswer([BlockerInfo.of(view) for view in await asked.store.blockers(asked.id)])


async def settled(asked: Asked[TokenBody]) -> SettledAnswer:
    """Tell whether the holder of a token has ended its attempt, where its request was never answered."""
    await asked.allow_jobs(Right.WORK, [asked.id])
    event = await asked.store.settled(Lease(asked.id, asked.body.token))
    return SettledAnswer(event is not None, event)


async def signals(asked: Asked[SignalsRequest]) -> SignalsAnswer:
    """Return signals that were emitted. They are in no queue: a job of any may wait for one, and be told what it carries."""
    names = [checked_name(name, "names") for name in asked.body.names]
    return SignalsAnswer({name: shown(text) for name, text in (await asked.store.signals(names)).items()})


async def cancel(asked: Asked[CancelRequest]) -> CancelAnswer:
    """Cancel a job: it ends now, or its worker is asked to stop."""
    view = await visible(asked, Right.CANCEL)
    answer = (await asked.store.cancel([asked.id], by=asked.principal.name, reason=clean(asked.body.reason, TEXT_LIMIT)))[0]
    if answer is Answer.NOT_FOUND:
        raise JobNotFound(asked.id)
    if answer is Answer.REFUSED:
        message = f"job {asked.id} has ended already: it is {view.state.value}"
        raise Refused(409, Problem(error=NOT_ALLOWED, message=message, state=view.state))
    asked.notifier.hint(Hint(jobs=frozenset({asked.id}), anything=True))
    return CancelAnswer(answer)


async def cancel_many(asked: Asked[CancelManyRequest]) -> CancelManyAnswer:
    """Cancel jobs. Those in queues that the key may not touch are answered as if they were not there."""
    views = await asked.store.get(asked.body.ids)
    mine = [view.id for view in views if view is not None and asked.principal.may(Right.CANCEL, view.queue)]
    reason = clean(asked.body.reason, TEXT_LIMIT)
    answers = await asked.store.cancel(mine, by=asked.principal.name, reason=reason) if mine else []
    if ended := frozenset(one for one, answer in zip(mine, answers, strict=True) if answer in (Answer.DONE, Answer.REQUESTED)):
        asked.notifier.hint(Hint(jobs=ended, anything=True))
    rest = iter(answers)
    allowed = frozenset(mine)
    return CancelManyAnswer([next(rest) if job_id in allowed else Answer.NOT_FOUND for job_id in asked.body.ids])


def _veiled(asked: Asked[Any], view: V) -> V:
    """Return a job or a chain as the one who asks may see it: to people without secrets, as pages show it."""
    if not asked.principal.is_veiled:
        return view
    names = asked.settings.redacted
    fields: dict[str, Any] = {
        field: None if text is None else veiled(text, names)
        for field in ("args", "result")
        if (text := getattr(view, field, "")) != ""
    }
    if isinstance(view, JobView):
        fields |= {"step": redact(view.step, names), "message": redact(view.message, names)}
    if view.error is not None:
        fields["error"] = veiled_error(view.error, names)
    return replace(view, **fields)


async def visible(asked: Asked[Any], right: Right = Right.GET) -> JobView:
    """Return the job of the path, or refuse it: where it is not there, or in a queue that the key may not touch."""
    view = (await asked.store.get([asked.id]))[0]
    if view is None:
        raise JobNotFound(asked.id)
    asked.allow(right, view.queue)
    return view
