"""What workers do while they hold jobs: extend, tell how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.lease import Extended, Hold, Lease
from holdfast.core.states import TERMINAL, State
from holdfast.store.port import Part, PartState, Settled
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.moving import locate
from holdfast.store.sqlite.packing import MOST, listed, pack, places
from holdfast.store.sqlite.values import moment, moment_or_none, uuid_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.store.port import Checkpoint, Progress
    from holdfast.store.sqlite.writing import Writing

FINISHED_PARTS: Final = frozenset({PartState.COMPLETED, PartState.FAILED, PartState.SKIPPED})


def holding(connection: sqlite3.Connection, worker: UUID) -> list[Lease]:
    """Return every lease this worker holds."""
    rows = connection.execute(sql("holding.leases"), (worker.bytes,))
    return [Lease(uuid_of(job_id), uuid_of(token)) for job_id, token in rows]


def extend(writing: Writing, leases: Sequence[Lease]) -> list[Extended]:
    """Prolong leases by their own length from now; see the port."""
    answers: list[Extended] = []
    for start in range(0, len(leases), MOST):
        answers += _extend_all(writing, leases[start : start + MOST])
    return answers


def _extend_all(writing: Writing, leases: Sequence[Lease]) -> list[Extended]:
    """Prolong leases with one statement: a worker may hold thousands."""
    ids, tokens = pack(lease.job_id.bytes for lease in leases), pack(lease.token.bytes for lease in leases)
    given = {"places": listed([0] * len(leases)), "ids": ids, "tokens": tokens, "now": writing.now}
    found, canceling = writing.connection.execute(sql("extend.lengths"), given).fetchone()
    writing.connection.execute(sql("extend.leases"), given)
    lengths = _lengths.decode(found)
    held = {length: Extended(Hold.HELD, moment(writing.now + length)) for length in set(lengths) if length is not None}
    answers = [_lost(writing, lease) if length is None else held[length] for lease, length in zip(leases, lengths, strict=True)]
    for place in places(canceling):
        answers[place] = msgspec.structs.replace(answers[place], cancel_requested=True)
    return answers


_lengths: Final = msgspec.json.Decoder(list[int | None])


def _lost(writing: Writing, lease: Lease) -> Extended:
    """Return what became of a lease that is not held under this token."""
    lost = locate(writing, lease.job_id.bytes)
    if lost is None:
        return Extended(Hold.GONE)
    if lost.state is State.RUNNING:
        return Extended(Hold.TAKEN)
    return Extended(Hold.ENDED if lost.state in TERMINAL else Hold.RETURNED)


def _write_under(writing: Writing, lease: Lease) -> Settled:
    """Extend a lease if the token is current, and tell whether that was in time."""
    row = writing.connection.execute(sql("extend.held"), (lease.job_id.bytes, lease.token.bytes)).fetchone()
    if row is None:
        return Settled.STALE
    before, length = row
    writing.connection.execute(sql("extend.lease"), (writing.now + length, writing.now, lease.job_id.bytes))
    return Settled.LATE if before <= writing.now else Settled.APPLIED


def progress(writing: Writing, updates: Sequence[Progress]) -> list[Settled]:
    """Write progress and extend the leases; see the port."""
    answers = []
    for update in updates:
        answers.append(answer := _write_under(writing, update.lease))
        if answer.accepted:
            row = (update.lease.job_id.bytes, update.percent, update.step, update.message)
            writing.connection.execute(sql("progress.write"), row)
    return answers


def checkpoint(writing: Writing, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
    """Write parts of jobs and extend the leases; see the port."""
    answers = []
    for one in checkpoints:
        answers.append(answer := _write_under(writing, one.lease))
        if answer.accepted:
            _write_part(writing, one.lease.job_id.bytes, one.part)
    return answers


def _write_part(writing: Writing, job_id: bytes, part: Part) -> None:
    """Write a part with its times: what the caller gave for them does not count."""
    execute, now = writing.connection.execute, writing.now
    before = execute(sql("checkpoint.before"), (job_id, part.name)).fetchone()
    number, started_at, completed_at = before or (writing.number(), None, None)
    if started_at is None and part.state is not PartState.PENDING:
        started_at = now
    completed_at = (completed_at or now) if part.state in FINISHED_PARTS else None
    row = (job_id, part.name, number, part.state.value, part.done, part.total, part.data, part.error, started_at, completed_at)
    execute(sql("checkpoint.write"), row)


def parts(connection: sqlite3.Connection, job_id: UUID) -> list[Part]:
    """Return the parts of a job in the order they were first written."""
    return [
        Part(
            name=name,
            state=PartState(state),
            done=done,
            total=total,
            data=data,
            error=error,
            started_at=moment_or_none(started_at),
            completed_at=moment_or_none(completed_at),
        )
        for name, state, done, total, data, error, started_at, completed_at in connection.execute(
            sql("parts.parts"), (job_id.bytes,)
        )
    ]


def prove(writing: Writing, lease: Lease) -> Settled:
    """Tell whether a lease is held. Nobody else writes before this transaction ends, so until then it stays what it is."""
    row = writing.connection.execute(sql("extend.held"), (lease.job_id.bytes, lease.token.bytes)).fetchone()
    if row is None:
        return Settled.STALE
    return Settled.LATE if row[0] <= writing.now else Settled.APPLIED


def flag_free(writing: Writing, leases: Sequence[Lease]) -> list[Settled]:
    """Say that the expiry of these leases is not the jobs' fault; see the port."""
    answers = []
    for lease in leases:
        row = writing.connection.execute(sql("extend.held"), (lease.job_id.bytes, lease.token.bytes)).fetchone()
        if row is None:
            answers.append(Settled.STALE)
            continue
        writing.connection.execute(sql("flag_free.flag"), (lease.job_id.bytes,))
        answers.append(Settled.LATE if row[0] <= writing.now else Settled.APPLIED)
    return answers
