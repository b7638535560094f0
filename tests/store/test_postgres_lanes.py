"""Many lanes: a claim names few of them, and still finds what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.core.job import NewJob
from holdfast.core.needs import needs_of
from holdfast.store.port import ClaimRequest, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.lanes import LIMITED_LANES, SPARE_LANES, Lane, runs
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

WORLD = SystemEnvironment()
QUEUES = 60


@pytest.fixture(scope="module")
def postgres_server(postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """One version is enough for what the client does."""
    return postgres_servers[18]


def lane(number: int, *, fifo: bool = False) -> Lane:
    return Lane(2 * number, f"q{number}", 5, needs_of(()), fifo=fifo)


@pytest.mark.parametrize(("limit", "named"), [(1, 1 + SPARE_LANES), (1000, 2 * SPARE_LANES)])
def test_a_claim_names_a_few_lanes_first_and_then_the_rest(limit: int, named: int) -> None:
    lanes = [lane(number) for number in range(1, 101)]
    first, rest = runs(lanes, limit)
    assert len(first) == named
    assert first + rest == lanes


def test_lanes_that_were_found_full_stand_for_nothing_in_what_is_named_first() -> None:
    lanes = [lane(number) for number in range(1, 151)]
    for one in lanes:
        one.limited = True
    assert [len(some) for some in runs(lanes, 5, at=1.0)] == [
        5 + SPARE_LANES,
        LIMITED_LANES,
        150 - 5 - SPARE_LANES - LIMITED_LANES,
    ]
    for one in lanes[:40]:
        one.held_until = 2.0
    assert len(next(runs(lanes, 5, at=1.0))) == 40 + 5 + SPARE_LANES
    for one in lanes:
        one.held_until = 2.0
    assert [len(some) for some in runs(lanes, 5, at=1.0)] == [LIMITED_LANES, 50]


def test_few_lanes_are_named_together() -> None:
    lanes = [lane(number) for number in range(1, SPARE_LANES + 1)]
    assert list(runs(lanes, 1)) == [lanes]


def test_a_fifo_lane_stands_alone_among_many() -> None:
    before = [lane(number) for number in range(1, 31)]
    behind = [lane(number) for number in range(32, 62)]
    alone = lane(31, fifo=True)
    split = list(runs([*before, alone, *behind], 1))
    assert [alone] in split
    assert [one for run in split for one in run] == [*before, alone, *behind]


async def test_a_claim_goes_on_to_the_lanes_it_did_not_name_when_others_emptied_the_first(postgres_url: str) -> None:
    """Two handles have seen the same sixty lanes of one job each; one takes fifty, and the other does not know."""
    stores = [PostgresStore(postgres_url, WORLD) for _ in range(2)]
    worker = Worker(id=uuid4(), name="w")
    request = ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=1)
    try:
        for store in stores:
            await store.open()
        await stores[0].register(worker)
        jobs = [NewJob(id=WORLD.job_id(), task="noop", queue=f"q{number:02}") for number in range(QUEUES)]
        await stores[0].enqueue(jobs)
        for store in stores:
            await store._look()
        taken = [job for _ in range(QUEUES - 10) for job in await stores[0].claim(request)]
        assert len(taken) == QUEUES - 10
        found = await stores[1].claim(request)
    finally:
        for store in stores:
            await store.close()
    assert len(found) == 1
    assert found[0].job_id not in {job.job_id for job in taken}
