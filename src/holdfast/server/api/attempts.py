"""One job at a time, for workers in any language: the token in the body, what is decided about retries on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.core.lease import Lease
from holdfast.core.outcome import Error, Failed, Released, Succeeded
from holdfast.core.settle import settle
from holdfast.core.states import Event, State
from holdfast.errors import JobNotFound
from holdfast.runtime import counters as count
from holdfast.server.api.leases import KEPT, hint_of
from holdfast.server.principal import Right
from holdfast.server.proving import stale
from holdfast.server.veil import veiled_error
from holdfast.store.port import Checkpoint, LogLine, Part, Progress, Settled, Settlement
from holdfast.wire.leases import LeaseState, SettledJob, Written
from holdfast.wire.values import ms, text_or_empty, text_or_none

if TYPE_CHECKING:
    from holdfast.core.outcome import Outcome
    from holdfast.server.api.table import Asked, Refused
    from holdfast.store.port import JobView
    from holdfast.wire.leases import (
        CheckpointBody,
        CompleteBody,
        FailBody,
        LogBody,
        ProgressBody,
        ReleaseBody,
        TokenBody,
    )


SAME: Final[dict[type, frozenset[Event]]] = {
    Succeeded: frozenset({Event.SUCCEED}),
    Failed: frozenset({Event.FAIL, Event.RETRY, Event.RETRY_LATER, Event.STOP}),
    Released: frozenset({Event.RELEASE, Event.STOP}),
}
"""How an attempt may have been ended by the same request before: one that would let the job live on gives way to a cancel."""
RETRIES: Final = frozenset({Event.RETRY, Event.RETRY_LATER})


async def extend(asked: Asked[TokenBody]) -> LeaseState:
    """Prolong the lease; tells whether the job is to be canceled."""
    lease = await _lease(asked)
    extended = (await asked.store.extend([lease]))[0]
    if extended.hold not in KEPT:
        raise await _stale(asked, "extend")
    await asked.signs.reported([lease])
    asked.context.counters.add(count.HEARTBEATS)
    return LeaseState.of(lease, extended)


async def progress(asked: Asked[ProgressBody]) -> Written:
    """Tell how far the job is; extends the lease."""
    body = asked.body
    lease = await _lease(asked)
    update = Progress(lease, body.percent, body.step, body.message)
    return await _written(asked, "progress", lease, await asked.store.progress([update]))


async def checkpoint(asked: Asked[CheckpointBody]) -> Written:
    """Store a part of the work, for the next attempt; extends the lease."""
    body = asked.body
    part = Part(body.name, body.state, body.done, body.total, text_or_none(body.data, "data"), body.error)
    lease = await _lease(asked)
    return await _written(asked, "checkpoint", lease, await asked.store.checkpoint([Checkpoint(lease, part)]))


async def log(asked: Asked[LogBody]) -> Written:
    """Write a line to the job's log."""
    body = asked.body
    lease = await _lease(asked)
    fields = text_or_empty(body.fields, "fields")
    line = LogLine(lease=lease, message=body.message, level=body.level, fields=fields, id=body.id)
    return await _written(asked, "log", lease, await asked.store.log([line]))


async def complete(asked: Asked[CompleteBody]) -> SettledJob:
    """End the job as succeeded."""
    result = text_or_none(asked.body.result, "result")
    return await _settle(asked, Succeeded("null" if result is None else result))


async def fail(asked: Asked[FailBody]) -> SettledJob:
    """End the attempt as failed: whether and when there is another one is the policy's business."""
    body = asked.body
    error = veiled_error(Error(body.code, body.message, body.traceback))
    return await _settle(asked, Failed(error, fatal=not body.retryable))


async def release(asked: Asked[ReleaseBody]) -> SettledJob:
    """Give the job back, free of cost; where a cancel was requested, it ends as canceled."""
    return await _settle(asked, Released(asked.body.reason or "given back by its worker"))


async def _settle(asked: Asked[Any], outcome: Outcome) -> SettledJob:
    view = await _view(asked)
    environment = asked.environment
    write = settle(outcome, view.policy.retry, view.failures, environment.now(), environment.random)
    settlement = Settlement(Lease(view.id, asked.body.token), write)
    answer = (await asked.store.settle([settlement]))[0]
    if answer is Settled.STALE:
        raise await _stale(asked, "settle")
    asked.ledger.ended(view, settlement, answer, environment.now())
    await asked.signs.ended([settlement.lease])
    if answer is not Settled.REPEATED and answer is not Settled.CANCELED and write.event in RETRIES and write.error is not None:
        asked.context.counters.add(count.RETRIES, label=write.error.code)
    if hint := hint_of([settlement], [answer]):
        asked.notifier.hint(hint)
    if answer is Settled.REPEATED:
        if await asked.store.settled(settlement.lease) not in SAME[type(outcome)]:
            raise await _stale(asked, "settle")  # it has ended this attempt otherwise: nothing of what it says now was written
        return SettledJob(state=(await _view(asked)).state, repeated=True, late=False)
    state = State.CANCELED if answer is Settled.CANCELED else write.state
    rest = ms(write.delay) if state is State.SCHEDULED else None
    return SettledJob(state=state, repeated=False, late=answer is Settled.LATE, retry_in_ms=rest)


async def _written(asked: Asked[Any], kind: str, lease: Lease, answers: list[Settled]) -> Written:
    if not answers[0].accepted:
        raise await _stale(asked, kind)
    await asked.signs.reported([lease])
    return Written(answers[0])


async def _lease(asked: Asked[Any]) -> Lease:
    await asked.allow_jobs(Right.WORK, [asked.id])
    return Lease(asked.id, asked.body.token)


async def _view(asked: Asked[Any]) -> JobView:
    view = (await asked.store.get([asked.id]))[0]
    if view is None:
        raise JobNotFound(asked.id)
    asked.allow(Right.WORK, view.queue)  # who holds a job is told to those alone who may work on its queue
    return view


async def _stale(asked: Asked[Any], kind: str) -> Refused:
    """Return the refusal of a token that is no longer current, to who may work on the job's queue."""
    await _view(asked)
    return await stale(asked.context, asked.id, kind)
