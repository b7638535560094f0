"""Creating jobs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.job import OnConflict
from holdfast.core.outcome import REPLACED, Error
from holdfast.core.settle import Write
from holdfast.core.states import WAITING, Event
from holdfast.errors import BadJob, QueueFull, StaleLease
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.model import counts_as_done
from holdfast.store.memory.records import Record
from holdfast.store.port import Enqueue, Enqueued

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Audit, Notice


class Producing(Handle):
    """The producing section of the port."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        under: Lease | None = None,
        caps: Mapping[str, int] | None = None,
        notice: Notice | None = None,  # noqa: ARG002  there is nobody to send it to
        audit: Audit | None = None,
    ) -> list[Enqueued]:
        """Create jobs; with `under` only as long as that lease is current, with `caps` only as far as queues have room."""
        now = self.environment.now()
        if under is not None:
            self._check_holder(under, now)
        answers = self.enqueue_now(jobs, caps, now)
        if audit is not None and (line := audit.line(jobs, answers)) is not None:
            self.write_line(line)
        return answers

    def enqueue_now(self, jobs: Sequence[NewJob], caps: Mapping[str, int] | None, now: datetime) -> list[Enqueued]:
        """Create jobs, all or none."""
        self._check_blockers(jobs)  # before the first change: all of the call happens or none of it
        if caps:
            self._check_room(jobs, caps, now)
        return self._create(jobs, now)

    def _create(self, jobs: Sequence[NewJob], now: datetime) -> list[Enqueued]:
        """Create jobs that nothing speaks against."""
        answers: dict[UUID, Enqueued] = {}
        given = []
        for job in jobs:
            given.append(self._enqueue_one(job, answers, now))
            answers.setdefault(job.id, given[-1])
            self.data.settle_waiters(now)  # one job after the other: the next may take a key that this one freed
        return given

    def _check_holder(self, lease: Lease, now: datetime) -> None:
        held = self.data.held(lease)
        if held is None:
            raise StaleLease(f"job {lease.job_id} is no longer held under this token: nothing was enqueued for it")
        record, _ = held
        self.data.move(record, Write(Event.ENQUEUE_CHILD, record.failures), now)

    def _check_blockers(self, jobs: Sequence[NewJob]) -> None:
        known: set[UUID] = set()
        for job in jobs:
            if job.id not in self.data.jobs:
                self.check_after(job, known)
            known.add(job.id)

    def check_after(self, job: NewJob, known: Container[UUID] = ()) -> None:
        """Refuse a job that would wait for what is neither there nor `known` to come before it, or for a part of a chain."""
        for index, blocker in enumerate(job.after):
            if blocker in known:
                continue
            record = self.data.jobs.get(blocker)
            if record is None:
                raise BadJob(f"there is no job {blocker} to wait for", path=f"after[{index}]", task=job.task)
            if record.later_step:
                reason = f"job {blocker} is a step of chain {record.chain}: name the chain"
                raise BadJob(reason, path=f"after[{index}]", task=job.task)

    def _check_room(self, jobs: Sequence[NewJob], caps: Mapping[str, int], now: datetime) -> None:
        new = Counter(queue for _, queue in {(job.id, job.queue) for job in jobs if job.id not in self.data.jobs})
        if all(self.data.depth(queue) + new[queue] <= most for queue, most in caps.items() if new[queue]):
            return
        # how many will wait depends on keys that are taken, freed and replaced on the way: it is tried out on a copy
        trial = Producing(self.environment, self.data.copy())
        answers = trial._create(jobs, now)
        created = {job.queue for job, answer in zip(jobs, answers, strict=True) if answer.status is Enqueue.CREATED}
        for queue in sorted(created & caps.keys()):
            if (depth := trial.data.depth(queue)) > caps[queue]:
                raise QueueFull(queue, depth, caps[queue])

    def _enqueue_one(self, job: NewJob, earlier: dict[UUID, Enqueued], now: datetime) -> Enqueued:
        """Create one job; `earlier` holds what became of those before it in the same call."""
        if job.id in self.data.jobs:
            return Enqueued(Enqueue.REPEATED, job.id)
        if (holder := self.holder(job, now)) is not None and not gives_way(holder, job):
            return Enqueued(Enqueue.EXISTING, holder.job.id)
        # a blocker of this very call whose key was taken is stood for by the chain that holds the key
        stand_ins = (earlier[blocker].job_id if blocker in earlier else blocker for blocker in job.after)
        blockers = dict.fromkeys(self.data.jobs[blocker].chain for blocker in stand_ins)
        record = Record(job, created_at=now, chain_id=job.chain_id, blockers=tuple(blockers))
        self.bring_in(record, holder, now)
        return Enqueued(Enqueue.CREATED, job.id)

    def holder(self, job: NewJob, now: datetime) -> Record | None:
        """Return who holds the unique key of a job."""
        return None if job.unique is None else self.data.holder(job.unique.scope, job.unique.key, now)

    def bring_in(self, record: Record, replaced: Record | None, now: datetime) -> None:
        """Let a job begin that takes the place of another, or of none."""
        job = record.job
        due = job.run_at or now + timedelta(seconds=job.delay)
        record.start_by = None if job.expires_in is None else now + timedelta(seconds=job.expires_in)
        if replaced is not None:
            if job.unique is not None and job.unique.on_conflict is OnConflict.REPLACE:
                due = min(due, replaced.run_at or now)
            error = Error(REPLACED, f"replaced by job {job.id}")
            self.data.move(replaced, Write(Event.CANCEL, replaced.failures, error=error), now, actor="store")
            self.data.settle_waiters(now)  # before the job that replaces it, which may wait for one of them
        holder = self.holder(job, now)
        if holder is None or holder.chain != record.chain:  # what its own chain holds stays where it is
            self.data.take_key(record, now)
        record.waits_for = [one for one in record.blockers if not self._done(one, job)]
        self._place(record, due if due > now else None, now)

    def _done(self, chain_id: UUID, waiter: NewJob) -> bool:
        last = self.data.last_step(chain_id)
        return last is not None and counts_as_done(last.state, waiter)

    def _place(self, record: Record, later: datetime | None, now: datetime) -> None:
        if record.waits_for:
            self.data.move(record, Write(Event.ENQUEUE_BLOCKED, 0, run_at=later), now)
            self.data.heed_blockers(record, now)  # one that has failed already acts at once
        elif later is not None:
            self.data.move(record, Write(Event.ENQUEUE_LATER, 0, run_at=later), now)
        else:
            self.data.move(record, Write(Event.ENQUEUE, 0), now)


def gives_way(holder: Record, job: NewJob) -> bool:
    """Tell whether the holder of a unique key makes room for a job that asks for it: only one that has not begun does."""
    wanted = job.unique is not None and job.unique.on_conflict is not OnConflict.SKIP
    return wanted and holder.state in WAITING and not holder.later_step
