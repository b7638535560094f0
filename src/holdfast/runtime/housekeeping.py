"""What every worker does for the whole fleet besides its jobs. Several at once do no harm; none of it needs a leader."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from holdfast.core.states import TERMINAL
from holdfast.notify.port import Hint
from holdfast.runtime import counters as count

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.runtime.base import Base
    from holdfast.store.port import Retention

logger = logging.getLogger("holdfast.worker")

BATCH: Final = 1000
ALARM: Final = 5.0
ALARM_UNHINTED: Final = 1.0
"""The promoter looks at least this often, while hints of scheduled jobs arrive and while they do not."""
SWEEP: Final = 10.0
SWEEP_UNHINTED: Final = 1.0
"""Waiters that a caller's transaction created are looked for this often, while hints of them arrive and while they do not."""
SOONEST: Final = 0.001
OFFLINE_AFTER: Final = 300.0


class Promoter:
    """Makes due jobs ready; the next due time sets its alarm."""

    interval = ALARM

    def __init__(self, base: Base) -> None:
        self._store = base.store
        self._notifier = base.notifier

    async def tick(self) -> float | None:
        """Promote what is due; returns when to come again."""
        promoted = await self._store.promote(BATCH)
        if promoted.queues:
            self._notifier.hint(Hint(promoted.queues))
        if promoted.count >= BATCH:
            return 0.0
        alarm = ALARM if self._notifier.healthy else ALARM_UNHINTED
        return alarm if promoted.next_due is None else min(alarm, max(SOONEST, promoted.next_due))


class Reaper:
    """Settles leases that lapsed: any worker reaps any task, its own first."""

    interval = 5.0

    def __init__(self, base: Base, tasks: frozenset[str]) -> None:
        self._store = base.store
        self._notifier = base.notifier
        self._counters = base.counters
        self._figures = base.figures
        self._outage = base.outage
        self._tasks = tasks

    async def tick(self) -> float | None:
        """Reap a batch; returns at once for more."""
        reaped = await self._store.reap(BATCH, tasks=self._tasks, up_for=self._outage.undisturbed())
        self._outage.heard()
        self._figures.reaped(reaped)
        for one in reaped:
            self._counters.add(count.RECOVERED, label=one.write.event)
            context = {"job_id": str(one.job_id), "task": one.task, "attempt": one.attempt}
            text = f"job {one.job_id} ({one.task}), attempt {one.attempt}"
            logger.warning("%s: its lease lapsed (%s)", text, one.write.event, extra=context)
        if reaped:
            self._notifier.hint(
                Hint(
                    frozenset(one.queue for one in reaped),
                    later=True,
                    jobs=frozenset(one.job_id for one in reaped),
                    anything=any(one.write.state in TERMINAL for one in reaped),  # others may have waited for them
                )
            )
        return 0.0 if len(reaped) >= BATCH else None


class Sweeper:
    """Frees waiters whose blockers ended unseen, ends waiting jobs past their time, marks silent workers offline."""

    interval = SWEEP

    def __init__(self, base: Base) -> None:
        self._store = base.store
        self._notifier = base.notifier
        self._environment = base.environment
        self._all_at = 0.0
        """When everything is due again. Waiters may be swept more often: a hint tells of them, or there are no hints."""

    async def tick(self) -> float | None:
        """Sweep a batch of each; returns at once for more."""
        freed = await self._store.unblock(BATCH)
        now = self._environment.monotonic()
        dropped = await self._sweep_all() if now >= self._all_at else 0
        if freed or dropped:  # whose waiters may go on
            self._notifier.hint(Hint(later=True, anything=True))
        if max(dropped, freed) >= BATCH:
            return 0.0
        if now >= self._all_at:
            self._all_at = now + SWEEP / 2  # below the shortest interval, so that every regular tick is one for everything
        return None if self._notifier.healthy else SWEEP_UNHINTED

    async def _sweep_all(self) -> int:
        dropped = await self._store.drop_overdue(BATCH)
        for worker in await self._store.mark_offline(OFFLINE_AFTER):
            logger.warning("worker %s has not been heard of for %d s: it is marked offline", worker, OFFLINE_AFTER)
        return dropped


class Pruner:
    """Deletes terminal jobs past their retention, and what else is old, walking the archive a piece at a time."""

    interval = 60.0

    def __init__(self, base: Base, retention: Retention) -> None:
        self._store = base.store
        self._retention = retention
        self._after: UUID | None = None

    async def tick(self) -> float | None:
        """Prune a piece; soon again while the walk goes on."""
        # where all jobs are kept for ever, the archive is not walked: figures, signals and lines grow old all the same
        limit = BATCH if self._retention.seconds() else 0
        pruned = await self._store.prune(self._retention, limit=limit, after=self._after)
        self._after = pruned.after
        if pruned.after is None:
            return None
        # what is too young to be pruned is walked at leisure: it must be seen again, and costs the jobs nothing
        return 0.05 if pruned.count else 1.0
