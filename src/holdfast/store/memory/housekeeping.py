"""What keeps jobs moving when nobody asks: promoting, reaping, dropping what is overdue, pruning."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.settle import Write, expire, overdue
from holdfast.core.states import TERMINAL, WAITING, Event, State
from holdfast.store.memory.handle import Handle
from holdfast.store.port import SOME_WORKERS, Action, Promoted, Pruned, Reaped, prune_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.memory.records import Attempt, Record
    from holdfast.store.port import Retention


class Housekeeping(Handle):
    """The housekeeping section of the port."""

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled jobs ready, in `run_at` order."""
        now, count = self.environment.now(), 0
        queues: set[str] = set()
        while (record := self.data.next_scheduled()) is not None and record.run_at is not None:
            if record.run_at > now or count >= limit:
                return Promoted(count, frozenset(queues), (record.run_at - now).total_seconds())
            self.data.move(record, Write(Event.PROMOTE, record.failures), now, actor="promoter")
            queues.add(record.job.queue)
            count += 1
        return Promoted(count, frozenset(queues))

    async def reap(self, limit: int, *, tasks: frozenset[str] = frozenset(), up_for: float | None = None) -> list[Reaped]:
        """Settle lapsed leases by the policy stored with each job; those of `tasks` first.

        There is no outage of the store to forgive: it is gone together with its jobs.
        """
        now = self.environment.now()
        lapsed = [
            (record.job.task not in tasks, lease.expires_at, job_id, record, lease)
            for job_id, record in self.data.by_state[State.RUNNING].items()
            if (lease := record.lease) is not None and lease.lapsed(now) and (up_for is None or record.job.lease <= up_for)
        ]
        reaped = [self._reap_one(record, lease, now) for *_, record, lease in nsmallest(limit, lapsed)]
        self.data.settle_waiters(now)
        return reaped

    def _reap_one(self, record: Record, lease: Attempt, now: datetime) -> Reaped:
        write = expire(
            record.job.policy.retry,
            record.failures,
            self.environment.random,
            cancel_requested=lease.cancel_requested,
            free=lease.free,
        )
        self.data.move(record, write, now, actor="reaper")
        return Reaped(record.job.id, record.job.task, record.job.queue, record.attempt, lease.worker, write)

    async def drop_overdue(self, limit: int) -> int:
        """End waiting jobs whose `start_by` has passed, those that should have started first before the others."""
        now = self.environment.now()
        late = (
            (record.start_by, job_id, record)
            for state in WAITING
            for job_id, record in self.data.by_state[state].items()
            if record.start_by is not None and record.overdue(now)
        )
        chosen = nsmallest(max(0, limit), late)
        for start_by, _, record in chosen:
            write = overdue(record.failures, (start_by - record.created_at).total_seconds())
            self.data.move(record, write, now, actor="store")
        self.data.settle_waiters(now)
        return len(chosen)

    async def unblock(self, limit: int) -> int:  # noqa: ARG002  the port's signature
        """Find nothing: every operation settles the waiters of what it ended before anyone else can look."""
        return 0

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None = None, by: str = "") -> Pruned:
        """Delete terminal jobs older than their state's retention, looking at no more than `limit` from `after` on."""
        now = self.environment.now()
        signals = lines = 0
        if after is None:
            self._prune_figures(now)
            signals = self._prune_signals(retention.signals, now)
            lines = self._prune_lines(retention.enqueues, now)
            self._prune_workers(retention.workers, now)
        pruned = self._prune_jobs(retention.seconds(), limit, after, now)
        if (line := prune_line(by=by, jobs=pruned.count, signals=signals, lines=lines)) is not None:
            self.write_line(line)
        return pruned

    def _prune_jobs(self, ages: Mapping[State, float], limit: int, after: UUID | None, now: datetime) -> Pruned:
        if limit <= 0:
            return Pruned(0, after)
        archived = (job_id for state in TERMINAL for job_id in self.data.by_state[state] if after is None or job_id > after)
        looked = nsmallest(limit + 1, archived)  # one more, to know whether this was the end
        count = sum(self._prune_one(job_id, ages, now) for job_id in looked[:limit])
        return Pruned(count, looked[limit - 1] if len(looked) > limit else None)

    def _prune_one(self, job_id: UUID, ages: Mapping[State, float], now: datetime) -> int:
        """Prune a chain that nobody needs when its last step is looked at: none is ever seen without some of its steps."""
        record = self.data.jobs.get(job_id)
        if record is None or record.state is None or record.continued_by is not None or record.finished_at is None:
            return 0
        age = ages.get(record.state)
        if age is None or (now - record.finished_at).total_seconds() <= age or self.data.needed_by(record.chain) is not None:
            return 0
        steps = self.data.steps(record.chain)
        return sum(self.data.move(step, Write(Event.PRUNE, step.failures), now) for step in steps)

    def _prune_signals(self, age: float | None, now: datetime) -> int:
        old = [name for name, one in self.data.signals.items() if age is not None and (now - one.at).total_seconds() > age]
        for name in old:
            del self.data.signals[name]
        return len(old)

    def _prune_lines(self, age: float | None, now: datetime) -> int:
        if age is None:
            return 0
        before = len(self.data.audit)
        self.data.audit = [
            line for line in self.data.audit if line.action is not Action.ENQUEUE or (now - line.at).total_seconds() <= age
        ]
        return before - len(self.data.audit)

    def _prune_workers(self, age: float | None, now: datetime) -> None:
        if age is None:
            return
        holders = {record.lease.worker for record in self.data.by_state[State.RUNNING].values() if record.lease is not None}
        old = [
            (known.offline_at, worker)
            for worker, known in self.data.workers.items()
            if known.offline_at is not None
            and (now - known.offline_at).total_seconds() > age
            and known.disabled_at is None
            and not known.past
            and worker not in holders
        ]
        for _, worker in nsmallest(SOME_WORKERS, old):
            known = self.data.workers[worker]
            known.worker = msgspec.structs.replace(known.worker, info="{}", capabilities=())
            known.counters, known.past = "{}", True

    def _prune_figures(self, now: datetime) -> None:
        for place in list(self.data.figures):
            grain, at, _ = place
            if at is not None and grain.kept is not None and (now - at).total_seconds() > grain.kept:
                del self.data.figures[place]
