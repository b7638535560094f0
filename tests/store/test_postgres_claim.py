"""What a claim brings: jobs alike in one row, in the order of their places, each with what is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest_asyncio

from holdfast.core.job import NewJob, Policy
from holdfast.core.outcome import Error
from holdfast.core.retry import Retry
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncpg

    from holdfast.core.lease import Claimed

WORLD = SystemEnvironment()


class Claiming:
    """A store and a worker that claims from it."""

    def __init__(self, url: str, schema: str) -> None:
        self.store = PostgresStore(url, WORLD, schema=schema)
        self.worker = Worker(id=uuid4(), name="w")

    async def claim(self, limit: int = 100) -> list[Claimed]:
        return await self.store.claim(
            ClaimRequest(worker=self.worker.id, tasks=frozenset({"one", "two"}), limit=limit, look=True)
        )

    async def rows(self, *lanes: int) -> Sequence[asyncpg.Record]:
        """Claim beneath the port."""
        sql = self.store._sql("SELECT * FROM {schema}.claim($1, $2, $3, $4, NULL)")
        number = await self.store._worker_no(self.worker.id)
        return await self.store._db.fetch(sql, number, list(lanes), [0] * len(lanes), 100)


@pytest_asyncio.fixture
async def claiming(postgres_url: str, schema: str) -> AsyncIterator[Claiming]:
    claiming = Claiming(postgres_url, schema)
    await claiming.store.open()
    await claiming.store.register(claiming.worker)
    yield claiming
    await claiming.store.close()


def new(task: str = "one", **fields: Any) -> NewJob:
    return NewJob(id=WORLD.job_id(), task=task, **fields)


async def test_jobs_alike_come_in_one_row_whatever_they_are_given(claiming: Claiming) -> None:
    jobs = [new(args=f'{{"n": {n}}}') for n in range(50)]
    await claiming.store.enqueue(jobs)
    [row] = await claiming.rows(jobs[0].entry)
    assert row["args"] == [job.args for job in jobs]
    assert [row[name] for name in ("chains", "traces", "overdue", "blockers")] == [None] * 4


async def test_jobs_that_differ_in_what_most_share_come_in_rows_of_their_own(claiming: Claiming) -> None:
    jobs = [new(), new(lease=5), new(policy=Policy(Retry(max_attempts=9))), new(trace="00-1"), new(), new("two")]
    await claiming.store.enqueue(jobs)
    rows = await claiming.rows(jobs[0].entry, jobs[-1].entry)
    assert sorted(len(row["ids"]) for row in rows) == [1, 1, 1, 1, 2]


async def test_what_differs_between_jobs_of_one_claim_stays_with_each(claiming: Claiming) -> None:
    chain = new(trace="00-2")
    jobs = [
        new(args="[1]", lease=5),
        new(trace="00-1"),
        new("two", expires_in=900),
        new(policy=Policy(Retry(max_attempts=9))),
        NewJob(id=chain.id, task="one", chain_id=chain.id, trace="00-2"),
    ]
    await claiming.store.enqueue(jobs)
    by_id = {job.job_id: job for job in await claiming.claim()}
    found = [by_id[job.id] for job in jobs]
    assert [job.task for job in found] == ["one", "one", "two", "one", "one"]
    assert [job.args for job in found] == ["[1]", *["{}"] * 4]
    assert [job.lease_seconds for job in found] == [5, *[60] * 4]
    assert [job.trace for job in found] == [None, "00-1", None, None, "00-2"]
    assert [job.chain_id for job in found] == [*[None] * 4, chain.id]
    assert [job.policy.retry.max_attempts for job in found] == [3, 3, 3, 9, 3]
    assert not any(job.overdue or job.blockers for job in found)


async def test_places_decide_the_order_and_not_ids(claiming: Claiming) -> None:
    jobs = [new(trace="00-1" if n % 3 else None) for n in range(30)]
    await claiming.store.enqueue(list(reversed(jobs)))
    assert [job.job_id for job in await claiming.claim()] == [job.id for job in reversed(jobs)]


async def test_those_that_came_back_bring_their_own_attempts_and_places(claiming: Claiming) -> None:
    jobs = [new() for _ in range(6)]
    await claiming.store.enqueue(jobs)
    back = await claiming.claim(3)
    released = Write(Event.RELEASE, 0, error=Error("RELEASED", ""), front=True)
    retried = Write(Event.RETRY, 1, error=Error("FAILED", ""))
    await claiming.store.settle(
        [Settlement(back[0].lease, released), Settlement(back[1].lease, retried), Settlement(back[2].lease, released)]
    )
    found = await claiming.claim()
    seen = {job.job_id: (job.attempt, job.failures) for job in found}
    assert seen == {job.id: told for job, told in zip(jobs, [(2, 0), (2, 1), (2, 0), *[(1, 0)] * 3], strict=True)}
    front = [job.job_id for job in found if job.failures == 0]
    assert front == [job.id for job in jobs if job.id != back[1].job_id]


async def test_tokens_of_one_claim_differ_and_no_two_claims_share_their_random_part(claiming: Claiming) -> None:
    await claiming.store.enqueue([new() for _ in range(40)])
    claims = [await claiming.claim(20), await claiming.claim(20)]
    assert len({job.token for claim in claims for job in claim}) == 40
    assert len({job.token.hex[:24] for claim in claims for job in claim}) == 2


async def test_all_leases_of_a_claim_have_one_number(claiming: Claiming) -> None:
    await claiming.store.enqueue([new() for _ in range(10)])
    await claiming.claim(4)
    await claiming.claim(6)
    counts = await claiming.store._db.fetch(claiming.store._sql("SELECT count(*) FROM {schema}.lease GROUP BY no ORDER BY no"))
    assert [row[0] for row in counts] == [4, 6]
