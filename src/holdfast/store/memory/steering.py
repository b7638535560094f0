"""What clients and operators do to jobs and queues from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.outcome import CANCELED, Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.core.text import checked_name, clean
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.records import Pause
from holdfast.store.port import TEXT_LIMIT, Action, Answer, audit_line, cancel_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.memory.records import Record


class Steering(Handle):
    """The steering section of the port."""

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop."""
        now = self.environment.now()
        asked = [self._cancel_one(job_id, now, by, reason) for job_id in job_ids]
        answers = [answer for answer, _ in asked]
        before = sum(was_asked for _, was_asked in asked)
        self.data.settle_waiters(now)
        if (line := cancel_line(job_ids, by=by, reason=reason, answers=answers, before=before)) is not None:
            self.audit(line)
        return answers

    def _audit(self, action: Action, job_ids: Collection[UUID], answers: Sequence[Answer], by: str, reason: str = "") -> None:
        if by and job_ids:
            self.audit(audit_line(action, job_ids, by=by, detail=reason, answers=answers))

    def _cancel_one(self, job_id: UUID, now: datetime, by: str, reason: str) -> tuple[Answer, bool]:
        """Return the answer, and whether the job had been asked to stop before: then nothing changes."""
        record = self.data.jobs.get(job_id)
        if record is None or (lease := record.lease) is None:
            return self._end(job_id, Event.CANCEL, now, by, error=Error(CANCELED, reason)), False
        if lease.cancel_requested:
            return Answer.REQUESTED, True
        self.data.move(record, Write(Event.CANCEL, record.failures), now, actor=by, reason=reason)
        lease.cancel_requested, lease.cancel_reason = True, reason
        return Answer.REQUESTED, False

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> list[Answer]:
        """End live jobs as succeeded from outside; a lease it ends is dead at once."""
        now = self.environment.now()
        answers = [self._end(job_id, Event.COMPLETE_OUTSIDE, now, by, result=result) for job_id, result in results.items()]
        self.data.settle_waiters(now)
        self._audit(Action.COMPLETE, results, answers, by)
        return answers

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> list[Answer]:
        """End live jobs as failed from outside; a lease it ends is dead at once."""
        now = self.environment.now()
        answers = [
            self._end(job_id, Event.FAIL_OUTSIDE, now, by, error=Error(error.code, error.message, error.traceback))
            for job_id, error in errors.items()
        ]
        self.data.settle_waiters(now)
        self._audit(Action.FAIL, errors, answers, by)
        return answers

    def _end(
        self, job_id: UUID, event: Event, now: datetime, by: str, *, result: str | None = None, error: Error | None = None
    ) -> Answer:
        record = self.data.jobs.get(job_id)
        if record is None:
            return Answer.NOT_FOUND
        write = Write(event, record.failures, result=result, error=error)
        return Answer.DONE if self.data.move(record, write, now, actor=by) else Answer.REFUSED

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records; a lease it ends is dead at once."""
        now = self.environment.now()
        answers = [self._delete_one(job_id, now, by) for job_id in job_ids]
        self._audit(Action.DELETE, job_ids, answers, by)
        return answers

    def _delete_one(self, job_id: UUID, now: datetime, by: str) -> Answer:
        record = self.data.jobs.get(job_id)
        if record is not None and len(self.data.steps(record.chain)) > 1:
            return Answer.CHAINED
        if self.data.needed_by(job_id) is not None:
            return Answer.NEEDED
        return self._end(job_id, Event.DELETE, now, by)

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready with their budget restored."""
        now = self.environment.now()
        answers = [self._reopen_one(job_id, now, by) for job_id in job_ids]
        self._audit(Action.RETRY, job_ids, answers, by)
        return answers

    def _reopen_one(self, job_id: UUID, now: datetime, by: str) -> Answer:
        record = self.data.jobs.get(job_id)
        if record is None:
            return Answer.NOT_FOUND
        if record.continued_by is not None:
            return Answer.CHAINED
        first = self.data.jobs[record.chain]
        for one in (first, record):
            holder = self._lasting_holder(one, now)
            if holder is not None and holder.chain != record.chain:
                return Answer.KEY_TAKEN
        if not self.data.move(record, Write(Event.REOPEN, 0), now, actor=by):
            return Answer.REFUSED
        for one in (first, record):
            if _lasting(one) and self._lasting_holder(one, now) is None:
                self.data.take_key(one, now)
        return Answer.DONE

    def _lasting_holder(self, record: Record, now: datetime) -> Record | None:
        unique = record.job.unique
        return self.data.holder(unique.scope, unique.key, now) if unique is not None and _lasting(record) else None

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> None:
        """Stop claims from a queue. Pausing it again changes who and why, not since when."""
        known = self.data.pauses.get(checked_name(queue, "queue"))
        since = self.environment.now() if known is None else known.at
        self.data.pauses[queue] = Pause(since, clean(by, TEXT_LIMIT), clean(reason, TEXT_LIMIT))
        self.audit(audit_line(Action.PAUSE, [queue], by=by, detail=reason))

    async def resume(self, queue: str, *, by: str = "") -> None:
        """Let claims from a queue go on."""
        self.data.pauses.pop(checked_name(queue, "queue"), None)
        self.audit(audit_line(Action.RESUME, [queue], by=by))


def _lasting(record: Record) -> bool:
    """Tell whether its key is the job's to take back: one with a window is held from the enqueue, whatever becomes of it."""
    return record.job.unique is not None and record.job.unique.window is None
