"""What is enqueued again and again, and the slots that have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.port import Schedule, ScheduleView
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.producing import enqueue
from holdfast.store.sqlite.values import moment, moment_or_none, stamp, uuid_or_none

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from holdfast.store.port import Enqueued, Firing
    from holdfast.store.sqlite.writing import Writing


def schedule(writing: Writing, schedules: Sequence[Schedule]) -> None:
    """Make schedules known; see the port."""
    rows = [(one.name, one.task, one.cron, one.timezone, one.spec, stamp(one.next_at)) for one in schedules]
    writing.connection.executemany(sql("schedule.define"), rows)


def unschedule(writing: Writing, names: Sequence[str]) -> None:
    """Forget schedules; see the port."""
    writing.connection.executemany(sql("unschedule.forget"), [(name,) for name in names])


def schedules(connection: sqlite3.Connection, now: int) -> list[ScheduleView]:
    """Return the known schedules by name."""
    return [
        ScheduleView(
            schedule=Schedule(name=name, task=task, cron=cron, timezone=timezone, next_at=moment(next_at), spec=spec),
            due_in=(next_at - now) / 1_000_000,
            last_at=moment_or_none(last_at),
            last_job=uuid_or_none(last_job),
        )
        for name, task, cron, timezone, spec, next_at, last_at, last_job in connection.execute(sql("schedules.schedules"))
    ]


def fire(writing: Writing, firing: Firing) -> Enqueued | None:
    """Advance a schedule from one slot to the next and enqueue the job of the slot; see the port."""
    slot = stamp(firing.slot)
    values = (stamp(firing.next_at), firing.name, slot)
    if not writing.connection.execute(sql("fire.advance"), values).rowcount or firing.job is None:
        return None
    (answer,) = enqueue(writing, [firing.job])
    writing.connection.execute(sql("fire.fired"), (slot, answer.job_id.bytes, firing.name))
    return answer
