"""Claiming jobs and ending attempts: what a worker does."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from holdfast.core.job import policy_of
from holdfast.core.lease import Claimed, Lease
from holdfast.core.states import Event
from holdfast.errors import UnknownWorker
from holdfast.store.port import Settled, Settlement
from holdfast.store.postgres.handle import Handle, columns, most, without_repeats
from holdfast.store.postgres.lanes import claimed, runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from asyncpg import Record

    from holdfast.store.port import ClaimRequest
    from holdfast.store.postgres.connection import Connection

_NULLS: Final = (None, "null")


class Working(Handle):
    """Claiming and settling."""

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Take ready jobs, lane by lane in their order."""
        if request.limit <= 0:
            return []
        if request.look or self._lanes.look_due(self._environment.monotonic()):
            await self._look()
        worker = await self._worker_no(request.worker)
        jobs: list[Claimed] = []
        for lanes in runs(self._lanes.choose(request)):
            limit = most(request.limit - len(jobs))
            numbers = [number for lane in lanes for number in lane.numbers()]
            marks = [mark for lane in lanes for mark in lane.starts()]
            tasks = sorted(request.tasks) if lanes[0].fifo else None
            rows = await self._db.fetch(
                self._sql("SELECT * FROM {schema}.claim($1, $2, $3, $4, $5)"), worker, numbers, marks, limit, tasks
            )
            claimed(lanes, rows, limit)
            jobs.extend(_in_order(rows, numbers))
            if len(jobs) >= request.limit:
                break
        return jobs

    async def _worker_no(self, worker: UUID) -> int:
        number = self._workers.get(worker)
        if number is None:
            number = await self._db.fetch_value(self._sql("SELECT no FROM {schema}.worker WHERE id = $1"), worker)
            if number is None:
                raise UnknownWorker(
                    f"worker {worker} is not registered with this store: call register() before the first claim"
                )
            self._workers[worker] = number
        return number

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease a worker holds."""
        sql = self._sql(
            "SELECT l.job_id, l.token FROM {schema}.lease l JOIN {schema}.worker w ON w.no = l.worker WHERE w.id = $1"
        )
        return [Lease(*row) for row in await self._db.fetch(sql, worker)]

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts under their tokens, in one transaction."""
        if not settlements:
            return []
        leases = [settlement.lease for settlement in settlements]
        answers = [Settled.STALE] * len(settlements)
        rounds = list(without_repeats(leases))

        async def work(connection: Connection) -> None:
            for keep in rounds:
                said = await self._settle(connection, [settlements[i] for i in keep], reap=False)
                for i in keep:
                    answers[i] = said.get(leases[i].job_id, Settled.APPLIED)

        if len(rounds) == 1:
            await self._db.run(work)
        else:
            await self._db.in_transaction(work)
        if any(settlement.write.event is not Event.SUCCEED for settlement in settlements):
            self._lanes.look_soon()
        return answers

    async def _settle(self, connection: Connection, settlements: Sequence[Settlement], *, reap: bool) -> dict[UUID, Settled]:
        """Return what became of the settlements that were not plainly applied."""
        writes = [settlement.write for settlement in settlements]
        errors = [write.error for write in writes]
        plain = all(write.event is Event.SUCCEED for write in writes)
        rows = await connection.fetch(
            self._sql("SELECT * FROM {schema}.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"),
            reap,
            *columns([settlement.lease for settlement in settlements]),
            None if plain else [write.event.value for write in writes],
            None if plain else [write.state.value for write in writes],
            None if plain else [write.failures for write in writes],
            None if plain else [write.front for write in writes],
            None if plain else [write.delay for write in writes],
            None if plain else [write.run_at for write in writes],
            None if all(write.result in _NULLS for write in writes) else [write.result for write in writes],
            None if plain else [error and error.code for error in errors],
            None if plain else [error and error.message for error in errors],
            None if plain else [error and (error.traceback or None) for error in errors],
        )
        return {row[0]: Settled(row[1]) for row in rows}


def _in_order(rows: Sequence[Record], numbers: Sequence[int]) -> list[Claimed]:
    """Return claimed jobs in the order of their lanes and places: a DELETE returns rows as they lie on the pages."""
    rank = {number: index for index, number in enumerate(numbers)}
    ordered = sorted(rows, key=lambda row: (rank[row[0]], row[1])) if len(numbers) > 1 else sorted(rows, key=itemgetter(1))
    return [Claimed(*(*row[3:11], policy_of(row[11]), *row[12:])) for row in ordered]
