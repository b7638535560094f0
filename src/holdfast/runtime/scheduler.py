"""Periodic tasks: one job for each slot, however many workers run.

A schedule is a row that knows its next slot. Whoever finds it due moves it on and enqueues the job in one transaction,
guarded by the slot; the others find it moved. The store's clock decides what is due.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from datetime import timezone as fixed
from itertools import takewhile
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
SECOND: Final = timedelta(seconds=1)
BETWEEN_CHANGES: Final = timedelta(hours=12)
"""No zone moves its clock twice in so short a time."""
FAR: Final = timedelta(days=50 * 366)
"""A cron that does not come true in so long a time never does; cronsim gives up as late."""
ON_TIME: Final = 60.0
"""A slot that is found due within this many seconds is on time; an older one was missed."""


def check_cron(task: str, cron: str, timezone: str) -> None:
    """Refuse a cron expression or a time zone that cannot be read; `BadTask` says why."""
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadTask(
            f"task {task!r}: timezone={timezone!r} is not known here; use a name such as 'UTC' or 'Europe/Berlin'"
        ) from None
    try:
        next(slots_after(cron, timezone, datetime.now(UTC)))
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
    moment = moment.astimezone(UTC)
    walk = CronSim(cron, moment.astimezone(zone))
    for slot in _on_the_wall(cron, zone, moment) if walk.fixup_tz is None else walk:
        if slot.astimezone(UTC) > moment:  # in the hour that comes again, a fixed hour has its slots in the first pass
            yield slot.astimezone(UTC)


def last_slot(cron: str, timezone: str, moment: datetime) -> datetime:
    """Return the last slot that is not after a moment, in UTC: the last that `slots_after` would have yielded up to then."""
    zone = ZoneInfo(timezone)
    moment = moment.astimezone(UTC)
    by_the_wall = CronSim(cron, moment.astimezone(zone)).fixup_tz is None
    slot = _back_on_the_wall(cron, zone, moment) if by_the_wall else _back_by_the_hour(cron, zone, moment)
    if slot is None:
        raise LookupError(f"cron {cron!r} in {timezone} has no slot in the {FAR.days} days before {moment}")
    return slot.astimezone(UTC)


def _on_the_wall(cron: str, zone: ZoneInfo, moment: datetime) -> Iterator[datetime]:
    """Yield the slots of a cron that follows the clock on the wall: stretch by stretch, between two changes of that clock.

    Within a stretch the clock is plain. cronsim alone would step over a change by whole hours, and where the clock is moved by
    half an hour (Lord Howe) go on at half past: the slots of that day at other minutes would be missing.
    """
    begin = moment.replace(microsecond=0) + SECOND
    end = begin + FAR
    while begin < end:
        for slot in CronSim(cron, (begin - SECOND).astimezone(_plain(zone, begin))):
            if (reached := _unmoved(zone, begin, slot)) != slot:
                begin = reached + SECOND
                break
            yield slot
            begin, end = slot, slot + FAR
        else:
            return


def _back_on_the_wall(cron: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Return the last slot up to a moment of a cron that follows the clock on the wall, by the same stretches.

    cronsim alone, looking back over a change that is not on the full hour (Chatham), would never return.
    """
    end = moment.replace(microsecond=0)
    begin = end - FAR
    while end > begin:
        slot = next(CronSim(cron, (end + SECOND).astimezone(_plain(zone, end)), reverse=True), None)
        if slot is None:
            return None
        if (reached := _unmoved(zone, end, slot)) == slot:
            return slot
        end = reached - SECOND
    return None


def _back_by_the_hour(cron: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Return the last slot up to a moment of a cron with fixed hours.

    The last time that fits, as the wall shows it, is found without regard to changes. It has come by now, but in a gap it came
    later than it says, and in an hour that came again times after it came before: from there on look forward.
    """
    shown = moment.astimezone(zone).replace(tzinfo=UTC, microsecond=0, fold=0)
    fits = next(CronSim(cron, shown + SECOND, reverse=True), None)
    if fits is None:
        return None
    begin = min(fits.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)) - SECOND
    return max(takewhile(lambda slot: slot <= moment, slots_after(cron, zone.key, begin)), default=None)


def _plain(zone: ZoneInfo, moment: datetime) -> fixed:
    """Return the clock that a zone has at a moment, never to be moved."""
    return fixed(moment.astimezone(zone).utcoffset() or timedelta())


def _unmoved(zone: ZoneInfo, begin: datetime, end: datetime) -> datetime:
    """Return the last second, on the way from `begin` to a later or earlier `end`, before the clock of a zone is moved."""
    shift = begin.astimezone(zone).utcoffset()
    step = BETWEEN_CHANGES if begin < end else -BETWEEN_CHANGES
    same = begin
    while same != end:
        other = end if abs(end - same) <= BETWEEN_CHANGES else same + step
        if other.astimezone(zone).utcoffset() != shift:
            while abs(other - same) > SECOND:
                middle = (same + (other - same) / 2).replace(microsecond=0)
                same, other = (middle, other) if middle.astimezone(zone).utcoffset() == shift else (same, middle)
            return same
        same = other
    return end


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
