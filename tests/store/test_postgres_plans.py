"""What the hot statements of the PostgreSQL store touch depends on what they do, not on what else the tables hold.

Counted in blocks by EXPLAIN (ANALYZE, BUFFERS), never by time. The functions are first planned on empty tables and the tables
then filled without ANALYZE: the trap that cost other queues seconds per claim. The same must hold for plans made on the full
tables, without statistics and with them.

Two schemas, the same operations on both. `small` holds a few thousand jobs, just enough that every index has its second
level. `large` holds a million ready jobs of fifty other tasks, all ahead of those at hand, 200,000 archived ones, half of them
steps of chains that waited for another job, 100,000 scheduled for next year, each with a deadline before that and waiting for
a signal, and 5,000 that run.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, Policy, Unique, lane_id
from holdfast.core.lease import Hold
from holdfast.core.outcome import Continued, Error, Failed, Released, Succeeded, Suspended
from holdfast.core.retry import Retry
from holdfast.core.settle import settle
from holdfast.store.port import Answer, Beat, ClaimRequest, LogLine, Progress, Retention, Settled, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment
from tests.support.majors import NEWEST
from tests.support.probe import Probe, Seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Outcome
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

pytestmark = pytest.mark.asyncio(loop_scope="module")

BATCH = 100
TASKS = ("own.a", "own.b", "own.c")
OTHERS = tuple(f"other.{n}" for n in range(50))
BIG = ("job", "ready", "lease", "scheduled", "archive", "deadline", "chain", "blocker", "signal")
"""The tables that grow with the jobs."""

PLANNED = ("on empty tables", "on full tables", "with statistics")
"""When the plans were made that the large schema is measured with."""

ONCE = Policy(retry=Retry(max_attempts=1))
AT_ONCE = Policy(retry=Retry(initial=0.0, max=0.0))
AGAIN_IN_AN_HOUR = Policy(retry=Retry(initial=3600.0, max=3600.0))


@dataclass(frozen=True)
class Size:
    """How much a schema holds of other tasks."""

    ready: int
    archived: int
    scheduled: int
    running: int

    @property
    def jobs(self) -> int:
        return self.ready + self.archived + self.scheduled + self.running


SMALL = Size(ready=3_000, archived=3_000, scheduled=3_000, running=1_000)
LARGE = Size(ready=1_000_000, archived=200_000, scheduled=100_000, running=5_000)


@dataclass
class Side:
    """One schema: its store, and a probe for each moment at which plans were made."""

    schema: str
    store: PostgresStore
    admin: asyncpg.Connection[asyncpg.Record]
    worker: UUID = field(default_factory=uuid4)
    probes: dict[str, Probe] = field(default_factory=dict)

    @classmethod
    async def open(cls, schema: str, url: str, stack: AsyncExitStack) -> Side:
        # One connection: always the one that made its plans on the empty tables.
        store = PostgresStore(url, SystemEnvironment(), schema=schema, pool_size=1)
        await store.open()
        stack.push_async_callback(store.close)
        admin = await asyncpg.connect(url, server_settings={"search_path": schema})
        stack.push_async_callback(admin.close)
        for [table] in await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema):
            # A vacuum in the middle would have the plans made anew.
            await admin.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        side = cls(schema, store, admin)
        await store.register(Worker(id=side.worker, name="w"))
        return side

    async def plan(self, when: str, stack: AsyncExitStack) -> None:
        """Open a probe and let it make its plans on the tables as they are now."""
        self.probes[when] = await stack.enter_async_context(Probe(self.store))
        for operation in OPERATIONS:
            await self.run(operation, 3, planned=when)

    async def run(self, operation: str, count: int, *, planned: str | None) -> Probe:
        """Carry out an operation on `count` jobs of its own; watched by a probe unless `planned` is None."""
        probe = self.probes[planned or PLANNED[0]]
        await OPERATIONS[operation](self, count, probe.watch(operation) if planned else nullcontext())
        return probe

    async def counted(self, planned: str) -> dict[str, list[Seen]]:
        """Count every operation on a batch, and a claim of one."""
        one = (await self.run("claim", 1, planned=planned)).seen("claim")
        batches = {operation: (await self.run(operation, BATCH, planned=planned)).seen(operation) for operation in OPERATIONS}
        return {"claim one": one, **batches}

    async def enqueue(self, count: int, **fields: Any) -> list[UUID]:
        jobs = [NewJob(id=uuid7(), task=TASKS[n % 3], args='{"n": 1}', **fields) for n in range(count)]
        await self.store.enqueue(jobs)
        return [job.id for job in jobs]

    async def claim(self, count: int, *, look: bool = True) -> list[Claimed]:
        request = ClaimRequest(worker=self.worker, tasks=frozenset(TASKS), limit=count, look=look)
        claimed = await self.store.claim(request)
        assert len(claimed) == count
        return claimed

    async def running(self, count: int, **fields: Any) -> list[Claimed]:
        await self.enqueue(count, **fields)
        return await self.claim(count)

    async def succeed(self, claimed: Sequence[Claimed]) -> None:
        await self.settle(claimed, [Succeeded("1")])

    async def settle(self, claimed: Sequence[Claimed], outcomes: Sequence[Outcome]) -> None:
        """Settle with these outcomes in turn."""
        settlements = [
            Settlement(
                job.lease,
                settle(outcome, job.policy.retry, 0, job.claimed_at, lambda: 0.5),
                then=outcome.then if isinstance(outcome, Continued) else None,
                signal=outcome.signal if isinstance(outcome, Suspended) else None,
            )
            for n, job in enumerate(claimed)
            for outcome in [outcomes[n % len(outcomes)]]
        ]
        assert all(answer.accepted for answer in await self.store.settle(settlements))

    async def continued(self, claimed: Sequence[Claimed], **fields: Any) -> None:
        """Continue each with a next step of the same task."""
        await self.settle(claimed, [Continued(NewJob(id=uuid7(), task=job.task, **fields)) for job in claimed])

    async def tick(self) -> None:
        """Return once the database's clock has moved on by two milliseconds."""
        until = await self.admin.fetchval("SELECT clock_timestamp() + interval '2 ms'")
        while await self.admin.fetchval("SELECT clock_timestamp() < $1", until):
            pass

    async def seq_scans(self) -> dict[str, int]:
        """Return how often each big table was read from end to end."""
        await self.store._db.execute("SELECT pg_stat_force_next_flush()")
        for probe in self.probes.values():
            await probe.flush_statistics()
        sql = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = ANY ($2)"
        return {row[0]: row[1] for row in await self.admin.fetch(sql, self.schema, BIG)}

    async def updates(self, table: str) -> tuple[int, int]:
        """Return how many rows of a table were updated, and how many of these updates were HOT."""
        await self.store._db.execute("SELECT pg_stat_force_next_flush()")
        sql = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = $2"
        row = await self.admin.fetchrow(sql, self.schema, table)
        assert row is not None
        return row[0], row[1]


# -- the operations, each on jobs of its own and within `watched`, each leaving the tables about as full as they were ------

Watched = AbstractContextManager[None]


async def enqueue(side: Side, count: int, watched: Watched) -> None:
    with watched:
        await side.enqueue(count)
    await side.succeed(await side.claim(count))


async def enqueue_unique(side: Side, count: int, watched: Watched) -> None:
    jobs = [NewJob(id=uuid7(), task=TASKS[0], unique=Unique(key=f"{uuid4()}", scope="s")) for _ in range(count)]
    with watched:
        await side.store.enqueue(jobs)
    await side.succeed(await side.claim(count))


async def claim(side: Side, count: int, watched: Watched) -> None:
    """As all claims but one a second: trusting the last look."""
    await side.enqueue(count + 1)
    first = await side.claim(1)
    with watched:
        claimed = await side.claim(count, look=False)
    await side.succeed(first + claimed)


async def look_and_claim(side: Side, count: int, watched: Watched) -> None:
    await side.enqueue(count)
    with watched:
        claimed = await side.claim(count)
    await side.succeed(claimed)


async def claim_fifo(side: Side, count: int, watched: Watched) -> None:
    await side.enqueue(count, queue="line", fifo=True)
    with watched:
        claimed = await side.claim(count)
    await side.succeed(claimed)


async def settle_well(side: Side, count: int, watched: Watched) -> None:
    claimed = await side.running(count)
    with watched:
        await side.succeed(claimed)


async def settle_mixed(side: Side, count: int, watched: Watched) -> None:
    """A third each succeeds, fails and rests for an hour, is given back."""
    claimed = await side.running(count, policy=AGAIN_IN_AN_HOUR)
    with watched:
        await side.settle(claimed, [Succeeded("1"), Failed(Error("BOOM")), Released()])
    await side.succeed(await side.claim(count // 3))


async def retry(side: Side, count: int, watched: Watched) -> None:
    """All fail, line up with the retries of their lane and are claimed from there."""
    claimed = await side.running(count, policy=AT_ONCE)
    with watched:
        await side.settle(claimed, [Failed(Error("BOOM"))])
        again = await side.claim(count)
    assert {job.failures for job in again} == {1}
    await side.succeed(again)


async def expire(side: Side, count: int, watched: Watched) -> None:
    """Half of the jobs are claimed in time, half come to be overdue."""
    for _ in range(3):  # it was done before: what has passed is not read again
        assert await side.store.drop_overdue(count) == 0
    with watched:
        await side.enqueue(count, expires_in=60.0)
        claimed = await side.claim(count)
        await side.enqueue(count, expires_in=0.001)
        await side.tick()
        assert await side.store.drop_overdue(count + 1) == count
    assert not any(job.overdue for job in claimed)
    await side.succeed(claimed)


async def nothing_overdue(side: Side, count: int, watched: Watched) -> None:
    """What has time yet is not read."""
    for _ in range(3):
        assert await side.store.drop_overdue(count) == 0
    with watched:
        assert await side.store.drop_overdue(count) == 0


async def enqueue_capped(side: Side, count: int, watched: Watched) -> None:
    jobs = [NewJob(id=uuid7(), task=TASKS[0], queue="capped") for _ in range(count)]
    side.store._next_fold = 0.0
    await side.store.promote(0)  # folds the counts, which is not what is watched here
    with watched:
        await side.store.enqueue(jobs, caps={"capped": count})
    await side.succeed(await side.claim(count))


async def log(side: Side, count: int, watched: Watched) -> None:
    """A few lines of some of many jobs: what is read is what is written to."""
    claimed = await side.running(count)
    lines = [LogLine(lease=job.lease, message=f"line {n}") for n in range(3) for job in claimed[:2]]
    with watched:
        answers = await side.store.log(lines)
    assert set(answers) == {Settled.APPLIED}
    await side.succeed(claimed)


async def settle_again(side: Side, count: int, watched: Watched) -> None:
    """After an unknown outcome."""
    claimed = await side.running(count)
    await side.succeed(claimed)
    with watched:
        await side.succeed(claimed)


async def extend(side: Side, count: int, watched: Watched) -> None:
    claimed = await side.running(count)
    with watched:
        answers = await side.store.extend([job.lease for job in claimed])
    assert {answer.hold for answer in answers} == {Hold.HELD}
    await side.succeed(claimed)


async def extend_lost(side: Side, count: int, watched: Watched) -> None:
    claimed = await side.running(count)
    await side.succeed(claimed)
    with watched:
        answers = await side.store.extend([job.lease for job in claimed])
    assert {answer.hold for answer in answers} == {Hold.ENDED}


async def progress(side: Side, count: int, watched: Watched) -> None:
    claimed = await side.running(count)
    with watched:
        answers = await side.store.progress([Progress(job.lease, 50.0, "half") for job in claimed])
    assert set(answers) == {Settled.APPLIED}
    await side.succeed(claimed)


async def promote(side: Side, count: int, watched: Watched) -> None:
    side.store._next_fold = 0.0
    await side.store.promote(count)  # folds the counts, which is not what is watched here
    await side.enqueue(count, delay=0.001)
    await side.tick()
    with watched:
        promoted = await side.store.promote(count)
    assert promoted.count == count
    await side.succeed(await side.claim(count))


async def reap(side: Side, count: int, watched: Watched) -> None:
    for _ in range(3):  # a reaper has looked before: what it knows it does not read again
        assert await side.store.reap(count) == []
    await side.running(count, lease=0.001, policy=ONCE)
    await side.tick()
    with watched:
        reaped = await side.store.reap(count)
    assert len(reaped) == count


async def cancel(side: Side, count: int, watched: Watched) -> None:
    ids = await side.enqueue(count)
    with watched:
        answers = await side.store.cancel(ids)
    assert set(answers) == {Answer.DONE}


async def get(side: Side, count: int, watched: Watched) -> None:
    ids = await side.enqueue(count)
    with watched:
        found = await side.store.get(ids)
    assert all(found)
    await side.succeed(await side.claim(count))


async def prune(side: Side, count: int, watched: Watched) -> None:
    with watched:
        pruned = await side.store.prune(Retention(succeeded=0.0), limit=count)
    assert pruned.count == count


async def continue_steps(side: Side, count: int, watched: Watched) -> None:
    """Plain jobs become chains, and go on."""
    claimed = await side.running(count)
    with watched:
        await side.continued(claimed)
        again = await side.claim(count)
        await side.continued(again)
    await side.succeed(await side.claim(count))


async def wait(side: Side, count: int, watched: Watched) -> None:
    """Half wait each for one of the others, which are chains."""
    jobs = [NewJob(id=uuid7(), task=TASKS[0], unique=Unique(key=f"{uuid4()}", scope="s")) for _ in range(count)]
    await side.store.enqueue(jobs)
    await side.continued(await side.claim(count))
    claimed = await side.claim(count)
    with watched:
        await side.store.enqueue([NewJob(id=uuid7(), task=TASKS[1], after=(job.id,)) for job in jobs])
        await side.succeed(claimed)
        waiters = await side.claim(count)
    assert all(job.blockers == 1 for job in waiters)
    await side.succeed(waiters)


async def read_chains(side: Side, count: int, watched: Watched) -> None:
    """One waiter reads the results of many chains."""
    ids = await side.enqueue(count)
    await side.continued(await side.claim(count))
    await side.succeed(await side.claim(count))
    [waiter] = jobs = [NewJob(id=uuid7(), task=TASKS[1], after=tuple(ids))]
    await side.store.enqueue(jobs)
    with watched:
        assert len(await side.store.blockers(waiter.id)) == count
        assert all(await side.store.chains(ids))
        [view] = await side.store.get([waiter.id])
    assert view is not None
    assert len(view.after) == count
    await side.succeed(await side.claim(1))


async def delete_chains(side: Side, count: int, watched: Watched) -> None:
    ids = await side.enqueue(count)
    await side.continued(await side.claim(count))
    waiters = [NewJob(id=uuid7(), task=TASKS[1], after=(job_id,)) for job_id in ids]
    await side.store.enqueue(waiters)
    with watched:
        deleted = await side.store.delete_chains([waiter.id for waiter in waiters], cascade=True)
    assert len(deleted.jobs) == 3 * count


async def suspend_and_emit(side: Side, count: int, watched: Watched) -> None:
    signal = f"{uuid4()}"
    claimed = await side.running(count)
    with watched:
        await side.settle(claimed, [Suspended(signal=signal)])
        emitted = await side.store.emit(signal, "1")
    assert len(emitted.jobs) == count
    await side.succeed(await side.claim(count))


async def sweep_doubts(side: Side, count: int, watched: Watched) -> None:
    """Half of the blockers have ended before the waiters were committed; a sweep without doubts reads nothing."""
    blockers = await side.running(count)
    transaction = await side.store.begin()
    await transaction.enqueue([NewJob(id=uuid7(), task=TASKS[1], after=(job.job_id,)) for job in blockers])
    await side.succeed(blockers[::2])
    await transaction.commit()
    with watched:
        assert await side.store.unblock(count) == len(blockers[::2])
        assert await side.store.unblock(count) == 0
    await side.succeed(blockers[1::2])
    await side.succeed(await side.claim(count))


OPERATIONS: dict[str, Callable[[Side, int, Watched], Awaitable[None]]] = {
    "enqueue": enqueue,
    "enqueue unique": enqueue_unique,
    "claim": claim,
    "look and claim": look_and_claim,
    "claim fifo": claim_fifo,
    "settle": settle_well,
    "settle mixed": settle_mixed,
    "retry": retry,
    "expire": expire,
    "nothing overdue": nothing_overdue,
    "enqueue capped": enqueue_capped,
    "log": log,
    "settle again": settle_again,
    "extend": extend,
    "extend lost": extend_lost,
    "progress": progress,
    "promote": promote,
    "reap": reap,
    "cancel": cancel,
    "get": get,
    "prune": prune,
    "continue": continue_steps,
    "wait": wait,
    "read chains": read_chains,
    "delete chains": delete_chains,
    "suspend and emit": suspend_and_emit,
    "sweep doubts": sweep_doubts,
}


# -- the tables ------------------------------------------------------------------------------------------------------------


HELPERS = """
CREATE FUNCTION old_id(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS  -- a UUIDv7 of April 2022, in the order of n
    $$ SELECT ('0' || to_hex(x'18000000000'::bigint + n) || '70008000000000000000')::uuid $$;
CREATE FUNCTION lane_of(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT (ARRAY[{lanes}])[n % 50 + 1] $$;
CREATE FUNCTION chain_of(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS  -- two of four archived jobs are a chain
    $$ SELECT CASE WHEN n NOT BETWEEN {ready} + 1 AND {to_archived} THEN NULL
        WHEN n % 4 = 1 THEN old_id(n) WHEN n % 4 = 2 THEN old_id(n - 1) END $$;
"""

JOBS = """
INSERT INTO job (id, chain_id, blockers, place, lane, entry, created_at, run_at, start_by, lease_ms, priority, born, task,
    queue, args)
SELECT old_id(n), chain_of(n), CASE WHEN chain_of(n) = old_id(n) THEN 1 END, {place} + n, lane_of(n), lane_of(n), now(),
    CASE WHEN later THEN now() + interval '1 year' END,
    CASE WHEN later THEN now() + interval '1 month' END, 60000, 5,
    CASE WHEN later THEN 'scheduled' ELSE 'ready' END, 'other.' || n % 50, 'default', '{{"n": 1}}'
FROM generate_series(1, {jobs}) n CROSS JOIN LATERAL (SELECT n BETWEEN {to_archived} + 1 AND {to_scheduled} AS later) s
"""

STATES = """
INSERT INTO lane SELECT lane_of(n), lane_of(n), 'default', 'other.' || n, 5, '[]' FROM generate_series(0, 49) n;

INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
SELECT lane_of(n), {place} + n, old_id(n), now(), 0, 0, false FROM generate_series(1, {ready}) n;

INSERT INTO archive (job_id, lane, finished_at, claimed_at, token, worker, attempt, failures, late, state, result, chain,
    continued_by)
SELECT old_id(n), lane_of(n), now(), now(), gen_random_uuid(), 1, 1, 0, false, 'succeeded', '1', chain_of(n),
    CASE WHEN chain_of(n) = old_id(n) THEN old_id(n + 1) END
FROM generate_series({ready} + 1, {to_archived}) n;

INSERT INTO chain (id, step, steps)
SELECT old_id(n), old_id(n + 1), 2 FROM generate_series({ready} + 1, {to_archived}) n WHERE chain_of(n) = old_id(n);

INSERT INTO blocker (job_id, position, chain_id, ended)
SELECT old_id(n), 0, old_id(n - 1), true FROM generate_series({ready} + 1, {to_archived}) n WHERE chain_of(n) = old_id(n);

INSERT INTO signal (name, data, emitted_at, emitted_by)
SELECT 'old ' || n, '1', now(), '' FROM generate_series({ready} + 1, {to_archived}) n;

INSERT INTO scheduled (job_id, run_at, attempt, failures, signal)
SELECT old_id(n), now() + interval '1 year', 0, 0, 'never ' || n FROM generate_series({to_archived} + 1, {to_scheduled}) n;

INSERT INTO deadline (job_id, at)
SELECT old_id(n), now() + interval '1 month' FROM generate_series({to_archived} + 1, {to_scheduled}) n;

INSERT INTO lease (job_id, token, no, lane, place, claimed_at, expires_at, lease_ms, worker, attempt, failures, keyed)
SELECT old_id(n), gen_random_uuid(), nextval('claim_no'), lane_of(n), {place} + n, now(), now() + interval '1 h', 3600000, 1,
    1, 0, false
FROM generate_series({to_scheduled} + 1, {jobs}) n;

INSERT INTO tally (lane, ready, succeeded, scheduled, running)
SELECT lane_of(n), {ready} / 50, {archived} / 50, {scheduled} / 50, {running} / 50 FROM generate_series(0, 49) n;
"""


async def fill(side: Side, size: Size) -> None:
    """Insert the rows that so many jobs of other tasks would have left, older than any made here. No ANALYZE."""
    values = {
        "lanes": ", ".join(str(lane_id("default", task, 5, ())) for task in OTHERS),
        "place": await side.admin.fetchval("SELECT setval('place', last_value + $1) - $1 FROM place", size.jobs),
        "to_archived": size.ready + size.archived,
        "to_scheduled": size.ready + size.archived + size.scheduled,
        "jobs": size.jobs,
        **asdict(size),
    }
    await side.admin.execute(HELPERS.format_map(values))
    other = await asyncpg.connect(side.store._db.url, server_settings={"search_path": side.schema})
    try:
        await asyncio.gather(side.admin.execute(JOBS.format_map(values)), other.execute(STATES.format_map(values)))
    finally:
        await other.close()


# -- the counts ------------------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What was counted, and the large side for more."""

    large: Side
    small: dict[str, list[Seen]]
    by_plan: dict[str, dict[str, list[Seen]]]
    seq_scans: dict[str, dict[str, int]]
    """By operation: how often the store has read each big table from end to end so far, on plans made on empty tables."""


@pytest.fixture(scope="module", params=NEWEST)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of the newest version; the older one with `--slow`: filling the tables takes half a minute."""
    return postgres_servers[request.param]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counts(postgres_url: str) -> AsyncIterator[Counts]:
    """Count everything in the order of time: ANALYZE throws away the plans that were made on the empty tables."""
    async with AsyncExitStack() as stack:
        small = await Side.open("small", postgres_url, stack)
        large = await Side.open("large", postgres_url, stack)
        for side, size in ((small, SMALL), (large, LARGE)):
            await side.plan(PLANNED[0], stack)
            await fill(side, size)
        counts = Counts(large, await small.counted(PLANNED[0]), {PLANNED[0]: await large.counted(PLANNED[0])}, {})
        counts.seq_scans["before"] = await large.seq_scans()
        for operation in OPERATIONS:
            await large.run(operation, BATCH, planned=None)
            counts.seq_scans[operation] = await large.seq_scans()
        await large.plan(PLANNED[1], stack)
        counts.by_plan[PLANNED[1]] = await large.counted(PLANNED[1])
        await large.admin.execute("ANALYZE")
        await large.plan(PLANNED[2], stack)
        counts.by_plan[PLANNED[2]] = await large.counted(PLANNED[2])
        yield counts


# -- the tests -------------------------------------------------------------------------------------------------------------


@pytest.mark.row(39)
@pytest.mark.parametrize("planned", PLANNED)
@pytest.mark.parametrize("count", [1, BATCH])
async def test_a_claim_behind_a_million_foreign_jobs_costs_what_it_costs_without_them(
    counts: Counts, count: int, planned: str
) -> None:
    operation = "claim" if count == BATCH else "claim one"
    [small] = counts.small[operation]
    [large] = counts.by_plan[planned][operation]
    # What a million rows must cost: the index of `job` has one level more, which every claimed job walks down once, and so
    # has that of `ready`, which the claim walks down once per lane. And a tenth: pages of `lease` that happen to be full.
    levels = count + len(TASKS)
    print(f"{operation}, planned {planned}: {small.buffers} -> {large.buffers} blocks")  # noqa: T201  figures for the docs
    assert large.buffers <= 1.1 * small.buffers + levels


@pytest.mark.row(39)
@pytest.mark.parametrize("planned", PLANNED)
async def test_a_look_reads_each_lane_once_however_much_it_holds(counts: Counts, planned: str) -> None:
    look, _claim = counts.by_plan[planned]["look and claim"]
    lanes = len(TASKS) + len(OTHERS)
    # The first row of the lane and of its front: two walks down `ready_pkey`, which has three levels, and one row.
    assert look.buffers <= lanes * (2 * 3 + 1) + 10


@pytest.mark.row(39)
@pytest.mark.parametrize("planned", PLANNED)
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_batch_costs_the_same_in_a_large_store(counts: Counts, operation: str, planned: str) -> None:
    small, large = counts.small[operation], counts.by_plan[planned][operation]
    assert len(large) == len(small), "another number of statements"
    # One level more in the indexes of `job`, `ready`, `archive` and `scheduled`: half as much again where an operation does
    # little else than walk down them (get, extend of what is lost), nothing where it works on leases (extend, progress). A few
    # buffers are no batch: settling again what is one job walks down four indexes.
    least = sum(seen.buffers for seen in small)
    assert sum(seen.buffers for seen in large) <= max(1.5 * least, least + 6)


async def test_no_operation_reads_a_big_table_from_end_to_end(counts: Counts) -> None:
    assert set(counts.seq_scans["before"]) == set(BIG)
    for operation, scans in counts.seq_scans.items():
        assert scans == counts.seq_scans["before"], operation


async def test_heartbeats_stay_hot(counts: Counts) -> None:
    side = counts.large
    claimed = await side.running(1_000)
    updated, hot = await side.updates("lease")
    for _ in range(30):
        for part in (claimed[:500], claimed[500:]):
            await side.store.extend([job.lease for job in part])
    updated_after, hot_after = await side.updates("lease")
    assert updated_after - updated == 30_000
    assert (hot_after - hot) / 30_000 >= 0.95


async def test_chains_go_on_hot(counts: Counts) -> None:
    side = counts.large
    await side.continued(await side.running(50))
    updated, hot = await side.updates("chain")
    for _ in range(20):
        await side.continued(await side.claim(50))
    updated_after, hot_after = await side.updates("chain")
    await side.succeed(await side.claim(50))
    assert updated_after - updated == 1_000
    assert (hot_after - hot) / 1_000 >= 0.95


async def test_signs_of_life_stay_hot(counts: Counts) -> None:
    side = counts.large
    workers = [Worker(id=uuid4(), name=f"w{n}", info="x" * 5_000) for n in range(20)]
    for worker in workers:
        await side.store.register(worker)
    updated, hot = await side.updates("worker")
    for n in range(50):
        for worker in workers:
            await side.store.beat(Beat(worker=worker.id, counters=f'{{"claims": {n}}}'))
    updated_after, hot_after = await side.updates("worker")
    assert updated_after - updated == 1_000
    assert (hot_after - hot) / 1_000 >= 0.95
