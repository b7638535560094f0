"""What clients and operators do to jobs and queues from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.outcome import CANCELED, Error
from holdfast.core.settle import Write
from holdfast.core.states import Event, State, legal
from holdfast.core.text import clean
from holdfast.store.port import TEXT_LIMIT, Action, Answer, audit_line, cancel_line
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.access import audit, audit_batch, write_line
from holdfast.store.sqlite.moving import key_holder, locate, move

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from holdfast.store.sqlite.moving import Standing
    from holdfast.store.sqlite.writing import Writing


def cancel(writing: Writing, job_ids: Sequence[UUID], by: str, reason: str) -> list[Answer]:
    """End waiting jobs as canceled; ask running ones to stop; see the port."""
    answers, before = [], 0
    for job_id in job_ids:
        job = locate(writing, job_id.bytes)
        if job is None or job.held is None:
            answers.append(_end(writing, job, Event.CANCEL, by, error=Error(CANCELED, reason)))
            continue
        answers.append(Answer.REQUESTED)
        if job.held.cancel_requested:
            before += 1
        else:
            _ask_to_stop(writing, job, by, reason)
    if (line := cancel_line(job_ids, by=by, reason=reason, answers=answers, before=before)) is not None:
        write_line(writing, line)
    return answers


def _ask_to_stop(writing: Writing, job: Standing, by: str, reason: str) -> None:
    writing.connection.execute(sql("cancel.request"), (clean(reason, TEXT_LIMIT), job.job_id))
    writing.log(job.job_id, Event.CANCEL, State.RUNNING, job.attempt, by, reason=reason)


def complete(writing: Writing, results: Mapping[UUID, str], by: str) -> list[Answer]:
    """End live jobs as succeeded from outside; see the port."""
    answers = [
        _end(writing, locate(writing, job_id.bytes), Event.COMPLETE_OUTSIDE, by, result=result)
        for job_id, result in results.items()
    ]
    return audit_batch(writing, Action.COMPLETE, results, answers, by=by)


def fail(writing: Writing, errors: Mapping[UUID, Error], by: str) -> list[Answer]:
    """End live jobs as failed from outside; see the port."""
    answers = [
        _end(
            writing,
            locate(writing, job_id.bytes),
            Event.FAIL_OUTSIDE,
            by,
            error=Error(error.code, error.message, error.traceback),
        )
        for job_id, error in errors.items()
    ]
    return audit_batch(writing, Action.FAIL, errors, answers, by=by)


def _end(
    writing: Writing, job: Standing | None, event: Event, by: str, *, result: str | None = None, error: Error | None = None
) -> Answer:
    if job is None:
        return Answer.NOT_FOUND
    if not legal(job.state, event):
        return Answer.REFUSED
    move(writing, job, Write(event, job.failures, result=result, error=error), actor=by)
    return Answer.DONE


def reopen(writing: Writing, job_ids: Sequence[UUID], by: str) -> list[Answer]:
    """Bring terminal jobs back as ready; see the port."""
    answers = [_reopen_one(writing, job_id.bytes, by) for job_id in job_ids]
    return audit_batch(writing, Action.RETRY, job_ids, answers, by=by)


def _reopen_one(writing: Writing, job_id: bytes, by: str) -> Answer:
    execute = writing.connection.execute
    job = locate(writing, job_id)
    if job is None:
        return Answer.NOT_FOUND
    if job.continued_by is not None:
        return Answer.CHAINED
    # a key with a window is not the job's to take back: it was held from the enqueue, whatever became of the job
    keys = execute(sql("reopen.lasting_keys"), {"chain": job.chain, "job": job_id}).fetchall()
    for _, scope, key in keys:
        holder = key_holder(writing, scope, key)
        if holder is not None and holder.chain != job.chain:
            return Answer.KEY_TAKEN
    if not legal(job.state, Event.REOPEN):
        return Answer.REFUSED
    for owner, scope, key in keys:
        if key_holder(writing, scope, key) is None:
            execute(sql("enqueue.take_key"), (scope, key, owner, None))
    _record_success(writing, job)
    move(writing, job, Write(Event.REOPEN, 0), actor=by)
    return Answer.DONE


def _record_success(writing: Writing, job: Standing) -> None:
    """Write down what only the archive knew about an attempt that simply succeeded, before it forgets."""
    row = writing.connection.execute(sql("reopen.simple_success"), (job.job_id,)).fetchone()
    if row is None:
        return
    worker_id, claimed_at, finished_at, token, late = row
    values = (job.job_id, job.attempt, worker_id, claimed_at, finished_at, Event.SUCCEED.value, token, late, None, None, None)
    writing.connection.execute(sql("moving.record_attempt"), values)
    actor = writing.worker_name(worker_id)
    writing.log(job.job_id, Event.SUCCEED, job.state, job.attempt, actor, at=finished_at)


def pause(writing: Writing, queue: str, by: str, reason: str) -> None:
    """Stop claims from a queue. Pausing it again changes who and why, not since when."""
    row = (queue, writing.now, clean(by, TEXT_LIMIT), clean(reason, TEXT_LIMIT))
    writing.connection.execute(sql("pause.queue"), row)
    audit(writing, audit_line(Action.PAUSE, [queue], by=by, detail=reason))


def resume(writing: Writing, queue: str, by: str) -> None:
    """Let claims from a queue go on."""
    writing.connection.execute(sql("resume.queue"), (queue,))
    audit(writing, audit_line(Action.RESUME, [queue], by=by))
