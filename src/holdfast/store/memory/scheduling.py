"""Schedules, and the jobs that their slots become."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.store.memory.producing import Producing
from holdfast.store.memory.records import Standing
from holdfast.store.port import ScheduleView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import Enqueued, Firing, Schedule


class Scheduling(Producing):
    """The schedules section of the port."""

    async def schedule(self, schedules: Sequence[Schedule]) -> None:
        """Make schedules known. One that is known as it is keeps its place; else it begins anew."""
        for given in schedules:
            known = self.data.schedules.get(given.name)
            if known is None or _definition(known.schedule) != _definition(given):
                self.data.schedules[given.name] = Standing(given)

    async def unschedule(self, names: Sequence[str]) -> None:
        """Forget schedules."""
        for name in names:
            self.data.schedules.pop(name, None)

    async def schedules(self) -> list[ScheduleView]:
        """Return the known schedules by name."""
        now = self.environment.now()
        return [
            ScheduleView(
                schedule=standing.schedule,
                due_in=(standing.schedule.next_at - now).total_seconds(),
                last_at=standing.last_at,
                last_job=standing.last_job,
            )
            for _, standing in sorted(self.data.schedules.items())
        ]

    async def fire(self, firing: Firing) -> Enqueued | None:
        """Advance a schedule from one slot to the next and enqueue the job of the slot."""
        standing = self.data.schedules.get(firing.name)
        if standing is None or standing.schedule.next_at != firing.slot:
            return None
        enqueued = None
        if firing.job is not None:
            (enqueued,) = await self.enqueue([firing.job])  # refuses a bad job before anything has changed
            standing.last_at, standing.last_job = firing.slot, enqueued.job_id
        standing.schedule = msgspec.structs.replace(standing.schedule, next_at=firing.next_at)
        return enqueued


def _definition(schedule: Schedule) -> tuple[str, ...]:
    return schedule.task, schedule.cron, schedule.timezone, schedule.spec
