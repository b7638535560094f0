"""What is wrong, in the order in which somebody on call should hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.spans import span
from holdfast.core.states import State
from holdfast.explaining import GONE, completed_outside, longest_wait, unserved
from holdfast.server.alerts.delivering import QUEUE
from holdfast.server.ui import query
from holdfast.server.ui.shown import number
from holdfast.store.port import SILENT, WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from holdfast.server.ui.charts import Ended
    from holdfast.server.ui.overview import Group
    from holdfast.store.port import QueueView, Stats, TaskCounts, WorkerView

SLOW: Final = 1.0
"""Seconds for what takes the store milliseconds."""
LONG_WAIT: Final = 600.0
"""Seconds a ready job may have waited before that is worth a word."""
MUCH: Final = 0.1
"""The share of attempts that may fail, ..."""
FEW: Final = 5
"""... where more than these do."""
NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Link:
    """Where to look further."""

    words: str
    path: str
    """Empty: on this page."""
    place: str = ""
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that is wrong, what would mend it, and where to look."""

    text: str
    fix: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the overview has read, of the queues that somebody may see."""

    now: datetime
    stats: Stats
    queues: Sequence[QueueView]
    workers: Sequence[WorkerView]
    """Those that run jobs, also those that are gone."""
    lapsed: int
    ended: Ended
    groups: Sequence[Group]
    took: float
    """Seconds that the store took for the counts, the workers and the queues."""
    left_out: bool
    """Whether it was too slow for the rest."""


def troubles(seen: Seen) -> list[Trouble]:
    """Return what is wrong, the worst first."""
    return [*_store(seen), *_workers(seen), *_waits(seen), *_lapsed(seen), *_failing(seen)]


def _store(seen: Seen) -> Iterator[Trouble]:
    if seen.took < SLOW and not seen.left_out:
        return
    text = f"The store is slow: it took {span(round(seen.took, 1))} for the first counts of this page"
    if seen.left_out:
        text += ", and too long for the rest, which is left out"
    yield Trouble(
        text=text, fix="Jobs are as slow as it is. Look at the load of the database, at its disk, and for long transactions."
    )


def _workers(seen: Seen) -> Iterator[Trouble]:
    live = [one for one in seen.workers if one.state not in GONE]
    silent = [one for one in live if one.silent(seen.now) is not None]
    claiming = [one for one in live if one not in silent and not one.drains]
    waiting = _waiting(seen)
    link = Link("the workers", "/workers", params={"all": 1})
    if waiting and not claiming:
        yield Trouble(
            text=f"No worker takes jobs, and {_many(sum(map(_ready, waiting)), 'job')} {_wait(waiting)}: {_gone(seen, silent)}",
            fix="Start one: holdfast worker MODULE:APP",
            links=(link, Link("the jobs that wait", "/jobs", params={"q": "state:ready"})),
        )
        return
    if silent:
        text = f"{len(silent):,} of {_many(len(live), 'worker')} said nothing for more than {span(SILENT)}"
        yield Trouble(text=text, fix="Look whether they still run, and whether they reach the store.", links=(link,))
    rows = sorted(unserved(waiting, claiming), key=lambda row: -_ready(row))
    for row in rows[:NAMED]:
        yield Trouble(
            text=f"No worker takes {row.task} from the queue {row.queue}, and {_many(_ready(row), 'job')} {_wait([row])}",
            fix=f"Start one that does: holdfast worker MODULE:APP --queues {row.queue}",
            links=(_jobs(f"state:ready {query.token('queue', row.queue)} {query.token('task', row.task)}"), link),
        )
    if more := rows[NAMED:]:
        jobs = f"{_many(sum(map(_ready, more)), 'job')} {_wait(more)}"
        text = f"Nor does any worker take {_many(len(more), 'more task')}, of which {jobs}"
        yield Trouble(text=text, links=(Link("the queues", "/queues"),))


def _waits(seen: Seen) -> Iterator[Trouble]:
    longest = longest_wait(seen.stats, seen.queues, seen.workers)
    if longest is not None and longest[1] >= LONG_WAIT:
        queue, seconds = longest
        ready = seen.stats.count(State.READY, queue=queue)
        there = f"{number(ready)} {'is' if ready == 1 else 'are'} ready there"
        text = f"The oldest job in the queue {queue} has waited for {span(seconds)}; {there}"
        yield Trouble(
            text=text,
            fix="The page of a job says why it does not run.",
            links=(_jobs(f"state:ready {query.token('queue', queue)}"), Link("the queues", "/queues")),
        )


def _lapsed(seen: Seen) -> Iterator[Trouble]:
    if seen.lapsed:
        have = "has" if seen.lapsed == 1 else "have"
        yield Trouble(
            text=f"{_many(seen.lapsed, 'stalled lease')}: {_many(seen.lapsed, 'running job')} {have} lost the worker",
            fix="A live worker, or this server, gives them to others within seconds. If this stays, none of them looks.",
            links=(Link("what is stalled", "", "running"), Link("the jobs that run", "/jobs", params={"q": "state:running"})),
        )


def _failing(seen: Seen) -> Iterator[Trouble]:
    badly, share = seen.ended.badly, seen.ended.share
    if badly <= FEW or share < MUCH:
        return
    worst = seen.groups[0] if seen.groups else None
    kinds = f", and {_many(len(seen.groups) - 1, 'other kind')}" if len(seen.groups) > 1 else ""
    most = "" if worst is None else f"; in the last hour most of {worst.task} with {worst.code}{kinds}"
    yield Trouble(
        text=f"{share:.0%} of the attempts of the last 5 minutes failed, {number(seen.ended.badly_a_minute)} a minute{most}",
        links=(Link("what fails", "", "failing"), _jobs("state:failed since:1h", "the jobs that failed")),
    )


def _waiting(seen: Seen) -> list[TaskCounts]:
    """Return what is ready for people's workers: neither paused, nor for somebody else to complete, nor a server's own."""
    paused = {queue.name for queue in seen.queues if queue.paused_at is not None}
    outside = completed_outside(seen.workers)
    others = paused | {QUEUE}
    return [row for row in seen.stats.tasks if _ready(row) and row.queue not in others and row.task not in outside]


def _gone(seen: Seen, silent: Sequence[WorkerView]) -> str:
    """Return what has become of all workers."""
    if not seen.workers:
        return "there never was one"
    states = [one.state for one in seen.workers]
    drain = sum(1 for one in seen.workers if one.state not in GONE and one.drains and one not in silent)
    counts = {
        "offline": states.count(WorkerState.OFFLINE),
        "disabled": states.count(WorkerState.DISABLED),
        f"silent for more than {span(SILENT)}": len(silent),
        "about to end": drain,
    }
    heard = min(one.silence(seen.now) for one in seen.workers)
    told = ", ".join(f"{count:,} {'is' if count == 1 else 'are'} {what}" for what, count in counts.items() if count)
    return f"{told}; the last sign of life was {span(round(heard))} ago"


def _jobs(q: str, words: str = "the jobs that wait") -> Link:
    return Link(words, "/jobs", params={"q": q})


def _ready(row: TaskCounts) -> int:
    return row.counts.get(State.READY, 0)


def _wait(rows: Sequence[TaskCounts]) -> str:
    return "waits" if sum(map(_ready, rows)) == 1 else "wait"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
