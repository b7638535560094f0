"""What an autoscaler is told: KEDA's metrics-api scaler, or whoever asks in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.replicas import replicas
from holdfast.core.states import State
from holdfast.server.principal import Right
from holdfast.store.port import WorkerState, patience
from holdfast.wire.scaling import ScaleAnswer, ScaleQuery
from holdfast.wire.values import ms

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.server.api.table import Asked
    from holdfast.store.port import TaskCounts, WorkerView


async def scale(asked: Asked[ScaleQuery]) -> ScaleAnswer:
    """Return the backlog of some queues and tasks, and the replicas that it asks for. Exact counts, as of one look."""
    query, own = asked.body, asked.principal.queues
    for queue in query.queue:
        asked.allow(Right.LOOK, queue)
    queues = frozenset(query.queue) or own
    with patience(asked.settings.page_timeout):
        stats = await asked.store.stats()
        paused = {view.name for view in await asked.store.queues() if view.paused_at is not None}
        workers = await asked.store.workers()
    rows = [
        row for row in stats.tasks if (queues is None or row.queue in queues) and (not query.task or row.task in query.task)
    ]
    ready = _count([row for row in rows if row.queue not in paused], State.READY)
    running = _count(rows, State.RUNNING)
    waiting = {row.queue for row in rows if row.queue not in paused and row.counts.get(State.READY)}
    serving = [view for view in workers if _claims(view) and _serves(view, queues)]
    return ScaleAnswer(
        desired=replicas(ready, running, slots=query.slots, target=query.target),
        backlog=ready + running,
        ready=ready,
        running=running,
        paused=_count([row for row in rows if row.queue in paused], State.READY),
        oldest_waiting_ms=ms(max((stats.oldest_waiting.get(queue, 0.0) for queue in waiting), default=0.0)),
        workers=len(serving),
        slots=sum(view.worker.slots for view in serving),
    )


def _count(rows: Collection[TaskCounts], state: State) -> int:
    return sum(row.counts.get(state, 0) for row in rows)


def _claims(view: WorkerView) -> bool:
    return view.state not in (WorkerState.OFFLINE, WorkerState.DISABLED) and view.draining_at is None


def _serves(view: WorkerView, queues: Collection[str] | None) -> bool:
    """Tell whether a worker serves one of these queues, as far as it says: what it does not say, it may serve."""
    return queues is None or view.queues is None or not set(queues).isdisjoint(view.queues)
