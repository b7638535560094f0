"""A worker whose network is cut off or bad: it stops in time, changes nothing that is no longer its own, and comes back."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.faults import bank
from tests.faults.machine import jobs
from tests.faults.machine.moments import ends_of_leases, last_moments
from tests.faults.machine.network import Namespace
from tests.faults.support import chance, fleet_on, until
from tests.support.majors import NEWEST
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.faults.support import Fleet, WorkerProcess

LEASE = 12.0
"""Seconds, of which the last two are the margin in which a handler has to stop: long enough for a busy machine."""
LONG = 300.0
"""Seconds that a test waits for what a bad line makes slow."""
LOSS, DELAY = 0.2, 0.05
NAPS = 60
DEPOSITS = 60
MODULE = "tests.faults.machine.jobs"

pytestmark = [pytest.mark.machine, pytest.mark.row(14)]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace(chance()) as namespace:
        yield namespace


@pytest.fixture(params=NEWEST)
def server(request: pytest.FixtureRequest, namespace: Namespace) -> Iterator[PostgresServer]:
    """A server that can be reached from the namespace."""
    settings = {"listen_addresses": f"127.0.0.1,{namespace.here}"}
    with PostgresServer(request.param, settings=settings, admit=namespace.there) as server:
        yield server


@pytest.fixture
async def fleet(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet_on(server.create_database(), tmp_path) as fleet:
        yield fleet


async def started_inside(fleet: Fleet, namespace: Namespace, name: str, *, module: str = MODULE) -> WorkerProcess:
    """Start a worker whose only way to the store leads out of the namespace."""
    url = namespace.url(urlsplit(fleet.url))
    worker = fleet.start(name, module=module, url=url, prefix=namespace.prefix, concurrency=10)
    await fleet.working(worker)
    return worker


@pytest.mark.parametrize("how", ["packets vanish", "there is no way"])
async def test_a_worker_that_is_cut_off_stops_its_handlers_before_the_lease_ends(
    fleet: Fleet, namespace: Namespace, how: str
) -> None:
    kinds = (jobs.stay, jobs.stay_in_thread, jobs.stay_in_process)
    handles = await fleet.enqueue(*[kind.options(lease=LEASE).call() for kind in kinds for _ in range(2)])
    lonely = await started_inside(fleet, namespace, "lonely")
    await fleet.noted("began", handles)
    other = await fleet.started("other", module=MODULE, concurrency=10)

    if how == "packets vanish":
        namespace.cut()
    else:
        namespace.down()
    ends = await ends_of_leases(fleet, handles)

    await fleet.noted("began", handles, times=2 * len(handles))
    stopped = last_moments(fleet, handles)
    taken = {note.job: note.fields["moment"] for note in fleet.notes("began", handles) if note.fields["attempt"] == 2}
    for job, moment in stopped.items():
        assert moment < ends[job], f"job {job} was worked on for {moment - ends[job]:.2f} s after its lease had ended"
        assert moment < taken[job], f"job {job} was worked on for {moment - taken[job]:.2f} s beside its next attempt"
    assert {note.fields["reason"] for note in fleet.notes("stopped", handles)} == {"expired"}
    views = await fleet.succeeded(handles)

    namespace.mend()
    namespace.up()
    fleet.open_gate("mended")
    assert {(view.result, view.attempt, view.worker_name) for view in views} == {('"by attempt 2"', 2, other.name)}
    await alone(fleet, lonely, other)
    await until(lambda: lonely.said("the store answers again"), "the worker should tell that its store is back", LONG)
    assert len(lonely.said("the store does not answer")) == 1
    assert "Traceback" not in lonely.log
    assert {(view.result, view.attempt) for view in await fleet.views(handles)} == {('"by attempt 2"', 2)}, "a stale end counts"


async def test_over_a_line_that_loses_every_fifth_packet_everything_is_finished(fleet: Fleet, namespace: Namespace) -> None:
    await bank.open_accounts(fleet.url)
    naps = await fleet.enqueue(*[jobs.nap.call(0.1) for _ in range(NAPS)])
    deposits = await fleet.enqueue(*[bank.deposit.options(lease=60).call(n % bank.ACCOUNTS) for n in range(DEPOSITS)])
    worker = await started_inside(fleet, namespace, "napper")
    teller = await started_inside(fleet, namespace, "teller", module="tests.faults.bank")

    namespace.worsen(loss=LOSS, delay=DELAY)

    await fleet.succeeded([*naps, *deposits], LONG)
    later = await fleet.enqueue(*[jobs.nap.call(0.1) for _ in range(NAPS)])
    await fleet.succeeded(later, LONG)
    assert namespace.lost > NAPS, f"{namespace.lost} packets were lost: that is not a bad line"
    assert await bank.total(fleet.url) == DEPOSITS
    for one in (worker, teller):
        assert "Traceback" not in one.log


async def test_a_transaction_that_is_cut_off_does_not_keep_the_next_attempt_from_its_rows(
    fleet: Fleet, namespace: Namespace
) -> None:
    await bank.open_accounts(fleet.url)
    handles = await fleet.enqueue(jobs.stay_in_transaction.options(lease=LEASE).call())
    await started_inside(fleet, namespace, "lonely")
    await fleet.noted("began", handles)
    other = await fleet.started("other", module=MODULE, concurrency=10)

    namespace.cut()

    (view,) = await fleet.succeeded(handles, LONG)
    assert (view.result, view.worker_name) == ('"by attempt 2"', other.name)
    namespace.mend()
    fleet.open_gate("commit")
    assert await bank.total(fleet.url) == 1


async def alone(fleet: Fleet, worker: WorkerProcess, other: WorkerProcess) -> None:
    """Have the other one stop, and see that this one works by itself."""
    other.send(signal.SIGTERM)
    assert await other.exited() == 0
    views = await fleet.succeeded(await fleet.enqueue(*[jobs.nap.call(0.0) for _ in range(20)]), LONG)
    assert {view.worker_name for view in views} == {worker.name}
