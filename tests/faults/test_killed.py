"""Workers that are killed: their jobs are run elsewhere, none is lost, and none is run more often than it must be."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast.core.states import Event, State
from tests.faults import tasks
from tests.faults.support import BUSY, ROOT, SCAN, until
from tests.faults.tracing import FOLDER, URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.faults.support import Fleet

LEASE = 2.0


@pytest.mark.row(1)
async def test_the_jobs_of_a_killed_worker_are_finished_elsewhere_within_lease_and_scan(fleet: Fleet) -> None:
    handles = await fleet.enqueue(*[tasks.wait_first.call() for _ in range(100)])
    victim = await fleet.started("victim", concurrency=100)
    await fleet.noted("began", handles)
    survivor = await fleet.started("survivor", concurrency=100)

    await victim.kill()
    killed_at = await fleet.now()

    views = await fleet.succeeded(handles)
    latest = max(view.finished_at for view in views if view.finished_at is not None)
    assert latest - killed_at < timedelta(seconds=LEASE + SCAN + BUSY), (
        f"the last of the 100 jobs ended {latest - killed_at} after the kill, which is more than lease + scan interval"
    )
    assert {view.worker_name for view in views} == {survivor.name}
    runs = fleet.runs(handles)
    assert set(runs.values()) == {2}, f"each job is begun once by the dead and once by the living, but: {runs}"
    counts = {(view.attempt, view.failures) for view in views}
    assert counts == {(2, 1)}, f"a lapsed lease costs one attempt and one failure, but (attempt, failures) are {counts}"
    first, second = await fleet.store.attempts(handles[0].id)
    assert (first.event, first.worker_name) == (Event.EXPIRE, victim.name)
    assert first.error is not None
    assert first.error.code == "LEASE_EXPIRED"
    assert (second.event, second.worker_name) == (Event.SUCCEED, survivor.name)


@pytest.mark.row(3)
async def test_outcomes_that_were_not_yet_written_at_the_kill_cost_a_repetition_and_no_job(fleet: Fleet) -> None:
    handles = await fleet.enqueue(*[tasks.wait_for.options(lease=4).call("end") for _ in range(120)])
    victim = await fleet.started("victim", concurrency=120)
    await fleet.noted("began", handles)

    async with settling_stopped(fleet.url):
        fleet.open_gate("end")
        await fleet.noted("ended", handles)  # so 120 outcomes wait to be written
        await victim.kill()

    await fleet.started("survivor", concurrency=120)
    views = await fleet.succeeded(handles)
    runs = fleet.runs(handles)
    assert max(runs.values()) <= 2, f"a job was begun more than twice: {runs}"
    assert sum(runs.values()) >= len(handles) + 100, "too many outcomes were written before the kill: the fault did not happen"
    again = {view.failures for view in views if runs[str(view.id)] == 2}
    assert again == {1}, f"a repetition costs one failure, but these were counted: {again}"


@pytest.mark.row(4)
async def test_child_processes_end_with_the_worker_that_started_them(fleet: Fleet) -> None:
    # one could hear that nobody is at the other end of its pipe; the other one hears nothing at all
    handles = await fleet.enqueue(tasks.linger.call(), tasks.hold_other_interpreter.options(lease=60).call(3600))
    victim = await fleet.started("victim", concurrency=2)
    children = {note.pid for note in await fleet.noted("began", handles)}
    assert victim.pid not in children
    assert len(children) == 2

    try:
        await victim.kill()
        gone = f"children {children} should end, for their worker {victim.pid} is dead"
        await until(lambda: not any(map(_runs, children)), gone, within=20)
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.row(4)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # what is on trial has no part in the store
async def test_a_worker_whose_supervisor_was_killed_claims_nothing_more_and_ends(fleet: Fleet, tmp_path: Path) -> None:
    with supervisor(fleet, tmp_path) as parent:
        (started,) = await until(lambda: fleet.notes("worker_started"), "the supervisor should have a worker serve")
        assert started.pid != parent.pid
        (running,) = await fleet.enqueue(tasks.wait_for.options(lease=30).call("end"))
        await fleet.noted("began", [running])

        parent.kill()
        parent.wait()

        await until(lambda: fleet.notes("worker_stopping"), f"worker {started.pid} should stop, for nobody watches over it")
        (late,) = await fleet.enqueue(tasks.nap.call(0.0))
        fleet.open_gate("end")
        await until(lambda: not _runs(started.pid), f"worker {started.pid} should end when its job has")
    (view,) = await fleet.succeeded([running])
    assert (view.attempt, view.failures) == (1, 0)
    (view,) = await fleet.views([late])
    assert (view.state, view.attempt) == (State.READY, 0), "it has claimed although it was to stop"


@contextmanager
def supervisor(fleet: Fleet, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `holdfast worker --reload`, and see to it that nothing is left of it."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {URL: fleet.url, FOLDER: str(folder), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "holdfast", "worker", "tests.faults.tasks:app", "--reload"]
    with (folder / "supervisor.log").open("wb") as log:
        parent = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield parent
    finally:
        parent.kill()
        parent.wait()
        for pid in {note.pid for note in fleet.notes("worker_started")}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        print((folder / "supervisor.log").read_text(errors="replace"))  # noqa: T201


@asynccontextmanager
async def settling_stopped(url: str) -> AsyncIterator[None]:
    """Keep everybody from ending jobs."""
    if url.startswith("sqlite"):
        # the lock for writing stops heartbeats as well, so what happens in here must be shorter than the lease
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE holdfast.archive IN EXCLUSIVE MODE")
            yield
            # a server that waits for a lock does not see that the other end is dead, and would write what it was last told
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
    finally:
        await connection.close()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
