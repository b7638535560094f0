"""Creating jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.errors import BadJob, StaleLease
from holdfast.store.port import Enqueue, Enqueued
from holdfast.store.postgres.handle import Handle
from holdfast.store.postgres.rendering import ENQUEUE, calls, render, standing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.postgres.connection import Connection

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
        except asyncpg.PostgresError as error:
            if getattr(error, "sqlstate", None) == UNKNOWN_BLOCKER:
                raise BadJob(f"there is no job {error} to wait for", path="after") from error
            raise
        self._lanes.look_soon()
        return answers

    async def _prove(self, connection: Connection, lease: Lease) -> None:
        """Hold a lease in place until the transaction ends; a settle, cancel or reap of it waits that long."""
        sql = self._sql("SELECT 1 FROM {schema}.lease WHERE job_id = $1 AND token = $2 FOR KEY SHARE")
        if await connection.fetchval(sql, lease.job_id, lease.token) is None:
            raise StaleLease(f"the lease on job {lease.job_id} is no longer held under this token: nothing was enqueued")
