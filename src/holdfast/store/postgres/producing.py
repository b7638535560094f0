"""Creating jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg

from holdfast.errors import HoldfastError, SchemaError, StaleLease
from holdfast.store.port import Enqueue, Enqueued
from holdfast.store.postgres import rendering, scripts
from holdfast.store.postgres.handle import Handle, line_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Audit, Notice
    from holdfast.store.postgres.connection import Connection


class Repeated(HoldfastError):
    """The id of a job is there already."""


class Producing(Handle):
    """The producing section of the port."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        under: Lease | None = None,
        caps: Mapping[str, int] | None = None,
        notice: Notice | None = None,
        audit: Audit | None = None,
    ) -> list[Enqueued]:
        """Create jobs in one transaction."""
        if not jobs and under is None:
            return []
        if audit is not None and not audit.by:
            audit = None
        answers = None
        if under is None and not caps and rendering.alike(jobs):
            answers = await self._enqueue_plain(jobs, notice, audit)
        if answers is None:
            answers = await self._enqueue_any(jobs, under, caps, audit)
        self._lanes.look_soon()
        return answers

    async def _enqueue_plain(self, jobs: Sequence[NewJob], notice: Notice | None, audit: Audit | None) -> list[Enqueued] | None:
        """Create plain jobs; `None`: one of them is there already, and nothing was written."""
        created = Enqueue.CREATED  # an enum takes its time to find a member
        answers = [Enqueued(created, job.id) for job in jobs]
        sql = rendering.ENQUEUE_ONE if len(jobs) == 1 else rendering.ENQUEUE_PLAIN
        parameters = rendering.render_plain(jobs)
        text = None if notice is None or audit is not None else notice.text()
        if text is not None:
            sql += rendering.AND_NOTIFY
            parameters += (self._channel, text)
        elif audit is not None and (line := audit.line(jobs, answers)) is not None:
            sql = rendering.WITH_LINE + sql
            parameters += line_row(line)
        sql = self._sql(sql)

        async def work(connection: Connection) -> None:
            try:
                await connection.fetch(sql, *parameters)
            except asyncpg.UniqueViolationError as error:
                raise Repeated from error
            except asyncpg.PostgresError as error:
                if (refused := self._refused(error, jobs)) is error:
                    raise
                raise refused from error

        try:
            await self._db.run(work)
        except Repeated:
            return None
        except SchemaError:
            if text is None:
                raise
            # the server's room for notifications is full, or this role may send none: that is no reason to enqueue nothing
            return await self._enqueue_plain(jobs, None, audit)
        if notice is not None:
            notice.sent = text is not None
        return answers

    async def _enqueue_any(
        self, jobs: Sequence[NewJob], under: Lease | None, caps: Mapping[str, int] | None, audit: Audit | None
    ) -> list[Enqueued]:
        async def work(connection: Connection) -> list[Enqueued]:
            if under is not None:
                await self._prove(connection, under)
            answers = await self._script(connection, scripts.enqueue(jobs, caps=caps), jobs, caps)
            if audit is not None and (line := audit.line(jobs, answers)) is not None:
                await self._write_line(connection, line)
            return answers

        alone = under is None and not caps and audit is None and len(list(rendering.calls(jobs))) == 1
        return await (self._db.run if alone else self._db.in_transaction)(work)

    async def _prove(self, connection: Connection, lease: Lease) -> None:
        """Hold a lease in place until the transaction ends; a settle, cancel or reap of it waits that long."""
        if not (await self._script(connection, scripts.prove(lease))).accepted:
            raise StaleLease(f"the lease on job {lease.job_id} is no longer held under this token: nothing was enqueued")
