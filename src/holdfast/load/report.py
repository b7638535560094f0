"""What a load came to, told from what the store knows of its jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.states import TERMINAL, State
from holdfast.store.port import Action

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from holdfast.load.arrivals import Pace
    from holdfast.load.driver import Driven
    from holdfast.store.port import AuditView, JobView, Store

PAGE: Final = 500
POINTS: Final = 120
"""How many points a curve has, at most."""
ROUND: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0)


class Spread(msgspec.Struct, frozen=True):
    """Percentiles in seconds, by nearest rank; all `None` when there was nothing to measure."""

    count: int = 0
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    longest: float | None = None


class KindReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs of one kind."""

    enqueued: int
    succeeded: int
    failed: int
    canceled: int
    unfinished: int
    attempts: int
    wait: Spread
    run: Spread


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the load: what came and went in it, and what stood at its end."""

    at: float
    """Seconds from the beginning to its end."""
    enqueued: float
    """Per second."""
    ended: float
    """Per second."""
    waiting: int
    running: int


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager wrote into the audit log about the number of workers."""

    at: datetime
    actor: str
    workers: int
    """How many there were to be from then on."""
    change: int
    """How many more that is than before; 0 where it said why it stays at what it is, or began."""
    detail: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole account. `wait` is from the enqueue to the first claim, `run` the length of each attempt."""

    pattern: str
    seed: int
    tag: str
    """What its jobs are tagged with."""
    rate_asked: float
    rate_reached: float
    planned: int
    enqueued: int
    seconds: float
    """How long enqueuing took."""
    most_behind: int
    ended: int
    unfinished: int
    missing: int
    """Deleted or pruned before the report was made."""
    throughput: float | None
    """Jobs that ended, per second from the first enqueue to the last end."""
    most_workers: int
    wait: Spread
    run: Spread
    kinds: dict[str, KindReport]
    scaling: list[Scaling]
    timeline: list[Moment]
    interrupted: bool


@dataclass(slots=True)
class Story:
    """One job: when it was enqueued, first claimed, and ended, and when each attempt ran."""

    task: str
    state: State
    created: datetime
    attempts: list[tuple[datetime, datetime | None]]
    finished: datetime | None

    @property
    def wait(self) -> float | None:
        """Seconds until it was first claimed."""
        return (self.attempts[0][0] - self.created).total_seconds() if self.attempts else None

    @property
    def runs(self) -> list[float]:
        """Seconds of each attempt that has ended."""
        return [(end - begin).total_seconds() for begin, end in self.attempts if end is not None]


@dataclass(slots=True)
class Seen:
    """What was noticed while the load ran."""

    begun: datetime
    most_workers: int = 0
    workers: list[tuple[float, int]] = field(default_factory=list)
    """Seconds from the beginning, and how many there were."""
    interrupted: bool = False


async def report(store: Store, driven: Driven, pace: Pace, seen: Seen, *, seed: int, tag: str) -> Report:
    """Ask the store what became of every job that was enqueued, and add it up."""
    stories = await _stories(store, driven.ids)
    ended = [story for story in stories if story.state in TERMINAL]
    last = max((story.finished for story in ended if story.finished is not None), default=None)
    first = min((story.created for story in stories), default=None)
    span = (last - first).total_seconds() if first is not None and last is not None else 0.0
    names = sorted({story.task for story in stories})
    return Report(
        pattern=pace.pattern,
        seed=seed,
        tag=tag,
        rate_asked=pace.rate,
        rate_reached=driven.rate,
        planned=pace.total,
        enqueued=len(driven.ids),
        seconds=driven.seconds,
        most_behind=driven.most_behind,
        ended=len(ended),
        unfinished=len(stories) - len(ended),
        missing=len(driven.ids) - len(stories),
        throughput=len(ended) / span if span else None,
        most_workers=seen.most_workers,
        wait=_waits(stories),
        run=_runs(stories),
        kinds={name.removeprefix("load."): _of_kind([one for one in stories if one.task == name]) for name in names},
        scaling=await _scaling(store, seen.begun),
        timeline=timeline(stories),
        interrupted=seen.interrupted,
    )


async def _stories(store: Store, ids: Sequence[UUID]) -> list[Story]:
    views: list[JobView] = []
    for start in range(0, len(ids), PAGE):
        views += [view for view in await store.get(ids[start : start + PAGE]) if view is not None]
    return [await _story(store, view) for view in views]


async def _story(store: Store, view: JobView) -> Story:
    """Return the story of a job. The view alone tells of a first attempt; earlier ones are asked for."""
    claimed = view.claimed_at
    if view.attempt == 1 and claimed is not None and view.state is not State.READY and view.state is not State.SCHEDULED:
        return Story(view.task, view.state, view.created_at, [(claimed, view.finished_at)], view.finished_at)
    attempts = await store.attempts(view.id) if view.attempt else []
    spans = [(one.claimed_at, one.ended_at) for one in attempts]
    return Story(view.task, view.state, view.created_at, spans, view.finished_at)


def _of_kind(stories: Sequence[Story]) -> KindReport:
    def count(state: State) -> int:
        return sum(story.state is state for story in stories)

    return KindReport(
        enqueued=len(stories),
        succeeded=count(State.SUCCEEDED),
        failed=count(State.FAILED),
        canceled=count(State.CANCELED),
        unfinished=sum(story.state not in TERMINAL for story in stories),
        attempts=sum(len(story.attempts) for story in stories),
        wait=_waits(stories),
        run=_runs(stories),
    )


def _waits(stories: Sequence[Story]) -> Spread:
    return spread([wait for story in stories if (wait := story.wait) is not None])


def _runs(stories: Sequence[Story]) -> Spread:
    return spread([run for story in stories for run in story.runs])


def spread(values: Sequence[float]) -> Spread:
    """Return the percentiles of some values."""
    if not values:
        return Spread()
    ordered = sorted(values)

    def rank(percent: int) -> float:
        return ordered[ceil(len(ordered) * percent / 100) - 1]

    return Spread(len(ordered), rank(50), rank(90), rank(99), ordered[-1])


async def _scaling(store: Store, since: datetime) -> list[Scaling]:
    """Return what managers wrote since then, oldest first."""
    found: list[AuditView] = []
    before: int | None = None
    while True:
        page = await store.audits(limit=PAGE, before=before, action=Action.SCALE)
        found += page
        # one page of earlier lines, which say how many there were before
        if len(page) < PAGE or page[0].at < since:
            return [line for line in _changes_of(found) if line.at >= since]
        before = page[-1].no


def _changes_of(lines: Sequence[AuditView]) -> Iterator[Scaling]:
    """Return what managers wrote, given newest first, from the oldest on."""
    before: dict[str, int] = {}
    for line in reversed(lines):
        workers = int(line.targets[0].split()[0])
        change = workers - before.get(line.actor, workers)
        before[line.actor] = workers
        yield Scaling(at=line.at, actor=line.actor, workers=workers, change=change, detail=line.detail)


def timeline(stories: Sequence[Story]) -> list[Moment]:
    """Return the load in stretches of equal length, from the first enqueue on."""
    if not stories:
        return []
    begun = min(story.created for story in stories)
    changes = sorted(change for story in stories for change in _changes(story, begun))
    size = next((one for one in ROUND if changes[-1][0] <= POINTS * one), changes[-1][0] / POINTS)
    moments: list[Moment] = []
    waiting = running = at = 0
    while at < len(changes):
        end = size * (len(moments) + 1)
        enqueued = ended = 0
        while at < len(changes) and changes[at][0] < end:
            _, new, old, waits, runs = changes[at]
            enqueued, ended, waiting, running = enqueued + new, ended + old, waiting + waits, running + runs
            at += 1
        moments.append(Moment(at=round(end, 3), enqueued=enqueued / size, ended=ended / size, waiting=waiting, running=running))
    return moments


def _changes(story: Story, begun: datetime) -> list[tuple[float, int, int, int, int]]:
    """Return when something changed, and by how much: enqueued, ended, waiting, running."""

    def at(moment: datetime) -> float:
        return max(timedelta(0), moment - begun).total_seconds()

    found = [(at(story.created), 1, 0, 1, 0)]
    for begin, end in story.attempts:
        found.append((at(begin), 0, 0, -1, 1))
        if end is not None:
            found.append((at(end), 0, 0, 1, -1))
    if story.finished is not None:
        # one that ended waits no more: takes back what the end of its last attempt, or its enqueue, said
        found.append((at(story.finished), 0, 1, -1, 0))
    return found
