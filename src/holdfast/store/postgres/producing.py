"""Creating jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import StaleLease
from holdfast.store.postgres import scripts
from holdfast.store.postgres.handle import Handle
from holdfast.store.postgres.rendering import calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Enqueued
    from holdfast.store.postgres.connection import Connection


class Producing(Handle):
    """The producing section of the port."""

    async def enqueue(
        self, jobs: Sequence[NewJob], *, under: Lease | None = None, caps: Mapping[str, int] | None = None
    ) -> list[Enqueued]:
        """Create jobs in one transaction."""
        if not jobs and under is None:
            return []

        async def work(connection: Connection) -> list[Enqueued]:
            if under is not None:
                await self._prove(connection, under)
            return await self._script(connection, scripts.enqueue(jobs, caps=caps), jobs, caps)

        alone = under is None and not caps and len(list(calls(jobs))) == 1
        answers = await (self._db.run if alone else self._db.in_transaction)(work)
        self._lanes.look_soon()
        return answers

    async def _prove(self, connection: Connection, lease: Lease) -> None:
        """Hold a lease in place until the transaction ends; a settle, cancel or reap of it waits that long."""
        if not (await self._script(connection, scripts.prove(lease))).accepted:
            raise StaleLease(f"the lease on job {lease.job_id} is no longer held under this token: nothing was enqueued")
