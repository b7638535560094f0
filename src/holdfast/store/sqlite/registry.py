"""The workers: who they are, which of them are alive, which are to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.core import settle
from holdfast.core.needs import HEARD_WITHIN, idle_besides, running_said
from holdfast.core.states import Event
from holdfast.core.text import clean
from holdfast.errors import UnknownWorker
from holdfast.store.port import (
    HEARD_EVERY,
    TEXT_LIMIT,
    Action,
    Signal,
    Worker,
    WorkerKind,
    WorkerView,
    audit_line,
    living_first,
)
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.access import audit
from holdfast.store.sqlite.moving import locate, move
from holdfast.store.sqlite.values import microseconds, moment, moment_or_none, names_of, names_text, stamp, uuid_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection
    from uuid import UUID

    from holdfast.store.port import Beat, WorkerPlace
    from holdfast.store.sqlite.writing import Writing

JOBS_SHOWN: Final = 100


def register(writing: Writing, worker: Worker) -> None:
    """Make a worker known, or change what it says of itself; see the port."""
    values = {
        "id": worker.id.bytes,
        "name": worker.name,
        "kind": worker.kind.value,
        "version": worker.version,
        "slots": worker.slots,
        "capabilities": names_text(worker.capabilities),
        "info": worker.info,
        "owner": worker.owner,
        "now": writing.now,
    }
    writing.connection.execute(sql("register.worker"), values)


def beat(writing: Writing, beat: Beat) -> Signal:
    """Note that a worker is alive, and its counters; see the port."""
    # all rows, so that the statement is done: one left half-way would keep the commit waiting
    rows = writing.connection.execute(sql("beat.worker"), (writing.now, beat.counters, beat.worker.bytes)).fetchall()
    if not rows:
        raise UnknownWorker(f"worker {beat.worker} is not registered with this store: register it before it beats")
    ((disabled_at, draining_at, own),) = rows
    since = writing.now - microseconds(HEARD_WITHIN)
    others = writing.connection.execute(sql("beat.capable"), (own or "[]", since)).fetchall()
    rest = [
        (worker_id, names_of(capabilities), slots, running_said(counters))
        for worker_id, capabilities, slots, counters in others
    ]
    unsaid = any(said is None for *_, said in rest)
    held = dict(writing.connection.execute(sql("beat.held")).fetchall()) if unsaid else {}
    idle = idle_besides(
        names_of(own),
        [
            (capabilities, slots, held.get(worker_id, 0) if said is None else said)
            for worker_id, capabilities, slots, said in rest
        ],
    )
    return Signal(disabled_at is not None, draining_at is not None, idle)


def heard(writing: Writing, workers: Collection[UUID]) -> None:
    """Note that workers are alive that claimed or reported; see the port."""
    before = writing.now - microseconds(HEARD_EVERY)
    for statement, chunk in in_chunks("heard.workers", {worker.bytes for worker in workers}):
        writing.connection.execute(statement, (writing.now, *chunk, before))


def unheard(connection: sqlite3.Connection, workers: Collection[UUID], now: int) -> bool:
    """Tell whether it is to be written down that one of these workers is alive."""
    before = now - microseconds(HEARD_EVERY)
    chunks = in_chunks("heard.unnoted", {worker.bytes for worker in workers})
    return any(connection.execute(statement, (*chunk, before)).fetchone() for statement, chunk in chunks)


def retire(writing: Writing, worker: UUID) -> None:
    """Note that a worker has stopped; see the port."""
    writing.connection.execute(sql("retire.worker"), (writing.now, worker.bytes))


def mark_offline(writing: Writing, after: float) -> list[UUID]:
    """Mark workers offline that gave no sign of life for `after` seconds; see the port."""
    values = (writing.now, writing.now - microseconds(after))
    return sorted(uuid_of(worker_id) for (worker_id,) in writing.connection.execute(sql("mark_offline.silent"), values))


def disable(writing: Writing, worker: UUID, by: str) -> bool:
    """Have a worker claim nothing more. Disabling it again changes who, not since when."""
    if not _disable(writing, worker, by):
        return False
    audit(writing, audit_line(Action.DISABLE, [worker], by=by))
    return True


def _disable(writing: Writing, worker: UUID, by: str) -> bool:
    values = (writing.now, clean(by, TEXT_LIMIT), worker.bytes)
    return writing.connection.execute(sql("disable.worker"), values).rowcount > 0


def enable(writing: Writing, worker: UUID, by: str) -> bool:
    """Let a disabled worker claim again; see the port."""
    if not writing.connection.execute(sql("enable.worker"), (worker.bytes,)).rowcount:
        return False
    audit(writing, audit_line(Action.ENABLE, [worker], by=by))
    return True


def drain(writing: Writing, worker: UUID, by: str) -> bool:
    """Have a worker finish what it runs and end; see the port."""
    if not writing.connection.execute(sql("drain.worker"), (writing.now, worker.bytes)).rowcount:
        return False
    audit(writing, audit_line(Action.DRAIN, [worker], by=by))
    return True


def revoke(writing: Writing, worker: UUID, by: str) -> list[UUID] | None:
    """Disable a worker and take back every lease it holds; see the port."""
    if not _disable(writing, worker, by):
        return None
    released = []
    for (job_id,) in writing.connection.execute(sql("revoke.held"), (worker.bytes,)).fetchall():
        job = locate(writing, job_id)
        if job is None or job.held is None:
            raise ValueError(f"job {uuid_of(job_id)} has a lease but is not running")
        write = settle.revoke(job.failures, cancel=job.held.cancel_reason if job.held.cancel_requested else None)
        move(writing, job, write, actor=by)
        if write.event is Event.RELEASE:
            released.append(uuid_of(job_id))
    audit(writing, audit_line(Action.REVOKE_WORKER, [worker], by=by, detail=f"{len(released)} released"))
    return released


def workers(
    connection: sqlite3.Connection, limit: int, ids: Collection[UUID] | None, after: WorkerPlace | None
) -> list[WorkerView]:
    """Return the registered workers, the living first, each with the jobs it holds."""
    held: dict[bytes, list[bytes]] = {}
    for worker_id, job_id in connection.execute(sql("workers.held")):
        held.setdefault(worker_id, []).append(job_id)
    if ids is None:
        rows = _listed(connection, max(0, limit), after)
    else:
        chunks = in_chunks("workers.known", {worker.bytes for worker in ids})
        rows = [row for statement, chunk in chunks for row in _rows(connection.execute(statement, chunk))]
    views = living_first((_view(row, held.get(row["id"], [])) for row in rows), after)
    return views[: max(0, limit)]


def _listed(connection: sqlite3.Connection, limit: int, after: WorkerPlace | None) -> list[dict[str, Any]]:
    if after is None:
        return _rows(connection.execute(sql("workers.workers"), (limit,)))
    place = {"limit": limit, "registered_at": stamp(after.registered_at), "id": after.id.bytes}
    if after.offline_at is None:
        return _rows(connection.execute(sql("workers.behind_the_living"), place))
    return _rows(connection.execute(sql("workers.behind_the_gone"), place | {"offline_at": stamp(after.offline_at)}))


def _rows(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, values, strict=True)) for values in cursor]


def _view(row: dict[str, Any], jobs: list[bytes]) -> WorkerView:
    return WorkerView(
        worker=Worker(
            id=uuid_of(row["id"]),
            name=row["name"],
            info=row["info"],
            kind=WorkerKind(row["kind"]),
            version=row["version"],
            slots=row["slots"],
            capabilities=names_of(row["capabilities"]),
            owner=row["owner"],
        ),
        registered_at=moment(row["registered_at"]),
        heartbeat_at=moment_or_none(row["heartbeat_at"]),
        offline_at=moment_or_none(row["offline_at"]),
        disabled_at=moment_or_none(row["disabled_at"]),
        disabled_by=row["disabled_by"],
        draining_at=moment_or_none(row["draining_at"]),
        running=len(jobs),
        jobs=tuple(uuid_of(job_id) for job_id in jobs[:JOBS_SHOWN]),
        counters=row["counters"],
    )
