"""What the holder of a lease writes while it works: extensions, progress, checkpoints, logs. All of it fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.lease import Extended, Hold, Lease
from holdfast.core.states import WAITING, State
from holdfast.store.port import Settled
from holdfast.store.postgres import views
from holdfast.store.postgres.handle import Handle
from holdfast.store.postgres.rendering import columns, without_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from holdfast.store.port import Checkpoint, LogLine, Part, Progress, StageMark
    from holdfast.store.postgres.connection import Connection


class Holding(Handle):
    """The fenced writes that leave a job running."""

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases, never waiting for another writer."""
        if not leases:
            return []
        rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.extend($1, $2)"), *columns(leases))
        held = {Lease(row[0], row[1]): Extended(Hold.HELD, row[2], row[3]) for row in rows}
        missing = [lease.job_id for lease in leases if lease not in held]
        found = await self._where_are(missing) if missing else {}
        return [held.get(lease) or _lost(lease, found) for lease in leases]

    async def _where_are(self, ids: Sequence[UUID]) -> dict[UUID, tuple[str, UUID | None]]:
        sql = self._sql(
            "SELECT i.id, w.state, l.token FROM unnest($1::uuid[]) AS i(id) "
            "CROSS JOIN LATERAL (SELECT job AS line FROM {schema}.job WHERE job.id = i.id LIMIT 1) j "
            "CROSS JOIN LATERAL {schema}.where_is(j.line) w "
            "LEFT JOIN LATERAL (SELECT token FROM {schema}.lease WHERE lease.job_id = i.id LIMIT 1) l ON true"
        )
        return {row[0]: (row[1], row[2]) for row in await self._db.fetch(sql, ids)}

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress under the tokens."""
        return await self._fenced(
            [update.lease for update in updates],
            "SELECT * FROM {schema}.progress($1, $2, $3, $4, $5)",
            lambda keep: [
                [updates[i].percent for i in keep],
                [updates[i].step for i in keep],
                [updates[i].message for i in keep],
            ],
        )

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts under the tokens."""
        parts = [checkpoint.part for checkpoint in checkpoints]
        return await self._fenced(
            [checkpoint.lease for checkpoint in checkpoints],
            "SELECT * FROM {schema}.checkpoint($1, $2, $3, $4, $5, $6, $7, $8)",
            lambda keep: [
                [parts[i].name for i in keep],
                [parts[i].state.value for i in keep],
                [parts[i].done for i in keep],
                [parts[i].total for i in keep],
                [parts[i].data for i in keep],
                [parts[i].error for i in keep],
            ],
        )

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault."""
        return await self._fenced(
            leases,
            "SELECT * FROM {schema}.flag_free($1, $2)",
            lambda _keep: [],
        )

    async def _fenced(self, leases: Sequence[Lease], template: str, values: Callable[[list[int]], list[Any]]) -> list[Settled]:
        """Run a fenced write that answers (job_id, late) for what it applied.

        A statement must not see one job twice: the second writer of a job would overwrite itself, or match the token
        of the first. Batches with repeats go in several statements of one transaction; all others in one statement, which
        leaves no moment in which a worker could be frozen with leases in its hand.
        """
        rounds = without_repeats(leases)
        answers = [Settled.STALE] * len(leases)

        async def work(connection: Connection) -> None:
            for keep in rounds:
                ids, tokens = columns([leases[i] for i in keep])
                rows = {row[0]: row[1] for row in await connection.fetch(self._sql(template), ids, tokens, *values(keep))}
                for i in keep:
                    late = rows.get(leases[i].job_id)
                    answers[i] = Settled.STALE if late is None else Settled.LATE if late else Settled.APPLIED

        if leases:
            await (self._db.run if len(rounds) == 1 else self._db.in_transaction)(work)
        return answers

    async def log(self, lines: Sequence[LogLine]) -> list[Settled]:
        """Append lines to the logs of jobs."""
        return await self._appended(
            [line.lease for line in lines],
            "SELECT * FROM {schema}.log($1, $2, $3, $4, $5, $6, $7, $8)",
            [line.age for line in lines],
            [line.level for line in lines],
            [line.logger for line in lines],
            [line.message for line in lines],
            [line.fields for line in lines],
            [line.id for line in lines],
        )

    async def mark(self, marks: Sequence[StageMark]) -> list[Settled]:
        """Write stages entered and left into event logs."""
        return await self._appended(
            [mark.lease for mark in marks],
            "SELECT * FROM {schema}.mark($1, $2, $3, $4, $5)",
            [mark.age for mark in marks],
            [mark.event.value for mark in marks],
            [mark.name for mark in marks],
        )

    async def _appended(self, leases: Sequence[Lease], template: str, *values: list[Any]) -> list[Settled]:
        """Run a fenced write that may see a job several times, and answers (job_id, token, late) for what is held."""
        if not leases:
            return []
        rows = await self._db.fetch(self._sql(template), *columns(leases), *values)
        held = {Lease(row[0], row[1]): Settled.LATE if row[2] else Settled.APPLIED for row in rows}
        return [held.get(lease, Settled.STALE) for lease in leases]

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job."""
        return views.part_views(await self._db.fetch(self._sql(views.PARTS), job_id))


def _lost(lease: Lease, found: Mapping[UUID, tuple[str, UUID | None]]) -> Extended:
    state, token = found.get(lease.job_id, (None, None))
    if state is None:
        return Extended(Hold.GONE)
    if state == State.RUNNING:
        return Extended(Hold.SETTLING if token == lease.token else Hold.TAKEN)
    return Extended(Hold.RETURNED if state in WAITING else Hold.ENDED)
