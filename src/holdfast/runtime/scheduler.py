"""Periodic tasks: one job for each slot, however many workers run.

A schedule is a row that knows its next slot. Whoever finds it due moves it on and enqueues the job in one transaction,
guarded by the slot; the others find it moved. The store's clock decides what is due.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.errors import BadTask, SchemaError, StoreUnavailable
from holdfast.notify.port import Hint
from holdfast.store.port import Firing, Schedule
from holdfast.tasks.options import Missed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.runtime.base import Base
    from holdfast.store.port import ScheduleView
    from holdfast.tasks.task import Task

logger = logging.getLogger("holdfast.worker")

SOONEST: Final = 0.005
ON_TIME: Final = 60.0
"""A slot that is found due within this many seconds is on time; an older one was missed."""


def check_cron(task: str, cron: str, timezone: str) -> None:
    """Refuse a cron expression or a time zone that cannot be read; `BadTask` says why."""
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadTask(
            f"task {task!r}: timezone={timezone!r} is not known here; use a name such as 'UTC' or 'Europe/Berlin'"
        ) from None
    try:
        next(CronSim(cron, datetime.now(zone)))
    except CronSimError as error:
        raise BadTask(
            f"task {task!r}: cron={cron!r} does not parse ({error}). Five fields are expected: minute hour day month weekday, "
            "for example '*/15 * * * *' or '0 3 * * mon'"
        ) from None
    except StopIteration:
        raise BadTask(f"task {task!r}: cron={cron!r} never comes true") from None


def slots_after(cron: str, timezone: str, moment: datetime) -> Iterator[datetime]:
    """Yield the slots after a moment, in UTC.

    Daylight saving is cronsim's, which follows Debian's cron: a job of a fixed hour that falls into the gap runs right after
    it, one in the repeated hour runs once; `*/…` jobs follow the clock on the wall.
    """
    zone = ZoneInfo(timezone)
    utc = ZoneInfo("UTC")
    for slot in CronSim(cron, moment.astimezone(zone)):
        yield slot.astimezone(utc)


def last_slot(cron: str, timezone: str, moment: datetime) -> datetime:
    """Return the last slot that is not after a moment, in UTC."""
    later = (moment + timedelta(seconds=1)).astimezone(ZoneInfo(timezone))
    before = next(slot for slot in CronSim(cron, later, reverse=True) if slot <= moment).astimezone(ZoneInfo("UTC"))
    # looking back misses a slot in the hour that daylight saving repeats: from there on look forward
    for slot in slots_after(cron, timezone, before):
        if slot > moment:
            break
        before = slot
    return before


class Scheduler:
    """Fires the schedules of the tasks this worker knows."""

    interval = 60.0

    def __init__(self, base: Base, tasks: Sequence[Task[..., Any]]) -> None:
        self._store = base.store
        self._notifier = base.notifier
        self._tasks = {task.name: task for task in tasks if task.options_declared.cron is not None}
        self._known = False

    async def tick(self) -> float | None:
        """Fire what is due; returns when the next slot is."""
        if not self._tasks:
            return None
        if not self._known:
            await self._make_known()
            self._known = True
        waits = [self.interval]
        for view in await self._store.schedules():
            task = self._tasks.get(view.schedule.task)
            if task is None:
                continue
            try:
                waits.append(max(SOONEST, await self._fire_due(task, view)))
            except (StoreUnavailable, SchemaError):
                raise
            except Exception:  # one that cannot be fired must not hold up the others
                logger.exception("schedule %s could not be fired; it is tried again in %g s", view.schedule.name, self.interval)
        return min(waits)

    async def _make_known(self) -> None:
        now = await self._store.now()
        schedules = []
        for task in self._tasks.values():
            options = task.options_declared
            cron = options.cron or ""
            spec = msgspec.json.encode({"missed": options.missed, "queue": options.queue, "priority": options.priority})
            first = next(slots_after(cron, options.timezone, now))
            schedules.append(
                Schedule(
                    name=task.name,
                    task=task.name,
                    cron=cron,
                    timezone=options.timezone,
                    next_at=first,
                    spec=spec.decode(),
                )
            )
        await self._store.schedule(schedules)

    async def _fire_due(self, task: Task[..., Any], view: ScheduleView) -> float:
        """Fire the due slots of one schedule; returns the seconds until its next one."""
        schedule = view.schedule
        if view.due_in > 0:
            return view.due_in
        now = schedule.next_at - timedelta(seconds=view.due_in)
        missed = task.options_declared.missed
        slot = schedule.next_at
        if missed is not Missed.ALL:
            slot = max(slot, last_slot(schedule.cron, schedule.timezone, now))
            if slot > schedule.next_at:
                logger.warning("schedule %s: slots from %s to %s were missed", schedule.name, schedule.next_at, slot)
        following = next(slots_after(schedule.cron, schedule.timezone, slot))
        fires = missed is not Missed.SKIP or (now - slot).total_seconds() < ON_TIME
        await self._fire(
            task, Firing(name=schedule.name, slot=schedule.next_at, next_at=following, job=None), slot, fires=fires
        )
        return (following - now).total_seconds()

    async def _fire(self, task: Task[..., Any], firing: Firing, slot: datetime, *, fires: bool) -> None:
        """Move a schedule on from where it stands, with a job for the slot; somebody else may have been faster."""
        job = task.options(run_at=slot).call().job if fires else None
        answer = await self._store.fire(msgspec.structs.replace(firing, job=job))
        if job is not None and answer is not None:
            self._notifier.hint(Hint(frozenset({job.queue})))
