"""The nights on which clocks go forward and back: a worker that runs through them fires what is documented, in several zones.

The clock of the store is steered through each night, ten minutes at a time; two schedulers tick at every step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from threading import Thread
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast
from holdfast.errors import BadTask
from holdfast.runtime.base import Base
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.outage import Outage
from holdfast.runtime.scheduler import Scheduler, last_slot, slots_after
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.tasks.task import Task

pytestmark = pytest.mark.row(21)

STEP = timedelta(minutes=10)
SECOND = timedelta(seconds=1)
WAIT = 20.0


class Night(SystemEnvironment):
    """A machine whose clock shows what the test says."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The stores that decide by the clock of the machine."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@asynccontextmanager
async def scheduling(app: Holdfast, night: Night) -> AsyncIterator[Base]:
    world = app.world()
    store, notifier = world.make_store(), world.make_notifier()
    await store.open()
    try:
        yield Base(store, notifier, night, Outage(night), MemoryCounters())
    finally:
        await store.close()
        await notifier.close()


HOURLY = "0 * * * *"
NIGHTS = {
    # zone, the day, and what each cron gives on it: the clock on the wall, with its distance from Greenwich
    "Berlin goes forward": (
        "Europe/Berlin",
        datetime(2026, 3, 29),  # noqa: DTZ001  the day on the wall
        {
            "30 1 * * *": ["01:30+0100"],
            "30 2 * * *": ["03:00+0200"],
            "*/30 2 * * *": [],
            "*/30 1-3 * * *": ["01:00+0100", "01:30+0100", "03:00+0200", "03:30+0200"],
            HOURLY: 23,
        },
    ),
    "Berlin goes back": (
        "Europe/Berlin",
        datetime(2026, 10, 25),  # noqa: DTZ001  as above
        {
            "30 2 * * *": ["02:30+0200"],
            "30 3 * * *": ["03:30+0100"],
            "*/30 2 * * *": ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"],
            HOURLY: 25,
        },
    ),
    "New York goes forward": (
        "America/New_York",
        datetime(2026, 3, 8),  # noqa: DTZ001  as above
        {"15 2 * * *": ["03:00-0400"], "*/30 2 * * *": [], "0 3 * * *": ["03:00-0400"], HOURLY: 23},
    ),
    "New York goes back": (
        "America/New_York",
        datetime(2026, 11, 1),  # noqa: DTZ001  as above
        {"15 1 * * *": ["01:15-0400"], "*/30 1 * * *": ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"], HOURLY: 25},
    ),
    "Cairo goes forward at midnight": (
        "Africa/Cairo",
        datetime(2026, 4, 24),  # noqa: DTZ001  as above
        {"0 0 * * *": ["01:00+0300"], "30 0 * * *": ["01:00+0300"], "*/30 0 * * *": [], HOURLY: 23},
    ),
    "Cairo goes back at midnight": (
        "Africa/Cairo",
        datetime(2026, 10, 29),  # noqa: DTZ001  as above
        {"30 23 * * *": ["23:30+0300"], "30 23 * * thu": ["23:30+0300"], HOURLY: 25},
    ),
    "Lord Howe goes forward by half an hour": (
        "Australia/Lord_Howe",
        datetime(2026, 10, 4),  # noqa: DTZ001  as above
        {
            "10 2 * * *": ["02:30+1100"],
            "30 2 * * *": ["02:30+1100"],
            "*/20 2 * * *": ["02:40+1100"],
            "*/20 23 * * *": ["23:00+1100", "23:20+1100", "23:40+1100"],
            HOURLY: 23,
        },
    ),
    "Lord Howe goes back by half an hour": (
        "Australia/Lord_Howe",
        datetime(2026, 4, 5),  # noqa: DTZ001  as above
        {
            "45 1 * * *": ["01:45+1100"],
            "0 2 * * *": ["02:00+1030"],
            "*/20 1 * * *": ["01:00+1100", "01:20+1100", "01:40+1100", "01:40+1030"],
            "*/20 2 * * *": ["02:00+1030", "02:20+1030", "02:40+1030"],
            HOURLY: 24,
        },
    ),
    "Chatham goes back to a quarter to three": (
        "Pacific/Chatham",
        datetime(2026, 4, 5),  # noqa: DTZ001  as above
        {
            "45 2 * * *": ["02:45+1345"],
            "*/15 2 * * *": ["02:00+1345", "02:15+1345", "02:30+1345", "02:45+1345", "02:45+1245"],
            HOURLY: 25,
        },
    ),
    "Kolkata has no such night": (
        "Asia/Kolkata",
        datetime(2026, 3, 29),  # noqa: DTZ001  as above
        {"30 2 * * *": ["02:30+0530"], "*/30 2 * * *": ["02:00+0530", "02:30+0530"], HOURLY: 24},
    ),
}


@pytest.mark.parametrize("name", NIGHTS)
async def test_a_worker_that_runs_through_the_night_fires_what_is_documented(url: str, name: str) -> None:
    timezone, day, expected = NIGHTS[name]
    crons = {f"report-{number}": cron for number, cron in enumerate(expected)}
    fired = await fires(url, timezone, day, crons)
    for task, cron in crons.items():
        wanted = expected[cron]
        assert (len(fired[task]) if isinstance(wanted, int) else fired[task]) == wanted, f"{cron} in {timezone}"


async def fires(url: str, timezone: str, day: datetime, crons: dict[str, str]) -> dict[str, list[str]]:
    """Steer the clock through a day on the wall; returns for each schedule the slots that became jobs."""
    zone = ZoneInfo(timezone)
    end = (day + timedelta(days=1)).replace(tzinfo=zone).astimezone(UTC)
    night = Night(day.replace(tzinfo=zone).astimezone(UTC) - timedelta(seconds=1))
    app = Holdfast(url, environment=night)
    tasks = [declared(app, name, cron, timezone) for name, cron in crons.items()]
    slots: dict[str, list[datetime]] = {name: [] for name in crons}
    async with scheduling(app, night) as one, scheduling(app, night) as other:
        schedulers = [Scheduler(base, tasks) for base in (one, other)]
        while night.moment < end:
            for scheduler in schedulers:
                await scheduler.tick()
            for view in await one.store.schedules():
                if view.last_at is not None and view.last_at not in slots[view.schedule.name]:
                    slots[view.schedule.name].append(view.last_at)
            night.moment += STEP
        stats = await one.store.stats()
        assert {name: stats.count(task=name) for name in crons} == {name: len(found) for name, found in slots.items()}
    await app.close()
    return {name: [slot.astimezone(zone).strftime("%H:%M%z") for slot in found] for name, found in slots.items()}


def declared(app: Holdfast, name: str, cron: str, timezone: str) -> Task[..., Any]:
    @app.task(name=name, cron=cron, timezone=timezone)
    async def report() -> None: ...

    return report


Fits = dict[str, tuple[Sequence[int], Sequence[int]]]
"""The minutes and the hours of crons."""

STARS: Fits = {
    "* 2 * * *": (range(60), [2]),
    "7 */2 * * *": ([7], range(0, 24, 2)),
    "45 */2 * * *": ([45], range(0, 24, 2)),
    "*/20 2 * * *": (range(0, 60, 20), [2]),
    "*/7 * * * *": (range(0, 60, 7), range(24)),
    "*/5 23 * * *": (range(0, 60, 5), [23]),
}


@pytest.mark.parametrize("cron", STARS)
@pytest.mark.parametrize("name", NIGHTS)
def test_a_cron_with_a_star_comes_at_every_minute_that_fits_on_the_wall(name: str, cron: str) -> None:
    """As a walk through every minute of three days finds them, looking forward and looking back."""
    timezone, day, _ = NIGHTS[name]
    minutes, hours = STARS[cron]
    begin = day.replace(tzinfo=UTC) - timedelta(days=1, seconds=7)
    walked = [begin + timedelta(seconds=7 + 60 * number) for number in range(3 * 24 * 60)]
    wall = {moment: moment.astimezone(ZoneInfo(timezone)) for moment in walked}
    slots = [moment for moment, shown in wall.items() if shown.minute in minutes and shown.hour in hours]
    assert list(takewhile(lambda slot: slot <= walked[-1], slots_after(cron, timezone, begin))) == slots
    for slot, following in pairwise(slots):
        assert last_slot(cron, timezone, following - SECOND) == slot


@pytest.mark.parametrize(
    ("cron", "slot"), [("*/20 2 * * *", "02:40+1345"), ("* 2 * * *", "02:59+1345"), ("7 */2 * * *", "02:07+1345")]
)
def test_looking_back_from_an_hour_that_comes_again_at_a_quarter_to_comes_to_an_end(cron: str, slot: str) -> None:
    """Chatham, at 03:18 for the first time: at 03:45 it will be 02:45 again."""
    moment = datetime(2026, 4, 4, 13, 33, tzinfo=UTC)
    found: list[datetime] = []
    looking = Thread(target=lambda: found.append(last_slot(cron, "Pacific/Chatham", moment)), daemon=True)
    looking.start()
    looking.join(WAIT)
    assert [one.astimezone(ZoneInfo("Pacific/Chatham")).strftime("%H:%M%z") for one in found] == [slot]


CHANGES = {
    # the first second of the new time
    "Pacific/Chatham": ["2026-04-04T14:00Z", "2026-09-26T14:00Z"],
    "Australia/Lord_Howe": ["2026-04-04T15:00Z", "2026-10-03T15:30Z"],
    "Europe/Berlin": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
    "America/New_York": ["2026-03-08T07:00Z", "2026-11-01T06:00Z"],
    "America/Havana": ["2026-03-08T05:00Z", "2026-11-01T05:00Z"],
    "Antarctica/Troll": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
}
FIXED: Fits = {
    "30 2 * * *": ([30], [2]),
    "0-59 1-2 * * *": (range(60), [1, 2]),
    "10,50 0,3 * * *": ([10, 50], [0, 3]),
}


@pytest.mark.parametrize(
    ("timezone", "change"), [pytest.param(zone, at, id=f"{zone} {at[:10]}") for zone, days in CHANGES.items() for at in days]
)
def test_around_a_change_both_ways_of_looking_find_what_a_walk_through_every_minute_finds(timezone: str, change: str) -> None:
    """A star comes whenever the wall shows what fits; a fixed hour when it is shown first, or at the change if it never is."""
    middle = datetime.fromisoformat(change)
    zone = ZoneInfo(timezone)
    assert (middle - SECOND).astimezone(zone).utcoffset() != middle.astimezone(zone).utcoffset()
    around = [middle + timedelta(minutes=number) for number in range(-32 * 60, 32 * 60)]
    shown = [(moment, moment.astimezone(zone).replace(tzinfo=None, fold=0)) for moment in around]
    first = {wall: moment for moment, wall in reversed(shown)}
    walls = [shown[0][1] + timedelta(minutes=number) for number in range((shown[-1][1] - shown[0][1]) // timedelta(minutes=1))]
    for cron, (minutes, hours) in STARS.items():
        agree(cron, timezone, middle, [at for at, wall in shown if wall.minute in minutes and wall.hour in hours])
    for cron, (minutes, hours) in FIXED.items():
        slots = {first.get(wall, middle) for wall in walls if wall.minute in minutes and wall.hour in hours}
        agree(cron, timezone, middle, sorted(slots))


def agree(cron: str, timezone: str, middle: datetime, slots: list[datetime]) -> None:
    """Look back and forward from moments around a change: exactly at slots, a second beside them, and between."""
    for minutes in range(-3 * 60, 3 * 60, 5):
        for moment in (middle + timedelta(minutes=minutes), middle + timedelta(minutes=minutes + 2, seconds=-1)):
            following = bisect_right(slots, moment)
            assert last_slot(cron, timezone, moment) == slots[following - 1], f"{cron} back from {moment}"
            assert next(slots_after(cron, timezone, moment)) == slots[following], f"{cron} after {moment}"


SECONDS: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int]]] = {
    "* * 2 * * *": (range(60), range(60), [2]),
    "*/20 30 1-3 * * *": (range(0, 60, 20), [30], [1, 2, 3]),
}


@pytest.mark.parametrize("cron", SECONDS)
def test_a_cron_with_seconds_comes_at_every_second_that_fits_on_the_wall(cron: str) -> None:
    change = datetime(2026, 10, 25, 1, tzinfo=UTC)
    seconds, minutes, hours = SECONDS[cron]
    around = [change + timedelta(seconds=number) for number in range(-3 * 3600, 3 * 3600)]
    wall = {moment: moment.astimezone(ZoneInfo("Europe/Berlin")) for moment in around}
    slots = [at for at, shown in wall.items() if shown.second in seconds and shown.minute in minutes and shown.hour in hours]
    found = slots_after(cron, "Europe/Berlin", around[0] - SECOND)
    assert list(takewhile(lambda slot: slot <= around[-1], found)) == slots
    for slot, following in [*pairwise(slots)][::60]:
        assert last_slot(cron, "Europe/Berlin", following - SECOND) == slot


def test_a_worker_that_comes_new_in_the_repeated_hour_does_not_find_a_slot_of_its_first_pass() -> None:
    second_pass = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 in Berlin, again
    assert next(slots_after("30 2 * * *", "Europe/Berlin", second_pass)) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    assert last_slot("30 2 * * *", "Europe/Berlin", second_pass) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_a_cron_whose_every_slot_falls_into_the_gap_is_refused() -> None:
    app = Holdfast("memory://")
    with pytest.raises(BadTask, match="never comes true"):
        declared(app, "report", "*/30 2 * mar 0L", "Europe/Berlin")
    declared(app, "report", "*/30 2 * mar 0L", "UTC")
