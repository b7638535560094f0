"""Claiming jobs and ending attempts: what a worker does."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.job import RETRIES, policy_of
from holdfast.core.lease import Claimed, Lease, Taken
from holdfast.errors import KeyBusy, UnknownWorker
from holdfast.store.port import Settled
from holdfast.store.postgres import scripts
from holdfast.store.postgres.handle import Handle, most
from holdfast.store.postgres.lanes import Reached, claimed, claimed_limited, runs
from holdfast.store.postgres.rendering import all_succeeded, without_repeats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from asyncpg import Record

    from holdfast.core.rotation import Lap
    from holdfast.store.port import ClaimRequest, Settlement
    from holdfast.store.postgres.lanes import Lane


class Working(Handle):
    """Claiming and settling."""

    async def claim(self, request: ClaimRequest) -> Taken:
        """Take ready jobs, lane by lane in their order."""
        if request.limit <= 0:
            return Taken()
        at = self._environment.monotonic()
        if request.hurry and (
            jobs := await self._claim_from(self._lanes.choose(request, at=at, blindly=True), request, limit=1)
        ):
            self._lanes.look_soon()  # it knows of no lane that is new, and there may be more in this one
            return jobs
        if request.look or self._lanes.look_due(at):
            await self._look()
        jobs = await self._claim_from(self._lanes.choose(request, at=at), request, limit=request.limit)
        if (again := self._lanes.held_for(request, at)) is not None:
            jobs.held_back(again)
        jobs = jobs or await self._go_round(request, jobs)
        jobs.weights = self._lanes.weights_of(request.queues)
        return jobs

    async def _go_round(self, request: ClaimRequest, jobs: Taken) -> Taken:
        """Go on to keys that were not on offer, until one gives something or all have been asked."""
        begun = laps = self._lanes.laps(request)
        before: Mapping[int, Lap] | None = None
        while not jobs and laps and laps != before and not self._lanes.went_round(begun):
            await self._look()
            chosen = self._lanes.choose(request, at=self._environment.monotonic(), again=True)
            found = await self._claim_from(chosen, request, limit=request.limit)
            if found.again is not None:
                jobs.held_back(found.again)
            jobs += found
            before, laps = laps, self._lanes.laps(request)
        return jobs

    async def _claim_from(self, chosen: Sequence[Lane], request: ClaimRequest, *, limit: int) -> Taken:
        worker = await self._worker_no(request.worker)
        jobs = Taken()
        for lanes in runs(chosen, limit, at=self._environment.monotonic()):
            tasks = sorted(request.tasks) if lanes[0].fifo else None
            if lanes[0].limited:
                await self._claim_limited(worker, lanes, tasks, jobs, limit=most(limit - len(jobs)))
            elif limit == 1 and not lanes[0].fifo:
                jobs += await self._claim_one(worker, lanes)
            else:
                jobs += await self._claim_many(worker, lanes, tasks, most(limit - len(jobs)))
            if len(jobs) >= limit:
                break
        return jobs

    async def _claim_one(self, worker: int, lanes: Sequence[Lane]) -> list[Claimed]:
        sql = self._sql("SELECT * FROM {schema}.claim_one($1, $2, $3)")
        ((entry, place, ready_at, *job),) = await self._db.fetch(sql, worker, *_from_where(lanes))
        if entry is None:
            claimed(lanes, (), full=False)
            return []
        claimed(lanes, (Reached(entry, place, ready_at),), full=True)
        job[8] = policy_of(job[8])
        job.append(ready_at)
        return [Claimed(*job)]

    async def _claim_many(self, worker: int, lanes: Sequence[Lane], tasks: Sequence[str] | None, limit: int) -> list[Claimed]:
        numbers, marks = _from_where(lanes)
        sql = self._sql("SELECT * FROM {schema}.claim($1, $2, $3, $4, $5)")
        rows = await self._db.fetch(sql, worker, numbers, marks, limit, tasks)
        given = _in_order(rows, numbers)
        claimed(
            lanes,
            (Reached(row["entry"], max(row["places"]), row["last_ready_at"], len(row["places"])) for row in rows),
            full=len(given) >= limit,
        )
        return given

    async def _claim_limited(
        self, worker: int, lanes: Sequence[Lane], tasks: Sequence[str] | None, jobs: Taken, *, limit: int
    ) -> None:
        """Claim from lanes that limits hold for, and add what that brings."""
        numbers = [number for lane in lanes for number in (-lane.entry, lane.entry)]
        starts = [lane.starts() for lane in lanes]
        keys = [lane.needs.limit for lane in lanes]
        sql = self._sql("SELECT * FROM {schema}.claim_limited($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)")
        rows = await self._db.fetch(
            sql,
            worker,
            [lane.entry for lane in lanes],
            [start[-1] for start in starts],
            [start[0] if len(start) > 1 else None for start in starts],
            [most(lane.quota) for lane in lanes],
            *(list(ids) for ids in zip(*(lane.limits() for lane in lanes), strict=True)),
            [key and key.scope for key in keys],
            [key and key.key for key in keys],
            limit,
            tasks,
        )
        brought = [row for row in rows if row["ids"] is not None]
        more = next((row for row in rows if row["ids"] is None and row["places"]), None)
        left: dict[int, float | None] = {} if more is None else dict(zip(more["places"], more["agains"], strict=True))
        for again in left.values():
            if again is not None:
                jobs.held_back(again)
        given = _in_order(brought, numbers)
        reached = [Reached(row["entry"], max(row["places"]), row["last_ready_at"], len(row["places"])) for row in brought]
        claimed_limited(lanes, reached, left, at=self._environment.monotonic())
        counts = Counter[int]()
        for one in reached:
            counts[abs(one.entry)] += one.jobs
        for row in brought:
            self._lanes.runs(abs(row["entry"]) & ~RETRIES, row["ids"])
        self._lanes.turned(lanes, counts, left, limit)
        jobs += [msgspec.structs.replace(job, limited=True) for job in given]

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
        answers = await self._settle_some(settlements)
        self._lanes.freed(one.lease.job_id for one in settlements)
        return answers

    async def _settle_some(self, settlements: Sequence[Settlement]) -> list[Settled]:
        refused: set[UUID] = set()
        answers: list[Settled] | None = None
        while answers is None:
            given = settlements
            if refused:
                given = [one for one in settlements if one.then is None or one.then.id not in refused]
            try:
                answers = await self._settle(given)
            except scripts.NextKeyTaken as taken:
                refused |= taken.steps
            except KeyBusy:
                answers = await self._settle_apart(given)
        if not refused:
            return answers
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
        plain = all_succeeded(settlements)
        if plain and len(settlements) == 1 and not reap and (answer := await self._settle_one(settlements[0])) is not None:
            return [answer]
        next_steps = [] if plain else [settlement.then for settlement in settlements if settlement.then is not None]
        rounds = without_repeats([settlement.lease for settlement in settlements])
        alone = not next_steps and len(rounds) == 1
        answers = await (self._db.run if alone else self._db.in_transaction)(
            lambda connection: self._script(connection, scripts.settle(settlements, reap=reap), next_steps)
        )
        if not plain:
            self._lanes.look_soon()
        return answers

    async def _settle_one(self, settlement: Settlement) -> Settled | None:
        """End one attempt that succeeded; `None`: it takes more than that, and nothing was written."""
        lease, result = settlement.lease, settlement.write.result
        sql = self._sql("SELECT {schema}.settle_one($1, $2, $3)")
        answer = await self._db.fetch_value(sql, lease.job_id, lease.token, "null" if result is None else result)
        return None if answer is None else Settled(answer)


def _from_where(lanes: Sequence[Lane]) -> tuple[list[int], list[int]]:
    """Return what to claim from, and from which place on each."""
    return [number for lane in lanes for number in lane.numbers()], [mark for lane in lanes for mark in lane.starts()]


def _in_order(rows: Sequence[Record], numbers: Sequence[int]) -> list[Claimed]:
    """Return claimed jobs in the order of their lanes and places: the answer has them in the order of their ids."""
    if len(rows) == 1 and _ascending(rows[0]["places"]):
        return _claimed(rows[0])
    rank = {number: index for index, number in enumerate(numbers)}
    placed = [(rank[row["entry"]], place, job) for row in rows for place, job in zip(row["places"], _claimed(row), strict=True)]
    placed.sort(key=itemgetter(0, 1))
    return [job for _, _, job in placed]


def _ascending(places: list[int]) -> bool:
    return places == sorted(places)


def _claimed(row: Record) -> list[Claimed]:
    """Return the jobs of one row of the answer: what they share stands in it once, and what none has is NULL."""
    (_, task, queue, priority, attempt, failures, policy, seconds, claimed_at, expires_at, *_) = row
    common = policy_of(policy)
    some = zip(row["ids"], row["tokens"], row["args"], row["created_ats"], strict=True)
    ready_ats = row["ready_ats"]
    if row["chains"] is None and ready_ats is None:  # nearly always
        return [
            Claimed(
                id_, token, attempt, failures, task, queue, priority, args, common, seconds, created_at, claimed_at, expires_at
            )
            for id_, token, args, created_at in some
        ]
    others = (row[name] or [default] * len(row["ids"]) for name, default in _SELDOM.items())
    return [
        Claimed(
            *(id_, token, attempt, failures, task, queue, priority, args, common, seconds, created_at, claimed_at, expires_at),
            *special,
        )
        for (id_, token, args, created_at), special in zip(some, zip(*others, strict=True), strict=True)
    ]


_SELDOM: Final = {"chains": None, "traces": None, "overdue": False, "blockers": 0, "ready_ats": None}
"""What few jobs have, in the order of `Claimed`, and what stands for it where no job of a row does."""
