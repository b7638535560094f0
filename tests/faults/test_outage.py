"""The store goes away under load: workers come back by themselves, nothing is lost, and the outage spends nothing."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.store.postgres import PostgresStore
from tests.faults import tasks
from tests.faults.support import chance, fleet_on, until
from tests.support.postgres import MAJORS, PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast import Handle
    from holdfast.store.port import Reaped
    from tests.faults.support import Fleet, WorkerProcess

LEASE = 2.0
FILE_LEASE = 3.0
"""Twice that is less than what a write waits for others, four times is more."""
SHORT = 300
LONG = 6
PRODUCERS = 4
BATCH = 5


@pytest.fixture(params=[MAJORS[-1], *[pytest.param(major, marks=pytest.mark.slow) for major in MAJORS[:-1]]])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server of this test's own, to be mistreated."""
    with PostgresServer(request.param) as server:
        yield server


@pytest.fixture
async def fleet(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet_on(server.create_database(), tmp_path) as fleet:
        yield fleet


@pytest.mark.row(11, "11b")
async def test_workers_survive_an_immediate_restart_of_the_server(fleet: Fleet, server: PostgresServer) -> None:
    handles, workers = await _under_load(fleet)

    server.restart(immediate=True)

    await _assert_unharmed(fleet, handles, workers, noticed=False)


@pytest.mark.row(11)
@pytest.mark.parametrize("restarts", [1, pytest.param(10, marks=pytest.mark.slow)])
async def test_enqueues_in_flight_when_the_server_stops_are_repeated_by_id_and_there_once(
    fleet: Fleet, server: PostgresServer, restarts: int
) -> None:
    workers = [fleet.start(name, concurrency=10) for name in ("first", "second")]
    await fleet.working(*workers)
    acknowledged: list[Handle[int]] = []
    repeated = 0
    stop = asyncio.Event()

    async def produce(app: Holdfast) -> None:
        nonlocal repeated
        while not stop.is_set():
            calls = [tasks.nap.options(lease=LEASE).call(0.0) for _ in range(BATCH)]
            while True:
                try:
                    acknowledged.extend(await app.enqueue_many(calls))
                except StoreUnavailable:
                    repeated += 1
                else:
                    break

    async with Holdfast(fleet.url) as app, asyncio.TaskGroup() as producers:
        for _ in range(PRODUCERS):
            producers.create_task(produce(app))
        for _ in range(restarts):
            before = len(acknowledged)
            await until(lambda before=before: len(acknowledged) >= before + 10 * BATCH, "producers should produce")  # type: ignore[misc]
            in_flight = repeated
            with ThreadPoolExecutor(1) as aside:  # so that the producers go on meanwhile
                await asyncio.get_running_loop().run_in_executor(aside, partial(server.restart, immediate=True))
            assert repeated > in_flight, "no enqueue was in flight: the fault did not happen"
        stop.set()

    fleet.jobs += [handle.id for handle in acknowledged]
    for view in await fleet.succeeded(acknowledged):
        assert view.failures == 0, f"the outage has spent the budget of job {view.id}"
    assert (await fleet.store.stats()).count() == len(set(fleet.jobs)) == len(fleet.jobs), "an enqueue and its repetition"


@pytest.mark.row("11b")
async def test_workers_survive_a_server_that_is_away_for_two_leases(fleet: Fleet, server: PostgresServer) -> None:
    handles, workers = await _under_load(fleet)

    with server.down():
        await asyncio.sleep(2 * LEASE)  # the fault itself: time passes while nobody can extend anything
        with pytest.raises(StoreUnavailable):
            await fleet.store.reap(1000)
        for worker in workers:  # so that the first who comes back is a reaper
            await fleet.freeze(worker)
    await _back(fleet)
    assert await _reaped_early(fleet) == [], "the reaper does not know that there was an outage"
    assert all(view.lapsed for view in await fleet.views(handles[:LONG])), "no lease had lapsed: the fault did not happen"
    for worker in workers:
        worker.send(signal.SIGCONT)
    while (reaped := await _reaped_early(fleet)) is not None:
        assert reaped == [], "leases were reaped before their holders had the time to come back"

    await _assert_unharmed(fleet, handles, workers, noticed=True)
    for handle in handles[:LONG]:
        said = [line for worker in workers for line in worker.said(f"job {handle.id}") if "asked to stop: expired" in line]
        assert said, f"the handler of job {handle.id} ran on after its worker could no longer hold the job"


@pytest.mark.row("11b", 27)
@pytest.mark.parametrize("leases", [2, pytest.param(4, marks=pytest.mark.slow)])
async def test_workers_survive_a_file_that_somebody_keeps_for_longer_than_their_leases(tmp_path: Path, leases: int) -> None:
    path = tmp_path / "jobs.db"
    async with fleet_on(f"sqlite:///{path}", tmp_path) as fleet:
        handles, workers = await _under_load(fleet, lease=FILE_LEASE)

        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(leases * FILE_LEASE)  # the fault itself: time passes while nobody can extend anything
            assert all(view.lapsed for view in await fleet.views(handles[:LONG])), "no lease has lapsed: no fault"
            somebody.execute("ROLLBACK")

        await _assert_unharmed(fleet, handles, workers, noticed=True)


async def _reaped_early(fleet: Fleet) -> list[Reaped] | None:
    """Reap as one who never rests; returns what was reaped, `None` when its connection has been back for a lease."""
    assert isinstance(fleet.store, PostgresStore)
    reaped = await fleet.store.reap(1000)
    back_since = fleet.store._db.back_since
    assert back_since is not None, "the test itself has not noticed the outage"
    return reaped if time.monotonic() < back_since + LEASE else None


async def _under_load(fleet: Fleet, lease: float = LEASE) -> tuple[list[Handle[int]], list[WorkerProcess]]:
    """Have two workers in the middle of short jobs and of ones that last through the outage."""
    rng = chance()
    long = await fleet.enqueue(*[tasks.wait_for.options(priority=9, lease=lease).call("end") for _ in range(LONG)])
    short = await fleet.enqueue(*[tasks.nap.options(lease=lease).call(rng.uniform(0.0, 0.5)) for _ in range(SHORT)])
    workers = [fleet.start(name, program="tests.faults.restless", concurrency=10) for name in ("first", "second")]
    await fleet.working(*workers)
    await fleet.noted("began", long)
    await fleet.noted("ended", short, times=SHORT // 10)
    assert len(fleet.notes("ended", short)) < SHORT, "the load was over before the fault"
    return [*long, *short], workers


async def _assert_unharmed(fleet: Fleet, handles: list[Handle[int]], workers: list[WorkerProcess], *, noticed: bool) -> None:
    """Have the fleet finish all, and each worker tell of the outage once; one that is over in a moment may pass unnoticed."""
    await _back(fleet)
    fleet.open_gate("end")
    views = await fleet.succeeded(handles)
    spent = [f"{view.id} {[str(one.event) for one in await fleet.store.attempts(view.id)]}" for view in views if view.failures]
    assert not spent, f"the outage has spent the budget of {len(spent)} jobs: {spent[:3]}"
    # one more, so that it is sure that both see the store again
    await fleet.succeeded(await fleet.enqueue(*[tasks.nap.call(0.1) for _ in range(40)]))
    for worker in workers:
        await until(partial(_told_of_the_end, worker), f"{worker.name} telling of the end")
    for worker in workers:
        worker.send(signal.SIGTERM)
    for worker in workers:
        assert await worker.exited() == 0
        begun, over = worker.said("the store does not answer"), worker.said("the store answers again")
        assert (len(begun), len(over)) in ([(1, 1)] if noticed else [(1, 1), (0, 0)]), (
            f"one outage is one line when it begins and one when it is over, but {worker.name} wrote:\n"
            + "\n".join([*begun, *over])
        )
        assert "Traceback" not in worker.log, f"an outage is no reason for tracebacks, but {worker.name} wrote some"


async def _back(fleet: Fleet) -> None:
    """Wait until the test itself reaches the store again."""

    async def look() -> bool:
        try:
            await fleet.store.stats()
        except Exception:  # noqa: BLE001  whatever it is, it is not back
            return False
        return True

    await until(look, "the server should answer again")


def _told_of_the_end(worker: WorkerProcess) -> bool:
    return len(worker.said("the store does not answer")) == len(worker.said("the store answers again"))
