"""Limits on PostgreSQL where two meet in the middle, and what they cost those who have none."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob
from holdfast.core.limits import LimitKey, LimitKind, LimitName, LimitRule, limit_id
from holdfast.core.outcome import Succeeded
from holdfast.store.conformance.world import settlement_of
from holdfast.store.port import ClaimRequest, Retention, Worker
from holdfast.store.postgres import PostgresStore, scripts
from holdfast.system import SystemEnvironment
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.lease import Taken
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

TASK = "t"
SCOPE = "tenants"
OVER_TASK = LimitName(LimitKind.TASK, TASK)
OVER_KEYS = LimitName(LimitKind.KEY, SCOPE)
URLS: dict[str, str] = {}
"""Where each schema is."""


@pytest.fixture(scope="module")
def postgres_server(postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    return postgres_servers[18]


@pytest_asyncio.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """Two handles on one schema."""
    schema = f"limits{uuid4().hex}"
    URLS[schema] = postgres_url
    made = [PostgresStore(postgres_url, SystemEnvironment(), schema=schema) for _ in range(2)]
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


async def worker(store: PostgresStore) -> UUID:
    number = uuid4()
    await store.register(Worker(id=number, name=f"w{number}"))
    return number


def job(key: str | None = None, **fields: Any) -> NewJob:
    return NewJob(id=uuid7(), task=TASK, limit=None if key is None else LimitKey(SCOPE, key), **fields)


async def claim(store: PostgresStore, who: UUID, limit: int, *, look: bool = True) -> Taken:
    return await store.claim(ClaimRequest(worker=who, tasks=frozenset({TASK}), limit=limit, look=look))


async def waits_for_a_lock(store: PostgresStore) -> bool:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await store._db.fetch_value(sql))


@asynccontextmanager
async def transaction(store: PostgresStore) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Give a connection with a transaction that is committed when the block ends."""
    connection = await asyncpg.connect(URLS[store._schema], server_settings={"search_path": store._schema})
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def count(store: PostgresStore, table: str, where: str = "true") -> int:
    number: int = await store._db.fetch_value(f"SELECT count(*) FROM {store._schema}.{table} WHERE {where}")
    return number


@pytest.mark.parametrize("limit", [1, 5])
async def test_who_has_not_heard_of_a_new_limit_takes_nothing_past_it(stores: list[PostgresStore], limit: int) -> None:
    first, second = stores
    who = await worker(first)
    await first.enqueue([job() for _ in range(10)])
    assert len(await claim(first, who, 2)) == 2
    await second.set_limit(OVER_TASK, LimitRule(most=3), by="ann")
    assert await claim(first, who, limit, look=False) == [], "it still believes that nothing is limited"
    assert len(await claim(first, who, 5)) == 1


async def test_a_claimer_waits_for_the_one_who_counts_before_it(stores: list[PostgresStore]) -> None:
    first, second = stores
    await first.declare({OVER_KEYS: LimitRule(most=2)})
    await first.enqueue([job("a") for _ in range(5)])
    who, other = await worker(first), await worker(second)
    (running,) = await claim(first, who, 1)
    async with transaction(first) as connection:
        # somebody who has counted, and has not committed what he took
        await connection.execute("SELECT FROM limits WHERE id = $1 FOR UPDATE", limit_id(OVER_KEYS._replace(key="a")))
        claiming = asyncio.create_task(claim(second, other, 5))
        await until(lambda: waits_for_a_lock(first))
        assert not claiming.done()
    assert len(await claiming) == 1
    assert await claim(first, who, 5) == []
    await first.settle([settlement_of(running.lease, Succeeded())])
    assert len(await claim(first, who, 5)) == 1


async def test_what_enters_a_resting_lane_wakes_it(stores: list[PostgresStore]) -> None:
    first, second = stores
    who = await worker(first)
    await first.enqueue([job("a")])
    (claimed,) = await claim(first, who, 5)
    await first.settle([settlement_of(claimed.lease, Succeeded())])
    await first.prune(Retention(), limit=1)
    assert await count(first, "lane", "keyed AND resting") == await count(first, "lane", "keyed") == 1
    await second.enqueue([job("a")])
    assert await count(first, "lane", "keyed AND NOT resting") == 1
    assert len(await claim(first, who, 5)) == 1


async def test_a_lane_that_somebody_is_entering_is_not_put_to_rest(stores: list[PostgresStore]) -> None:
    first, second = stores
    who = await worker(first)
    await first.enqueue([job("a")])
    (claimed,) = await claim(first, who, 5)
    await first.settle([settlement_of(claimed.lease, Succeeded())])
    late = job("a")
    async with transaction(second) as connection:
        await second._script(cast("Any", connection), scripts.enqueue([late]))
        await first.prune(Retention(), limit=1)
        assert await count(first, "lane", "keyed AND resting") == 0, "its row is in somebody's hands"
    assert [one.job_id for one in await claim(first, who, 5)] == [late.id]


async def test_who_enters_a_lane_while_it_is_put_to_rest_waits_and_wakes_it(stores: list[PostgresStore]) -> None:
    first, second = stores
    who = await worker(first)
    await first.enqueue([job("a")])
    (claimed,) = await claim(first, who, 5)
    await first.settle([settlement_of(claimed.lease, Succeeded())])
    late = job("a")
    async with transaction(first) as connection:
        await connection.execute("SELECT rest()")
        entering = asyncio.create_task(second.enqueue([late]))
        await until(lambda: waits_for_a_lock(first))
        assert not entering.done()
    await entering
    assert [one.job_id for one in await claim(first, who, 5)] == [late.id]


async def test_permits_are_swept_by_who_claims_and_do_not_pile_up(stores: list[PostgresStore]) -> None:
    first, _ = stores
    who = await worker(first)
    await first.declare({OVER_KEYS: LimitRule(most=4)})
    await first.enqueue([job("a") for _ in range(120)])
    for _ in range(30):
        taken = await claim(first, who, 10)
        await first.settle([settlement_of(one.lease, Succeeded()) for one in taken])
    assert await count(first, "archive") == 120
    assert await count(first, "permit") <= 4 + 16 + 4


async def test_keys_that_nobody_uses_are_forgotten(stores: list[PostgresStore]) -> None:
    first, _ = stores
    who = await worker(first)
    await first.declare({OVER_KEYS: LimitRule(most=1)})
    await first.enqueue([job(key) for key in "abc"])
    taken = await claim(first, who, 10)
    await first.settle([settlement_of(one.lease, Succeeded()) for one in taken[:2]])
    await first.prune(Retention(), limit=1)
    assert await count(first, "limits", "key IS NOT NULL") == 1
    await first.enqueue([job(key) for key in "abc"])
    assert len(await claim(first, who, 10)) == 2, "known again, and the one that runs still counts"


async def test_a_limit_that_is_cleared_while_a_claim_waits_for_it_holds_nobody_up(stores: list[PostgresStore]) -> None:
    first, second = stores
    who = await worker(second)
    await first.set_limit(OVER_TASK, LimitRule(most=2), by="ann")
    await first.enqueue([job() for _ in range(5)])
    async with transaction(first) as connection:
        await connection.execute("DELETE FROM limits")
        claiming = asyncio.create_task(claim(second, who, 5))
        await until(lambda: waits_for_a_lock(first))
    async with asyncio.timeout(20):
        assert len(await claiming) <= 5
        taken = len(claiming.result()) + len(await claim(second, who, 5))
    assert taken == 5


async def test_open_transactions_that_enter_resting_lanes_do_not_wait_for_each_other(stores: list[PostgresStore]) -> None:
    first, second = stores
    who = await worker(first)
    await first.enqueue([job("a"), job("b")])
    taken = await claim(first, who, 5)
    await first.settle([settlement_of(one.lease, Succeeded()) for one in taken])
    await first.prune(Retention(), limit=1)
    async with transaction(first) as one, transaction(second) as other, asyncio.timeout(20):
        await first._script(cast("Any", one), scripts.enqueue([job("a")]))
        await second._script(cast("Any", other), scripts.enqueue([job("b")]))
        await first._script(cast("Any", one), scripts.enqueue([job("b")]))
        await second._script(cast("Any", other), scripts.enqueue([job("a")]))
        await first.enqueue([job("a")])
    assert len(await claim(first, who, 10)) == 5
    await first.prune(Retention(), limit=1)
    assert await count(first, "lane", "keyed") == 2


async def test_without_limits_a_claim_writes_none_and_reads_two_pages_of_them(stores: list[PostgresStore]) -> None:
    first, _ = stores
    who = await worker(first)
    await first.enqueue([job() for _ in range(3)])
    assert len(await claim(first, who, 3)) == 3
    assert await count(first, "permit") == await count(first, "limits") == 0


async def test_all_that_flows_into_a_bucket_may_start_jobs(stores: list[PostgresStore]) -> None:
    """Time that passes within a claim counts as any other: what was not taken is still there."""
    store, rate = stores[0], 1000.0
    who = await worker(store)
    await store.declare({OVER_TASK: LimitRule(rate=rate, burst=1e6)})
    await store.enqueue([job() for _ in range(500)])
    bucket = store._sql("SELECT tokens, extract(epoch FROM filled_at)::float8 FROM {schema}.limits WHERE id = $1")
    empty = store._sql("UPDATE {schema}.limits SET tokens = 0, filled_at = clock_timestamp() WHERE id = $1")
    over = limit_id(OVER_TASK)
    await store._db.fetch(empty, over)
    ((_, begun),) = await store._db.fetch(bucket, over)
    started = sum([len(await claim(store, who, 3)) for _ in range(60)])
    ((tokens, at),) = await store._db.fetch(bucket, over)
    assert started > 50
    assert started + tokens == pytest.approx((at - begun) * rate, abs=0.5)
