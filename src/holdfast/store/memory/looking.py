"""What people and programs can see. Everything given out is frozen, or a copy."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from holdfast.core.states import State
from holdfast.store.memory.handle import Handle
from holdfast.store.port import AttemptView, JobView, Page, QueueView, RunningView, Stats, Storage, TaskCounts

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.memory.records import Record
    from holdfast.store.port import EventView, JobFilter


class Looking(Handle):
    """The looking section of the port."""

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, all as of one moment."""
        now = self.environment.now()
        records = (self.data.jobs.get(job_id) for job_id in job_ids)
        return [None if record is None else self._view(record, now) for record in records]

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return jobs newest first from the cursor on. Memory searches them all."""
        now = self.environment.now()
        older = sorted((job_id for job_id in self.data.jobs if after is None or job_id < after), reverse=True)
        matching = (record for job_id in older if matches(record := self.data.jobs[job_id], where))
        found = list(islice(matching, max(0, limit) + 1))  # one more, to know whether there is a next page
        page = [self._view(record, now) for record in found[: max(0, limit)]]
        return Page(page, page[-1].id if page and len(found) > len(page) else None)

    async def running(self, *, limit: int, queues: frozenset[str] | None = None) -> RunningView:
        """Return running jobs, those with a lapsed lease first, then the oldest claim."""
        now = self.environment.now()
        records = self.data.by_state[State.RUNNING].values()
        views = [self._view(record, now) for record in records if queues is None or record.job.queue in queues]
        first = sorted(views, key=lambda view: (not view.lapsed, view.claimed_at or now, view.id))
        return RunningView(first[: max(0, limit)], sum(view.lapsed for view in views))

    def _view(self, record: Record, now: datetime) -> JobView:
        job, lease, unique = record.job, record.lease, record.job.unique
        last = lease or (record.attempts[-1] if record.finished_at is not None and record.attempts else None)
        worker = None if last is None else last.worker
        return JobView(
            id=job.id,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            state=there(record),
            args=job.args,
            attempt=record.attempt,
            failures=record.failures,
            created_at=record.created_at,
            lease_seconds=job.lease,
            policy=job.policy,
            run_at=record.run_at,
            ready_at=record.ready_at,
            start_by=record.start_by,
            key=None if unique is None else unique.key,
            scope=None if unique is None else unique.scope,
            tags=job.tags,
            requires=job.requires,
            prefers=dict.fromkeys(job.prefers, job.prefer_for),
            limit=job.limit,
            fifo=job.fifo,
            chain_id=record.chain_id,
            trace=job.trace,
            continued_by=record.continued_by,
            after=record.blockers,
            waits_for=tuple(record.waits_for),
            worker_id=worker,
            worker_name=self.worker_name(worker),
            claimed_at=None if last is None else last.claimed_at,
            expires_at=None if lease is None else lease.expires_at,
            heartbeat_at=None if lease is None else lease.heartbeat_at,
            finished_at=record.finished_at,
            late=record.late,
            cancel_requested=lease is not None and lease.cancel_requested,
            result=record.result,
            error=record.error,
            progress=record.progress,
            step=record.step,
            message=record.message,
            paused=job.queue in self.data.pauses,
            lapsed=lease is not None and lease.lapsed(now),
        )

    async def attempts(self, job_id: UUID, *, last: int | None = None) -> list[AttemptView]:
        """Return every claim of a job, oldest first, or the last of them."""
        record = self.data.jobs.get(job_id)
        attempts = [] if record is None else record.attempts
        first = _first(attempts, last)
        return [
            AttemptView(
                attempt=number,
                worker_id=attempt.worker,
                worker_name=self.worker_name(attempt.worker),
                claimed_at=attempt.claimed_at,
                ended_at=attempt.ended_at,
                event=attempt.event,
                late=attempt.late,
                error=attempt.error,
            )
            for number, attempt in enumerate(attempts[first:], start=first + 1)
        ]

    async def events(self, job_id: UUID, *, last: int | None = None) -> list[EventView]:
        """Return the event log of a job, oldest first, or the last of it."""
        record = self.data.jobs.get(job_id)
        return [] if record is None else list(record.events[_first(record.events, last) :])

    async def now(self) -> datetime:
        """Return the clock that decides."""
        return self.environment.now()

    async def queues(self) -> list[QueueView]:
        """Return the queues that have ever had a job, or are paused, by name."""
        counts: dict[str, Counter[State]] = {}
        for (queue, _), more in self.data.counts.items():
            counts[queue] = counts[queue] + more if queue in counts else more
        waits = self._oldest_waiting()
        views = []
        for name in sorted({*counts, *self.data.pauses}):
            pause = self.data.pauses.get(name)
            views.append(
                QueueView(
                    name=name,
                    counts=_above_zero(counts[name]) if name in counts else {},
                    oldest_waiting=waits.get(name),
                    paused_at=None if pause is None else pause.at,
                    paused_by="" if pause is None else pause.by,
                    reason="" if pause is None else pause.reason,
                )
            )
        return views

    async def stats(self) -> Stats:
        """Return exact counts and oldest waits."""
        tasks = [TaskCounts(queue, task, _above_zero(counts)) for (queue, task), counts in sorted(self.data.counts.items())]
        return Stats([row for row in tasks if row.counts], self._oldest_waiting())

    async def storage(self) -> Storage:
        """Return nothing: memory is shared with everything else."""
        return Storage()

    def _oldest_waiting(self) -> dict[str, float]:
        now, waits = self.environment.now(), dict[str, float]()
        for record in self.data.by_state[State.READY].values():
            if record.ready_at is not None:
                wait = (now - record.ready_at).total_seconds()
                waits[record.job.queue] = max(wait, waits.get(record.job.queue, wait))
        return waits


def there(record: Record) -> State:
    """Return the state of a job that exists."""
    if record.state is None:
        raise ValueError(f"job {record.job.id} is gone")
    return record.state


def _first(lines: Sequence[object], last: int | None) -> int:
    """Return where the last so many of these begin; `None`: all of them."""
    return 0 if last is None else max(0, len(lines) - max(0, last))


def _above_zero(counts: Counter[State]) -> dict[State, int]:
    return {state: counts[state] for state in State if counts[state]}


def matches(record: Record, where: JobFilter) -> bool:
    """Tell whether a list shows a job."""
    job = record.job
    return (
        (where.states is None or record.state in where.states)
        and where.task in (None, job.task)
        and where.queue in (None, job.queue)
        and (where.tag is None or where.tag in job.tags)
        and (where.key is None or (job.unique is not None and job.unique.key == where.key))
        and where.chain_id in (None, record.chain)
        and (where.created_from is None or record.created_at >= where.created_from)
        and (where.created_before is None or record.created_at < where.created_before)
    )
