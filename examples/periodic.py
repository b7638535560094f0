"""Periodic jobs: one for each slot, however many workers run. And when the slots fall around a change of clocks."""

import asyncio
from datetime import datetime
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

from holdfast import Holdfast, Job
from holdfast.runtime.scheduler import slots_after

app = Holdfast("sqlite:///jobs.db")
ticks: asyncio.Queue[UUID] = asyncio.Queue()


@app.task(cron="* * * * * *")  # six fields: every second
async def tick(*, job: Job) -> None:
    ticks.put_nowait(job.id)


@app.task(cron="30 2 * * *", timezone="Europe/Berlin", missed="skip")
async def nightly() -> None:
    """Run every night at half past two, by the clock on the wall in Berlin."""


def show(cron: str, day: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    midnight = datetime.fromisoformat(day).replace(tzinfo=zone)
    slots = [slot.astimezone(zone) for slot in islice(slots_after(cron, str(zone), midnight), 4)]
    print(f"{cron:<11} {day}:", *[f"{slot:%H:%M%z}" for slot in slots if slot.date() == midnight.date()])


async def main() -> None:
    async with app, app.worker(), app.worker():  # two workers, one job for each slot
        print("two slots, two jobs:", await ticks.get() != await ticks.get())
    for day in ("2026-03-29", "2026-10-25"):  # clocks go forward, clocks go back
        show("30 2 * * *", day)
        show("0 * * * *", day)


if __name__ == "__main__":
    asyncio.run(main())
