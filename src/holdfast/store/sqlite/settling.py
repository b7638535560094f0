"""How attempts end under their token."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.outcome import CANCELED, Error
from holdfast.core.settle import Write
from holdfast.core.states import HOLDER_EVENTS, TERMINAL, TRANSITIONS, Event, State
from holdfast.store.port import Settled
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.moving import Ended, Held, Standing, landing, move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import Settlement
    from holdfast.store.sqlite.writing import Writing

SETTLING: Final = frozenset(event for event in HOLDER_EVENTS if TRANSITIONS[State.RUNNING, event] is not State.RUNNING)
"""The holder's events that end an attempt."""


class _Row(NamedTuple):
    """A lease as read for settling."""

    job_id: bytes
    token: bytes
    worker_id: bytes
    attempt: int
    failures: int
    lane: int
    entry: int
    seq: int
    claimed_at: int
    expires_at: int
    keyed: int
    expires: int
    cancel_requested: int
    cancel_reason: str


def settle(writing: Writing, settlements: Sequence[Settlement]) -> list[Settled]:
    """End attempts; see the port. Simple successes, by far the most, are written together."""
    for settlement in settlements:
        if settlement.write.event not in SETTLING:
            raise ValueError(f"{settlement.write.event!r} does not settle a job")
    keys = [(settlement.lease.job_id.bytes, settlement.lease.token.bytes) for settlement in settlements]
    leases = _leases(writing, [job_id for job_id, _ in keys])
    succeeded: list[tuple[_Row, Write]] = []
    settled: dict[bytes, bytes] = {}
    answers = []
    for (job_id, token), settlement in zip(keys, settlements, strict=True):
        held = leases.get(job_id)
        if held is None or held.token != token:
            repeated = settled.get(job_id) == token or _settled_before(writing, job_id, token)
            answers.append(Settled.REPEATED if repeated else Settled.STALE)
            continue
        del leases[job_id]
        settled[job_id] = token
        if settlement.write.event is Event.SUCCEED:
            succeeded.append((held, settlement.write))
        else:
            _settle_one(writing, held, settlement.write)
        answers.append(Settled.LATE if held.expires_at <= writing.now else Settled.APPLIED)
    _succeed(writing, succeeded)
    return answers


def _leases(writing: Writing, ids: Sequence[bytes]) -> dict[bytes, _Row]:
    return {
        row[0]: _Row._make(row)
        for statement, chunk in in_chunks("settle.leases", ids)
        for row in writing.connection.execute(statement, chunk)
    }


def _settled_before(writing: Writing, job_id: bytes, token: bytes) -> bool:
    values = (job_id, token, job_id, token)
    return writing.connection.execute(sql("settle.settled_before"), values).fetchone() is not None


def _settle_one(writing: Writing, held: _Row, write: Write) -> None:
    """Write an end that leaves records: everything but a simple success."""
    if held.cancel_requested and write.state not in TERMINAL:
        # the job would live on although its cancellation was promised
        write = Write(Event.STOP, write.failures, error=Error(CANCELED, held.cancel_reason))
    job = Standing(
        held.job_id,
        State.RUNNING,
        held.lane,
        held.entry,
        held.attempt,
        held.failures,
        held.keyed,
        held.expires,
        held=Held(held.token, held.worker_id, held.seq, held.claimed_at, held.expires_at, 0, "", 0),
    )
    ended = Ended(held.token, late=held.expires_at <= writing.now)
    move(writing, job, write, actor=writing.worker_name(held.worker_id), ended=ended)


def _succeed(writing: Writing, succeeded: list[tuple[_Row, Write]]) -> None:
    """Write simple successes: the archive keeps the token, so there is no record of the attempt and no line in the log."""
    if not succeeded:
        return
    executemany, now = writing.connection.executemany, writing.now
    state = landing(State.RUNNING, Event.SUCCEED)
    executemany(sql("moving.leave_running"), [(held.job_id,) for held, _ in succeeded])
    executemany(
        sql("settle.succeed"),
        [
            (
                held.job_id,
                state.value,
                held.attempt,
                write.failures,
                now,
                held.claimed_at,
                held.worker_id,
                held.token,
                int(held.expires_at <= now),
                write.result,
            )
            for held, write in succeeded
        ],
    )
    if keyed := [(held.job_id,) for held, _ in succeeded if held.keyed]:
        executemany(sql("moving.free_key"), keyed)
    if expiring := [(held.job_id,) for held, _ in succeeded if held.expires]:
        executemany(sql("moving.forget_deadline"), expiring)
    for lane, jobs in Counter(held.lane for held, _ in succeeded).items():
        writing.count(lane, State.RUNNING, state, jobs)
    writing.ended += [held.job_id for held, _ in succeeded]
