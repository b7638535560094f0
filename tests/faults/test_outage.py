"""PostgreSQL goes away under load: workers come back by themselves, nothing is lost, and the outage spends nothing."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.faults import tasks
from tests.faults.support import chance, fleet_on, until
from tests.support.postgres import MAJORS, PostgresServer, _readable, _unprivileged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast import Handle
    from tests.faults.support import Fleet, WorkerProcess

LEASE = 2.0
SHORT = 300
LONG = 6


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


@pytest.mark.row("11b")
async def test_workers_survive_a_server_that_is_away_for_two_leases(fleet: Fleet, server: PostgresServer) -> None:
    handles, workers = await _under_load(fleet)

    with _down(server):
        await asyncio.sleep(2 * LEASE)  # the fault itself: time passes while nobody can extend anything

    await _assert_unharmed(fleet, handles, workers, noticed=True)
    for handle in handles[:LONG]:
        said = [line for worker in workers for line in worker.said(f"job {handle.id}") if "asked to stop: expired" in line]
        assert said, f"the handler of job {handle.id} ran on after its worker could no longer hold the job"


async def _under_load(fleet: Fleet) -> tuple[list[Handle[int]], list[WorkerProcess]]:
    """Have two workers in the middle of short jobs and of ones that last through the outage."""
    rng = chance()
    long = await fleet.enqueue(*[tasks.wait_for.options(priority=9, lease=LEASE).call("end") for _ in range(LONG)])
    short = await fleet.enqueue(*[tasks.nap.options(lease=LEASE).call(rng.uniform(0.0, 0.5)) for _ in range(SHORT)])
    workers = [fleet.start(name, concurrency=10) for name in ("first", "second")]
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


@contextmanager
def _down(server: PostgresServer) -> Iterator[None]:
    """Have the server crash, and start it again on the same port and data afterwards."""
    server._end_process(signal.SIGQUIT)
    try:
        yield
    finally:
        programs = _readable(server._installation) if _unprivileged() else server._installation.programs
        server._launch(programs, port=urlsplit(server._admin_url).port)


def _told_of_the_end(worker: WorkerProcess) -> bool:
    return len(worker.said("the store does not answer")) == len(worker.said("the store answers again"))
