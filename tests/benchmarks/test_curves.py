"""The curves of growth and of bloat measure what they say they do."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import asyncpg
import pytest

from benchmarks import bloat, growth
from benchmarks.filling import Filler
from benchmarks.results import Machine, Reading, Report, save
from benchmarks.sessions import Session
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.store.port import ClaimRequest, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

WORLD = SystemEnvironment()
MACHINE = Machine(cores=2, memory_bytes=0, processor="", kernel="", python="")


@pytest.fixture
def url(postgres_servers: PostgresServers) -> Iterator[str]:
    """An empty database on the version that counts by session."""
    server: PostgresServer | GivenServer = postgres_servers[18]
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.mark.parametrize("connections", [1, 2])
async def test_blocks_are_those_of_the_sessions_own_statements(url: str, connections: int) -> None:
    async with Session(url, connections=connections) as asked, Session(url) as other:
        await other.store.enqueue([NewJob(id=WORLD.job_id(), task="noop")])
        worker = Worker(id=WORLD.token(), name="w")
        await asked.store.register(worker)
        await asked.cost()  # reads catalogs
        before = (await asked.cost()).blocks
        await other.store.enqueue([NewJob(id=WORLD.job_id(), task="noop") for _ in range(100)])
        await other.cost()  # has it report
        assert (await asked.cost()).blocks - before < 10
        await asked.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=100, look=True))
        assert (await asked.cost()).blocks - before > 100


@pytest.mark.parametrize("name", list(growth.CURVES))
async def test_a_visit_leaves_the_tables_at_their_size(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "READY", 100)
    curve = growth.CURVES[name]
    size = 3 if name == "queues" else 150
    async with AsyncExitStack() as stack:
        filler = await stack.enter_async_context(Filler(url))
        await curve.fill(filler, size)
        session = await stack.enter_async_context(Session(url))
        before = await session.store.stats()
        point = growth.Point(size, url, curve.tasks)
        await point.open(stack)
        readings = await growth.visit_all(name, [point], 1, 3)
        after = await session.store.stats()
    assert {row.task: row.counts for row in after.tasks} == {row.task: row.counts for row in before.tasks}
    kinds = ("claim 100", "settle 100", "enqueue 100", "claim 1", "settle 1", "enqueue 1", "look and claim 1")
    assert [reading.work for reading in readings] == [f"{name}: {kind}" for kind in kinds]
    assert all(reading.value > 0 and reading.extra["blocks"] for reading in readings)
    assert {reading.extra["x"] for reading in readings} == {size}


async def test_a_claim_that_finds_less_than_is_there_is_no_figure(url: str) -> None:
    async with AsyncExitStack() as stack:
        filler = await stack.enter_async_context(Filler(url))
        await filler.fill(99, [growth.NOOP])
        point = growth.Point(99, url, frozenset({"noop"}))
        await point.open(stack)
        with pytest.raises(RuntimeError, match="got 99 jobs"):
            await point.visit(100, 1)


def _reading(work: str, value: float, **extra: float) -> Reading:
    return Reading("holdfast_postgres", work, 0, value, "ms", "lower", dict(extra))


@pytest.mark.parametrize(
    ("p50", "p99", "blocks", "holds"),
    [(1.5, 3.0, 12.0, True), (1.6, 3.0, 12.0, False), (1.5, 3.1, 12.0, False), (1.5, 3.0, 12.1, False)],
)
def test_growth_is_judged_by_the_largest_point_against_the_smallest(
    p50: float, p99: float, blocks: float, *, holds: bool
) -> None:
    times = {"server_ms": 1.0, "client_ms": 1.0}
    readings = [
        _reading("backlog: claim 1", 1.0, x=1000, p99=2.0, blocks=10.0, **times),
        _reading("backlog: claim 1", 9.0, x=2000, p99=9.0, blocks=90.0, **times),
        _reading("backlog: claim 1", p50, x=3000, p99=p99, blocks=blocks, **times),
    ]
    assert growth.show(Report("growth", MACHINE, "", "", readings)) is holds


def test_a_curve_measured_alone_keeps_the_others(tmp_path: Path) -> None:
    readings = [_reading("backlog: claim 1", 1.0, x=1000), _reading("queues: claim 1", 1.0, x=1)]
    save(Report("growth", MACHINE, "", "", readings), tmp_path / "growth.json")
    assert growth.kept(tmp_path / "growth.json", ["backlog"]) == readings[1:]
    assert growth.kept(tmp_path / "none.json", ["backlog"]) == []


@pytest.mark.parametrize("worker", [False, True])
async def test_all_jobs_pass_under_the_snapshot_and_their_rows_stay_dead(url: str, *, worker: bool) -> None:
    jobs = 5_000
    run = await bloat.drain(url, jobs, pin=True, worker=worker)
    async with Session(url) as session:
        assert (await session.store.stats()).count(State.SUCCEEDED) == jobs
    assert run.samples[-1].jobs == jobs
    assert run.samples[-1].claiming.seconds > run.samples[0].claiming.seconds > 0
    assert run.reads
    assert run.updates
    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM holdfast.ready")  # the snapshot has ended: before, it could remove nothing
    size = await connection.fetchval("SELECT pg_relation_size('holdfast.ready')")
    await connection.close()
    assert size == 0


async def test_under_the_snapshot_vacuum_removes_nothing(url: str) -> None:
    async with Session(url) as session, bloat.pinned(url, pin=True):
        await session.store.enqueue([NewJob(id=WORLD.job_id(), task="noop") for _ in range(100)])
        worker = Worker(id=WORLD.token(), name="w")
        await session.store.register(worker)
        await session.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=100, look=True))
        connection = await asyncpg.connect(url)
        await connection.execute("VACUUM holdfast.ready")
        size = await connection.fetchval("SELECT pg_relation_size('holdfast.ready')")
        await connection.close()
    assert size > 0


@pytest.mark.parametrize(("last", "bystander", "holds"), [(80.0, 1.3, True), (79.0, 1.3, False), (80.0, 1.4, False)])
def test_bloat_is_judged_by_thirds_and_by_the_bystander(last: float, bystander: float, *, holds: bool) -> None:
    readings = [
        *(
            _reading("bare with a snapshot: drain", value, x=x)
            for x, value in enumerate([100.0, 100.0, 10.0, 10.0, last, last])
        ),
        *(_reading("bare with a snapshot: bystander reads", bystander, x=x, p99=1.0) for x in (1, 2, 3)),
        *(_reading("bare without: bystander reads", 1.0, x=x, p99=1.0) for x in (1, 2, 3)),
    ]
    assert bloat.show(Report("bloat", MACHINE, "", "", readings)) is holds
