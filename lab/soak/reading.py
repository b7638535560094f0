"""Reading what a run has left: every job with its event log, through the port of the store, and the user's own tables."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.core.states import LIVE, Event, State
from holdfast.store.port import JobFilter
from holdfast.store.replay import replay
from lab.soak.books import CHILDREN, EFFECTS, LAPSED, REPORT, TICK, Found, Job
from lab.soak.lapses import Lapse
from lab.soak.tasks import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.store.port import EventView, JobView
    from holdfast.store.port.requests import Part
    from lab.soak.ground import Ground

PAGE: Final = 2000
AT_ONCE: Final = 4
"""Event logs read at the same time."""
LAPSES: Final = frozenset({Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL})
COSTS: Final = LAPSES | {Event.RETRY, Event.RETRY_LATER, Event.FAIL}
"""Events that count as a failure of the job."""
FREE: Final = "its worker was shutting down"
"""What the log says of a lapse that does not."""
_REPLACED: Final = re.compile(r"replaced by (?:job )?(\S+)")
_SAID: Final = re.compile(r"part \d+ by (\d+)")


async def read(ground: Ground, first_slot: float | None, progress: Callable[[int], None]) -> Found:
    """Read everything. `progress` is told how many jobs have been read, now and then."""
    jobs: dict[str, Job] = {}
    after = None
    while True:
        page = await ground.store.find(JobFilter(), limit=PAGE, after=after)
        for start in range(0, len(page.jobs), AT_ONCE * 50):
            some = page.jobs[start : start + AT_ONCE * 50]
            turns = [_logs(ground, some[turn::AT_ONCE]) for turn in range(AT_ONCE)]
            for logs in await asyncio.gather(*turns):
                jobs.update((str(view.id), job_of(view, events, parts)) for view, events, parts in logs)
        progress(len(jobs))
        if (after := page.after) is None:
            break
    stats = await ground.store.stats()
    for slot, fired in await ground.query("SELECT slot, job FROM fired"):
        if (tick := jobs.get(str(UUID(fired)))) is not None:
            tick.slot = round(slot)
    return Found(
        jobs=jobs,
        counts={state: stats.count(state) for state in State},
        ledger=[
            (str(job), int(attempt), int(amount))
            for job, attempt, amount in await ground.query("SELECT job, attempt, amount FROM ledger")
        ],
        orders=[str(row[0]) for row in await ground.query("SELECT job FROM orders")],
        slots=await _slots(ground, first_slot),
    )


async def refused(ground: Ground) -> dict[str, int]:
    """Return the writes that the store refused because their lease was lost, by kind, as workers last told."""
    counts: dict[str, int] = {}
    for view in await ground.store.workers(limit=100_000):
        for name, count in json.loads(view.counters).items():
            if name.startswith("stale_writes"):
                kind = name.partition(":")[2] or "writes"
                counts[kind] = counts.get(kind, 0) + count
    return counts


def job_of(view: JobView, events: Sequence[EventView], parts: Sequence[Part] = ()) -> Job:
    """Return what the books need of a job."""
    args: dict[str, Any] = json.loads(view.args) if view.task in CHILDREN or view.task in EFFECTS else {}
    ends = [event for event in events if event.state is not None and event.state not in LIVE]
    end = ends[-1] if ends else None
    replaced = _REPLACED.search(end.detail) if end is not None else None
    said = _SAID.match(view.message)
    return Job(
        id=str(view.id),
        kind=view.task,
        state=view.state,
        attempt=view.attempt,
        failures=view.failures,
        budget=view.policy.retry.max_attempts,
        created=view.created_at.timestamp(),
        claims=tuple((event.attempt, event.at.timestamp()) for event in events if event.event is Event.CLAIM),
        let_go=tuple(_let_go(events)),
        ended=None if view.finished_at is None else view.finished_at.timestamp(),
        result=None if view.result is None else json.loads(view.result),
        outside=end is not None and end.event is Event.COMPLETE_OUTSIDE,
        overdue=end is not None and end.event is Event.OVERDUE,
        replaced_by=None if replaced is None else replaced[1],
        asked_to_stop=any(event.event is Event.CANCEL for event in events),
        begun_after_stop=_begun_after_stop(events),
        costs=tuple(_code(event) for event in events if _costs(event)),
        lapses=tuple(_lapses(events)),
        parts=tuple(json.loads(part.data or "{}").get("attempt", 0) for part in sorted(parts, key=lambda part: part.name)),
        said=None if said is None else int(said[1]),
        chain=None if view.chain_id is None else str(view.chain_id),
        after=tuple(str(one) for one in view.after),
        key=view.key,
        parent=args.get("parent"),
        amount=args.get("amount", 0),
        wrong=_wrong(view, events),
    )


def _let_go(events: Sequence[EventView]) -> Iterator[tuple[int, float]]:
    """Yield each attempt with the moment at which its lease was over."""
    attempt = None
    for event in events:
        if event.event is Event.CLAIM:
            attempt = event.attempt
        elif attempt is not None and event.state not in (None, State.RUNNING):
            yield attempt, event.at.timestamp()
            attempt = None


def _begun_after_stop(events: Sequence[EventView]) -> bool:
    kinds = [event.event for event in events]
    return Event.CANCEL in kinds and Event.CLAIM in kinds[kinds.index(Event.CANCEL) :]


def _costs(event: EventView) -> bool:
    return event.event in COSTS and not (event.event in LAPSES and FREE in event.detail)


def _code(event: EventView) -> str:
    return LAPSED if event.event in LAPSES else event.detail.partition(":")[0]


def _lapses(events: Sequence[EventView]) -> Iterator[Lapse]:
    """Yield the lapses that cost something: who held the lease, from when to when."""
    claim = None
    for event in events:
        if event.event is Event.CLAIM:
            claim = event
        elif event.event in LAPSES and _costs(event) and claim is not None:
            yield Lapse(claim.actor, claim.at.timestamp(), event.at.timestamp())


async def _logs(ground: Ground, views: Sequence[JobView]) -> list[tuple[JobView, Sequence[EventView], Sequence[Part]]]:
    store = ground.store
    return [(view, await store.events(view.id), await store.parts(view.id) if view.task == REPORT else ()) for view in views]


async def _slots(ground: Ground, first: float | None) -> list[float]:
    """Return the slots that the schedule has passed since it was first seen."""
    for view in await ground.store.schedules():
        if view.schedule.task == TICK and first is not None:
            count = round((view.schedule.next_at.timestamp() - first) / EVERY)
            return [first + EVERY * number for number in range(count)]
    return []


def _wrong(view: JobView, events: Sequence[EventView]) -> str | None:
    try:
        state = replay(events)
    except ValueError as error:
        return str(error)
    if state is view.state:
        return None
    return f"it leads to {state}: {', '.join(str(event.event) for event in events)}"
