"""How jobs come to be: ids, unique keys, slots of a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.core.job import OnConflict
from holdfast.core.states import State
from holdfast.store.port import Enqueue
from lab.sim.replay.known import Known, Replaying
from lab.sim.telling import shown

if TYPE_CHECKING:
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from lab.sim.history import Done


class Creating(Replaying):
    """Takes note of new jobs."""

    def see_enqueue(self, done: Done) -> None:
        """Take note of new jobs."""
        args, kwargs = done.given
        if (lease := kwargs.get("under")) is not None:
            self.fenced(done, lease)
        self.created(done, args[0], done.answer)

    def created(self, done: Done, jobs: Any, answers: Any) -> None:
        """Take note of jobs as far as the answers say that they are new."""
        for job, answer in zip(jobs, answers, strict=True):
            match answer.status:
                case Enqueue.CREATED:
                    self.create(done, job)
                case Enqueue.REPEATED if answer.job_id not in self.jobs:
                    self.say(done, f"job {shown(answer.job_id)} is said to be there already, and never was created")
                case Enqueue.EXISTING if self.chain_end(answer.job_id) is not None or answer.job_id not in self.jobs:
                    self.say(done, f"job {shown(answer.job_id)} is said to hold the key of {shown(job)}, and has ended")

    def create(self, done: Done, job: NewJob) -> None:
        """Take note of a new job."""
        if job.id in self.jobs:
            self.say(done, f"{shown(job)} is created twice")
            return
        if job.unique is not None:
            self._take_key(done, job)
        due = job.run_at or (done.now + timedelta(seconds=job.delay) if job.delay else None)
        start_by = None if job.expires_in is None else done.now + timedelta(seconds=job.expires_in)
        self.jobs[job.id] = Known(job, len(self.jobs) + len(self.deleted), due, start_by, due)

    def _take_key(self, done: Done, job: NewJob) -> None:
        assert job.unique is not None
        key = (job.unique.scope, job.unique.key)
        for other in list(self.jobs.values()):
            unique = other.job.unique
            if unique is None or (unique.scope, unique.key) != key or self.chain_end(other.job.id) is not None:
                continue
            if job.unique.on_conflict is not OnConflict.SKIP and other.token is None and other.then is None:
                other.canceled = True  # it waited, and is replaced
                self.end(done, other, State.CANCELED)
            else:
                self.say(done, f"{shown(job)} has the unique key {key[1]} of {shown(other.job)}, which is live")

    def see_fire(self, done: Done) -> None:
        """Take note of the job of a slot."""
        firing = done.given[0][0]
        if done.answer is not None and firing.job is not None:
            self.fired[firing.name, firing.slot] += 1
            if self.fired[firing.name, firing.slot] > 1:
                self.say(done, f"the slot {firing.slot} of {firing.name} is fired twice")
            self.created(done, [firing.job], [done.answer])

    def fenced(self, done: Done, lease: Lease) -> bool:
        """Tell whether a lease is held; say so where a write was accepted that showed another one."""
        known = self.jobs.get(lease.job_id)
        if known is not None and known.token == lease.token:
            return True
        holder = "nobody" if known is None or known.token is None else known.token.hex[:4]
        self.say(done, f"a write for {shown(lease)} is accepted although {holder} holds the job")
        return False
