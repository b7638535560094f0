"""Claiming jobs and ending attempts: what a worker does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.job import policy_of
from holdfast.core.lease import Claimed, Lease
from holdfast.core.states import Event, State
from holdfast.errors import UnknownWorker
from holdfast.store.port import Settled, Settlement, Worker
from holdfast.store.postgres.handle import Handle, columns, without_repeats
from holdfast.store.postgres.lanes import claimed, runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from asyncpg import Record

    from holdfast.store.port import ClaimRequest
    from holdfast.store.postgres.connection import Connection


class Working(Handle):
    """Registering, claiming and settling."""

    async def register(self, worker: Worker) -> None:
        """Make a worker known."""
        sql = self._sql(
            "INSERT INTO {schema}.worker (id, name, info, registered_at) VALUES ($1, $2, $3, clock_timestamp()) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, info = excluded.info RETURNING no"
        )
        self._workers[worker.id] = await self._db.fetch_value(sql, worker.id, worker.name, worker.info)

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Take ready jobs, lane by lane in their order."""
        if request.limit <= 0:
            return []
        worker = await self._worker_no(request.worker)
        if request.look or self._lanes.look_due(self._environment.monotonic()):
            await self._look()
        jobs: list[Claimed] = []
        for lanes in runs(self._lanes.choose(request)):
            limit = request.limit - len(jobs)
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
                rows = await self._settle(connection, [settlements[i] for i in keep], reap=False)
                said = dict(rows)
                for i in keep:
                    answers[i] = Settled(said.get(leases[i].job_id, "stale"))

        if len(rounds) == 1:
            await self._db.run(work)
        else:
            await self._db.in_transaction(work)
        if any(settlement.write.state is State.READY for settlement in settlements):
            self._lanes.look_soon()
        return answers

    async def _settle(self, connection: Connection, settlements: Sequence[Settlement], *, reap: bool) -> list[tuple[UUID, str]]:
        writes = [settlement.write for settlement in settlements]
        ids, tokens = columns([settlement.lease for settlement in settlements])
        sql = self._sql("SELECT * FROM {schema}.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)")
        live_on = any(write.event is not Event.SUCCEED for write in writes)
        rows = await connection.fetch(
            sql,
            reap,
            ids,
            tokens,
            [write.event.value for write in writes],
            [write.state.value for write in writes],
            [write.failures for write in writes],
            [write.front for write in writes] if live_on else None,
            [write.delay for write in writes] if live_on else None,
            [write.run_at for write in writes] if live_on else None,
            [write.result for write in writes],
            [write.error and write.error.code for write in writes] if live_on else None,
            [write.error and write.error.message for write in writes] if live_on else None,
            [write.error and (write.error.traceback or None) for write in writes] if live_on else None,
        )
        return [(row[0], row[1]) for row in rows]


def _in_order(rows: Sequence[Record], numbers: Sequence[int]) -> list[Claimed]:
    """Return claimed jobs in the order of their lanes and places: a DELETE returns rows as they lie on the pages."""
    rank = {number: index for index, number in enumerate(numbers)}
    ordered = sorted(rows, key=lambda row: (rank[row[0]], row[1]))
    return [
        Claimed(
            row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], policy_of(row[11]), row[12] / 1000,
            row[13], row[14], row[15], row[16], row[17],
        )
        for row in ordered
    ]  # fmt: skip
