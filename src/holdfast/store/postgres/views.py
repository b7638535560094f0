"""Reading: jobs as people see them, lists, attempts, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.core.job import policy_of
from holdfast.core.needs import needs_of, required
from holdfast.core.outcome import Error
from holdfast.core.states import TERMINAL, Event, State
from holdfast.store.port import AttemptView, EventView, JobFilter, JobView, LogView, Part, PartState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

_VIEW: Final = """
SELECT j.id, j.task, j.queue, j.priority, j.args, j.policy, j.lease_ms, j.created_at, j.key, j.scope, j.tags, j.chain_id,
    j.trace, ln.requires, le.requires AS entry_requires,
    CASE WHEN a.job_id IS NOT NULL THEN a.state WHEN l.job_id IS NOT NULL THEN 'running' WHEN r.job_id IS NOT NULL THEN 'ready'
        WHEN s.job_id IS NOT NULL THEN 'scheduled' WHEN b.job_id IS NOT NULL THEN 'blocked' END AS state,
    coalesce(a.attempt, l.attempt, r.attempt, s.attempt, 0) AS attempt,
    coalesce(a.failures, l.failures, r.failures, s.failures, 0) AS failures,
    coalesce(s.run_at, b.run_at) AS run_at, r.ready_at, CASE WHEN a.job_id IS NULL THEN j.start_by END AS start_by,
    CASE WHEN b.job_id IS NOT NULL THEN
        ARRAY(SELECT e.chain_id FROM {schema}.blocker e WHERE e.job_id = j.id AND NOT e.ended ORDER BY e.position)
    END AS waits_for,
    CASE WHEN j.blockers IS NOT NULL THEN
        ARRAY(SELECT e.chain_id FROM {schema}.blocker e WHERE e.job_id = j.id ORDER BY e.position)
    END AS after, a.continued_by,
    w.id AS worker_id, w.name AS worker_name, coalesce(l.claimed_at, a.claimed_at) AS claimed_at, l.expires_at,
    l.expires_at - l.lease_ms * interval '1 ms' AS heartbeat_at, l.expires_at <= clock_timestamp() AS lapsed, l.cancel,
    a.finished_at, a.late, a.code, a.message AS error, a.result, coalesce(a.traceback, t.traceback) AS traceback,
    p.percent, p.step, p.message, q.paused_at
FROM ({candidates}) c
CROSS JOIN LATERAL (SELECT * FROM {schema}.job WHERE job.id = c.id LIMIT 1) j
LEFT JOIN LATERAL (SELECT * FROM {schema}.archive WHERE job_id = j.id LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT * FROM {schema}.lease WHERE job_id = j.id LIMIT 1) l ON true
LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT * FROM {schema}.ready WHERE lane = j.entry AND place = j.place AND job_id = j.id AND NOT moved
        UNION ALL SELECT * FROM {schema}.ready WHERE moved AND job_id = j.id
    ) r LIMIT 1
) r ON true
LEFT JOIN LATERAL (SELECT * FROM {schema}.scheduled WHERE job_id = j.id LIMIT 1) s ON true
LEFT JOIN LATERAL (SELECT * FROM {schema}.blocked WHERE job_id = j.id LIMIT 1) b ON true
LEFT JOIN LATERAL (SELECT * FROM {schema}.worker WHERE no = coalesce(l.worker, a.worker) LIMIT 1) w ON true
LEFT JOIN LATERAL (SELECT * FROM {schema}.progress WHERE job_id = j.id LIMIT 1) p ON true
LEFT JOIN LATERAL (
    SELECT traceback FROM {schema}.attempt WHERE job_id = j.id AND attempt = a.attempt AND a.state <> 'succeeded' LIMIT 1
) t ON true
LEFT JOIN LATERAL (SELECT requires FROM {schema}.lane WHERE id = j.lane LIMIT 1) ln ON true
LEFT JOIN LATERAL (
    SELECT requires FROM {schema}.lane WHERE id = j.lane AND entry = j.entry AND j.entry <> j.lane LIMIT 1
) le ON true
LEFT JOIN LATERAL (SELECT paused_at FROM {schema}.queue WHERE name = j.queue LIMIT 1) q ON true
"""

GET: Final = _VIEW.replace("{candidates}", "SELECT unnest($1::uuid[]) AS id")

_OF_QUEUES: Final = "($%d::text[] IS NULL OR l.lane IN (SELECT id FROM {schema}.lane WHERE queue = ANY ($%d)))"
# An index on what is asked for here would be written by every heartbeat. There are as many leases as running jobs, and reading
# twenty thousand of them takes some milliseconds: no more than the reaper does by itself.
RUNNING: Final = _VIEW.replace(
    "{candidates}",
    f"""
        SELECT l.job_id AS id FROM {{schema}}.lease l WHERE {_OF_QUEUES % (2, 2)}
        ORDER BY (l.expires_at <= clock_timestamp()) DESC, l.claimed_at, l.job_id LIMIT $1""",
)
LAPSED: Final = f"SELECT count(*) FROM {{schema}}.lease l WHERE l.expires_at <= clock_timestamp() AND {_OF_QUEUES % (1, 1)}"

ATTEMPTS: Final = """
SELECT x.attempt, x.event, x.claimed_at, x.ended_at, x.late, x.code, x.message, x.traceback, w.id, w.name
FROM (
    (SELECT attempt, event, claimed_at, ended_at, late, code, message, traceback, worker FROM {schema}.attempt
    WHERE job_id = $1 ORDER BY attempt DESC LIMIT $2)
    UNION ALL
    SELECT attempt, 'succeeded', claimed_at, finished_at, late, NULL, NULL, NULL, worker FROM {schema}.archive
    WHERE job_id = $1 AND state = 'succeeded' AND token IS NOT NULL
    UNION ALL
    SELECT attempt, NULL, claimed_at, NULL, false, NULL, NULL, NULL, worker FROM {schema}.lease WHERE job_id = $1
) x
LEFT JOIN {schema}.worker w ON w.no = x.worker
ORDER BY x.attempt DESC
LIMIT $2
"""
"""The last claims, the latest first; with a limit that is null all of them."""

EVENTS: Final = """
SELECT x.event, x.at, x.state, x.attempt, x.actor, x.detail
FROM (
    SELECT CASE born WHEN 'ready' THEN 'enqueued' WHEN 'scheduled' THEN 'enqueued:later' ELSE 'enqueued:blocked' END AS event,
        created_at AS at, born AS state, 0 AS attempt, '' AS actor, '' AS detail, 0 AS rank, 0::bigint AS no
    FROM {schema}.job WHERE id = $1
    UNION ALL
    SELECT 'claimed', c.claimed_at, 'running', c.attempt, w.name, '', 0, 0
    FROM (
        (SELECT attempt, claimed_at, worker FROM {schema}.attempt WHERE job_id = $1 ORDER BY attempt DESC LIMIT $2)
        UNION
        SELECT attempt, claimed_at, worker FROM {schema}.archive WHERE job_id = $1 AND claimed_at IS NOT NULL
        UNION
        SELECT attempt, claimed_at, worker FROM {schema}.lease WHERE job_id = $1
    ) c LEFT JOIN {schema}.worker w ON w.no = c.worker
    UNION ALL
    SELECT 'succeeded', a.finished_at, 'succeeded', a.attempt, w.name, '', 2, 0
    FROM {schema}.archive a LEFT JOIN {schema}.worker w ON w.no = a.worker
    WHERE a.job_id = $1 AND a.state = 'succeeded' AND a.token IS NOT NULL
    UNION ALL
    (SELECT event, at, state, attempt, actor, detail, 1, no FROM {schema}.event WHERE job_id = $1 ORDER BY no DESC LIMIT $2)
) x
ORDER BY x.attempt DESC, x.rank DESC, x.no DESC
LIMIT $2
"""
"""The last lines, the latest first; with a limit that is null all of them. Lines are written in the order of the attempts."""

PARTS: Final = """
SELECT name, state, done, total, data, error, started_at, completed_at FROM {schema}.part WHERE job_id = $1 ORDER BY no
"""

LOGS: Final = """
SELECT no, at, attempt, level, logger, message, fields FROM {schema}.log WHERE job_id = $1 AND no > $2 ORDER BY no LIMIT $3
"""


TABLES: Final = {State.RUNNING: "lease", State.SCHEDULED: "scheduled", State.BLOCKED: "blocked"}
"""Where the jobs of a state are, and no others."""


def find_statement(
    where: JobFilter, schema: str, search: int, after: UUID | None, limit: int
) -> tuple[str, str, list[Any], int]:
    """Return the statement for one page, one that tells where a search that hit its bound stopped, and their parameters.

    The second statement takes only the first few parameters; the last item says how many.
    """
    parameters: list[Any] = []

    def bind(value: object) -> str:
        parameters.append(value)
        return f"${len(parameters)}"

    source = _source(where, schema, bind, after, search)
    own = len(parameters)
    candidates = source
    conditions = ["true"]
    if where.states is not None:
        states = f"ANY ({bind([state.value for state in where.states])}::text[])"
        conditions.append(f"v.state = {states}")
        if _all_ended(where):  # most are sorted out by one look at the archive, before all else about them is gathered
            candidates = f"""
                SELECT s.id FROM ({source}) s
                CROSS JOIN LATERAL (SELECT state FROM {schema}.archive a WHERE a.job_id = s.id LIMIT 1) a
                WHERE a.state = {states}"""
    if _all_match(where):
        candidates = f"SELECT s.id FROM ({candidates}) s ORDER BY s.id DESC LIMIT {int(limit)}"
    wanted = {"task": where.task, "queue": where.queue, "key": where.key}
    conditions += [f"v.{column} = {bind(value)}" for column, value in wanted.items() if value is not None]
    if where.tag is not None:
        conditions.append(f"v.tags::jsonb ? {bind(where.tag)}")
    if where.created_from is not None:
        conditions.append(f"v.created_at >= {bind(where.created_from)}")
    if where.created_before is not None:
        conditions.append(f"v.created_at < {bind(where.created_before)}")
    if where.chain_id is not None:
        conditions.append(f"coalesce(v.chain_id, v.id) = {bind(where.chain_id)}")
    view = _VIEW.replace("{schema}", schema).replace("{candidates}", candidates)
    page = f"SELECT * FROM ({view}) v WHERE {' AND '.join(conditions)} ORDER BY v.id DESC LIMIT {int(limit)}"
    stop = f"SELECT min(s.id::text)::uuid AS id, count(*) AS searched FROM ({source}) s"
    return page, stop, parameters, own


def _source(where: JobFilter, schema: str, bind: Any, after: UUID | None, search: int) -> str:
    """Return the ids to search, newest first, from the smallest table that holds every match."""
    cursor = bind(after or UUID(int=2**128 - 1))
    if where.chain_id is not None:
        chain = bind(where.chain_id)
        return f"""
            SELECT s.id FROM (
                (SELECT id FROM {schema}.job WHERE chain_id = {chain} AND id < {cursor} ORDER BY id DESC LIMIT {search:d})
                UNION ALL
                SELECT id FROM {schema}.job WHERE id = {chain} AND id < {cursor} AND chain_id IS NULL
            ) s ORDER BY s.id DESC LIMIT {search:d}"""
    if _all_ended(where):
        if where.task is not None or where.queue is not None:
            task, queue = bind(where.task), bind(where.queue)
            return f"""
                SELECT a.id FROM (
                    SELECT DISTINCT id FROM {schema}.lane
                    WHERE task = coalesce({task}, task) AND queue = coalesce({queue}, queue)
                ) l CROSS JOIN LATERAL (
                    SELECT job_id AS id FROM {schema}.archive WHERE lane = l.id AND job_id < {cursor}
                    ORDER BY job_id DESC LIMIT {search:d}
                ) a ORDER BY a.id DESC LIMIT {search:d}"""
        table, column = "archive", "job_id"
    elif where.states is not None and len(where.states) == 1 and (only := next(iter(where.states))) in TABLES:
        table, column = TABLES[only], "job_id"
    else:
        table, column = "job", "id"
    return f"SELECT {column} AS id FROM {schema}.{table} WHERE {column} < {cursor} ORDER BY {column} DESC LIMIT {search:d}"


def _all_match(where: JobFilter) -> bool:
    """Tell whether whatever is found in the table that is searched, in these states, matches: then a page is all it takes."""
    if any(one is not None for one in (where.key, where.tag, where.created_from, where.created_before, where.chain_id)):
        return False
    if _all_ended(where):
        return True
    own = where.states is None or (len(where.states) == 1 and where.states <= TABLES.keys())
    return own and where.task is None and where.queue is None


def _all_ended(where: JobFilter) -> bool:
    """Tell whether only jobs that have ended are asked for, of no chain."""
    return where.chain_id is None and bool(where.states) and (where.states or frozenset()) <= TERMINAL


def job_view(row: Record) -> JobView:
    """Return a job as it is shown."""
    if row["state"] is None:
        raise RuntimeError(f"job {row['id']} is in no state: the database was changed by hand or damaged")
    keyed = tuple(msgspec.json.decode(row["entry_requires"])) if row["entry_requires"] else ()
    limit = needs_of(keyed).limit
    error = None if row["code"] is None else Error(row["code"], row["error"] or "", row["traceback"] or "")
    return JobView(
        id=row["id"],
        task=row["task"],
        queue=row["queue"],
        priority=row["priority"],
        state=State(row["state"]),
        args=row["args"],
        attempt=row["attempt"],
        failures=row["failures"],
        created_at=row["created_at"],
        lease_seconds=row["lease_ms"] / 1000,
        policy=policy_of(row["policy"]),
        run_at=row["run_at"],
        ready_at=row["ready_at"],
        start_by=row["start_by"],
        key=row["key"],
        scope=row["scope"],
        tags=tuple(msgspec.json.decode(row["tags"])) if row["tags"] else (),
        requires=required(needs := tuple(msgspec.json.decode(row["requires"])) if row["requires"] else ()),
        prefers=needs_of(needs).preferred,
        limit=limit,
        fifo=limit is None and row["entry_requires"] is not None,
        chain_id=row["chain_id"],
        trace=row["trace"],
        continued_by=row["continued_by"],
        after=tuple(row["after"] or ()),
        waits_for=tuple(row["waits_for"] or ()),
        worker_id=row["worker_id"],
        worker_name=row["worker_name"],
        claimed_at=row["claimed_at"],
        expires_at=row["expires_at"],
        heartbeat_at=row["heartbeat_at"],
        finished_at=row["finished_at"],
        late=bool(row["late"]),
        cancel_requested=row["cancel"] is not None,
        result=row["result"],
        error=error,
        progress=row["percent"],
        step=row["step"] or "",
        message=row["message"] or "",
        paused=row["paused_at"] is not None,
        lapsed=bool(row["lapsed"]),
    )


def attempt_views(rows: Sequence[Record]) -> list[AttemptView]:
    """Return the attempts of a job, oldest first, by rows of which the latest is first."""
    return [
        AttemptView(
            attempt=attempt,
            worker_id=worker_id,
            worker_name=worker_name,
            claimed_at=claimed_at,
            ended_at=ended_at,
            event=None if event is None else Event(event),
            late=late,
            error=None if code is None else Error(code, message or "", traceback or ""),
        )
        for attempt, event, claimed_at, ended_at, late, code, message, traceback, worker_id, worker_name in reversed(rows)
    ]


def event_views(rows: Sequence[Record]) -> list[EventView]:
    """Return the event log of a job, oldest first, by rows of which the latest is first."""
    return [
        EventView(event=Event(event), at=at, state=State(state), attempt=attempt, actor=actor or "", detail=detail)
        for event, at, state, attempt, actor, detail in reversed(rows)
    ]


def log_views(rows: Sequence[Record]) -> list[LogView]:
    """Return the log of a job."""
    return [
        LogView(no=no, at=at, attempt=attempt, level=level, logger=logger, message=message, fields=fields)
        for no, at, attempt, level, logger, message, fields in rows
    ]


def part_views(rows: Sequence[Record]) -> list[Part]:
    """Return the parts of a job."""
    return [
        Part(name, PartState(state), done, total, data, error, started_at, completed_at)
        for name, state, done, total, data, error, started_at, completed_at in rows
    ]
