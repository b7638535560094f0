"""What a claim does depends on how many keys are on offer, not on how many wait. Counted in steps and blocks, never by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob
from holdfast.core.limits import LimitKey, LimitKind, LimitName, LimitRule
from holdfast.core.rotation import AGED, OFFERED, SCANNED
from holdfast.store.port import ClaimRequest, Worker
from holdfast.store.postgres import PostgresStore, handle
from holdfast.store.sqlite import SqliteStore, claiming
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.store.port import Store
    from holdfast.store.sqlite.writing import Writing
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

FEW, MANY = 2 * OFFERED, 20 * OFFERED
SCOPE = LimitName(LimitKind.KEY, "tenants")
CLAIMS = 10
"""So many that one of them goes by age."""


@pytest.fixture(scope="module")
def postgres_server(postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    return postgres_servers[18]


async def filled(store: Store, keys: int, most: int) -> ClaimRequest:
    """Have one job of each of so many keys wait, and return a claim."""
    await store.open()
    worker = Worker(id=uuid4(), name=f"w{keys}")
    await store.register(worker)
    await store.declare({SCOPE: LimitRule(most=most)})
    await store.enqueue([NewJob(id=uuid7(), task="t", limit=LimitKey("tenants", f"k{number}")) for number in range(keys)])
    return ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=20, look=True)


async def steps(path: Path, keys: int, most: int) -> int:
    """Return how many instructions of SQLite's machine the longest of some transactions took in which it was claimed."""
    store = SqliteStore(path / f"{keys}.db", SystemEnvironment())
    request, account, longest = await filled(store, keys, most), claiming.Account(lambda: 0.0), 0

    def work(writing: Writing) -> None:
        nonlocal longest
        count = 0

        def passed() -> None:
            nonlocal count
            count += 1

        connection: Any = writing.connection
        connection.set_progress_handler(passed, 100)
        claiming.Claim(request, account).step(writing)
        connection.set_progress_handler(None, 0)
        longest = max(longest, count)

    for _ in range(CLAIMS):
        await store._write(work)
    await store.close()
    return longest


@pytest.mark.parametrize("most", [2, 0], ids=["with room", "all full"])
async def test_a_transaction_of_a_claim_on_sqlite_takes_no_more_steps_with_more_keys(tmp_path: Path, most: int) -> None:
    few, many = await steps(tmp_path, FEW, most), await steps(tmp_path, MANY, most)
    assert many < few * (SCANNED + OFFERED) / FEW, "what goes by age passes over more keys, up to a bound"
    assert await steps(tmp_path, 2 * MANY, most) < 1.1 * many, "and no further"


async def blocks(url: str, keys: int) -> list[int]:
    """Return how many blocks some looks touched, each followed by a claim."""
    store = PostgresStore(url, SystemEnvironment(), schema=f"keys{keys}")
    request, found = await filled(store, keys, 2), []
    for _ in range(CLAIMS):
        question = store._lanes.question()
        asked = (question.lanes, question.bases, question.fronts, *question.keys, OFFERED + 1, SCANNED, AGED)
        explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + store._sql(handle._LOOK)
        ((plan,),) = await store._db.fetch(explain, *asked)
        top = msgspec.json.decode(plan)[0]["Plan"]
        found.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        await store.claim(request)
    await store.close()
    return found


async def test_a_look_on_postgresql_touches_no_more_blocks_with_more_keys(postgres_url: str) -> None:
    many, more = await blocks(postgres_url, MANY), await blocks(postgres_url, 3 * MANY)
    assert max(more) < 1.3 * max(many)


async def test_a_claim_on_postgresql_asks_no_more_keys_than_are_on_offer(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, SystemEnvironment(), schema="offered")
    request, seen, claims = await filled(store, MANY, 2), set[UUID](), 0
    while taken := await store.claim(request):
        seen |= {job.job_id for job in taken}
        claims += 1
        assert len(store._lanes.choose(request, at=0.0)) <= OFFERED + AGED
    await store.close()
    assert len(seen) == MANY
    assert claims <= 1.5 * MANY / request.limit, "most bring nearly as much as they could"
