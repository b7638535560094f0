"""What is done to jobs from outside, and how they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.job import BlockerPolicy
from holdfast.core.states import State
from holdfast.store.port import Answer
from lab.sim.replay.known import Replaying
from lab.sim.telling import shown

if TYPE_CHECKING:
    from lab.sim.history import Done
    from lab.sim.replay.known import Known


class Steering(Replaying):
    """Takes note of cancels and the like, of queues that are paused, and of what is removed."""

    def see_pause(self, done: Done) -> None:
        """Take note that nothing of a queue is to be claimed."""
        self.paused.add(done.given[0][0])

    def see_resume(self, done: Done) -> None:
        """Take note that it may go on."""
        self.paused.discard(done.given[0][0])

    def see_cancel(self, done: Done) -> None:
        """Take note of waiting jobs that end, and of running ones that are to."""
        self._ended(done, done.given[0][0], State.CANCELED)
        for job_id, answer in zip(done.given[0][0], done.answer, strict=True):
            if (known := self.jobs.get(job_id)) is None:
                continue
            known.canceled = known.canceled or answer in (Answer.DONE, Answer.REQUESTED)
            if answer is Answer.REQUESTED:
                known.canceling = True
                if known.token is not None:
                    self.asked_to_stop.append((done, job_id, known.attempts, self.holders[known.token]))

    def see_complete(self, done: Done) -> None:
        """Take note of jobs that succeed from outside."""
        self._ended(done, done.given[0][0], State.SUCCEEDED)

    def see_fail(self, done: Done) -> None:
        """Take note of jobs that fail from outside."""
        self._ended(done, done.given[0][0], State.FAILED)

    def _ended(self, done: Done, job_ids: Any, state: State) -> None:
        for job_id, answer in zip(job_ids, done.answer, strict=True):
            if answer is Answer.DONE and (known := self.jobs.get(job_id)) is not None:
                self.end(done, known, state)

    def see_reopen(self, done: Done) -> None:
        """Take note of jobs that begin anew."""
        for job_id, answer in zip(done.given[0][0], done.answer, strict=True):
            if answer is Answer.DONE and (known := self.jobs.get(job_id)) is not None:
                known.ended, known.canceling, known.due, known.failures = None, False, None, 0

    def see_delete_chains(self, done: Done) -> None:
        """Take note of jobs that are gone: none that another one waits for."""
        gone = set(done.answer.jobs)
        for known in self.jobs.values():
            if known.job.id not in gone and self._lives(known) and (needed := gone.intersection(known.job.after)):
                self.say(done, f"job {shown(min(needed))} is deleted, and {shown(known.job)} waits for it")
        for job_id in done.answer.jobs:
            if self.jobs.pop(job_id, None) is None:
                self.say(done, f"job {shown(job_id)} is deleted, and was not there")
            self.deleted.add(job_id)

    def _lives(self, known: Known) -> bool:
        """Tell whether a job has not ended: no answer tells of a waiter that ends with one of its blockers."""
        if known.job.policy.on_blocker_failure is BlockerPolicy.RUN:
            return known.ended is None
        return known.ended is None and all(self.chain_end(one) in (None, State.SUCCEEDED) for one in known.job.after)

    def see_prune(self, done: Done) -> None:
        """Take note of how many ended jobs are gone: which, the answer does not tell."""
        if done.answer.count:
            self.pruned.append((done.now, done.answer.count))
