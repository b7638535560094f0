"""How a job went, on one page: for people, and as JSON."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.core.outcome import Error
from holdfast.core.states import STAGE_EVENTS, TERMINAL, Event, State
from holdfast.store.port import AttemptView, EventView, JobView, Part

if TYPE_CHECKING:
    from collections.abc import Sequence


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a completion from outside: whether it stands, and who ended the job first."""

    applied: bool
    """False: the job had ended before, and nothing changed."""
    state: State
    """How it ended."""
    by: str
    """Who ended it: the `by` of the completion that stands, or the worker that ran it."""
    at: datetime
    """When."""


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of one attempt: how long it took and how it ended."""

    name: str
    attempt: int
    started_at: datetime
    seconds: float | None = None
    """`None`: it never ended; its attempt did."""
    failed: bool = False


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of the job."""

    attempt: int
    worker: str | None
    started_at: datetime
    waited: float
    """Seconds between being due (or having been given back) and this claim."""
    seconds: float | None = None
    """How long it was held; `None`: it runs."""
    ended: Event | None = None
    late: bool = False
    error: Error | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a job went. `str(report)` is for people; `msgspec.json.encode(report)` for machines."""

    id: UUID
    task: str
    queue: str
    state: State
    created_at: datetime
    finished_at: datetime | None
    failures: int
    attempts: list[AttemptReport]
    stages: list[StageReport]
    parts: list[Part]
    waited: float
    """Seconds it waited in all."""
    ran: float
    """Seconds it was held in all."""
    worker: str | None = None
    """Who ended it, or holds it."""
    result: str | None = None
    error: Error | None = None

    def __str__(self) -> str:
        total = "" if self.finished_at is None else f" after {(self.finished_at - self.created_at).total_seconds():.3f} s"
        lines = [
            f"{self.task} {self.id}",
            f"  {self.state}{total}: {len(self.attempts)} attempt(s), {self.failures} failure(s)",
            f"  waited {self.waited:.3f} s, ran {self.ran:.3f} s",
        ]
        if self.error is not None:
            lines.append(f"  {self.error.code}: {self.error.message}")
        stages: defaultdict[int, list[StageReport]] = defaultdict(list)
        for stage in self.stages:
            stages[stage.attempt].append(stage)
        for attempt in self.attempts:
            took = "runs" if attempt.seconds is None else f"{attempt.seconds:.3f} s"
            end = f" {attempt.ended}" if attempt.ended else ""
            why = f" ({attempt.error.code}: {attempt.error.message})" if attempt.error else ""
            lines.append(f"  attempt {attempt.attempt} on {attempt.worker or '?'}: {took}{end}{why}")
            lines.extend(
                f"    {stage.name}: {'-' if stage.seconds is None else f'{stage.seconds:.3f} s'}{' failed' * stage.failed}"
                for stage in stages[attempt.attempt]
            )
        lines.extend(f"  part {part.name}: {part.state}" for part in self.parts)
        return "\n".join(lines)


def completion(events: Sequence[EventView], *, applied: bool) -> Completion | None:
    """Return how a job ended by what its event log says; `None`: it has not, it was brought back meanwhile."""
    for event in reversed(events):
        if event.state is not None and event.state in TERMINAL:
            return Completion(applied=applied, state=event.state, by=event.actor, at=event.at)
    return None


def make_report(
    view: JobView, attempts: Sequence[AttemptView], events: Sequence[EventView], parts: Sequence[Part], now: datetime
) -> Report:
    """Put a report together from what the store knows; `now` bounds what still goes on."""
    waits = _Waits(view, attempts, events)
    rows = [
        AttemptReport(
            attempt=one.attempt,
            worker=one.worker_name,
            started_at=one.claimed_at,
            waited=waits.before(one),
            seconds=None if one.ended_at is None else (one.ended_at - one.claimed_at).total_seconds(),
            ended=one.event,
            late=one.late,
            error=one.error,
        )
        for one in attempts
    ]
    return Report(
        id=view.id,
        task=view.task,
        queue=view.queue,
        state=view.state,
        created_at=view.created_at,
        finished_at=view.finished_at,
        failures=view.failures,
        attempts=rows,
        stages=_stages(events),
        parts=list(parts),
        waited=sum(row.waited for row in rows) or max(0.0, ((view.finished_at or now) - view.created_at).total_seconds()),
        ran=sum(_held(one, now) for one in attempts),
        worker=view.worker_name,
        result=view.result,
        error=view.error,
    )


def _held(attempt: AttemptView, now: datetime) -> float:
    return max(0.0, ((attempt.ended_at or now) - attempt.claimed_at).total_seconds())


class _Waits:
    """The moments at which a job came to wait, in order: a job may have been tried thousands of times."""

    def __init__(self, view: JobView, attempts: Sequence[AttemptView], events: Sequence[EventView]) -> None:
        ready = [event.at for event in events if event.state is State.READY]
        ends = [one.ended_at for one in attempts if one.ended_at is not None]
        self._created_at = view.created_at
        self._moments = sorted(ready + ends)

    def before(self, attempt: AttemptView) -> float:
        """Return the seconds since the last of them before the claim."""
        index = bisect_right(self._moments, attempt.claimed_at)
        since = max(self._created_at, self._moments[index - 1]) if index else self._created_at
        return max(0.0, (attempt.claimed_at - since).total_seconds())


def _stages(events: Sequence[EventView]) -> list[StageReport]:
    """Pair each entry with the next end of the same name in the same attempt; inner stages of the same name end first."""
    stages: list[StageReport] = []
    running: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for event in events:
        if event.event not in STAGE_EVENTS:
            continue
        if event.event is Event.STAGE_ENTER:
            running[event.detail, event.attempt].append(len(stages))
            stages.append(StageReport(name=event.detail, attempt=event.attempt, started_at=event.at))
            continue
        if open_ones := running[event.detail, event.attempt]:
            index = open_ones.pop()
            seconds = max(0.0, (event.at - stages[index].started_at).total_seconds())
            failed = event.event is Event.STAGE_FAIL
            stages[index] = msgspec.structs.replace(stages[index], seconds=seconds, failed=failed)
    return stages
