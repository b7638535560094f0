"""Periodic tasks: one job for each slot, by the store's clock, through outages and daylight saving."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast, State
from holdfast.runtime.base import Base
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.outage import Outage
from holdfast.runtime.scheduler import SOONEST, Scheduler, last_slot, slots_after
from holdfast.system import SystemEnvironment
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.store.port import ScheduleView, Store
    from holdfast.tasks.task import Task

WAIT = 20.0
HOUR = 3600.0
BERLIN = "Europe/Berlin"


class HourAhead(SystemEnvironment):
    """The clock of a machine that is an hour fast."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


@asynccontextmanager
async def base_of(app: Holdfast, environment: WorkerEnvironment | None = None) -> AsyncIterator[Base]:
    """What a worker of the app would hand to its scheduler."""
    world = app.world()
    environment = environment or world.environment
    async with AsyncExitStack() as stack:
        store, notifier = world.make_store(), world.make_notifier()
        stack.push_async_callback(store.close)
        stack.push_async_callback(notifier.close)
        await store.open()
        yield Base(store, notifier, environment, Outage(environment), MemoryCounters())


async def half_past(store: Store) -> str:
    """Return an hourly cron whose slots are half an hour away from now, so that none passes during a test."""
    return f"{((await store.now()).minute + 30) % 60} * * * *"


def periodic(cron: str, **options: Any) -> Task[..., Any]:
    @Holdfast("memory://").task(name="report", cron=cron, **options)
    async def report() -> None: ...

    return report


async def standing(store: Store) -> ScheduleView:
    (view,) = await store.schedules()
    return view


async def made(store: Store) -> int:
    return (await store.stats()).count(*State, task="report")


@pytest.mark.row(22)
async def test_a_slot_becomes_one_job_however_many_schedulers_tick(app: Holdfast) -> None:
    async with AsyncExitStack() as stack:
        bases = [await stack.enter_async_context(base_of(app)) for _ in range(10)]
        store = bases[0].store
        task = periodic(await half_past(store))
        schedulers = [Scheduler(base, [task]) for base in bases]
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers))
        assert await made(store) == 0, "its first slot has not come"
        for slot in range(1, 4):
            await store.rewind(HOUR)
            await asyncio.gather(*(scheduler.tick() for scheduler in schedulers))
            assert await made(store) == slot
        await asyncio.gather(*(scheduler.tick() for scheduler in schedulers))
        assert await made(store) == 3


async def test_a_tick_tells_when_the_next_slot_comes(app: Holdfast) -> None:
    async with base_of(app) as base:
        scheduler = Scheduler(base, [periodic("* * * * *")])
        wait = await scheduler.tick()
        assert wait is not None
        assert SOONEST <= wait <= 60
        view = await standing(base.store)
        assert (view.schedule.name, view.schedule.cron, view.schedule.timezone) == ("report", "* * * * *", "UTC")
        assert view.schedule.next_at.second == 0


async def test_a_worker_without_periodic_tasks_has_nothing_to_do(app: Holdfast) -> None:
    @app.task()
    async def ordinary() -> None: ...

    async with base_of(app) as base:
        assert await Scheduler(base, [ordinary]).tick() is None
        assert await base.store.schedules() == []


@pytest.mark.parametrize(("missed", "jobs"), [("latest", 1), ("all", 5), ("skip", 0)])
async def test_slots_that_passed_while_no_worker_ran(
    app: Holdfast, caplog: pytest.LogCaptureFixture, missed: str, jobs: int
) -> None:
    async with base_of(app) as base:
        store = base.store
        scheduler = Scheduler(base, [periodic(await half_past(store), missed=missed)])
        await scheduler.tick()
        first = (await standing(store)).schedule.next_at
        await store.rewind(5 * HOUR)
        ticks = 0
        while (await scheduler.tick() or 0.0) <= SOONEST:
            ticks += 1
            assert ticks < 10
        assert await made(store) == jobs
        assert (await standing(store)).schedule.next_at == first, "it goes on with the slot that comes next"
        assert ("were missed" in caplog.text) == (missed != "all")
        await store.rewind(HOUR)
        assert (await standing(store)).due_in < 0


async def test_a_slot_found_late_by_seconds_is_not_missed(app: Holdfast) -> None:
    async with base_of(app) as base:
        store = base.store
        scheduler = Scheduler(base, [periodic(await half_past(store), missed="skip")])
        await scheduler.tick()
        await store.rewind((await standing(store)).due_in + 5)
        await scheduler.tick()
        assert await made(store) == 1


async def test_a_changed_cron_begins_anew_and_an_unchanged_one_keeps_its_place(app: Holdfast) -> None:
    async with base_of(app) as base:
        store = base.store
        task = periodic(await half_past(store))
        await Scheduler(base, [task]).tick()
        await store.rewind(3 * HOUR)
        before = (await standing(store)).schedule.next_at
        await Scheduler(base, [periodic("0 3 1 1 *")]).tick()
        view = await standing(store)
        assert (view.schedule.cron, await made(store)) == ("0 3 1 1 *", 0), "the slots of the old one are not made up for"
        assert view.schedule.next_at > before
        assert view.due_in > 0

        again = periodic(await half_past(store))
        await Scheduler(base, [again]).tick()
        await store.rewind(HOUR)
        await Scheduler(base, [again]).tick()
        assert await made(store) == 1, "a worker that comes new finds the slot that was due"


async def test_the_stores_clock_decides_not_the_workers(app: Holdfast) -> None:
    async with base_of(app, HourAhead()) as base:
        store = base.store
        scheduler = Scheduler(base, [periodic(await half_past(store))])
        wait = await scheduler.tick()
        assert (await standing(store)).schedule.next_at - await store.now() < timedelta(minutes=31)
        assert wait == scheduler.interval
        assert await made(store) == 0
        await store.rewind(HOUR)
        await scheduler.tick()
        await scheduler.tick()
        assert await made(store) == 1


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_worker_whose_clock_is_an_hour_fast_fires_nothing_early(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(environment=HourAhead())

    @app.task(name="report", cron="* * * * *")
    async def report() -> None: ...

    async with base_of(app) as base, app.worker():
        await until(base.store.schedules)
        assert abs((await standing(base.store)).schedule.next_at - datetime.now(UTC)) < timedelta(minutes=2)


async def test_a_worker_runs_its_periodic_tasks(app: Holdfast) -> None:
    ran = asyncio.Event()

    @app.task(name="report", cron="0 3 * * *", queue="nightly", priority="low")
    async def report(copies: int = 2) -> None:
        assert copies == 2
        ran.set()

    async with base_of(app) as base:
        async with app.worker():
            await until(base.store.schedules)
        await base.store.rewind(24 * HOUR)
        async with app.worker():
            await asyncio.wait_for(ran.wait(), WAIT)
        view = await standing(base.store)
        assert view.last_job is not None
        job = await app.job(view.last_job).view()
        assert (job.queue, job.priority) == ("nightly", 2)


# daylight saving


def fires(cron: str, day: datetime) -> list[str]:
    """Return the slots of a day in Berlin, as the clock in Greenwich shows them."""
    begin = day.replace(tzinfo=ZoneInfo(BERLIN))
    end = (begin + timedelta(days=1)).astimezone(UTC)
    slots = slots_after(cron, BERLIN, begin.astimezone(UTC) - timedelta(seconds=1))
    return [slot.strftime("%H:%M") for slot in takewhile(lambda slot: slot < end, slots)]


GAP = datetime(2026, 3, 29)  # noqa: DTZ001  02:00 is followed by 03:00, which is 01:00 UTC
OVERLAP = datetime(2026, 10, 25)  # noqa: DTZ001  02:00-02:59 comes twice: 00:00 UTC and 01:00 UTC


@pytest.mark.row(21)
@pytest.mark.parametrize(
    ("cron", "in_gap", "in_overlap"),
    [
        ("30 1 * * *", ["00:30"], ["23:30"]),
        ("30 2 * * *", ["01:00"], ["00:30"]),  # in the gap: right after it; in the repeated hour: once
        ("30 2 * * sun", ["01:00"], ["00:30"]),
        ("0 3 * * *", ["01:00"], ["02:00"]),
        ("*/15 2 * * *", [], ["00:00", "00:15", "00:30", "00:45", "01:00", "01:15", "01:30", "01:45"]),
    ],
)
def test_daylight_saving_moves_or_repeats_slots_as_documented(cron: str, in_gap: list[str], in_overlap: list[str]) -> None:
    assert fires(cron, GAP) == in_gap
    assert fires(cron, OVERLAP) == in_overlap


@pytest.mark.row(21)
@pytest.mark.parametrize(
    ("cron", "in_gap", "in_overlap"), [("0 * * * *", 23, 25), ("*/30 * * * *", 46, 50), ("0 */2 * * *", 11, 13)]
)
def test_slots_of_every_hour_follow_the_clock_on_the_wall(cron: str, in_gap: int, in_overlap: int) -> None:
    assert (len(fires(cron, GAP)), len(fires(cron, OVERLAP))) == (in_gap, in_overlap)


@pytest.mark.row(21)
@pytest.mark.parametrize("cron", ["30 2 * * *", "30 2 * * sun", "*/30 * * * *", "*/15 2 * * *", "0 */2 * * *"])
@pytest.mark.parametrize("day", [GAP, OVERLAP], ids=["gap", "overlap"])
def test_looking_back_finds_the_slots_that_looking_forward_gives(cron: str, day: datetime) -> None:
    begin = day.replace(tzinfo=UTC) - timedelta(days=8)
    end = day.replace(tzinfo=UTC) + timedelta(days=1)
    slots = list(takewhile(lambda slot: slot <= end, slots_after(cron, BERLIN, begin)))
    moment = end - timedelta(days=1)
    while moment < end:
        assert last_slot(cron, BERLIN, moment) == max(slot for slot in slots if slot <= moment), moment
        moment += timedelta(minutes=10)


def test_a_slot_counts_from_its_very_moment() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert last_slot("0 12 * * *", "UTC", noon) == noon
    assert next(slots_after("0 12 * * *", "UTC", noon)) == noon + timedelta(days=1)
    assert last_slot("0 12 * * *", "UTC", noon - timedelta(seconds=1)) == noon - timedelta(days=1)
