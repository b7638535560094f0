"""The curves of growth and of bloat measure what they say they do."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import asyncpg
import pytest

from benchmarks import bloat, growth
from benchmarks.filling import Filler
from benchmarks.results import Machine, Reading, Report
from benchmarks.sessions import Cost, Session
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.store.port import ClaimRequest, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_growth_shows_the_largest_point_against_the_smallest(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"server_ms": 1.0, "client_ms": 1.0}
    readings = [
        _reading("backlog: claim 1", 1.0, x=1000, p99=2.0, blocks=10.0, **times),
        _reading("backlog: claim 1", 9.0, x=2000, p99=9.0, blocks=90.0, **times),
        _reading("backlog: claim 1", 1.5, x=3000, p99=3.2, blocks=12.0, **times),
        _reading("backlog: claim 1", 1.5, x=3000, p99=2.2, blocks=12.0, **times),
    ]
    growth.show(Report("growth", MACHINE, "", "", readings))
    told = "largest against smallest: p50 1.50x, p99 1.35x (1.10x in the quietest passes), blocks 1.20x"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("worker", [False, True])
async def test_all_jobs_pass_under_the_snapshot_and_their_rows_stay_dead(url: str, *, worker: bool) -> None:
    jobs = 5_000
    run = await bloat.drain(url, jobs, pin=True, worker=worker)
    async with Session(url) as session:
        assert (await session.store.stats()).count(State.SUCCEEDED) == jobs
    assert run.samples[-1].jobs == jobs
    assert run.samples[-1].claiming.seconds >= run.samples[0].claiming.seconds > 0  # a worker may have claimed all by the first
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


def _run(*seen: tuple[int, float]) -> bloat.Run:
    """Return a run of which so many jobs had been seen to end at these moments, with two claims and six blocks for each ten."""
    samples = [bloat.Sample(jobs, at, jobs / 5, Cost(6 * jobs // 10)) for jobs, at in seen]
    times = [(at / 10, 1.0) for at in range(10 * int(samples[-1].at))]
    return bloat.Run(samples, times, times)


def test_points_of_the_curve_are_the_same_in_every_round() -> None:
    often = _run(*((jobs, jobs / 100) for jobs in range(100, 5001, 100)))
    seldom = _run((230, 2.3), (1990, 19.9), (3000, 30.0), (3000, 31.0), (5000, 51.0))
    curves = [
        {(one.work, one.extra["x"]): one.value for one in bloat.readings_of(run, "bare with a snapshot", 0)}
        for run in (often, seldom)
    ]
    assert curves[0].keys() == curves[1].keys()
    drains = [(x, value) for (work, x), value in curves[1].items() if work.endswith(": drain")]
    assert [x for x, _ in drains] == list(range(600, 5001, 100)), "without the start"
    assert [value for x, value in drains if x != 3100] == pytest.approx([100.0] * 44)
    assert dict(drains)[3100] == pytest.approx(50.0), "in the second in which nothing ended"
    assert {value for (work, _), value in curves[0].items() if work.endswith(": blocks of a claim")} == {3.0}


def test_bloat_shows_the_last_third_against_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    values = [100.0, 100.0, 10.0, 10.0, 70.0, 90.0]
    readings = [
        *(_reading("bare with a snapshot: drain", value, x=x) for x, value in enumerate(values)),
        *(
            _reading("bare with a snapshot: bystander reads", value, x=x, p99=7.0)
            for x, value in ((1, 1.0), (2, 9.0), (3, 1.3))
        ),
    ]
    bloat.show(Report("bloat", MACHINE, "", "", readings))
    drain, reads = capsys.readouterr().out.splitlines()
    assert drain.endswith("thirds; last 0.80x")
    assert reads.endswith("p50 of thirds; last 1.30x; p99 7.0")
