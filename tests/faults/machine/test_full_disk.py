"""The disk of the store is full: everybody is told so, nothing acknowledged is lost, and work goes on when there is room."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast import StoreUnavailable
from holdfast.tasks.task import Call
from tests.faults.machine import jobs
from tests.faults.machine.disk import SmallDisk
from tests.faults.support import chance, fleet_on, until
from tests.support.majors import NEWEST
from tests.support.postgres import PostgresServer, _unprivileged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast import Handle
    from tests.faults.support import Fleet, WorkerProcess

MODULE = "tests.faults.machine.jobs"
LEASE = 5.0
FULL = 12
"""Seconds without room: more than two leases."""
LARGE = 2_000
"""Characters in the args of a job: a few of them need a new page."""
SETTINGS = {"shared_buffers": "16MB", "min_wal_size": "32MB", "max_wal_size": "64MB", "fsync": "on"}

pytestmark = [pytest.mark.machine, pytest.mark.row(25)]


# -- PostgreSQL ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with SmallDisk(250) as disk:
        yield disk


@pytest.fixture(params=NEWEST)
def server(request: pytest.FixtureRequest, disk: SmallDisk) -> Iterator[PostgresServer]:
    """A server on a small disk."""
    data = disk.path / "data"
    data.mkdir(mode=0o700)
    if identity := _unprivileged():
        os.chown(data, identity["user"], identity["group"])
    with PostgresServer(request.param, settings=SETTINGS, data=data) as server:
        yield server


@pytest.fixture
async def fleet(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet_on(server.create_database(), tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("what", ["tables", "log"])
async def test_a_full_disk_of_the_server_is_told_and_costs_nothing(
    fleet: Fleet, server: PostgresServer, disk: SmallDisk, what: str
) -> None:
    handles, workers = await under_load(fleet)

    disk.fill()
    refused = await enqueued_until_refused(fleet, handles)
    if what == "log":
        await exhaust_the_log(fleet.url)
    await stays_full(disk)
    disk.make_room()
    if server._process is None or server._process.poll() is not None:  # it could not write its log, and so it has ended
        server.restart(immediate=True)

    await until_taken(fleet, refused, handles)
    fleet.open_gate("end")
    await unspent(fleet, handles)
    await calm(fleet, workers)


async def exhaust_the_log(url: str) -> None:
    """Write to the server's log until it cannot grow: then the server ends, or starts anew."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            await connection.execute("SELECT pg_logical_emit_message(true, 'fill', repeat('x', 1000000))")
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError):
        connection.terminate()


# -- SQLite ----------------------------------------------------------------------------------------------------------------


async def test_a_full_disk_of_the_file_is_told_and_costs_nothing(tmp_path: Path) -> None:
    with SmallDisk(8) as disk:
        path = disk.path / "jobs.db"
        async with fleet_on(f"sqlite:///{path}", tmp_path) as fleet:
            handles, workers = await under_load(fleet)

            disk.fill()
            refused = await enqueued_until_refused(fleet, handles)
            await stays_full(disk)
            disk.make_room()

            await until_taken(fleet, refused, handles)
            fleet.open_gate("end")
            await unspent(fleet, handles)
            await calm(fleet, workers)
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# -- both ------------------------------------------------------------------------------------------------------------------


async def under_load(fleet: Fleet) -> tuple[list[Handle[Any]], list[WorkerProcess]]:
    """Have two workers in the middle of short jobs and of ones that last."""
    rng = chance()
    long = await fleet.enqueue(*[jobs.hold.options(priority=9, lease=LEASE).call("end") for _ in range(6)])
    short = await fleet.enqueue(*[jobs.nap.options(lease=LEASE).call(rng.uniform(0.0, 0.3)) for _ in range(300)])
    workers = [fleet.start(name, module=MODULE, concurrency=5) for name in ("first", "second")]
    await fleet.working(*workers)
    await fleet.noted("began", long)
    await fleet.noted("ended", short, times=30)
    return [*long, *short], workers


async def enqueued_until_refused(fleet: Fleet, handles: list[Handle[Any]]) -> list[Call[Any]]:
    """Enqueue until the disk does not take more; returns the calls that were refused, with the reason looked at."""
    said, calls = "", list[Call[Any]]()
    while not said:
        calls = [jobs.keep.call("x" * LARGE) for _ in range(10)]
        try:
            handles += await fleet.enqueue(*calls)
        except StoreUnavailable as refusal:
            said = str(refusal)
    assert re.search(r"disk is full.* [Mm]ake room", said), f"this does not say what to do: {said}"
    assert "\n" not in said
    return calls


async def stays_full(disk: SmallDisk) -> None:
    """Leave no room for longer than leases last, whatever the store clears away."""
    for _ in range(FULL):
        disk.fill()
        await asyncio.sleep(1)  # the fault itself


async def until_taken(fleet: Fleet, calls: list[Call[Any]], handles: list[Handle[Any]]) -> None:
    """Enqueue again what was refused: as soon as there is room, that goes well."""

    async def taken() -> bool:
        try:
            handles.extend(await fleet.enqueue(*calls))
        except StoreUnavailable:
            return False
        return True

    await until(taken, "what was refused should be taken when there is room")


async def unspent(fleet: Fleet, handles: list[Handle[Any]]) -> None:
    """See that everything ends, and that what was asked of it was not counted as a failure."""
    spent = [view.id for view in await fleet.succeeded(handles) if view.failures]
    assert not spent, f"a full disk has spent the budget of {len(spent)} jobs"


async def calm(fleet: Fleet, workers: list[WorkerProcess]) -> None:
    """See that workers went on by themselves, and told of it without a storm."""
    await fleet.succeeded(await fleet.enqueue(*[jobs.nap.call(0.1) for _ in range(40)]))
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert await worker.exited() == 0
        told = worker.said("the store does not answer")
        assert len(told) <= 1 + FULL / 10, f"{worker.name} has told of one full disk {len(told)} times"
        assert "Traceback" not in worker.log, f"a full disk is no reason for tracebacks, but {worker.name} wrote some"
