"""PgBouncer in transaction mode before PostgreSQL: with `?prepare=off` in the URL everything works but hints."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.connect import connect
from holdfast.core.states import State
from holdfast.store.conformance import ProcessConformance, StoreConformance
from tests.faults import bank, tasks
from tests.faults.machine.bouncer import PgBouncer
from tests.faults.support import BUSY, ROOT, WAIT, chance, fleet_on, until
from tests.store.test_conformance_postgres import PostgresHarness
from tests.support.lots import Steady
from tests.support.sweeping import Broom

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.core.environment import Environment
    from holdfast.store.port import Store
    from tests.faults.support import Fleet, WorkerProcess
    from tests.support.postgres import GivenServer, PostgresServer

POOL = 5
"""Connections to the server, for everybody together."""
JOBS = 400
DEPOSITS = 300
KILLS = 5
POLL = 1.0
"""Seconds between looks of a worker that hears no hints."""

pytestmark = [pytest.mark.machine, pytest.mark.row(16)]

# -- the store -------------------------------------------------------------------------------------------------------------


def open_pooled(url: str) -> Store:
    """Return a store for a child process, not yet opened."""
    return connect(url)


class PooledHarness(PostgresHarness):
    """Handles go through PgBouncer; what cleans and checks goes to the server itself."""

    opener = "tests.faults.machine.test_pgbouncer:open_pooled"

    def __init__(self, url: str, broom: Broom, pooled: str) -> None:
        super().__init__(url, broom)
        self._pooled = pooled

    @property
    def url(self) -> str:
        return self._pooled

    async def open(self, environment: Environment | None = None) -> Store:  # type: ignore[override]  # any store will do
        store = connect(self._pooled, environment=environment or Steady())
        await store.open()
        self._used = True
        return store


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer | GivenServer) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_server, pool=POOL) as pooler:
        yield pooler


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer | GivenServer, pooler: PgBouncer) -> Iterator[str]:
    """The URL of an empty database of this module; PgBouncer itself keeps connections to it."""
    url = postgres_server.create_database()
    yield url
    pooler.stop()
    postgres_server.drop_database(url)


@pytest.fixture(scope="module")
def broom(database: str) -> Iterator[Broom]:
    broom = Broom(database)
    yield broom
    broom.close()


class Pooled:
    """A harness through PgBouncer."""

    @pytest.fixture
    def harness(self, database: str, broom: Broom, pooler: PgBouncer) -> Iterator[PooledHarness]:
        harness = PooledHarness(database, broom, pooler.url(database))
        yield harness
        harness.check()


class TestStoreBehindPgBouncer(Pooled, StoreConformance):
    walk_examples: ClassVar[int] = 40


class TestProcessesBehindPgBouncer(Pooled, ProcessConformance):
    processes: ClassVar[int] = 8
    jobs: ClassVar[int] = 8_000


# -- workers ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def direct(postgres_server: PostgresServer | GivenServer) -> Iterator[str]:
    """The URL of an empty database of this test's own, at the server itself."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
async def fleet(direct: str, pooler: PgBouncer, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet in which everybody, the test too, goes through PgBouncer."""
    async with fleet_on(pooler.url(direct), tmp_path) as fleet:
        yield fleet


async def test_more_workers_than_connections_are_killed_and_every_job_is_finished(
    fleet: Fleet, direct: str, postgres_server: PostgresServer | GivenServer
) -> None:
    rng = chance()
    task = tasks.nap.options(lease=2, retry=None)
    handles = await fleet.enqueue(*[task.call(rng.uniform(0.0, 0.3)) for _ in range(JOBS)])
    workers = [fleet.start(f"worker-{number}", concurrency=5, prefetch=5) for number in range(4)]
    await fleet.working(*workers)

    most = 0
    for kill in range(KILLS):
        await fleet.noted("ended", handles, times=(kill + 1) * JOBS // (2 * KILLS))
        most = max(most, len(postgres_server.sessions(direct)))
        await _replace(fleet, workers, rng, prefetch=5)

    await fleet.succeeded(handles)
    assert 0 < most <= POOL, f"{len(workers)} workers should share {POOL} connections, and the server has seen {most}"
    for worker in workers:
        assert "Traceback" not in worker.log


async def test_deposits_in_the_jobs_transaction_count_once_although_connections_are_shared(fleet: Fleet, direct: str) -> None:
    rng = chance()
    await bank.open_accounts(direct)
    handles = await fleet.enqueue(*[bank.deposit.call(n % bank.ACCOUNTS) for n in range(DEPOSITS)])
    options: dict[str, Any] = {"module": "tests.faults.bank", "concurrency": 10}
    workers = [fleet.start(f"teller-{number}", **options) for number in range(2)]
    await fleet.working(*workers)

    for kill in range(KILLS):
        await _until_ended(fleet, (kill + 1) * DEPOSITS // (2 * KILLS))
        await _replace(fleet, workers, rng, **options)

    await fleet.succeeded(handles)
    assert await bank.total(direct) == DEPOSITS


async def test_a_worker_that_hears_no_hints_finds_new_and_delayed_jobs_by_looking(fleet: Fleet) -> None:
    worker = await fleet.started("worker", concurrency=5)
    for _ in range(3):
        handles = await fleet.enqueue(tasks.echo.call("now"), tasks.echo.options(delay=1).call("later"))
        assert await asyncio.gather(*[handle.result(timeout=30) for handle in handles]) == ["now!", "later!"]
        for view, delay in zip(await fleet.views(handles), (0, 1), strict=True):
            (attempt,) = await fleet.store.attempts(view.id)
            waited = attempt.claimed_at - view.created_at
            assert timedelta(seconds=delay) <= waited < timedelta(seconds=delay + POLL + BUSY), (
                f"a job with a delay of {delay} s was begun {waited} after its enqueue"
            )
    assert not worker.said("WARNING"), "a worker that cannot listen should not try to"


async def test_running_jobs_are_canceled_through_it(fleet: Fleet) -> None:
    await fleet.started("worker", concurrency=5)
    (handle,) = await fleet.enqueue(tasks.wait_for.call("never"))
    await fleet.noted("began", [handle])

    await handle.cancel()

    (view,) = await fleet.ended([handle])
    assert view.state is State.CANCELED


# -- commands --------------------------------------------------------------------------------------------------------------


def test_the_schema_is_migrated_through_it_by_one_process_after_another(direct: str, pooler: PgBouncer) -> None:
    # a statement that the first one left prepared would be in the way of the second, which gives its own the same name
    said = [_migrate(pooler.url(direct)) for _ in range(POOL + 1)]
    assert said[0].startswith("created"), said
    assert all(text.startswith("up to date") for text in said[1:]), said


async def test_a_jobs_file_is_moved_through_it(direct: str, pooler: PgBouncer, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"
    async with Holdfast(source) as app:
        handles = await app.enqueue_many([tasks.echo.call("moved") for _ in range(20)])
    moved = _holdfast("move", source, pooler.url(direct))
    assert moved.returncode == 0, moved.stderr
    store = connect(pooler.url(direct))
    await store.open()
    try:
        assert all(await store.get([handle.id for handle in handles]))
    finally:
        await store.close()


async def test_who_forgets_to_say_that_there_is_a_pooler_is_told_what_to_add_to_the_url(direct: str, pooler: PgBouncer) -> None:
    apps = [Holdfast(pooler.plain_url(direct)) for _ in range(4)]
    try:
        with pytest.raises(ExceptionGroup) as raised:
            await _use_for_ever(*apps)
    finally:
        for app in apps:
            await app.close()
    for error in raised.value.exceptions:
        assert isinstance(error, StoreUnavailable), f"{error!r} does not say what to do"
        assert "prepared statement" in str(error)
        assert str(error).endswith("PgBouncer) seems to stand between: add ?prepare=off to the URL")


async def _use_for_ever(*apps: Holdfast) -> None:
    """Use all of them at the same time until that goes wrong."""

    async def use(app: Holdfast) -> None:
        while True:
            await app.enqueue_many([tasks.echo.call("here")])
            await app.stats()

    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        for app in apps:
            group.create_task(use(app))


async def _replace(fleet: Fleet, workers: list[WorkerProcess], rng: random.Random, **options: Any) -> None:
    """Kill one of the workers, and put another in its place."""
    place = rng.randrange(len(workers))
    await workers[place].kill()
    workers[place] = await fleet.started(f"worker-{len(fleet.workers)}", **({"concurrency": 5} | options))


async def _until_ended(fleet: Fleet, jobs: int) -> None:
    async def look() -> bool:
        return (await fleet.store.stats()).count(State.SUCCEEDED) >= jobs

    await until(look, f"{jobs} jobs should have ended")


def _migrate(url: str) -> str:
    done = _holdfast("migrate", url)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
