"""The manager and its processes: crashes, replacements, signals, and others like it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import asyncpg

from holdfast.core.states import State
from holdfast.store.memory import MemoryStore
from holdfast.system import SystemEnvironment
from tests.fleet.conftest import LONG, ROOT, Place, doing, process_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_a_worker_that_crashes_is_started_again_and_counted(place: Place) -> None:
    with place.manager("--default-count", "1"):
        crashed = (await place.until_up(1))[0]
        os.kill(process_of(crashed), signal.SIGKILL)

        async def replaced() -> bool:
            return any(view.worker.name == "m.2" for view in await place.workers())

        await place.until(replaced)

        async def counted() -> bool:
            return (await place.counted()).get("crashed_workers") == 1

        await place.until(counted)
    assert "worker m.1 crashed with code -9; it is replaced in" in place.log().read_text()
    assert await place.decided() == [1], "a crash changes no decision"


async def test_workers_that_end_in_peace_before_they_are_up_are_started_ever_later_and_it_is_told(place: Place) -> None:
    """As where the app's module ends the process, but for the manager, which has imported it before."""
    place.open("leaves")
    os.environ["FLEET_LEAVES"] = place.gate("leaves")
    try:
        with place.manager("--default-count", "1"):

            async def told() -> bool:
                managers = [view for view in await place.store.workers() if view.manages]
                return any(view.reason.endswith("before it was up, 2 times in a row") for view in managers)

            await place.until(told)
            assert place.log().read_text().count("ended with code 0 before it was up; it is replaced in") <= 4
            assert any(
                reason.endswith("; worker m.1 ended with code 0 before it was up") for _, reason in await place.reasons()
            )
            place.shut("leaves")
            await place.until_up(1)
            assert (await place.counted())["crashed_workers"] >= 2
            assert (await place.counted())["stays:crashes"] >= 1
    finally:
        del os.environ["FLEET_LEAVES"]
    assert "has ended and is replaced" not in place.log().read_text()


async def test_a_worker_is_replaced_after_its_jobs_and_none_of_them_is_interrupted(place: Place) -> None:
    place.open()
    with place.manager("--default-count", "1", "--concurrency", "2", "--max-jobs", "8"):
        await place.until_up(1)
        ended = await place.until_all_ended(await place.enqueue(count=24))

        async def recycled() -> bool:
            return (await place.counted()).get("recycled_workers", 0) >= 2

        await place.until(recycled)
    assert {(job.state, job.attempt) for job in ended} == {(State.SUCCEEDED, 1)}
    assert len({job.result for job in ended}) >= 3, "several processes took part"
    assert "crashed" not in place.log().read_text()


async def test_a_worker_that_takes_too_much_memory_is_replaced_and_finishes_what_it_runs(place: Place) -> None:
    with place.manager("--default-count", "1", "--max-memory", "300MB"):
        first = (await place.until_up(1))[0].worker
        hogs = await place.enqueue("hog", megabytes=350, gate=place.gate())

        async def replaced() -> bool:
            return any(view.worker.id != first.id for view in await place.workers())

        await place.until(replaced)
        assert [job.state for job in await place.jobs(hogs)] == [State.RUNNING]
        place.open()
        assert [(job.state, job.attempt) for job in await place.until_all_ended(hogs)] == [(State.SUCCEEDED, 1)]

        async def gone() -> bool:
            return first.id not in {view.worker.id for view in await place.workers()}

        await place.until(gone)


async def test_where_every_worker_takes_too_much_memory_some_work_all_the_time_and_the_reason_is_recorded(place: Place) -> None:
    with place.manager("--default-count", "2", "--max-memory", "32MB"):  # the interpreter with the app takes more
        await place.until_up(2)

        async def told() -> bool:
            return any("raise max_memory" in reason for _, reason in await place.reasons())

        await place.until(told)
        place.open()
        for _ in range(20):
            assert len(await place.workers()) >= 2
            (ended,) = await place.until_all_ended(await place.enqueue())
            assert ended.state == State.SUCCEEDED
        assert (await place.counted()).get("recycled_workers", 0) <= 4

        async def stayed() -> bool:
            return (await place.counted()).get("stays:memory", 0) >= 1

        await place.until(stayed)  # counters come with the next beat
    assert "crashed" not in place.log().read_text()


async def test_a_first_signal_lets_all_workers_finish_what_they_run(place: Place) -> None:
    with place.manager("--default-count", "2", "--concurrency", "1") as process:
        await place.until_up(2)
        ids = await place.enqueue(count=2)
        await place.until_running(ids)
        process.send_signal(signal.SIGTERM)

        async def heard() -> bool:
            return place.log().read_text().count("asked to stop") == 3

        await place.until(heard)

        async def shown() -> bool:
            views = [view for view in await place.store.workers() if view.offline_at is None]
            return sorted(doing(view) for view in views) == ["busy, draining", "busy, draining", "manages, draining"]

        await place.until(shown)
        later = await place.enqueue()
        place.open()
        assert [(job.state, job.attempt) for job in await place.until_all_ended(ids)] == [(State.SUCCEEDED, 1)] * 2
        assert process.wait(LONG) == 0
        assert [job.state for job in await place.jobs(later)] == [State.READY]
        assert place.started() == []
    assert {view.offline_at is not None for view in await place.store.workers()} == {True}


async def test_a_worker_that_somebody_else_asks_to_stop_counts_as_draining_for_everybody(place: Place) -> None:
    with place.manager("--default-count", "1", "--max-count", "1"):
        (up,) = await place.until_up(1)
        ids = await place.enqueue()
        await place.until_running(ids)
        os.kill(process_of(up), signal.SIGTERM)

        async def shown() -> bool:
            return [doing(view) for view in await place.workers()] == ["active, draining"]

        await place.until(shown)

        async def told() -> bool:
            managers = [view for view in await place.store.workers() if view.manages]
            return managers[0].reason.endswith("0 of 0 slots are taken")

        await place.until(told)
        place.open()
        assert [(job.state, job.attempt) for job in await place.until_all_ended(ids)] == [(State.SUCCEEDED, 1)]


async def test_a_second_signal_has_running_jobs_given_back(place: Place) -> None:
    with place.manager("--default-count", "1") as process:
        await place.until_up(1)
        ids = await place.enqueue()
        await place.until_running(ids)
        process.send_signal(signal.SIGINT)

        async def heard() -> bool:
            return place.log().read_text().count("asked to stop") == 2

        await place.until(heard)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 0
    assert [(job.state, job.failures) for job in await place.jobs(ids)] == [(State.READY, 0)]


async def test_jobs_that_take_longer_than_the_shutdown_time_are_given_back(place: Place) -> None:
    with place.manager("--default-count", "1", "--shutdown-timeout", "100ms") as process:
        await place.until_up(1)
        ids = await place.enqueue()
        await place.until_running(ids)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0
    assert [(job.state, job.failures) for job in await place.jobs(ids)] == [(State.READY, 0)]


async def test_the_workers_of_a_killed_manager_claim_nothing_more_and_end(place: Place) -> None:
    with place.manager("--default-count", "2", "--concurrency", "1") as process:
        await place.until_up(2)
        ids = await place.enqueue(count=1)
        await place.until_running(ids)
        process.kill()
        process.wait()

        async def heard() -> bool:
            return place.log().read_text().count("who started this worker is gone") == 2

        await place.until(heard)

        async def alone() -> bool:
            return len(place.started()) == 1

        await place.until(alone)  # a claim of the idle one that was under way might still take what comes now
        later = await place.enqueue()
        place.open()
        assert [(job.state, job.attempt) for job in await place.until_all_ended(ids)] == [(State.SUCCEEDED, 1)]

        async def ended() -> bool:
            return not place.started()

        await place.until(ended)
    assert [job.state for job in await place.jobs(later)] == [State.READY]
    await place.store.rewind(20)
    (manager,) = [view for view in await place.store.workers() if view.manages]
    assert manager.doing(await place.store.now()).startswith("silent for ")
    assert manager.reason.startswith(("begins with 2", "stays at 2: ")), "what it said last"


async def test_a_worker_that_no_system_tells_notices_by_itself_that_who_started_it_is_gone(place: Place) -> None:
    """As on a system without PR_SET_PDEATHSIG: here a shell stands for the manager."""
    worker = f"exec {shlex.quote(sys.executable)} -m holdfast worker tests.fleet.gated_jobs:app --name m.1"
    script = f"HOLDFAST_STARTED_BY=$$; export HOLDFAST_STARTED_BY; ({worker}) & wait"
    environment = os.environ | {"FLEET_URL": place.url}
    with place.log().open("wb") as log:
        shell = subprocess.Popen(  # noqa: ASYNC220  at once
            ["/bin/sh", "-c", script], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        await place.until_up(1)
        shell.kill()
        shell.wait()

        async def ended() -> bool:
            return not place.started()

        await place.until(ended)
    finally:
        shell.kill()
        shell.wait()
        for process in place.started():
            os.kill(process, signal.SIGKILL)
    assert "who started this worker is gone: it finishes what it runs, and ends" in place.log().read_text()


async def test_two_managers_on_one_store_steer_their_own_workers_only(place: Place) -> None:
    options = ("--default-count", "1", "--max-count", "2", "--concurrency", "1")
    with (
        place.manager(*options, "--queues", "default", name="here"),
        place.manager(*options, "--queues", "elsewhere", name="there"),
    ):
        await place.until_up(1, "here")
        other = await place.until_up(1, "there")
        ids = await place.enqueue(count=20)
        await place.until_up(2, "here")
        place.open()
        await place.until_all_ended(ids)
        await place.until_up(1, "here")
        assert [view.worker.id for view in await place.workers("there")] == [view.worker.id for view in other]
    assert await place.decided("here") == [1, 2, 1]
    assert await place.decided("there") == [1]


async def test_a_manager_that_a_person_drains_ends_with_its_workers(place: Place) -> None:
    with place.manager("--default-count", "1") as process:
        await place.until_up(1)
        manager = next(view.worker.id for view in await place.store.workers() if view.manages)
        assert await place.store.drain(manager, by="ann")
        assert process.wait(LONG) == 0
    assert "asked by an operator" in place.log().read_text()


async def test_a_rehearsal_prints_what_it_would_decide_and_does_nothing(place: Place) -> None:
    await place.enqueue(count=500)
    with place.manager("--default-count", "1", "--max-count", "4", "--concurrency", "4", "--dry-run"):

        async def told() -> bool:
            return "up from 2 to 4: " in place.log().read_text() and "; 4 are the most\n" in place.log().read_text()

        await place.until(told)
        assert place.started() == []
    assert await place.decided() == []
    assert await place.store.workers() == []


async def test_a_rehearsal_tells_what_it_sees_first_though_it_is_no_news(place: Place) -> None:
    with place.manager("--default-count", "1", "--max-count", "4", "--concurrency", "4", "--dry-run") as process:

        async def told() -> bool:
            return len(place.log().read_text().splitlines()) > 2

        await place.until(told)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130
    plan, first, saw = place.log().read_text().splitlines()
    assert plan.startswith("rehearses until it is interrupted, and starts nothing: 1 to 4 workers of 4 slots for every queue")
    assert (first, saw) == ("begins with 1", "stays at 1: 0 wait, 0 of 4 slots are taken")


async def test_a_rehearsal_makes_no_store_where_there_is_none(tmp_path: Path, fleet_database: Callable[[], str]) -> None:
    empty = fleet_database()
    for url in (f"sqlite:///{tmp_path}/none.db", empty):
        place = Place(url, tmp_path, MemoryStore(SystemEnvironment()))
        with place.manager("--dry-run") as process:
            assert process.wait(LONG) == 1, "there is nothing to look at"
        assert "error: " in place.log().read_text()
    assert not (tmp_path / "none.db").exists()
    count = "select count(*) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
    connection = await asyncpg.connect(empty)
    try:
        assert await connection.fetchval(count) == 0
    finally:
        await connection.close()
