"""Claiming jobs and ending attempts: what a worker does."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from holdfast.core.job import policy_of
from holdfast.core.lease import Claimed, Lease
from holdfast.core.states import Event
from holdfast.errors import KeyBusy, UnknownWorker
from holdfast.store.port import Settled
from holdfast.store.postgres import scripts
from holdfast.store.postgres.handle import Handle, most
from holdfast.store.postgres.lanes import claimed, runs
from holdfast.store.postgres.rendering import without_repeats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from asyncpg import Record

    from holdfast.store.port import ClaimRequest, Settlement


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
        """End attempts under their tokens, in one transaction; one call where no step continues."""
        refused: set[UUID] = set()
        answers: list[Settled] | None = None
        while answers is None:
            given = [one for one in settlements if one.then is None or one.then.id not in refused]
            try:
                answers = await self._settle(given)
            except scripts.NextKeyTaken as taken:
                refused |= taken.steps
            except KeyBusy:
                answers = await self._settle_apart(given)
        left = iter(answers)
        kept = (one.then is None or one.then.id not in refused for one in settlements)
        return [next(left) if keep else Settled.KEY_TAKEN for keep in kept]

    async def _settle_apart(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle a batch in which the key or the id of a next step is being taken by somebody's open transaction.

        Which one it is cannot be told, and its neighbours must not fail with it: so each step that continues is settled in a
        transaction of its own, after all the others.
        """
        if len(settlements) == 1:
            return [Settled.KEY_TAKEN]
        others = iter(await self._settle([one for one in settlements if one.then is None]))
        return [next(others) if one.then is None else (await self.settle([one]))[0] for one in settlements]

    async def _settle(self, settlements: Sequence[Settlement], *, reap: bool = False) -> list[Settled]:
        if not settlements:
            return []
        next_steps = [settlement.then for settlement in settlements if settlement.then is not None]
        rounds = without_repeats([settlement.lease for settlement in settlements])
        alone = not next_steps and len(rounds) == 1
        answers = await (self._db.run if alone else self._db.in_transaction)(
            lambda connection: self._script(connection, scripts.settle(settlements, reap=reap), next_steps)
        )
        if any(settlement.write.event is not Event.SUCCEED for settlement in settlements):
            self._lanes.look_soon()
        return answers


def _in_order(rows: Sequence[Record], numbers: Sequence[int]) -> list[Claimed]:
    """Return claimed jobs in the order of their lanes and places: a DELETE returns rows as they lie on the pages."""
    rank = {number: index for index, number in enumerate(numbers)}
    ordered = sorted(rows, key=lambda row: (rank[row[0]], row[1])) if len(numbers) > 1 else sorted(rows, key=itemgetter(1))
    return [Claimed(*(*row[3:11], policy_of(row[11]), *row[12:])) for row in ordered]
