"""What workers do while they hold jobs: claim, extend, tell how far they are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.fairness import Head, order
from holdfast.core.job import policy_of
from holdfast.core.lease import Claimed, Extended, Hold, Lease
from holdfast.core.states import TERMINAL, Event, State
from holdfast.errors import UnknownWorker
from holdfast.store.port import Part, PartState, Settled
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.moving import landing, locate
from holdfast.store.sqlite.values import microseconds, moment, moment_or_none, names_of, names_text, uuid_of, uuid_or_none

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from holdfast.store.port import Checkpoint, ClaimRequest, Progress
    from holdfast.store.sqlite.facade import Executes
    from holdfast.store.sqlite.writing import Writing

FINISHED_PARTS: Final = frozenset({PartState.COMPLETED, PartState.FAILED, PartState.SKIPPED})


# --- claiming -----------------------------------------------------------------------------------------------------------


def claim(writing: Writing, request: ClaimRequest, next_turn: Callable[[], int]) -> list[Claimed]:
    """Take ready jobs and receive leases; see the port."""
    if writing.connection.execute(sql("claim.worker"), (request.worker.bytes,)).fetchone() is None:
        raise UnknownWorker(f"worker {request.worker} is not registered with this store: register it before it claims")
    if request.limit <= 0:
        return []
    claims: list[Claimed] = []
    heads = _heads(writing.connection, request)
    for head in order(heads, next_turn(), first=request.first, retries_first=request.retries_first):
        for lane in (-head.lane, head.lane):
            if len(claims) < request.limit and not _take(writing, request, lane, claims):
                break  # nothing passes a job of an unknown task, also not from the front to the rest of the lane
    return claims


def _heads(connection: Executes, request: ClaimRequest) -> list[Head]:
    """Return the lanes this worker may claim from, each with its first job."""
    found: dict[int, tuple[int, Head]] = {}
    # fronts have negative numbers and so come first: where there is one, it holds the lane's head
    for place, seq, ready_at, queue, task, priority, requires in connection.execute(
        sql("claim.heads"), (names_text(tuple(sorted(request.tasks))) or "[]",)
    ):
        if (
            (number := abs(place)) not in found
            and (request.queues is None or queue in request.queues)
            and request.capabilities.issuperset(names_of(requires))
        ):
            found[number] = (seq, Head(number, priority, moment(ready_at), queue, retries=number % 2 == 1))
            if not task and connection.execute(sql("claim.head_task"), (place, seq)).fetchone()[0] not in request.tasks:
                found[number] = (seq, _NO_HEAD)
    # jobs of one enqueue are ready at the same moment: among those the place decides, for `order` keeps ties as they are
    return [head for _, head in sorted(found.values()) if head is not _NO_HEAD]


_NO_HEAD: Final = Head(0, 0, moment(0))
"""Stands for a fifo lane whose first job is of a task this worker does not know."""


def _take(writing: Writing, request: ClaimRequest, lane: int, claims: list[Claimed]) -> bool:
    """Claim from the front or the rest of one lane until enough are claimed. False when it came to a job of an unknown task."""
    connection, now = writing.connection, writing.now
    rows = connection.execute(sql("claim.take"), (lane, request.limit - len(claims))).fetchall()
    taken = next((index for index, row in enumerate(rows) if row[4] not in request.tasks), len(rows))
    if not taken:
        return not rows
    worker, claimed_at, leases = request.worker.bytes, moment(now), []
    entry = abs(lane) & ~1
    ends = {seconds: now + microseconds(seconds) for seconds in {row[8] for row in rows}}
    moments = {seconds: moment(end) for seconds, end in ends.items()}
    for row in rows[:taken]:
        (
            seq,
            job_id,
            attempt,
            failures,
            task,
            queue,
            priority,
            own_lane,
            seconds,
            policy,
            created_at,
            chain,
            trace,
            blockers,
            keyed,
            start_by,
            args,
        ) = row
        token = writing.token()
        end = ends[seconds]
        leases.append(
            (
                job_id,
                token.bytes,
                worker,
                attempt + 1,
                failures,
                own_lane,
                entry,
                seq,
                end - now,
                now,
                now,
                end,
                keyed,
                0 if start_by is None else 1,
                chain,
            )
        )
        claims.append(
            Claimed(
                UUID(bytes=job_id),
                token,
                attempt + 1,
                failures,
                task,
                queue,
                priority,
                args,
                policy_of(policy),
                seconds,
                moment(created_at),
                claimed_at,
                moments[seconds],
                uuid_or_none(chain),
                trace,
                start_by is not None and start_by <= now,
                blockers or 0,
            )
        )
    for own_lane, jobs in Counter(row[7] for row in rows[:taken]).items():
        writing.count(own_lane, State.READY, landing(State.READY, Event.CLAIM), jobs)
    connection.execute(sql("claim.remove"), (lane, rows[taken - 1][0]))
    connection.executemany(sql("claim.lease"), leases)
    return taken == len(rows)


# --- holding ------------------------------------------------------------------------------------------------------------


def holding(connection: sqlite3.Connection, worker: UUID) -> list[Lease]:
    """Return every lease this worker holds."""
    rows = connection.execute(sql("holding.leases"), (worker.bytes,))
    return [Lease(uuid_of(job_id), uuid_of(token)) for job_id, token in rows]


def extend(writing: Writing, leases: Sequence[Lease]) -> list[Extended]:
    """Prolong leases by their own length from now; see the port."""
    return [_extend_one(writing, lease) for lease in leases]


def _extend_one(writing: Writing, lease: Lease) -> Extended:
    held = _touch(writing, lease)
    if held is not None:
        _, expires_at, cancel_requested = held
        return Extended(Hold.HELD, moment(expires_at), bool(cancel_requested))
    lost = locate(writing, lease.job_id.bytes)
    if lost is None:
        return Extended(Hold.GONE)
    if lost.state is State.RUNNING:
        return Extended(Hold.TAKEN)
    return Extended(Hold.ENDED if lost.state in TERMINAL else Hold.RETURNED)


def _touch(writing: Writing, lease: Lease) -> tuple[bool, int, int] | None:
    """Extend a lease if the token is current. Returns whether it had lapsed, its new end and whether a cancel is requested."""
    row = writing.connection.execute(sql("extend.held"), (lease.job_id.bytes, lease.token.bytes)).fetchone()
    if row is None:
        return None
    before, length, cancel_requested = row
    expires_at = writing.now + length
    writing.connection.execute(sql("extend.lease"), (expires_at, writing.now, lease.job_id.bytes))
    return before <= writing.now, expires_at, cancel_requested


def _write_under(writing: Writing, lease: Lease) -> Settled:
    held = _touch(writing, lease)
    if held is None:
        return Settled.STALE
    return Settled.LATE if held[0] else Settled.APPLIED


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
