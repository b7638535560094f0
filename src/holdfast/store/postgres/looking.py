"""Reading: jobs, lists, records, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.states import State
from holdfast.store.port import Page, QueueView, RunningView, Stats, Storage, TaskCounts
from holdfast.store.postgres import schema as schemas
from holdfast.store.postgres import views
from holdfast.store.postgres.due import LONG_AGO
from holdfast.store.postgres.handle import Handle, most

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.port import AttemptView, EventView, JobFilter, JobView, LogView
    from holdfast.store.postgres.connection import Connection

_OLDEST_OF_KEYS: Final = """
SELECT l.queue, min(h.ready_at)
FROM (SELECT DISTINCT entry, queue FROM {schema}.lane WHERE keyed AND NOT resting) l
CROSS JOIN LATERAL (
    (SELECT ready_at FROM {schema}.ready WHERE lane = l.entry ORDER BY place LIMIT 1)
    UNION ALL (SELECT ready_at FROM {schema}.ready WHERE lane = -l.entry)
) h
GROUP BY l.queue
"""
"""Where more keys wait than a look sees. It goes through all of them, which claims must not."""


class Looking(Handle):
    """The looking section of the port."""

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, all as of one moment."""
        rows = await self._db.fetch(self._sql(views.GET), list(set(job_ids)))
        found = {row["id"]: views.job_view(row) for row in rows}
        return [found.get(job_id) for job_id in job_ids]

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return a page of jobs, newest first."""
        limit = most(limit)
        page, stop, parameters, own = views.find_statement(where, self._name, self._search_limit, after, limit + 1)
        rows = await self._db.fetch(page, *parameters)
        jobs = [views.job_view(row) for row in rows[:limit]]
        if len(rows) > limit:
            return Page(jobs, jobs[-1].id if jobs else after)
        searched = (await self._db.fetch(stop, *parameters[:own]))[0]
        if searched["searched"] < self._search_limit:
            return Page(jobs)
        return Page(jobs, searched["id"], searched_all=False)

    async def running(self, *, limit: int, queues: frozenset[str] | None = None) -> RunningView:
        """Return running jobs, those with a lapsed lease first, then the oldest claim."""
        of = None if queues is None else sorted(queues)
        rows = await self._db.fetch(self._sql(views.RUNNING), most(limit), of)
        jobs = sorted((views.job_view(row) for row in rows), key=lambda job: (not job.lapsed, job.claimed_at, job.id))
        return RunningView(jobs, await self._db.fetch_value(self._sql(views.LAPSED), of))

    async def attempts(self, job_id: UUID, *, last: int | None = None) -> list[AttemptView]:
        """Return every claim of a job, or the last of them."""
        return views.attempt_views(await self._db.fetch(self._sql(views.ATTEMPTS), job_id, _limit(last)))

    async def events(self, job_id: UUID, *, last: int | None = None) -> list[EventView]:
        """Return the event log of a job, or the last of it."""
        return views.event_views(await self._db.fetch(self._sql(views.EVENTS), job_id, _limit(last)))

    async def logs(self, job_id: UUID, *, limit: int, after: int = 0) -> list[LogView]:
        """Return the log of a job, oldest first."""
        after = min(max(after, 0), 2**63 - 1)
        return views.log_views(await self._db.fetch(self._sql(views.LOGS), job_id, after, most(limit)))

    async def now(self) -> datetime:
        """Return the server's clock."""
        moment: datetime = await self._db.fetch_value("SELECT clock_timestamp()")
        return moment

    async def queues(self) -> list[QueueView]:
        """Return the known queues by name."""
        stats = await self.stats()
        sql = self._sql("SELECT name, paused_at, paused_by, reason FROM {schema}.queue")
        paused = {row[0]: row for row in await self._db.fetch(sql)}
        names = sorted({row.queue for row in stats.tasks} | {lane.queue for lane in self._lanes.all()} | set(paused))
        return [
            QueueView(
                name=name,
                counts={state: count for state in State if (count := stats.count(state, queue=name))},
                oldest_waiting=stats.oldest_waiting.get(name),
                paused_at=paused[name][1] if name in paused else None,
                paused_by=paused[name][2] if name in paused else "",
                reason=paused[name][3] if name in paused else "",
            )
            for name in names
        ]

    async def stats(self) -> Stats:
        """Return exact counts and oldest waits."""
        await self._look()
        sql = self._sql(
            "SELECT l.queue, l.task, clock_timestamp() AS now, c.* FROM {schema}.counts() c "
            "CROSS JOIN LATERAL (SELECT queue, task FROM {schema}.lane WHERE id = c.lane LIMIT 1) l"
        )
        rows = await self._db.fetch(sql)
        counts: dict[tuple[str, str], dict[State, int]] = {}
        for row in rows:
            of_task = counts.setdefault((row["queue"], row["task"]), {})
            for state in State:
                if row[state.value]:
                    of_task[state] = of_task.get(state, 0) + row[state.value]
        now = rows[0]["now"] if rows else LONG_AGO
        oldest: dict[str, float] = {}
        waiting = [(lane.queue, lane.oldest()) for lane in self._lanes.all()]
        if not self._lanes.knows_all:
            waiting += [(queue, since) for queue, since in await self._db.fetch(self._sql(_OLDEST_OF_KEYS))]
        for queue, since in waiting:
            if since is not None:
                oldest[queue] = max(oldest.get(queue, 0.0), (now - since).total_seconds())
        return Stats([TaskCounts(queue, task, found) for (queue, task), found in counts.items() if found], oldest)

    async def storage(self) -> Storage:
        """Return the size of the database. What is free on the disk of its server nobody can ask for."""

        async def work(connection: Connection) -> int:
            await schemas.check(connection, self._schema, self._db.target, create=False)
            size: int = await connection.fetchval("SELECT pg_database_size(current_database())")
            return size

        return Storage(await self._db.run(work))


def _limit(last: int | None) -> int | None:
    return None if last is None else most(last)
