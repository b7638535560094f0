"""Periodic tasks in a fleet: however many workers know the schedule, each slot becomes one job."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.states import State
from holdfast.store.port import JobFilter
from tests.faults.periodic import tick
from tests.faults.support import until

if TYPE_CHECKING:
    from holdfast.store.port import ScheduleView
    from tests.faults.support import Fleet

MINUTES = 120
FEW = 5


@pytest.mark.row(22)
async def test_ten_workers_with_one_schedule_make_one_job_of_each_slot(fleet: Fleet) -> None:
    options: dict[str, Any] = {"module": "tests.faults.periodic", "concurrency": 20}
    first = await fleet.started("first", **options)
    await until(fleet.store.schedules, "the first worker should make the schedule known")
    await first.kill()
    await fleet.store.rewind(60.0 * MINUTES)  # so that as many slots are due when ten workers come
    (known,) = await fleet.store.schedules()

    workers = [fleet.start(f"worker-{number}", gate="start", **options) for number in range(10)]
    await until(lambda: len(fleet.notes("waits")) == len(workers), "ten workers should be ready to begin at one moment")
    fleet.open_gate("start")
    await fleet.working(*workers)

    await until(lambda: caught_up(fleet), f"{MINUTES} slots should be made up for")
    await _assert_one_job_of_each_slot(fleet, known, at_least=MINUTES - 1)


@pytest.mark.row(22)
async def test_a_scheduler_that_was_frozen_before_it_fired_a_slot_fires_it_no_more(fleet: Fleet) -> None:
    options: dict[str, Any] = {"module": "tests.faults.periodic"}
    first = await fleet.started("first", **options)
    await until(fleet.store.schedules, "the first worker should make the schedule known")
    await first.kill()
    await fleet.store.rewind(60.0 * FEW)
    (known,) = await fleet.store.schedules()
    frozen = fleet.start("frozen", program="tests.faults.points", point="firing", hold="firing", **options)
    await until(lambda: fleet.notes("held"), "a worker should be about to fire a slot")
    await fleet.freeze(frozen)
    assert (await fleet.store.stats()).count() == 0, "it was frozen too late: a slot was fired"

    await fleet.started("other", **options)

    await until(lambda: caught_up(fleet), f"{FEW} slots should be made up for")
    fleet.open_gate("firing")
    frozen.send(signal.SIGCONT)
    await until(lambda: fleet.notes("went on"), "the frozen one should come to fire its slot")
    frozen.send(signal.SIGTERM)
    assert await frozen.exited() == 0, frozen.log
    await _assert_one_job_of_each_slot(fleet, known, at_least=FEW - 1)


async def caught_up(fleet: Fleet) -> bool:
    """Tell whether no slot is due, and every job has ended."""
    (view,) = await fleet.store.schedules()
    stats = await fleet.store.stats()
    return view.due_in > 0 and not stats.live


async def _assert_one_job_of_each_slot(fleet: Fleet, known: ScheduleView, *, at_least: int) -> None:
    least = await _fired(fleet, known)
    jobs = (await fleet.store.find(JobFilter(task=tick.name), limit=2 * MINUTES)).jobs
    most = await _fired(fleet, known)  # it may have become one more meanwhile
    assert at_least <= least <= len(jobs) <= most, f"{least} to {most} slots have become {len(jobs)} jobs"
    runs = Counter(note.job for note in fleet.notes("began"))
    assert set(runs.values()) == {1}, f"jobs were run more than once: {runs.most_common(3)}"
    assert {str(job.id) for job in jobs if job.state is State.SUCCEEDED} <= set(runs), "a job has ended that was not run"


async def _fired(fleet: Fleet, known: ScheduleView) -> int:
    """Return how many slots have passed since a schedule was looked at."""
    (view,) = await fleet.store.schedules()
    return (view.schedule.next_at - known.schedule.next_at) // timedelta(minutes=1)
