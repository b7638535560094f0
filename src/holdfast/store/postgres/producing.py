"""Creating jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.errors import BadJob, QueueFull, StaleLease
from holdfast.store.port import Enqueue, Enqueued
from holdfast.store.postgres.connection import Raised
from holdfast.store.postgres.handle import Handle
from holdfast.store.postgres.rendering import CAP, ENQUEUE, calls, render, render_cap, standing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.postgres.connection import Connection

_TAKE_TURNS: Final = (
    "SELECT pg_advisory_xact_lock(k.lock) FROM (SELECT DISTINCT hashtextextended(u.scope || ' ' || u.key, 0) AS lock "
    "FROM unnest($1::text[], $2::text[]) AS u(scope, key) ORDER BY 1) k"
)
"""Jobs that may replace others are created one call after the other, in the caller's order, within one transaction. So that
two such transactions do not wait for each other's keys in a circle, they take turns on all their keys before the first."""
MOST_TURNS: Final = 1000
"""Beyond this many keys one lock stands for all: the server has room for a limited number."""
UNKNOWN_BLOCKER: Final = "HF001"
FULL: Final = "HF003"


class Producing(Handle):
    """The producing section of the port."""

    async def enqueue(
        self, jobs: Sequence[NewJob], *, under: Lease | None = None, caps: Mapping[str, int] | None = None
    ) -> list[Enqueued]:
        """Create jobs in one transaction."""
        if not jobs and under is None:
            return []
        batches = list(calls(jobs))
        answers: list[Enqueued] = []

        async def work(connection: Connection) -> None:
            if under is not None:
                await self._prove(connection, under)
            answers[:] = await self._create_jobs(connection, batches)
            if caps:
                await self._cap(connection, jobs, answers, caps)

        alone = under is None and not caps and len(batches) == 1
        await self._producing(work, self._db.run if alone else self._db.in_transaction)
        return answers

    async def _producing(
        self,
        work: Callable[[Connection], Awaitable[None]],
        run: Callable[[Callable[[Connection], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        try:
            await run(work)
        except Raised as error:
            if error.code == UNKNOWN_BLOCKER:
                raise BadJob(f"there is no job {error} to wait for", path="after") from error
            raise
        self._lanes.look_soon()

    async def _create_jobs(self, connection: Connection, batches: Sequence[Sequence[NewJob]]) -> list[Enqueued]:
        """Create jobs within the caller's transaction."""
        if len(batches) > 1:
            await connection.execute(self._sql(_TAKE_TURNS), *_keys(batches))
        answers: list[Enqueued] = []
        stands_for: dict[UUID, UUID] = {}
        for batch in batches:
            rows = await connection.fetch(self._sql(ENQUEUE), *render([standing(job, stands_for) for job in batch]))
            said = {row[0]: Enqueued(Enqueue(row[1]), row[2]) for row in rows}
            stands_for |= {row[0]: row[2] for row in rows}
            answers.extend(said.get(job.id) or Enqueued(Enqueue.CREATED, job.id) for job in batch)
        return answers

    async def _cap(
        self, connection: Connection, jobs: Sequence[NewJob], answers: Sequence[Enqueued], caps: Mapping[str, int]
    ) -> None:
        """Refuse what has just been created where it makes a queue too deep; the transaction is lost then."""
        created = {job.queue for job, answer in zip(jobs, answers, strict=True) if answer.status is Enqueue.CREATED}
        parameters = render_cap(created, caps)
        if parameters is None:
            return
        try:
            await connection.execute(self._sql(CAP), *parameters)
        except asyncpg.PostgresError as error:
            if error.sqlstate != FULL:
                raise
            index, depth = str(error).split()
            queue = parameters[0][int(index) - 1]
            raise QueueFull(queue, int(depth), caps[queue]) from error

    async def _prove(self, connection: Connection, lease: Lease) -> None:
        """Hold a lease in place until the transaction ends; a settle, cancel or reap of it waits that long."""
        sql = self._sql("SELECT 1 FROM {schema}.lease WHERE job_id = $1 AND token = $2 FOR KEY SHARE")
        if await connection.fetchval(sql, lease.job_id, lease.token) is None:
            raise StaleLease(f"the lease on job {lease.job_id} is no longer held under this token: nothing was enqueued")


def _keys(batches: Sequence[Sequence[NewJob]]) -> tuple[list[str], list[str]]:
    """Return scopes and keys of the jobs that have one."""
    uniques = [job.unique for batch in batches for job in batch if job.unique is not None]
    if len(uniques) > MOST_TURNS:
        return [""], [""]
    return [unique.scope for unique in uniques], [unique.key for unique in uniques]
