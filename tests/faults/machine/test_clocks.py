"""Clocks that are off and jump: those of workers change nothing; the database's may cost a repetition, and never more."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from holdfast.store.port import JobFilter
from tests.faults import tasks
from tests.faults.machine import jobs
from tests.faults.machine.clocks import Clock
from tests.faults.periodic import tick
from tests.faults.support import BUSY, SCAN, chance, fleet_on, until
from tests.support.majors import NEWEST
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from holdfast.store.port import JobView
    from tests.faults.support import Fleet, WorkerProcess
    from tests.support.postgres import PostgresServers

HOUR = 3600.0
LEASE = 10.0
"""Seconds: long for a busy machine, short beside the hours by which clocks are off."""
MODULE = "tests.faults.machine.jobs"
MINUTES = 120

pytestmark = pytest.mark.machine


@pytest.fixture
def clocks() -> Iterator[dict[str, Clock]]:
    """One clock that is an hour ahead, one that is an hour behind, and one that will step."""
    with ExitStack() as stack:
        made = {name: stack.enter_context(Clock()) for name in ("ahead", "behind", "stepping")}
        made["ahead"].set(HOUR)
        made["behind"].set(-HOUR)
        yield made


@pytest.fixture
def clock() -> Iterator[Clock]:
    with Clock() as clock:
        yield clock


@asynccontextmanager
async def stepping(rng: random.Random, *clocks: Clock, most: float = 2 * HOUR) -> AsyncIterator[None]:
    """Have clocks jump to and fro, and now and then run fast or slow for a while."""

    async def step() -> None:
        offset = 0.0
        while True:
            if rng.random() < 0.2:
                offset = rng.uniform(-most, most)
            else:
                offset += rng.uniform(-0.1, 0.1)  # in a twentieth of a second: from -1 to 3 times as fast
            for clock in clocks:
                clock.set(offset)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(step())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- the clocks of workers -------------------------------------------------------------------------------------------------


@pytest.fixture(params=NEWEST)
async def fleet(request: pytest.FixtureRequest, postgres_servers: PostgresServers, tmp_path: Path) -> AsyncIterator[Fleet]:
    server = postgres_servers[request.param]
    url = server.create_database()
    async with fleet_on(url, tmp_path) as fleet:
        yield fleet
    server.drop_database(url)


async def started(fleet: Fleet, clocks: Mapping[str, Clock], **options: Any) -> list[WorkerProcess]:
    """Start a worker by each clock."""
    given: dict[str, Any] = {"module": MODULE, "concurrency": 10} | options
    workers = [fleet.start(name, environment=clock.environment, **given) for name, clock in clocks.items()]
    await fleet.working(*workers)
    return workers


@pytest.mark.row(19)
async def test_leases_delays_and_keys_go_by_the_stores_clock_whatever_workers_think(
    fleet: Fleet, clocks: dict[str, Clock]
) -> None:
    rng = chance()
    before = await fleet.now()
    held = await fleet.enqueue(*[jobs.hold.options(lease=LEASE).call("end") for _ in range(15)])
    workers = await started(fleet, clocks, concurrency=5)
    await fleet.noted("began", held)
    await started(fleet, clocks, concurrency=10)  # who reap and promote, and enqueue by what they think

    async with stepping(rng, clocks["stepping"]):
        late = await fleet.enqueue(*[jobs.nap.options(delay=2).call(0.0) for _ in range(10)])
        parents = await fleet.enqueue(*[jobs.spawn.call(2.0) for _ in range(20)])
        unique = await fleet.enqueue(*[jobs.spawn_unique.call("one") for _ in range(20)])
        await asyncio.sleep(2 * LEASE)  # what is tested: that leases outlast the time they are given for
        delayed = [*await fleet.succeeded(late), *await children(fleet, await fleet.succeeded(parents))]
        (only,) = {view.result for view in await fleet.succeeded(unique)}

    fleet.open_gate("end")
    views = await fleet.succeeded(held)
    assert {(view.attempt, view.failures) for view in views} == {(1, 0)}, "a lease has lapsed because of a worker's clock"
    assert {view.worker_name for view in views} == set(clocks), "not every clock took part"
    assert only is not None
    made = await fleet.store.find(JobFilter(task=jobs.nap.name), limit=100)
    assert len(made.jobs) == 10 + 20 + 1, "a window of a key did not go by the store's clock"
    after = await fleet.now()
    for view in delayed:
        (attempt,) = await fleet.store.attempts(view.id)
        waited = (attempt.claimed_at - view.created_at).total_seconds()
        assert 2 <= waited < 2 + BUSY, f"a delay of 2 s took {waited:.1f} s"
    for view in [*views, *delayed, *await fleet.views()]:
        (attempt,) = await fleet.store.attempts(view.id)
        assert view.finished_at is not None
        assert before <= view.created_at <= attempt.claimed_at <= view.finished_at <= after, "a time was taken from a worker"
    seen = [note.fields["shown"] - time.time() for note in fleet.notes("began", parents)]
    assert max(map(abs, seen)) > HOUR / 2, "every worker saw the right time: the fault did not happen"
    for worker in workers:
        assert "Traceback" not in worker.log


@pytest.mark.row(19, 22)
async def test_each_slot_is_fired_once_by_workers_whose_clocks_differ(fleet: Fleet, clocks: dict[str, Clock]) -> None:
    rng = chance()
    options: dict[str, Any] = {"module": "tests.faults.periodic", "concurrency": 20}
    first = await fleet.started("first", **options)
    await until(fleet.store.schedules, "the first worker should make the schedule known")
    await first.kill()
    await fleet.store.rewind(60.0 * MINUTES)
    (known,) = await fleet.store.schedules()

    async with stepping(rng, clocks["stepping"]):
        await started(fleet, clocks, **options)

        async def caught_up() -> bool:
            (view,) = await fleet.store.schedules()
            return view.due_in > 0 and not (await fleet.store.stats()).live

        await until(caught_up, f"{MINUTES} slots should be made up for")
    (view,) = await fleet.store.schedules()
    slots = (view.schedule.next_at - known.schedule.next_at) // timedelta(minutes=1)
    made = (await fleet.store.find(JobFilter(task=tick.name), limit=2 * MINUTES)).jobs
    assert slots >= MINUTES - 1
    assert len(made) == slots, f"{slots} slots have become {len(made)} jobs"
    began = [note.job for note in fleet.notes("began")]
    assert len(began) == len(set(began)) == slots, f"{slots} slots were run {len(began)} times"


@pytest.mark.row(19)
async def test_a_machine_whose_clock_steps_loses_no_job_of_a_file_and_takes_nothing_stale(tmp_path: Path, clock: Clock) -> None:
    # the clock of a file is the machine's own: steps may cost repetitions and waiting, and never more
    rng = chance()
    async with fleet_on(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as fleet:
        naps = [jobs.nap.options(lease=2).call(rng.uniform(0.0, 0.5)) for _ in range(200)]
        late = [jobs.nap.options(delay=rng.uniform(0.0, HOUR)).call(0.0) for _ in range(20)]
        handles = await fleet.enqueue(*[jobs.stay_in_thread.options(lease=2).call() for _ in range(6)], *naps, *late)
        workers = [fleet.start(f"worker-{n}", module=MODULE, environment=clock.environment, concurrency=5) for n in range(3)]
        await fleet.working(*workers)

        async with stepping(rng, clock):
            await asyncio.sleep(10)  # the fault itself: a clock that does not stand still
        clock.set(4 * HOUR)  # past every moment that it has shown
        fleet.open_gate("mended")

        for view in await fleet.succeeded(handles):
            assert str(view.attempt) in str(view.result), f"attempt {view.attempt} has ended, and the result is {view.result}"
        for worker in workers:
            assert "Traceback" not in worker.log
        repeated = sum(count - 1 for count in fleet.runs(handles).values())
        print(f"{repeated} of {len(handles)} jobs were repeated")  # noqa: T201


async def children(fleet: Fleet, parents: list[JobView]) -> list[JobView]:
    """Wait for the jobs whose ids are the results of these."""
    handles = [fleet.app.job(UUID(str(parent.result).strip('"'))) for parent in parents]
    fleet.jobs += [handle.id for handle in handles]
    return await fleet.succeeded(handles)


# -- daylight saving -------------------------------------------------------------------------------------------------------

CHANGES = {
    "forward": (
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        ["at_half_past_two", "every_hour"],  # half past two does not exist: at once; the other hour is skipped
    ),
    "back": (
        datetime(2026, 10, 25, 1, tzinfo=UTC),
        ["every_hour", "twice_after_two"],  # the same hour again: half past two had its turn half an hour ago
    ),
}
"""When clocks are changed in Berlin, and what is fired at that moment."""
BEFORE = timedelta(seconds=40)


@pytest.mark.row(21)
@pytest.mark.parametrize("way", CHANGES)
async def test_a_worker_that_runs_while_clocks_are_changed_fires_what_is_documented(
    tmp_path: Path, clock: Clock, way: str
) -> None:
    change, expected = CHANGES[way]
    async with fleet_on(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as fleet:
        clock.show(change - BEFORE)
        shown_at = time.monotonic()
        environment = clock.environment | {"TZ": "Europe/Berlin"}
        await fleet.started("worker", module="tests.faults.machine.nightly", environment=environment)
        await until(fleet.store.schedules, "the worker should make its schedules known")
        assert time.monotonic() - shown_at < BEFORE.total_seconds(), "the worker came too late for this test"
        assert not fleet.notes("began")

        await until(lambda: len(fleet.notes("began")) >= len(expected), f"{expected} should be fired", 2 * BEFORE.seconds)
        await asyncio.sleep(2)  # nothing else comes
        found = (await fleet.store.find(JobFilter(), limit=10)).jobs
        assert sorted(view.task.rpartition(".")[2] for view in found) == expected
        late = [str(view.created_at - change) for view in found if not 0 <= (view.created_at - change).total_seconds() < BUSY]
        assert not late, f"fired so long after the change: {late}"


# -- the clock of the database ---------------------------------------------------------------------------------------------


@pytest.fixture(params=NEWEST)
async def steered(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet on a server that sees a clock of the test's."""
    with PostgresServer(request.param, prefix=clock.prefix) as server:
        async with fleet_on(server.create_database(), tmp_path) as fleet:
            yield fleet


@pytest.mark.row(20)
async def test_when_the_databases_clock_jumps_ahead_an_early_lapse_costs_a_repetition_and_no_stale_write(
    steered: Fleet, clock: Clock
) -> None:
    long = 60.0  # so that the reaper, which looks every five seconds, comes before the heartbeat
    kinds = (jobs.stay, jobs.stay_in_thread)
    handles = await steered.enqueue(*[kind.options(lease=long).call() for kind in kinds for _ in range(5)])
    later = await steered.enqueue(*[jobs.nap.options(delay=HOUR).call(0.0) for _ in range(5)])
    holder = await steered.started("holder", module=MODULE, concurrency=10)
    await steered.noted("began", handles)
    other = await steered.started("other", module=MODULE, concurrency=10)

    clock.set(2 * HOUR)

    views = await steered.succeeded(handles)
    assert {(view.result, view.attempt, view.failures) for view in views} == {('"by attempt 2"', 2, 1)}
    await steered.succeeded(later)
    await steered.noted("stopped", handles)
    assert {note.fields["reason"] for note in steered.notes("stopped", handles)} <= {"taken", "expired"}
    steered.open_gate("mended")
    await steered.succeeded(await steered.enqueue(*[jobs.nap.call(0.0) for _ in range(40)]))
    for worker in (holder, other):
        worker.send(signal.SIGTERM)
        assert await worker.exited() == 0
        assert "Traceback" not in worker.log
    stale = sum(count for name, count in (await steered.counters(holder)).items() if name.startswith("stale_writes"))
    assert stale >= len(handles), f"each lost lease should be found out, and {stale} refused writes were counted"
    assert {(view.result, view.attempt) for view in await steered.views(handles)} == {('"by attempt 2"', 2)}, (
        "a stale end counts"
    )


@pytest.mark.row(20)
async def test_every_write_under_a_lease_that_lapsed_with_a_jump_is_refused(steered: Fleet, clock: Clock) -> None:
    handles = await steered.enqueue(*[tasks.wait_for.options(lease=HOUR / 2).call("end") for _ in range(8)])
    holder = steered.start("holder", program="tests.faults.holder")
    await until(lambda: steered.notes("claimed"), "the holder should have claimed eight jobs")

    clock.set(HOUR)
    other = await steered.started("other", concurrency=8)
    await steered.noted("began", handles)
    clock.set(0.0)  # by the clock alone the first lease would be current again
    steered.open_gate("write")

    assert await holder.exited() == 0, holder.log
    answers = json.loads(steered.notes("answered")[0].fields["answers"])
    assert set(answers.values()) <= {"stale", "taken", "StaleLease"}, f"something of a dead lease was taken: {answers}"
    steered.open_gate("end")
    for view in await steered.succeeded(handles):
        assert (view.attempt, view.failures, view.result, view.worker_name) == (2, 1, "2", other.name)
    assert (await steered.store.stats()).count() == len(handles), "a stale holder has enqueued a job"


@pytest.mark.row(20)
@pytest.mark.parametrize("offset", [0.0, -2 * HOUR], ids=["to the truth", "to before the server was started"])
async def test_when_the_databases_clock_jumps_back_nothing_lapses_and_nothing_is_stuck(
    steered: Fleet, clock: Clock, offset: float
) -> None:
    clock.set(HOUR)
    held = await steered.enqueue(*[jobs.hold.options(lease=LEASE).call("end") for _ in range(5)])
    keeper = await steered.started("keeper", module=MODULE, concurrency=5)
    await steered.noted("began", held)
    victim = await steered.started("victim", module=MODULE, concurrency=5)

    clock.set(offset)

    doomed = await steered.enqueue(*[jobs.stay.options(lease=LEASE).call() for _ in range(5)])
    await steered.noted("began", doomed)
    await victim.kill()
    killed_at = await steered.now()
    late = await steered.enqueue(*[jobs.nap.options(delay=2).call(0.0) for _ in range(5)])
    survivor = await steered.started("survivor", module=MODULE, concurrency=5)
    for view in await steered.succeeded(doomed):
        assert (view.attempt, view.failures, view.worker_name) == (2, 1, survivor.name)
        assert view.finished_at is not None
        assert view.finished_at - killed_at < timedelta(seconds=LEASE + SCAN + BUSY), "recovery took too long"
    for view in await steered.succeeded(late):
        (attempt,) = await steered.store.attempts(view.id)
        waited = (attempt.claimed_at - view.created_at).total_seconds()
        assert 2 <= waited < LEASE + BUSY, f"a delay of 2 s took {waited:.1f} s"
    for view in await steered.views(held):
        assert view.expires_at is not None
        assert view.expires_at - await steered.now() <= timedelta(seconds=LEASE), (
            "a lease reaches into the time before the jump"
        )
    steered.open_gate("end")
    assert {(view.attempt, view.failures, view.worker_name) for view in await steered.succeeded(held)} == {(1, 0, keeper.name)}
