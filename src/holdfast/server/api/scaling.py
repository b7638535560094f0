"""What an autoscaler is told: KEDA's metrics-api scaler, or whoever asks in its way."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.backlog import backlog
from holdfast.core.needs import HEARD_WITHIN
from holdfast.core.replicas import replicas
from holdfast.core.scaling import BUSY, SPARE
from holdfast.core.states import State
from holdfast.explaining import completed_outside
from holdfast.server.principal import Right
from holdfast.store.port import JobFilter, WorkerState, patience
from holdfast.wire.scaling import ScaleAnswer, ScaleQuery
from holdfast.wire.values import ms

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from holdfast.backlog import Backlog
    from holdfast.server.api.table import Asked
    from holdfast.store.port import Store, TaskCounts, WorkerView

LONG: Final = 5.0
"""Seconds after which a job that waits beside free slots is not about to be claimed."""
NEW: Final = timedelta(seconds=30)
"""For how long after it came nothing follows from a worker's free slots."""
MOST_LOOKS: Final = 50
"""Of how many queues and tasks it is asked what their jobs require: each is a statement."""
LOOKED_AT: Final = 20
"""How many jobs of each: those of a task mostly require the same, and a worker too many is less harm than one too few."""


async def scale(asked: Asked[ScaleQuery]) -> ScaleAnswer:
    """Return the backlog of some queues and tasks, and the replicas that it asks for. Exact counts, as of one look."""
    query, own = asked.body, asked.principal.queues
    for queue in query.queue:
        asked.allow(Right.LOOK, queue)
    queues = frozenset(query.queue) or own
    with patience(asked.settings.page_timeout):
        workers, now = await asked.store.workers(), await asked.store.now()
        outside = completed_outside(workers)  # no worker takes these, however many there are

        def counts(row: TaskCounts) -> bool:
            asked_for = not query.task or row.task in query.task
            return asked_for and (queues is None or row.queue in queues) and row.task not in outside

        todo = await backlog(asked.store, counts)
        serving = [view for view in workers if _claims(view) and _serves(view, queues)]
        held_back = await _held_back(asked.store, todo, serving, now)
    desired = replicas(todo.ready, todo.running, slots=query.slots, target=query.target)
    if held_back:
        desired = min(desired, max(1, ceil(todo.running / (SPARE * query.slots))))
    return ScaleAnswer(
        desired=desired,
        backlog=todo.ready + todo.running,
        ready=todo.ready,
        running=todo.running,
        paused=todo.paused,
        throttled=todo.throttled,
        oldest_waiting_ms=ms(todo.oldest or 0.0),
        workers=len(serving),
        slots=sum(view.worker.slots for view in serving),
    )


async def _held_back(store: Store, todo: Backlog, workers: Collection[WorkerView], now: datetime) -> bool:
    """Tell whether jobs wait for long beside slots that stay free: limits of their keys hold them back, which nobody counts.

    Only workers are looked at that live and would run all of what waits, and none of which has just come. A worker that crashed
    has free slots until it is marked offline minutes later, and must not stand for its own successor.
    """
    if (todo.oldest or 0.0) <= LONG:
        return False
    able = [view for view in workers if _lives(view, now) and _would_run(view, todo.waiting)]
    if not _stay_free(able, now):
        return False
    required = await _required(store, todo.waiting, now)  # asked last: most backlogs have been decided by here
    return required is not None and _stay_free([view for view in able if required <= set(view.worker.capabilities)], now)


def _lives(view: WorkerView, now: datetime) -> bool:
    return now - (view.heartbeat_at or view.registered_at) <= timedelta(seconds=HEARD_WITHIN)


def _stay_free(able: Collection[WorkerView], now: datetime) -> bool:
    settled = bool(able) and all(now - view.registered_at > NEW for view in able)
    taken, slots = sum(view.running for view in able), sum(view.worker.slots for view in able)
    return settled and taken < BUSY * slots


async def _required(store: Store, waiting: Collection[tuple[str, str]], now: datetime) -> set[str] | None:
    """Return what the jobs that wait for long require, by some of each queue and task; `None`: there are too many to look."""
    if len(waiting) > MOST_LOOKS:
        return None
    found: set[str] = set()
    before = now - timedelta(seconds=LONG)
    for queue, task in sorted(waiting):
        where = JobFilter(states=frozenset({State.READY}), queue=queue, task=task, created_before=before)
        page = await store.find(where, limit=LOOKED_AT)
        found.update(name for job in page.jobs for name in job.requires)
    return found


def _would_run(view: WorkerView, jobs: Collection[tuple[str, str]]) -> bool:
    try:
        knows = frozenset(msgspec.json.decode(view.worker.info, type=_Info).tasks)
    except msgspec.MsgspecError:  # any program may register one
        return False
    return all(task in knows and (view.queues is None or queue in view.queues) for queue, task in jobs)


class _Info(msgspec.Struct, frozen=True):
    """What a worker says of itself, as far as it matters here."""

    tasks: tuple[str, ...] = ()


def _claims(view: WorkerView) -> bool:
    return not view.manages and view.state not in (WorkerState.OFFLINE, WorkerState.DISABLED) and not view.drains


def _serves(view: WorkerView, queues: Collection[str] | None) -> bool:
    """Tell whether a worker serves one of these queues, as far as it says: what it does not say, it may serve."""
    return queues is None or view.queues is None or not set(queues).isdisjoint(view.queues)
