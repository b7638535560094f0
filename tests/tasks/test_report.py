"""What is put together about how a job went."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.core.job import Policy
from holdfast.core.states import Event, State
from holdfast.store.port import AttemptView, EventView, JobView
from holdfast.tasks.report import make_report

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


class Log(list[EventView]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[EventView]:
        self.times += 1
        return super().__iter__()


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def test_a_log_is_gone_through_a_few_times_however_often_the_job_was_tried() -> None:
    chance = Random(7)
    log, attempts, waits, now = Log([EventView(event=Event.ENQUEUE, at=BEGAN, state=State.READY)]), [], [], 0.0
    for number in range(1, 501):
        waits.append(chance.uniform(0.0, 5.0))
        begun, now = now + waits[-1], now + waits[-1] + 2.0
        log += [
            EventView(event=Event.CLAIM, at=at(begun), state=State.RUNNING, attempt=number),
            EventView(event=Event.STAGE_ENTER, at=at(begun), state=State.RUNNING, attempt=number, detail="a"),
            EventView(event=Event.STAGE_ENTER, at=at(begun + 0.5), state=State.RUNNING, attempt=number, detail="a"),
            EventView(event=Event.STAGE_LEAVE, at=at(begun + 0.75), state=State.RUNNING, attempt=number, detail="a"),
            EventView(event=Event.RETRY_LATER, at=at(now), state=State.SCHEDULED, attempt=number),
            EventView(event=Event.PROMOTE, at=at(now + 10.0), state=State.READY, attempt=number),
        ]
        attempts.append(
            AttemptView(
                attempt=number,
                worker_id=None,
                worker_name=None,
                claimed_at=at(begun),
                ended_at=at(now),
                event=Event.RETRY_LATER,
            )
        )
        now += 10.0
    view = JobView(
        id=UUID(int=1),
        task="t",
        queue="q",
        priority=0,
        state=State.READY,
        args="[]",
        attempt=500,
        failures=500,
        created_at=BEGAN,
        lease_seconds=1.0,
        policy=Policy(),
    )

    report = make_report(view, attempts, log, (), at(now))

    assert log.times < 10
    assert [round(row.waited, 3) for row in report.attempts] == [round(wait, 3) for wait in waits]
    assert [stage.seconds for stage in report.stages] == [None, 0.25] * 500, "the inner one of a name ends first"
    assert str(report).count("    a: 0.250 s") == 500
