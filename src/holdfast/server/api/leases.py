"""What the remote workers of Holdfast do with their leases: in batches, answered one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.lease import Hold
from holdfast.core.states import Event, State
from holdfast.notify.port import Hint
from holdfast.server.principal import Right
from holdfast.server.veil import veiled_error
from holdfast.store.port import Settled
from holdfast.wire.leases import Answers, ExtendAnswer, LeasesRequest, LeaseState, lease_of
from holdfast.wire.workers import Done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.lease import Lease
    from holdfast.server.api.table import Asked
    from holdfast.store.port import Settlement
    from holdfast.wire.jobs import LeaseRef
    from holdfast.wire.leases import CheckpointRequest, FiguresRequest, LogRequest, MarkRequest, ProgressRequest, SettleRequest

KEPT: Final = frozenset({Hold.HELD, Hold.SETTLING})
"""What became of a lease that is still its holder's."""


async def extend(asked: Asked[LeasesRequest]) -> ExtendAnswer:
    """Prolong leases."""
    leases = await allowed(asked, asked.body.leases)
    extended = await asked.store.extend(leases)
    await asked.signs.reported(lease for lease, one in zip(leases, extended, strict=True) if one.hold in KEPT)
    return ExtendAnswer([LeaseState.of(lease, one) for lease, one in zip(leases, extended, strict=True)])


async def progress(asked: Asked[ProgressRequest]) -> Answers:
    """Write progress."""
    leases = await allowed(asked, asked.body.items)
    return await _written(asked, leases, await asked.store.progress([one.progress() for one in asked.body.items]))


async def checkpoint(asked: Asked[CheckpointRequest]) -> Answers:
    """Write parts of jobs."""
    leases = await allowed(asked, asked.body.items)
    return await _written(asked, leases, await asked.store.checkpoint([one.checkpoint() for one in asked.body.items]))


async def log(asked: Asked[LogRequest]) -> Answers:
    """Append lines to the logs of jobs."""
    leases = await allowed(asked, asked.body.items)
    return await _written(asked, leases, await asked.store.log([one.line() for one in asked.body.items]))


async def mark(asked: Asked[MarkRequest]) -> Answers:
    """Write stages entered and left."""
    leases = await allowed(asked, asked.body.items)
    return await _written(asked, leases, await asked.store.mark([one.mark() for one in asked.body.items]))


async def free(asked: Asked[LeasesRequest]) -> Answers:
    """Say that the expiry of these leases is not the jobs' fault."""
    return Answers(await asked.store.flag_free(await allowed(asked, asked.body.leases)))


async def settle(asked: Asked[SettleRequest]) -> Answers:
    """End attempts."""
    leases = await allowed(asked, asked.body.items)
    settlements = [_veiled(one.settlement()) for one in asked.body.items]
    for settlement in settlements:
        if settlement.then is not None:
            asked.allow(Right.WORK, settlement.then.queue)
    answers = await asked.store.settle(settlements)
    await asked.signs.ended(lease for lease, answer in zip(leases, answers, strict=True) if answer.accepted)
    if hint := hint_of(settlements, answers):
        asked.notifier.hint(hint)
    return Answers(answers)


async def measure(asked: Asked[FiguresRequest]) -> Done:
    """Add figures to those of this minute, of this hour and of all time."""
    figures = [one.figure() for one in asked.body.figures]
    for figure in figures:
        asked.allow(Right.WORK, figure.queue)
    await asked.store.measure(figures)
    return Done()


async def _written(asked: Asked[Any], leases: Sequence[Lease], answers: list[Settled]) -> Answers:
    await asked.signs.reported(lease for lease, answer in zip(leases, answers, strict=True) if answer.accepted)
    return Answers(answers)


def _veiled(settlement: Settlement) -> Settlement:
    """Return what ends an attempt without the secrets of its error: who sends it need not be a worker of Holdfast."""
    if (error := settlement.write.error) is None:
        return settlement
    write = msgspec.structs.replace(settlement.write, error=veiled_error(error))
    return msgspec.structs.replace(settlement, write=write)


async def allowed(asked: Asked[Any], items: Sequence[LeaseRef]) -> list[Lease]:
    """Return the leases that a request is about, or refuse all of it where one is of a queue that the key may not work on."""
    await asked.allow_jobs(Right.WORK, [one.job_id for one in items])
    return [lease_of(one) for one in items]


def hint_of(settlements: Sequence[Settlement], answers: Sequence[Settled]) -> Hint:
    """Return what workers should hear of attempts that have ended; nobody says in which queues the jobs are."""
    anything = later = False
    for settlement, answer in zip(settlements, answers, strict=True):
        if not answer.accepted:
            continue
        write = settlement.write
        freed = answer in (Settled.FREED, Settled.CANCELED) or settlement.then is not None or settlement.signal is not None
        anything = anything or freed or write.state is State.READY
        later = later or write.state is State.SCHEDULED or (freed and write.event is not Event.SUCCEED)
    return Hint(later=later, anything=anything)
