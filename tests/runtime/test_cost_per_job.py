"""What a plain job costs does not grow: statements, round trips, WAL, pages, calls and memory, counted and never timed.

`COUNTED` holds what was counted last, for one job each: so a call with a batch of 100 is 0.01 statements. A change that makes
jobs cheaper, or dearer for a good reason, takes its figures from

    ./dev bench cost --rounds 3

Calls and blocks are those of Python 3.11.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.cost import CheckpointError, Phases, count_calls_of_store, count_enqueue, count_memory, count_worker, stores
from holdfast.runtime import counters as count
from holdfast.runtime.counters import MemoryCounters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cost import Fresh
    from benchmarks.meters import Counts
    from holdfast import Holdfast
    from tests.support.postgres import PostgresServers

ALLOWED: Final = 1.045
ALLOWED_BY_THE_WAY: Final = 1.1
"""Of what was counted; the second for what also depends a little on how the work falls into turns and transactions."""
BY_THE_WAY: Final = frozenset({"calls"})

COUNTED: Final[dict[str, Phases]] = {
    "memory": {
        "enqueue 1000": {"calls": 79.11},
        "worker, 1 slots": {"calls": 530.0},  # limits: their room, and whose turn it is, are asked by every claim
        "worker, 20 slots": {"calls": 179.7},
        "memory": {"retained": 21.17, "held": 43.13},
    },
    "sqlite": {
        "enqueue 1000": {"calls": 26.16},
        "worker, 1 slots": {"statements": 14.0, "commits": 2.0, "calls": 1012.0},
        "worker, 20 slots": {"statements": 0.7, "commits": 0.1, "calls": 132.0},
        "memory": {"retained": 0.5, "held": 29.0},
        "enqueue one": {"statements": 8.04, "pages": 6.32, "commits": 1.0},
        "claim one": {"statements": 10.03, "pages": 4.42, "commits": 1.0},
        "settle one": {"statements": 8.03, "pages": 3.62, "commits": 1.0},
        "enqueue 100": {"statements": 0.08, "pages": 0.1975, "commits": 0.01},
        "claim 100": {"statements": 0.10, "pages": 0.155, "commits": 0.01},
        "settle 100": {"statements": 0.08, "pages": 0.15, "commits": 0.01},
    },
    "postgres": {
        "enqueue 1000": {"calls": 37.28},
        "worker, 1 slots": {"statements": 2.0, "round_trips": 2.0, "calls": 719.5},  # fair shares, keys, figures
        "worker, 20 slots": {"statements": 0.1, "round_trips": 0.1005, "calls": 83.9},
        "memory": {"retained": 0.5, "held": 29.23},
        "enqueue one": {"statements": 1.0, "round_trips": 1.0, "wal_bytes": 612.6, "wal_records": 7.045, "buffers": 11.125},
        "claim one": {"statements": 1.005, "round_trips": 1.005, "wal_bytes": 618.5, "wal_records": 8.115, "buffers": 21.19},
        "settle one": {"statements": 1.0, "round_trips": 1.0, "wal_bytes": 558.56, "wal_records": 7.01, "buffers": 15.095},
        "enqueue 100": {"statements": 0.01, "round_trips": 0.01, "wal_bytes": 417.34, "wal_records": 4.07, "buffers": 7.1525},
        "claim 100": {"statements": 0.0125, "round_trips": 0.0125, "wal_bytes": 410.0, "wal_records": 5.05, "buffers": 8.285},
        "settle 100": {"statements": 0.01, "round_trips": 0.01, "wal_bytes": 363.53, "wal_records": 4.04, "buffers": 7.1825},
    },
}
"""What is next to nothing, the blocks that a settled job leaves behind, stands here as what it may be."""

STORES: Final = tuple(COUNTED)
WAIT: Final = 20.0
TRIES: Final = 10
"""On a busy machine a worker finds fewer jobs at a time, asks more often and keeps more: what counts is what it can do."""


@pytest.fixture
def fresh(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Iterator[Fresh]:
    """Makes empty stores of the kind that the test is for."""
    servers: PostgresServers | None = request.getfixturevalue("postgres_servers") if store == "postgres" else None
    server = None if servers is None else servers[18]
    made: list[str] = []
    with stores(server, tmp_path) as makers:

        def make() -> str:
            made.append(makers[store]())
            return made[-1]

        yield make
    if server is not None:
        for url in made:
            server.drop_database(url)


@pytest.mark.parametrize("slots", [1, 20])
@pytest.mark.parametrize("store", STORES)
async def test_a_job_costs_its_worker_no_more_than_it_did(store: str, fresh: Fresh, slots: int) -> None:
    found: dict[str, tuple[float, float]] = {}
    for _ in range(TRIES):
        counted = await count_worker(store, fresh, slots)
        counted.pop("wal", None)  # of the whole server: what others have it log counts. It is asserted below for two statements
        found = dearer({f"worker, {slots} slots": counted}, store)
        if not found:
            break
    assert found == {}


@pytest.mark.parametrize("store", STORES)
async def test_a_job_costs_its_producer_no_more_than_it_did(store: str, fresh: Fresh) -> None:
    assert dearer({"enqueue 1000": await count_enqueue(fresh)}, store) == {}


@pytest.mark.parametrize("store", STORES)
async def test_a_job_takes_no_more_memory_than_it_did_and_leaves_none_behind(store: str, fresh: Fresh) -> None:
    found: dict[str, tuple[float, float]] = {}
    for _ in range(TRIES):
        found = dearer({"memory": await count_memory(fresh)}, store)
        if not found:
            break
    assert found == {}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_job_costs_its_store_no_more_than_it_did(store: str, fresh: Fresh) -> None:
    for _ in range(10):
        try:
            counted = await count_calls_of_store(store, fresh)
        except CheckpointError:
            continue
        assert dearer(counted, store) == {}
        return
    pytest.fail("a checkpoint in every count: whose is it?")


def test_one_statement_round_trip_or_buffer_more_for_a_job_is_noticed() -> None:
    for store, phases in COUNTED.items():
        for phase, counts in phases.items():
            for what in counts.keys() & {"statements", "round_trips", "commits", "buffers", "pages"}:
                worse: Counts = counts | {what: counts[what] + 1}
                assert dearer({phase: worse}, store) == {f"{phase}: {what}": (counts[what], counts[what] + 1)}


def dearer(counted: Phases, store: str) -> dict[str, tuple[float, float]]:
    """Return what costs more than it may, with the figures of before and of now."""
    return {
        f"{phase}: {what}": (COUNTED[store][phase][what], now)
        for phase, counts in counted.items()
        for what, now in counts.items()
        if now > COUNTED[store][phase][what] * (ALLOWED_BY_THE_WAY if what in BY_THE_WAY else ALLOWED)
    }


async def test_leases_that_are_held_cost_nothing_until_they_are_due(memory_app: Holdfast) -> None:
    few, many = await calls_of_the_heartbeat(memory_app, 10), await calls_of_the_heartbeat(memory_app, 500)
    assert many < few * 2, "all leases are gone through each time the heartbeat looks at the clock"


async def calls_of_the_heartbeat(app: Holdfast, leases: int) -> int:
    """Return how many calls the heartbeat's thread makes in two seconds in which no lease comes due."""
    calls = 0
    wake = asyncio.Event()

    @app.task(name=f"asleep-{leases}")
    async def asleep() -> None:
        await wake.wait()

    def note(_frame: object, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    counters = MemoryCounters()
    threading.setprofile(note)  # of threads that start from now on: on this store the heartbeat's alone
    try:
        await app.enqueue_many([asleep.call() for _ in range(leases)])
        async with app.worker(concurrency=leases, counters=counters):
            async with asyncio.timeout(WAIT):
                while counters.total(count.CONCURRENT) < leases:  # noqa: ASYNC110  nobody tells of single starts
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)  # it looks at what is new
            before = calls
            await asyncio.sleep(2.0)  # what is counted is what happens while nothing does
            counted = calls - before
            wake.set()
    finally:
        threading.setprofile(None)
    return counted
