"""What the hot statements of the PostgreSQL store touch depends on what they do, not on what else the tables hold.

Counted in blocks by EXPLAIN (ANALYZE, BUFFERS), never by time. The functions are first planned on empty tables and the tables
then filled without ANALYZE: the trap that cost the peers seconds per claim. The same counts must hold for plans made on the
full tables, without statistics and with them.

Two schemas, the same operations on both: `small` holds only the jobs at hand, `large` a million jobs of fifty other tasks
ahead of them, 200,000 archived ones, 100,000 scheduled for next year and 5,000 live leases.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, Policy, lane_id
from holdfast.core.outcome import Failed, Released, Succeeded
from holdfast.core.outcome import Error as JobError
from holdfast.core.retry import Retry
from holdfast.core.settle import settle
from holdfast.store.port import ClaimRequest, Progress, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment
from tests.support.probe import Probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOREIGN = 1_000_000
ARCHIVED = 200_000
FUTURE = 100_000
LIVE = 5_000
OTHER_TASKS = [f"other.{n}" for n in range(50)]
TASKS = ("own.a", "own.b", "own.c")
BATCH = 100

BIG = ("job", "ready", "lease", "scheduled", "archive")
"""The tables that grow with the jobs and that the hot operations use."""

PLANNED = ("on empty tables", "on full tables", "with statistics")
"""When the plans were made that the large schema is measured with."""

AGAIN_LATER = Retry(max_attempts=3, initial=3600.0, max=3600.0)


@dataclass
class Clock(SystemEnvironment):
    """The system's clock, which a test may advance."""

    ahead: float = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass
class Side:
    """One schema: its store, and a probe for each moment at which plans were made."""

    schema: str
    url: str
    clock: Clock
    store: PostgresStore
    admin: asyncpg.Connection[asyncpg.Record]
    stack: AsyncExitStack
    worker: UUID = field(default_factory=uuid4)
    probes: dict[str, Probe] = field(default_factory=dict)

    @classmethod
    async def open(cls, schema: str, url: str, stack: AsyncExitStack) -> Side:
        clock = Clock()
        # one connection, so that it is always the one that made its plans on the empty tables
        store = PostgresStore(url, clock, schema=schema, pool_size=1)
        await store.open()
        stack.push_async_callback(store.close)
        admin = await asyncpg.connect(url, server_settings={"search_path": schema})
        stack.push_async_callback(admin.close)
        side = cls(schema, url, clock, store, admin, stack)
        await store.register(Worker(id=side.worker, name="w"))
        for table in await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema):
            # a vacuum in the middle would throw the plans away
            await admin.execute(f"ALTER TABLE {table[0]} SET (autovacuum_enabled = off)")
        return side

    async def plan_now(self, when: str) -> None:
        """Open a probe and let it make its plans on the tables as they are."""
        self.probes[when] = await self.stack.enter_async_context(Probe(self.store))
        for operation in OPERATIONS:
            await OPERATIONS[operation](self, when, 3)

    # the operations, each on jobs of its own, each leaving things much as they were

    async def jobs(self, count: int, **fields: Any) -> list[NewJob]:
        jobs = [NewJob(id=uuid7(), task=TASKS[n % 3], args='{"n": 1}', **fields) for n in range(count)]
        await self.store.enqueue(jobs)
        return jobs

    def request(self, count: int, *, look: bool = False) -> ClaimRequest:
        return ClaimRequest(worker=self.worker, tasks=frozenset(TASKS), limit=count, look=look)

    async def claimed(self, count: int, **fields: Any) -> list[Claimed]:
        await self.jobs(count, **fields)
        claimed = await self.store.claim(self.request(count, look=True))
        assert len(claimed) == count
        return claimed

    async def end(self, claimed: Sequence[Claimed]) -> None:
        answers = await self.store.settle([ended(job, Succeeded("1")) for job in claimed])
        assert all(answer.accepted for answer in answers)

    async def wait_for(self, condition: str) -> None:
        """Ask until the database's own clock has moved past something."""
        while not await self.admin.fetchval(f"SELECT {condition}"):
            await asyncio.sleep(0)


def ended(job: Claimed, outcome: Outcome) -> Settlement:
    return Settlement(job.lease, settle(outcome, job.policy.retry, job.failures, job.claimed_at, lambda: 0.5))


async def enqueue(side: Side, when: str, count: int) -> None:
    with side.probes[when].watch("enqueue"):
        await side.jobs(count)
    await side.end(await side.store.claim(side.request(count, look=True)))


async def claim(side: Side, when: str, count: int) -> None:
    """A claim that trusts its last look, as all but one a second do."""
    await side.jobs(count + 1)
    [first] = await side.store.claim(side.request(1, look=True))
    with side.probes[when].watch("claim"):
        claimed = await side.store.claim(side.request(count))
    assert len(claimed) == count
    await side.end([first, *claimed])


async def look_and_claim(side: Side, when: str, count: int) -> None:
    await side.jobs(count)
    with side.probes[when].watch("look and claim"):
        claimed = await side.store.claim(side.request(count))
    assert len(claimed) == count
    await side.end(claimed)


async def settle_good(side: Side, when: str, count: int) -> None:
    claimed = await side.claimed(count)
    with side.probes[when].watch("settle"):
        await side.end(claimed)


async def settle_mixed(side: Side, when: str, count: int) -> None:
    """A third each: succeeded, to be tried again in an hour, given back."""
    claimed = await side.claimed(count, policy=Policy(retry=AGAIN_LATER))
    outcomes: tuple[Outcome, ...] = (Succeeded("1"), Failed(JobError("BOOM")), Released())
    with side.probes[when].watch("settle mixed"):
        answers = await side.store.settle([ended(job, outcomes[n % 3]) for n, job in enumerate(claimed)])
    assert all(answer.accepted for answer in answers)
    await side.end(await side.store.claim(side.request(count, look=True)))


async def extend(side: Side, when: str, count: int) -> None:
    claimed = await side.claimed(count)
    with side.probes[when].watch("extend"):
        held = await side.store.extend([job.lease for job in claimed])
    assert {answer.hold for answer in held} == {"held"}
    await side.end(claimed)


async def progress(side: Side, when: str, count: int) -> None:
    claimed = await side.claimed(count)
    with side.probes[when].watch("progress"):
        answers = await side.store.progress([Progress(job.lease, 50.0, "half") for job in claimed])
    assert {str(answer) for answer in answers} == {"applied"}
    await side.end(claimed)


async def promote(side: Side, when: str, count: int) -> None:
    await side.store.promote(count)  # folds now, and not again within five seconds of the stopped clock
    await side.jobs(count, delay=0.001)
    await side.wait_for(
        f"count(*) >= {count} FROM (SELECT FROM scheduled WHERE run_at <= clock_timestamp() ORDER BY run_at LIMIT {count}) s"
    )
    with side.probes[when].watch("promote"):
        promoted = await side.store.promote(count)
    assert promoted.count == count
    await side.end(await side.store.claim(side.request(count, look=True)))


async def reap(side: Side, when: str, count: int) -> None:
    for _ in range(3):  # the reaper has looked before: what it knows it does not read again
        assert await side.store.reap(count) == []
    await side.claimed(count, lease=0.001, policy=Policy(retry=Retry(max_attempts=1)))
    await side.wait_for("max(no) < 0 FROM lease" if False else "pg_sleep(0) IS NOT NULL")
    await side.wait_for("NOT EXISTS (SELECT FROM lease WHERE lease_ms = 1 AND expires_at > clock_timestamp())")
    with side.probes[when].watch("reap"):
        reaped = await side.store.reap(count)
    assert len(reaped) == count


OPERATIONS: dict[str, Callable[[Side, str, int], Awaitable[None]]] = {
    "enqueue": enqueue,
    "claim": claim,
    "look and claim": look_and_claim,
    "settle": settle_good,
    "settle mixed": settle_mixed,
    "extend": extend,
    "progress": progress,
    "promote": promote,
    "reap": reap,
}


async def fill(side: Side) -> None:
    """Put the million ahead, by plain inserts of the rows the operations would have left. No ANALYZE."""
    await side.admin.execute(
        """
        CREATE FUNCTION old_id(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS
            $$ SELECT (lpad(to_hex(1600000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid $$
        """
    )
    lanes = [lane_id("default", task, 5, ()) for task in OTHER_TASKS]
    everything = FOREIGN + ARCHIVED + FUTURE + LIVE
    start = await side.admin.fetchval("SELECT setval('place', last_value + $1) - $1 FROM place", everything)
    await side.admin.execute(
        "INSERT INTO lane SELECT id, id, 'default', task, 5, '[]' FROM unnest($1::bigint[], $2::text[]) AS l(id, task)",
        lanes,
        OTHER_TASKS,
    )
    state = f"CASE WHEN n <= {FOREIGN} THEN 'ready' WHEN n <= {FOREIGN + ARCHIVED} THEN 'archive' END"
    del state
    jobs = f"""
        INSERT INTO job (id, place, lane, entry, created_at, run_at, lease_ms, priority, born, task, queue, args)
        SELECT old_id(n), $3 + n, l, l, now(), CASE WHEN scheduled THEN now() + interval '1 year' END, 60000, 5,
            CASE WHEN scheduled THEN 'scheduled' ELSE 'ready' END, ($2::text[])[n % 50 + 1], 'default', '{{"n": 1}}'
        FROM generate_series(1, {everything}) n
        CROSS JOIN LATERAL (SELECT ($1::bigint[])[n % 50 + 1] AS l, n > {FOREIGN + ARCHIVED} AND n <= {FOREIGN + ARCHIVED + FUTURE} AS scheduled) s
    """
    ready = f"""
        INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
        SELECT ($1::bigint[])[n % 50 + 1], $2 + n, old_id(n), now(), 0, 0, false FROM generate_series(1, {FOREIGN}) n
    """
    archive = f"""
        INSERT INTO archive (job_id, lane, finished_at, claimed_at, token, worker, attempt, failures, late, state, result)
        SELECT old_id(n), ($1::bigint[])[n % 50 + 1], now(), now(), gen_random_uuid(), 1, 1, 0, false, 'succeeded', '1'
        FROM generate_series({FOREIGN + 1}, {FOREIGN + ARCHIVED}) n
    """
    scheduled = f"""
        INSERT INTO scheduled (job_id, run_at, attempt, failures)
        SELECT old_id(n), now() + interval '1 year' + n * interval '1 s', 0, 0
        FROM generate_series({FOREIGN + ARCHIVED + 1}, {FOREIGN + ARCHIVED + FUTURE}) n
    """
    live = f"""
        INSERT INTO lease (job_id, token, no, lane, place, claimed_at, expires_at, lease_ms, worker, attempt, failures, keyed)
        SELECT old_id(n), gen_random_uuid(), nextval('claim_no'), ($1::bigint[])[n % 50 + 1], $2 + n, now(),
            now() + interval '1 h', 3600000, 1, 1, 0, false
        FROM generate_series({everything - LIVE + 1}, {everything}) n
    """
    counted = f"""
        INSERT INTO tally (lane, ready, succeeded, scheduled, running)
        SELECT l, {FOREIGN // 50}, {ARCHIVED // 50}, {FUTURE // 50}, {LIVE // 50} FROM unnest($1::bigint[]) l
    """

    async def rest() -> None:
        other = await asyncpg.connect(side.url, server_settings={"search_path": side.schema})
        try:
            await other.execute(ready, lanes, start)
            await other.execute(archive, lanes)
            await other.execute(scheduled)
            await other.execute(live, lanes, start)
            await other.execute(counted, lanes)
        finally:
            await other.close()

    await asyncio.gather(side.admin.execute(jobs, lanes, OTHER_TASKS, start), rest())


@dataclass
class Sides:
    small: Side
    large: Side


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sides(postgres_url: str) -> AsyncIterator[Sides]:
    import time

    async with AsyncExitStack() as stack:
        sides = Sides(await Side.open("small", postgres_url, stack), await Side.open("large", postgres_url, stack))
        for side in (sides.small, sides.large):
            for _ in range(2):
                await side.plan_now(PLANNED[0])
        t = time.monotonic()
        await fill(sides.large)
        print("fill", time.monotonic() - t)
        await sides.large.plan_now(PLANNED[1])
        t = time.monotonic()
        await sides.large.admin.execute("ANALYZE")
        print("analyze", time.monotonic() - t)
        await sides.large.plan_now(PLANNED[2])
        yield sides


async def test_figures(sides: Sides) -> None:
    for operation in OPERATIONS:
        for n in (1, BATCH):
            await OPERATIONS[operation](sides.small, PLANNED[0], n)
            p = sides.small.probes[PLANNED[0]]
            out = [f"{p.buffers(operation)}/{p.statements(operation)} {[s.buffers for s in p.seen(operation)]}"]
            for when in PLANNED:
                await OPERATIONS[operation](sides.large, when, n)
                p = sides.large.probes[when]
                out.append(f"{p.buffers(operation)}/{p.statements(operation)} {[s.buffers for s in p.seen(operation)]}")
            print(operation, n, *out, sep=" | ")
