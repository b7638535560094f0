"""What waits and runs in some queues, for whoever decides how many workers there should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.limits import LimitKind, LimitName
from holdfast.core.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.store.port import LimitView, QueueView, Store, TaskCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What there is to do, whoever does it."""

    ready: int
    """Jobs that a free slot would start."""
    running: int
    paused: int
    """Ready jobs of paused queues: they wait for a person, not for a worker."""
    throttled: int
    """Ready jobs that a limit of their queue or task holds back: more workers would not start them."""
    oldest: float | None
    """Seconds that the oldest ready job has waited, of the queues where any may start; `None`: none may."""
    waiting: frozenset[tuple[str, str]]
    """The queue and task of those that are ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What of it is of one task in one queue. The same words as above."""

    queue: str
    task: str
    ready: int
    running: int
    paused: int
    throttled: int


async def backlog(store: Store, counts: Callable[[TaskCounts], bool]) -> Backlog:
    """Return what waits and runs, of those queues and tasks that count.

    Limits of keys are not looked at, since jobs are not counted by key: what those hold back is ready here. A `fifo` queue does
    not ask for the limits of its tasks, and who counts cannot tell: where a task has one, its jobs are taken to be under it.
    """
    stats = await store.stats()
    found = await shares(store, [row for row in stats.tasks if counts(row)], await store.queues())
    # ages are known by queue: where only some tasks are held back it may be one of theirs, and a worker too many is less harm
    starting = [share for share in found if share.ready]
    return Backlog(
        ready=sum(share.ready for share in found),
        running=sum(share.running for share in found),
        paused=sum(share.paused for share in found),
        throttled=sum(share.throttled for share in found),
        oldest=max((stats.oldest_waiting.get(share.queue, 0.0) for share in starting), default=None),
        waiting=frozenset((share.queue, share.task) for share in starting),
    )


async def shares(store: Store, rows: Iterable[TaskCounts], queues: Iterable[QueueView]) -> list[Share]:
    """Return the backlog by queue and task, in the order of these rows. Those that share a limit share its room."""
    paused = {queue.name for queue in queues if queue.paused_at is not None}
    rows = list(rows)
    in_turn = [row for row in rows if row.counts.get(State.READY, 0) and row.queue not in paused]
    limits = await store.limits(list(dict.fromkeys(_over(in_turn)))) if in_turn else []
    may_start = {(row.queue, row.task): number for row, number in zip(in_turn, _may_start(in_turn, limits), strict=True)}
    found = []
    for row in rows:
        waiting, starts = row.counts.get(State.READY, 0), may_start.get((row.queue, row.task), 0)
        held = waiting - starts
        found.append(
            Share(
                queue=row.queue,
                task=row.task,
                ready=starts,
                running=row.counts.get(State.RUNNING, 0),
                paused=held if row.queue in paused else 0,
                throttled=0 if row.queue in paused else held,
            )
        )
    return found


def _over(rows: Iterable[TaskCounts]) -> Iterable[LimitName]:
    for row in rows:
        yield LimitName(LimitKind.QUEUE, row.queue)
        yield LimitName(LimitKind.TASK, row.task)


def _may_start(rows: Sequence[TaskCounts], limits: Iterable[LimitView]) -> list[int]:
    """Return how many ready jobs of each row its limits let start now; rows that share a limit share its room."""
    left = {limit.name: starts for limit in limits if limit.room is not None and (starts := limit.room.starts) is not None}
    found = []
    for row in rows:
        over = [name for name in _over([row]) if name in left]
        number = min(row.counts[State.READY], *(left[name] for name in over)) if over else row.counts[State.READY]
        for name in over:
            left[name] -= number
        found.append(number)
    return found
