"""Creating jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import BadJob, StaleLease
from holdfast.store.port import Enqueue, Enqueued
from holdfast.store.postgres.connection import Raised
from holdfast.store.postgres.handle import Handle
from holdfast.store.postgres.rendering import ENQUEUE, calls, render, standing

if TYPE_CHECKING:
    from collections.abc import Sequence
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


class Producing(Handle):
    """The producing section of the port."""

    async def enqueue(self, jobs: Sequence[NewJob], *, under: Lease | None = None) -> list[Enqueued]:
        """Create jobs in one transaction."""
        if not jobs and under is None:
            return []
        batches = list(calls(jobs))
        statement = self._sql(ENQUEUE)
        answers: list[Enqueued] = []

        async def work(connection: Connection) -> None:
            answers.clear()
            if under is not None:
                await self._prove(connection, under)
            if len(batches) > 1:
                await connection.execute(self._sql(_TAKE_TURNS), *_keys(batches))
            stands_for: dict[UUID, UUID] = {}
            for batch in batches:
                rows = await connection.fetch(statement, *render([standing(job, stands_for) for job in batch]))
                said = {row[0]: Enqueued(Enqueue(row[1]), row[2]) for row in rows}
                stands_for |= {row[0]: row[2] for row in rows}
                answers.extend(said.get(job.id) or Enqueued(Enqueue.CREATED, job.id) for job in batch)

        try:
            if under is None and len(batches) == 1:
                await self._db.run(work)
            else:
                await self._db.in_transaction(work)
        except Raised as error:
            if error.code == UNKNOWN_BLOCKER:
                raise BadJob(f"there is no job {error} to wait for", path="after") from error
            raise
        self._lanes.look_soon()
        return answers

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
