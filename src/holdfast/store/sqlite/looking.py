"""What people and programs can see. Each function runs in one read transaction, so that it sees one moment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.job import policy_of
from holdfast.core.needs import needs_of, required
from holdfast.core.states import TERMINAL, TRANSITIONS, Event, State
from holdfast.store.port import AttemptView, EventView, JobView, Page, QueueView, RunningView, Stats, Storage, TaskCounts
from holdfast.store.sqlite import schema
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.packing import listed
from holdfast.store.sqlite.values import error_of, moment, moment_or_none, names_of, stamp, uuid_of, uuid_or_none

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.port import JobFilter

LAST_ID: Final = b"\xff" * 17
"""Greater than every id."""

TABLES: Final = {
    State.BLOCKED: "holdfast_blocked",
    State.SCHEDULED: "holdfast_scheduled",
    State.READY: "holdfast_ready",
    State.RUNNING: "holdfast_lease",
}
"""Where live jobs are; the others are in the archive."""


# --- jobs ---------------------------------------------------------------------------------------------------------------


def get(connection: sqlite3.Connection, job_ids: Sequence[UUID], now: int) -> list[JobView | None]:
    """Return jobs, in the order asked for."""
    views = _views(connection, [job_id.bytes for job_id in job_ids], now)
    return [views.get(job_id.bytes) for job_id in job_ids]


def _views(connection: sqlite3.Connection, ids: Sequence[bytes], now: int) -> dict[bytes, JobView]:
    edges: dict[bytes, list[tuple[UUID, int]]] = {}
    for statement, chunk in in_chunks("get.after", ids):
        for waiter_id, blocker_id, ended in connection.execute(statement, chunk):
            edges.setdefault(waiter_id, []).append((uuid_of(blocker_id), ended))
    views = {}
    for statement, chunk in in_chunks("get.jobs", ids):
        cursor = connection.execute(statement, chunk)
        columns = [column[0] for column in cursor.description]
        for values in cursor:
            row = dict(zip(columns, values, strict=True))
            views[row["id"]] = _view(row, edges.get(row["id"], []), now)
    return views


def _view(row: dict[str, Any], edges: list[tuple[UUID, int]], now: int) -> JobView:
    limit = needs_of(names_of(row["entry_requires"])).limit
    return JobView(
        id=uuid_of(row["id"]),
        task=row["task"],
        queue=row["queue"],
        priority=row["priority"],
        state=state_of(row),
        args=row["args"],
        attempt=row["attempt"],
        failures=row["failures"],
        created_at=moment(row["created_at"]),
        lease_seconds=row["lease"],
        policy=policy_of(row["policy"]),
        run_at=moment_or_none(row["run_at"]),
        ready_at=moment_or_none(row["ready_at"]),
        start_by=moment_or_none(row["start_by"]),
        key=row["key"],
        scope=row["scope"],
        tags=names_of(row["tags"]),
        requires=required(needs := names_of(row["requires"])),
        prefers=needs_of(needs).preferred,
        limit=limit,
        fifo=limit is None and row["entry_requires"] is not None,
        chain_id=uuid_or_none(row["chain_id"]),
        trace=row["trace"],
        continued_by=uuid_or_none(row["continued_by"]),
        after=tuple(blocker for blocker, _ in edges),
        waits_for=tuple(blocker for blocker, ended in edges if not ended and row["is_blocked"]),
        worker_id=uuid_or_none(row["worker_id"]),
        worker_name=row["worker_name"],
        claimed_at=moment_or_none(row["claimed_at"]),
        expires_at=moment_or_none(row["expires_at"]),
        heartbeat_at=moment_or_none(row["heartbeat_at"]),
        finished_at=moment_or_none(row["finished_at"]),
        late=bool(row["late"]),
        cancel_requested=bool(row["cancel_requested"]),
        result=row["result"],
        error=error_of(row["code"], row["error_message"], row["traceback"]),
        progress=row["percent"],
        step=row["step"] or "",
        message=row["message"] or "",
        paused=bool(row["paused"]),
        lapsed=row["expires_at"] is not None and row["expires_at"] <= now,
    )


def state_of(row: dict[str, Any]) -> State:
    """Return the state that the tables tell in which a job was found."""
    if row["ended_state"] is not None:
        return State(row["ended_state"])
    if row["expires_at"] is not None:
        return State.RUNNING
    if row["ready_at"] is not None:
        return State.READY
    return State.BLOCKED if row["is_blocked"] else State.SCHEDULED


def find(connection: sqlite3.Connection, where: JobFilter, limit: int, after: UUID | None, now: int, *, searched: int) -> Page:
    """Return jobs newest first from the cursor on, having looked at no more than `searched`."""
    if limit <= 0 or (where.states is not None and not where.states):
        return Page([])
    found, after, searched_all = search(connection, candidates(where), where, limit, after, searched=searched)
    views = _views(connection, found, now)
    return Page([views[job_id] for job_id in found], after, searched_all)


def running(connection: sqlite3.Connection, limit: int, queues: frozenset[str] | None, now: int) -> RunningView:
    """Return running jobs, those with a lapsed lease first, then the oldest claim."""
    values = {"now": now, "limit": max(0, limit), "queues": None if queues is None else listed(sorted(queues))}
    found = [job_id for (job_id,) in connection.execute(sql("running.first"), values)]
    views = _views(connection, found, now)
    return RunningView([views[job_id] for job_id in found], connection.execute(sql("running.lapsed"), values).fetchone()[0])


def search(
    connection: sqlite3.Connection, statement: str, where: JobFilter, limit: int, after: UUID | None, *, searched: int
) -> tuple[list[bytes], UUID | None, bool]:
    """Return a page of the candidates that match, the cursor of the next one, and whether the search came to its end."""
    values = {
        "after": LAST_ID if after is None else after.bytes,
        "searched": searched + 1,  # one more, to know whether the search has to stop
        "task": where.task,
        "queue": where.queue,
        "key": where.key,
        "tag": where.tag,
        "chain": None if where.chain_id is None else where.chain_id.bytes,
        "created_from": None if where.created_from is None else stamp(where.created_from),
        "created_before": None if where.created_before is None else stamp(where.created_before),
    }
    found: list[bytes] = []
    last, stopped = b"", False
    for looked, (job_id, matches) in enumerate(connection.execute(statement, values)):
        if looked == searched:
            stopped = True
            break
        last = job_id
        if matches:
            found.append(job_id)
            if len(found) > limit:  # one more, to know whether there is a next page
                break
    if len(found) > limit or (stopped and len(found) == limit):
        return found[:limit], uuid_of(found[limit - 1]), True
    return found, uuid_of(last) if stopped else None, not stopped


def candidates(where: JobFilter) -> str:
    """Return the statement that gives the jobs of some states newest first, each with whether it matches the filter."""
    if where.chain_id is not None:
        stands = "" if where.states is None else f" AND ({in_states(where.states, 'job.id')})"
        sources = [sql(name) + stands for name in ("find.from_chain", "find.from_chain_of_one")]
    elif where.states is None or where.states == frozenset(State):
        sources = [sql("find.from_all")]
    else:
        sources = [sql("find.from_state").replace("{table}", table) + condition for table, condition in _places(where.states)]
    return sql("find.candidates").replace("{sources}", "\nUNION ALL\n".join(sources)).replace("{matches}", sql("find.matches"))


def _places(states: frozenset[State]) -> Iterator[tuple[str, str]]:
    """Yield the tables in which jobs of these states are, each with what else their rows must be."""
    for state in State:
        if state in states and state not in TERMINAL:
            yield TABLES[state], ""
    if ended := ", ".join(f"'{state}'" for state in State if state in states and state in TERMINAL):
        yield "holdfast_archive", f" AND place.state IN ({ended})"


def in_states(states: frozenset[State], job_id: str) -> str:
    """Return the condition that a job, given as an expression, stands in one of these states."""
    return " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} AS place WHERE place.job_id = {job_id}{condition})"  # noqa: S608  names of ours
        for table, condition in _places(states)
    )


# --- records ------------------------------------------------------------------------------------------------------------


def attempts(connection: sqlite3.Connection, job_id: UUID, last: int | None = None) -> list[AttemptView]:
    """Return every claim of a job, oldest first, or the last of them."""
    rows = connection.execute(
        sql("attempts.attempts"), {"id": job_id.bytes, "succeeded": Event.SUCCEED.value, "last": _limit(last)}
    ).fetchall()
    return [
        AttemptView(
            attempt=attempt,
            worker_id=uuid_of(worker_id),
            worker_name=worker_name,
            claimed_at=moment(claimed_at),
            ended_at=moment_or_none(ended_at),
            event=None if event is None else Event(event),
            late=bool(late),
            error=error_of(code, message, traceback),
        )
        for attempt, worker_id, worker_name, claimed_at, ended_at, event, late, code, message, traceback in reversed(rows)
    ]


def events(connection: sqlite3.Connection, job_id: UUID, last: int | None = None) -> list[EventView]:
    """Return the event log of a job, or the last of it: what its rows say by themselves, and the lines stored beside them."""
    row = connection.execute(sql("events.born"), (job_id.bytes,)).fetchone()
    if row is None:
        return []
    born, claims = Event(row[0]), attempts(connection, job_id, last)
    rows = connection.execute(sql("events.stored"), (job_id.bytes, _limit(last))).fetchall()
    stored = [
        EventView(event=Event(event), at=moment(at), state=State(state), attempt=attempt, actor=actor, detail=detail)
        for event, at, state, attempt, actor, detail in reversed(rows)
    ]
    # sorted by attempt and kept in this order within one: enqueued, claimed, what was written, the success that left no line
    log = [EventView(event=born, at=moment(row[1]), state=TRANSITIONS[None, born])]
    log += [_line(Event.CLAIM, claim, claim.claimed_at) for claim in claims]
    log += stored
    told = {line.attempt for line in stored if line.event is Event.SUCCEED}
    log += [
        _line(Event.SUCCEED, claim, claim.ended_at)
        for claim in claims
        if claim.event is Event.SUCCEED and claim.ended_at is not None and claim.attempt not in told
    ]
    log.sort(key=lambda line: line.attempt)
    return log if last is None else log[max(0, len(log) - max(0, last)) :]


def _limit(last: int | None) -> int:
    """Return a limit for a statement. SQLite takes one below zero for none."""
    return -1 if last is None else max(0, min(last, 2**31 - 1))


def _line(event: Event, claim: AttemptView, at: datetime) -> EventView:
    state = State.RUNNING if event is Event.CLAIM else TRANSITIONS[State.RUNNING, event]
    return EventView(event=event, at=at, state=state, attempt=claim.attempt, actor=claim.worker_name or "")


# --- totals -------------------------------------------------------------------------------------------------------------


def queues(connection: sqlite3.Connection, now: int) -> list[QueueView]:
    """Return the queues that ever had a job, or are paused, by name."""
    totals = stats(connection, now)
    pauses = {name: (moment(at), by, reason) for name, at, by, reason in connection.execute(sql("queues.paused"))}
    counts: dict[str, dict[State, int]] = {}
    for row in totals.tasks:
        of_queue = counts.setdefault(row.queue, {})
        for state, count in row.counts.items():
            of_queue[state] = of_queue.get(state, 0) + count
    views = []
    for (name,) in connection.execute(sql("queues.known")):
        paused_at, paused_by, reason = pauses.get(name, (None, "", ""))
        views.append(
            QueueView(
                name=name,
                counts=counts.get(name, {}),
                oldest_waiting=totals.oldest_waiting.get(name),
                paused_at=paused_at,
                paused_by=paused_by,
                reason=reason,
            )
        )
    return views


def stats(connection: sqlite3.Connection, now: int) -> Stats:
    """Return exact counts and oldest waits. Reads one row for each lane and state, and the first job of each lane."""
    counts: dict[tuple[str, str], dict[State, int]] = {}
    for queue, task, state, count in connection.execute(sql("stats.counts")):
        counts.setdefault((queue, task), {})[State(state)] = count
    waits = {queue: (now - ready_at) / 1_000_000 for queue, ready_at in connection.execute(sql("stats.oldest"))}
    return Stats([TaskCounts(queue, task, by_state) for (queue, task), by_state in counts.items()], waits)


def storage(connection: sqlite3.Connection, path: str) -> Storage:
    """Return the size of the file with its log, and what is free on its file system; raises where the schema is another."""
    schema.check(schema.version(connection, path), path)
    files = (Path(path), Path(f"{path}-wal"))
    used = sum(file.stat().st_size for file in files if file.exists())
    return Storage(used, shutil.disk_usage(Path(path).absolute().parent).free)
