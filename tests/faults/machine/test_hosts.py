"""Workers on three hosts, the database on a fourth: one is cut off, others do its jobs, and its late writes are refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import pytest

from holdfast.core.states import State
from tests.faults import bank
from tests.faults.machine import hosted
from tests.faults.machine.hosts import Switch
from tests.faults.machine.moments import ends_of_leases, last_moments
from tests.faults.support import ROOT, SCAN, fleet_on, until
from tests.faults.tracing import URL
from tests.support.majors import NEWEST
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.core.lease import Lease
    from tests.faults.support import Fleet, WorkerProcess

WORKERS = ("north", "east", "south")
LEASE = 12.0
"""Seconds, of which the last two are the margin in which a handler has to stop: long enough for a busy machine."""
EACH = 8
"""Jobs of each of the three kinds: one of the hosts holds as many at least."""
SLOTS = 16
"""Of each host: any two of them have room for all of these, and for short ones besides."""
ENTRIES = 40
"""Short jobs at a time."""
LONG = 120.0
WRITES = ("complete", "fail", "release", "progress", "checkpoint", "log", "stage", "flag_free")
REFUSED = dict.fromkeys(WRITES, "stale") | {"extend": "taken", "child": "StaleLease"}
"""What the store answers to every write of a holder whose jobs others hold."""

pytestmark = [pytest.mark.machine, pytest.mark.row(14)]


@pytest.fixture
def switch() -> Iterator[Switch]:
    with Switch([*WORKERS, "database"]) as switch:
        yield switch


@pytest.fixture(params=NEWEST)
def server(request: pytest.FixtureRequest, switch: Switch) -> Iterator[PostgresServer]:
    """A server on a host of its own."""
    host = switch.hosts["database"]
    server = PostgresServer(request.param, settings={"listen_addresses": host.address}, admit=switch.network)
    host.call(server.start)
    try:
        server._admin_url = server._admin_url.replace("127.0.0.1", host.address)
        yield server
    finally:
        server.stop()


@pytest.fixture
async def fleet(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet_on(server.create_database(), tmp_path) as fleet:
        yield fleet


async def started_on(fleet: Fleet, switch: Switch, name: str) -> WorkerProcess:
    options: dict[str, Any] = {"environment": {hosted.HOST: name}, "prefix": switch.hosts[name].prefix, "concurrency": SLOTS}
    return await fleet.started(name, module="tests.faults.machine.hosted", **options)


async def test_a_host_that_is_cut_off_stops_in_time_is_replaced_by_the_others_and_refused_when_it_is_back(
    fleet: Fleet, switch: Switch
) -> None:
    await bank.query(fleet.url, hosted.LEDGER)
    assert urlsplit(fleet.url).hostname == switch.hosts["database"].address
    kinds = (hosted.stand, hosted.stand_in_thread, hosted.stand_in_process)
    workers = {name: await started_on(fleet, switch, name) for name in WORKERS}
    standing = await fleet.enqueue(*[kind.options(lease=LEASE).call() for kind in kinds for _ in range(EACH)])
    await fleet.noted("began", standing)
    entries = await fleet.enqueue(*[hosted.enter.call() for _ in range(ENTRIES)])
    await fleet.succeeded(entries, LONG)

    # cut off the host that has most to do
    at = {note.job: note.fields["host"] for note in fleet.notes("began", standing)}
    lonely, held = Counter(at.values()).most_common(1)[0]
    theirs = [handle for handle in standing if at[str(handle.id)] == lonely]
    leases = await fleet.store.holding(worker_id(fleet, workers[lonely]))
    assert {lease.job_id for lease in leases} == {handle.id for handle in theirs}
    assert held >= EACH
    switch.hosts[lonely].cut = True
    meanwhile = await fleet.enqueue(*[hosted.enter.call() for _ in range(ENTRIES)])
    ends = await ends_of_leases(fleet, theirs)

    # the others take over, and never both at once
    await fleet.noted("began", theirs, times=2 * held)
    taken = {note.job: note for note in fleet.notes("began", theirs) if note.fields["attempt"] == 2}
    stopped = last_moments(fleet, theirs)
    for job, moment in stopped.items():
        assert moment < ends[job], f"job {job} was worked on for {moment - ends[job]:.2f} s after its lease had ended"
        assert moment < taken[job].fields["moment"], f"job {job} was worked on beside its next attempt"
        assert taken[job].fields["moment"] - ends[job] < SCAN + LEASE, f"job {job} was taken over late"
    assert lonely not in {note.fields["host"] for note in taken.values()}
    await fleet.succeeded(meanwhile, LONG)

    # back again while the others work on its jobs: what it says of them is refused, and it goes on with other jobs
    before = [await fleet.store.events(handle.id) for handle in theirs]
    switch.hosts[lonely].cut = False
    assert tried(fleet, switch, lonely, leases) == REFUSED
    fleet.open_gate("healed")
    late = {handle.id for handle in theirs} & {handle.id for handle in standing[EACH : 2 * EACH]}  # those in threads
    await until(lambda: len(workers[lonely].said("is refused")) >= len(late), "its late ends should be refused", LONG)
    await works_again(fleet, lonely)
    assert [await fleet.store.events(handle.id) for handle in theirs] == before, "a stale write left a trace"
    assert {(view.state, view.attempt) for view in await fleet.views(theirs)} == {(State.RUNNING, 2)}

    # nothing lost, nothing twice
    fleet.open_gate("over")
    await fleet.succeeded(standing, LONG)
    assert {(view.attempt, view.failures) for view in await fleet.views(theirs)} == {(2, 1)}
    rows = Counter(str(row[0]) for row in await bank.query(fleet.url, "SELECT job FROM ledger"))
    entered = [view for view in await fleet.views() if view.task.endswith((".enter", ".stand"))]
    assert rows == Counter(str(view.id) for view in entered), "the ledger has each of them once"
    assert "Traceback" not in workers[lonely].log
    print(figures(stopped, ends, {job: note.fields["moment"] for job, note in taken.items()}, switch.lost))  # noqa: T201


def worker_id(fleet: Fleet, worker: WorkerProcess) -> UUID:
    (note,) = (note for note in fleet.notes("worker_started") if note.pid == worker.pid)
    return UUID(note.fields["worker"])


def tried(fleet: Fleet, switch: Switch, name: str, leases: list[Lease]) -> dict[str, str]:
    """Return what the store answers to every write under old leases, from that host."""
    text = msgspec.json.encode(leases[:EACH]).decode()
    command = [*switch.hosts[name].prefix, sys.executable, "-m", "tests.faults.machine.late", text]
    environment = os.environ | {URL: fleet.url, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


async def works_again(fleet: Fleet, name: str) -> None:
    """Wait until the host has done a job again."""
    async with asyncio.timeout(LONG):
        while True:
            views = await fleet.succeeded(await fleet.enqueue(*[hosted.enter.call() for _ in range(ENTRIES)]), LONG)
            if name in {view.worker_name for view in views}:
                return


def figures(stopped: dict[str, float], ends: dict[str, float], taken: dict[str, float], lost: int) -> str:
    early = sorted(ends[job] - moment for job, moment in stopped.items())
    later = sorted(taken[job] - ends[job] for job in stopped)
    return (
        f"{len(early)} handlers stopped {early[0]:.2f} to {early[-1]:.2f} s before their leases ended; "
        f"taken over {later[0]:.2f} to {later[-1]:.2f} s after; {lost} packets lost"
    )
