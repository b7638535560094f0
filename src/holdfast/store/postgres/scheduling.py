"""Schedules: what is known of them, and firing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.store.port import Schedule, ScheduleView
from holdfast.store.postgres import scripts
from holdfast.store.postgres.producing import Producing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import Enqueued, Firing
    from holdfast.store.postgres.connection import Connection

_SCHEDULE: Final = """
INSERT INTO {schema}.schedule AS s (name, task, cron, timezone, spec, next_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET task = excluded.task, cron = excluded.cron, timezone = excluded.timezone,
    spec = excluded.spec, next_at = excluded.next_at, last_at = NULL, last_job = NULL
WHERE (s.task, s.cron, s.timezone, s.spec) <> (excluded.task, excluded.cron, excluded.timezone, excluded.spec)
"""

_SCHEDULES: Final = """
SELECT name, task, cron, timezone, next_at, spec, extract(epoch FROM next_at - clock_timestamp())::float8, last_at, last_job
FROM {schema}.schedule ORDER BY name COLLATE "C"
"""

_HOLD: Final = "SELECT 1 FROM {schema}.schedule WHERE name = $1 AND next_at = $2 FOR UPDATE"

_ADVANCE: Final = """
UPDATE {schema}.schedule SET next_at = $2, last_at = coalesce($3, last_at), last_job = coalesce($4, last_job) WHERE name = $1
"""


class Scheduling(Producing):
    """The schedules of the port."""

    async def schedule(self, schedules: Sequence[Schedule]) -> None:
        """Make schedules known; one whose definition is known keeps its place."""
        # by name, so that two callers do not wait for each other in a circle; the same name again in the order given
        rows = [
            (one.name, one.task, one.cron, one.timezone, one.spec, one.next_at)
            for one in sorted(schedules, key=lambda one: one.name)
        ]
        if rows:
            await self._db.in_transaction(lambda connection: connection.executemany(self._sql(_SCHEDULE), rows))

    async def unschedule(self, names: Sequence[str]) -> None:
        """Forget schedules."""
        sql = self._sql(
            "DELETE FROM {schema}.schedule WHERE name = ANY (ARRAY("
            "SELECT name FROM {schema}.schedule WHERE name = ANY ($1) ORDER BY name FOR UPDATE))"
        )
        await self._db.execute(sql, list(names))

    async def schedules(self) -> list[ScheduleView]:
        """Return the known schedules by name."""
        return [
            ScheduleView(
                schedule=Schedule(name=name, task=task, cron=cron, timezone=timezone, next_at=next_at, spec=spec),
                due_in=due_in,
                last_at=last_at,
                last_job=last_job,
            )
            for name, task, cron, timezone, next_at, spec, due_in, last_at, last_job in await self._db.fetch(
                self._sql(_SCHEDULES)
            )
        ]

    async def fire(self, firing: Firing) -> Enqueued | None:
        """Advance a schedule and enqueue the job of the slot, in one transaction."""
        answers: list[Enqueued] = []

        async def work(connection: Connection) -> None:
            answers.clear()
            # whoever comes second waits here, and finds that the slot has gone
            if await connection.fetchval(self._sql(_HOLD), firing.name, firing.slot) is None:
                return
            if firing.job is not None:
                answers.extend(await self._script(connection, scripts.enqueue([firing.job]), [firing.job]))
            fired = (firing.slot, answers[0].job_id) if answers else (None, None)
            await connection.execute(self._sql(_ADVANCE), firing.name, firing.next_at, *fired)

        await self._db.in_transaction(work)
        self._lanes.look_soon()
        return answers[0] if answers else None
