"""What keeps jobs moving when nobody asks: promoting, reaping, dropping what has waited too long, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.job import OF_KEY, line_of, policy_of
from holdfast.core.settle import expire, overdue
from holdfast.core.states import Event, State, legal
from holdfast.store.port import SOME_WORKERS, Grain, Promoted, Pruned, Reaped, prune_line
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.access import write_line
from holdfast.store.sqlite.limiting import UNUSED_FOR
from holdfast.store.sqlite.moving import landing, locate, move, remove, remove_chain
from holdfast.store.sqlite.values import microseconds, uuid_of

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.store.port import Retention
    from holdfast.store.sqlite.writing import Writing


def promote(writing: Writing, limit: int) -> Promoted:
    """Make due scheduled jobs ready, in `run_at` order; see the port."""
    connection, now = writing.connection, writing.now
    target = landing(State.SCHEDULED, Event.PROMOTE)
    rows = connection.execute(sql("promote.due"), (now, max(0, limit))).fetchall()
    ready = []
    for job_id, attempt, failures, lane, entry, _ in rows:
        ready.append((line_of(lane, entry, failures), writing.number(), job_id, attempt, failures, now))
        writing.count(lane, State.SCHEDULED, target)
        writing.log(job_id, Event.PROMOTE, target, attempt, "promoter")
    connection.executemany(sql("moving.leave_scheduled"), [(row[0],) for row in rows])
    connection.executemany(sql("moving.enter_ready"), ready)
    connection.executemany(sql("enqueue.waiting_key"), {row[3:5] for row in rows if row[4] & OF_KEY})
    (next_due,) = connection.execute(sql("promote.next_due")).fetchone()
    return Promoted(len(rows), frozenset(row[5] for row in rows), None if next_due is None else (next_due - now) / 1_000_000)


def reap(writing: Writing, limit: int, tasks: frozenset[str], up_for: float | None) -> list[Reaped]:
    """Settle lapsed leases by the policy stored with each job, those of `tasks` first; see the port.

    Nobody else writes between the look and the settling, so the guard (same token, still lapsed) holds by itself. There is no
    server whose start would matter: `up_for` is the whole of "an outage must not spend budgets" here.
    """
    longest = None if up_for is None else microseconds(up_for)
    lapsed = [
        (task not in tasks, expires_at, job_id, task, queue, policy)
        for job_id, expires_at, length, task, queue, policy in writing.connection.execute(sql("reap.lapsed"), (writing.now,))
        if longest is None or length <= longest
    ]
    return [
        _reap_one(writing, job_id, task, queue, policy) for _, _, job_id, task, queue, policy in sorted(lapsed)[: max(0, limit)]
    ]


def _reap_one(writing: Writing, job_id: bytes, task: str, queue: str, policy: str | None) -> Reaped:
    job = locate(writing, job_id)
    if job is None or job.held is None:
        raise ValueError(f"job {uuid_of(job_id)} has a lease but is not running")
    write = expire(
        policy_of(policy).retry,
        job.failures,
        writing.random,
        cancel_requested=bool(job.held.cancel_requested),
        free=bool(job.held.free),
    )
    move(writing, job, write, actor="reaper")
    return Reaped(uuid_of(job_id), task, queue, job.attempt, uuid_of(job.held.worker_id), write)


def drop_overdue(writing: Writing, limit: int) -> int:
    """End waiting jobs whose `start_by` has passed; see the port. Their waiters hear of it when all of them have ended."""
    rows = writing.connection.execute(sql("drop_overdue.waiting"), (writing.now, max(0, limit))).fetchall()
    for job_id, wait in rows:
        job = locate(writing, job_id)
        if job is None:
            raise ValueError(f"job {uuid_of(job_id)} would expire, but is not there")
        move(writing, job, overdue(job.failures, wait / 1_000_000), actor="store")
    return len(rows)


def prune(writing: Writing, retention: Retention, limit: int, after: UUID | None, by: str) -> Pruned:
    """Delete terminal jobs older than their state's retention; see the port."""
    signals, lines = _prune_others(writing, retention) if after is None else (0, 0)
    start = b"" if after is None else after.bytes
    looked = writing.connection.execute(
        sql("prune.archived"), (start, max(0, limit) + 1)
    ).fetchall()  # one more: is this the end?
    oldest = {state: writing.now - microseconds(age) for state, age in retention.seconds().items()}
    count = 0
    for job_id, state, finished_at, continued in looked[: max(0, limit)]:
        # a chain goes with its last step, all at once: none is ever seen without some of its steps
        if not continued and legal(State(state), Event.PRUNE) and finished_at < oldest.get(State(state), finished_at):
            count += _prune_chain(writing, job_id)
    if (line := prune_line(by=by, jobs=count, signals=signals, lines=lines)) is not None:
        write_line(writing, line)
    return Pruned(count, uuid_of(looked[limit - 1][0]) if len(looked) > limit > 0 else None)


def _prune_others(writing: Writing, retention: Retention) -> tuple[int, int]:
    """Delete old signals, lines about enqueues and figures; returns how many of the first two there were."""
    writing.connection.execute(sql("limit.forget"), (writing.now - UNUSED_FOR,))
    execute = writing.connection.execute
    signals = lines = 0
    if retention.signals is not None:
        signals = execute(sql("prune.signals"), (writing.now - microseconds(retention.signals),)).rowcount
    if retention.enqueues is not None:
        while gone := execute(sql("prune.lines"), (writing.now - microseconds(retention.enqueues),)).rowcount:
            lines += gone
    if retention.workers is not None:
        execute(sql("prune.workers"), (writing.now - microseconds(retention.workers), SOME_WORKERS))
    for grain in Grain:
        if grain.kept is not None:
            execute(sql("prune.figures"), (grain.value, writing.now - microseconds(grain.kept)))
    return signals, lines


def _prune_chain(writing: Writing, last: bytes) -> int:
    """Remove the chain that ends with this step, unless a live job needs it; returns how many jobs are gone."""
    job = locate(writing, last)
    if job is None or writing.connection.execute(sql("delete.dependents"), (job.chain,)).fetchone() is not None:
        return 0
    if job.chain_id is None:
        remove(writing, job)
        return 1
    return len(remove_chain(writing, job.chain_id))


def rewind(writing: Writing, seconds: float) -> None:
    """Make everything stored older; see the port. Nothing that is shifted as a whole can collide."""
    by = round(seconds * 1_000_000)
    execute = writing.connection.execute
    # what keeps lines of the audit log from being changed stands aside for this
    guards = execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'holdfast_audit'").fetchall()
    for name, _ in guards:
        execute(f"DROP TRIGGER {name}")
    for table, columns in TIMES.items():
        changes = ", ".join(f"{column} = {column} - :by" for column in columns)
        execute(f"UPDATE {table} SET {changes}", {"by": by})  # noqa: S608  names from the constant below
    for _, guard in guards:
        execute(guard)


TIMES = {
    "holdfast_job": ("created_at",),
    "holdfast_blocked": ("run_at",),
    "holdfast_scheduled": ("run_at",),
    "holdfast_deadline": ("start_by",),
    "holdfast_ready": ("ready_at",),
    "holdfast_lease": ("claimed_at", "heartbeat_at", "expires_at"),
    "holdfast_archive": ("finished_at", "claimed_at"),
    "holdfast_attempt": ("claimed_at", "ended_at"),
    "holdfast_event": ("at",),
    "holdfast_log": ("at",),
    "holdfast_part": ("started_at", "completed_at"),
    "holdfast_unique_key": ("until",),
    "holdfast_queue": ("paused_at",),
    "holdfast_limits": ("override_at", "filled_at"),
    "holdfast_worker": ("registered_at", "heartbeat_at", "offline_at", "disabled_at", "draining_at"),
    "holdfast_schedule": ("next_at", "last_at"),
    "holdfast_signal": ("emitted_at",),
    "holdfast_key": ("created_at", "expires_at", "revoked_at", "used_at"),
    "holdfast_audit": ("at",),
    "holdfast_figure": ("at",),
}
"""Every stored moment, by table; a test compares it with the schema."""
