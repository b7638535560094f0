"""Calling the function of a task, and what its errors mean."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from holdfast.core.classify import outcome_of
from holdfast.core.outcome import BAD_CONTINUATION
from holdfast.errors import Fatal
from holdfast.runtime.executor.port import RemoteError
from holdfast.runtime.telling import user_traceback
from holdfast.tasks.continuing import Continue
from holdfast.tasks.suspending import suspension_of

if TYPE_CHECKING:
    from holdfast.core.outcome import Outcome, Suspended
    from holdfast.tasks.context import Job
    from holdfast.tasks.task import Task


def arguments(task: Task[..., Any], args: str, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what to call the function with, the job included where it is asked for. Raises `BadArgs`."""
    positional, named = task.args.decode(args)
    if task.job_parameter is not None:
        named[task.job_parameter] = job
    return positional, named


def call(task: Task[..., Any], positional: tuple[Any, ...], named: dict[str, Any], job: Job) -> Any:
    """Call the function from blocking code and return what it gives; one that awaits gets an event loop of its own."""
    if not task.options_declared.atomic:
        given = task.function(*positional, **named)
        return asyncio.run(given) if inspect.iscoroutine(given) else given
    with job.transaction_sync() as transaction:
        given = task.function(*positional, **named)
        transaction.give(given)
    return given


def overlooked(job: Job, value: Any) -> Suspended | None:
    """Return how a job was left to wait whose function returned all the same. `Fatal` where a next step was named in vain."""
    if job.suspension is not None:
        job.log.warning(
            "the function caught what suspends its job and went on; the job is suspended nevertheless. Let it pass: catch "
            "Exception, not BaseException"
        )
        return job.suspension
    if job.continuation is not None and not isinstance(value, Continue):
        # a chain that ends unnoticed in the middle is worse than one that fails and says why
        raise Fatal(
            f"the function named {job.continuation.job.task!r} as the next step and returned something else, so nothing would "
            "follow: write `return job.continue_with(…)`",
            code=BAD_CONTINUATION,
        )
    return None


def outcome_of_error(task: Task[..., Any], error: BaseException) -> Outcome:
    """Return what an error of the function means by the rules of its task, with its traceback."""
    if (suspended := suspension_of(error)) is not None:
        return suspended
    return outcome_of(error, task.classification, traceback=user_traceback(error))


def raisable(task: Task[..., Any], error: BaseException) -> Exception:
    """Return an error of the function in a form that a coroutine can raise.

    `SystemExit` would end the event loop, `CancelledError` would pass for a cancellation of the attempt, and no coroutine
    can raise `StopIteration`.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RemoteError(outcome_of_error(task, error))
