"""Periodic tasks in a fleet: however many workers know the schedule, each slot becomes one job."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.store.port import JobFilter
from tests.faults.periodic import tick
from tests.faults.support import until

if TYPE_CHECKING:
    from tests.faults.support import Fleet

MINUTES = 120


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

    async def caught_up() -> bool:
        (view,) = await fleet.store.schedules()
        stats = await fleet.store.stats()
        return view.due_in > 0 and not stats.live

    await until(caught_up, f"{MINUTES} slots should be made up for")
    (view,) = await fleet.store.schedules()
    slots = (view.schedule.next_at - known.schedule.next_at) // timedelta(minutes=1)
    jobs = (await fleet.store.find(JobFilter(task=tick.name), limit=2 * MINUTES)).jobs
    assert slots >= MINUTES - 1
    assert len(jobs) == slots, f"{slots} slots have become {len(jobs)} jobs"
    began = [note.job for note in fleet.notes("began")]
    assert len(began) == len(set(began)) == slots, f"{slots} slots were run {len(began)} times"
