"""Signals: emitted once, and kept; whoever waits for one goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.core.text import clean
from holdfast.store.port import EMITTED_BEFORE, TEXT_LIMIT, Action, Emitted, audit_line
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.access import audit
from holdfast.store.sqlite.moving import locate, move
from holdfast.store.sqlite.values import uuid_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from holdfast.store.sqlite.writing import Writing


def emit(writing: Writing, signal: str, data: str, by: str) -> Emitted:
    """Emit a signal, once, and make who waits for it ready; see the port."""
    execute = writing.connection.execute
    first = execute(sql("emit.signal"), (signal, data, writing.now, clean(by, TEXT_LIMIT))).rowcount > 0
    audit(writing, audit_line(Action.EMIT, [signal], by=by, detail="" if first else EMITTED_BEFORE))
    if not first:
        return Emitted(first=False)
    waiting = execute(sql("emit.suspended"), (signal,)).fetchall()
    for job_id, _ in waiting:
        wake(writing, job_id, by)
    return Emitted(
        first=True,
        jobs=tuple(uuid_of(job_id) for job_id, _ in waiting),
        queues=frozenset(queue for _, queue in waiting),
    )


def emitted(writing: Writing, signal: str) -> bool:
    """Tell whether a signal was emitted."""
    return writing.connection.execute(sql("emit.emitted"), (signal,)).fetchone() is not None


def wake(writing: Writing, job_id: bytes, actor: str) -> None:
    """Make a suspended job ready."""
    job = locate(writing, job_id)
    if job is None or job.state is not State.SCHEDULED:
        raise ValueError(f"job {uuid_of(job_id)} waits for a signal, but is not scheduled")
    move(writing, job, Write(Event.WAKE, job.failures), actor=actor)


def signals(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, str]:
    """Return those of these signals that were emitted, with what they carry."""
    found = {}
    for name in names:
        row = connection.execute(sql("signals.data"), (name,)).fetchone()
        if row is not None:
            found[name] = row[0]
    return found
