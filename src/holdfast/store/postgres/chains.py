"""Looking at chains, at what waiters read of them, and at signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.core.outcome import Error
from holdfast.core.states import State
from holdfast.store.port import BlockerView, ChainPage, ChainView
from holdfast.store.postgres.handle import Handle, most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

    from holdfast.store.port import JobFilter

_LAST_STEP: Final = """
LEFT JOIN LATERAL (SELECT * FROM {schema}.chain WHERE chain.id = c.id LIMIT 1) h ON true
LEFT JOIN LATERAL (
    SELECT job AS line, job.id, job.task FROM {schema}.job WHERE job.id = coalesce(h.step, c.id) LIMIT 1
) s ON true
LEFT JOIN LATERAL (SELECT * FROM {schema}.archive WHERE archive.job_id = s.id LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT traceback FROM {schema}.attempt WHERE job_id = s.id AND attempt = a.attempt AND a.state <> 'succeeded' LIMIT 1
) t ON true
LEFT JOIN LATERAL (SELECT w.state FROM {schema}.where_is(s.line) w LIMIT 1) w ON true
"""
"""Where the chain `c.id` stands."""

_CHAINS: Final = f"""
SELECT j.id, j.task, j.queue, j.created_at, j.key, j.tags, coalesce(h.steps, 1) AS steps, s.id AS step, s.task AS step_task,
    w.state, a.finished_at, a.result, a.code, a.message, coalesce(a.traceback, t.traceback) AS traceback
FROM ({{candidates}}) c
CROSS JOIN LATERAL (
    SELECT * FROM {{schema}}.job WHERE job.id = c.id AND coalesce(job.chain_id, job.id) = job.id LIMIT 1
) j
{_LAST_STEP}
"""

_GET: Final = _CHAINS.replace("{candidates}", "SELECT unnest($1::uuid[]) AS id")

_BLOCKERS: Final = f"""
SELECT c.id, w.state, f.task, s.task AS step_task, a.result, a.code, a.message, coalesce(a.traceback, t.traceback) AS traceback
FROM (SELECT chain_id AS id, position FROM {{schema}}.blocker WHERE job_id = $1) c
LEFT JOIN LATERAL (SELECT job.task FROM {{schema}}.job WHERE job.id = c.id LIMIT 1) f ON true
{_LAST_STEP}
ORDER BY c.position
"""


class Chains(Handle):
    """What the port says about reading chains."""

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView | None]:
        """Return chains by their first jobs, all as of one moment."""
        rows = await self._db.fetch(self._sql(_GET), list(set(chain_ids)))
        found = {row["id"]: _chain_view(row) for row in rows}
        return [found.get(chain_id) for chain_id in chain_ids]

    async def find_chains(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> ChainPage:
        """Return a page of chains, newest first."""
        limit = most(limit)
        searched = f"SELECT id FROM {self._name}.chain WHERE id < $1 ORDER BY id DESC LIMIT {self._search_limit:d}"
        cursor = after or UUID(int=2**128 - 1)
        conditions, values = _conditions(where, first=2)
        view = _CHAINS.replace("{candidates}", searched).replace("{schema}", self._name)
        page = f"SELECT * FROM ({view}) v WHERE {' AND '.join(conditions)} ORDER BY v.id DESC LIMIT {limit + 1:d}"
        rows = await self._db.fetch(page, cursor, *values)
        chains = [_chain_view(row) for row in rows[:limit]]
        if len(rows) > limit:
            return ChainPage(chains, chains[-1].id if chains else after)
        stop = f"SELECT min(s.id::text)::uuid AS id, count(*) AS searched FROM ({searched}) s"
        stopped = (await self._db.fetch(stop, cursor))[0]
        if stopped["searched"] < self._search_limit:
            return ChainPage(chains)
        return ChainPage(chains, stopped["id"], searched_all=False)

    async def blockers(self, job_id: UUID) -> list[BlockerView]:
        """Return the chains a job was to wait for, as they stand, in the order they were named."""
        return [
            BlockerView(
                chain_id=row["id"],
                state=None if row["state"] is None else State(row["state"]),
                task=row["task"] or "",
                step_task=row["step_task"] or "",
                result=row["result"],
                error=_error(row),
            )
            for row in await self._db.fetch(self._sql(_BLOCKERS), job_id)
        ]

    async def signals(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of these signals that were emitted."""
        sql = self._sql("SELECT name, data FROM {schema}.signal WHERE name = ANY ($1::text[])")
        return {row[0]: row[1] for row in await self._db.fetch(sql, list(names))}


def _conditions(where: JobFilter, first: int) -> tuple[list[str], list[Any]]:
    """Return what a chain must fulfil, and the values, whose parameters begin at number `first`."""
    tests = {
        "v.state = ANY ({}::text[])": None if where.states is None else [state.value for state in where.states],
        "v.task = {}": where.task,
        "v.queue = {}": where.queue,
        "v.key = {}": where.key,
        "v.tags::jsonb ? {}": where.tag,
        "v.created_at >= {}": where.created_from,
        "v.created_at < {}": where.created_before,
        "v.id = {}": where.chain_id,
    }
    given = {test: value for test, value in tests.items() if value is not None}
    return ["true", *(test.format(f"${n}") for n, test in enumerate(given, start=first))], list(given.values())


def _chain_view(row: Record) -> ChainView:
    return ChainView(
        id=row["id"],
        task=row["task"],
        queue=row["queue"],
        created_at=row["created_at"],
        key=row["key"],
        tags=tuple(msgspec.json.decode(row["tags"])) if row["tags"] else (),
        steps=row["steps"],
        step=row["step"],
        step_task=row["step_task"],
        state=State(row["state"]),
        finished_at=row["finished_at"],
        result=row["result"],
        error=_error(row),
    )


def _error(row: Record) -> Error | None:
    return None if row["code"] is None else Error(row["code"], row["message"] or "", row["traceback"] or "")
