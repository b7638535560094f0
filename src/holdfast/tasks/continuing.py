"""The next step of a chain, as a function names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.outcome import BAD_CONTINUATION, KEY_TAKEN
from holdfast.errors import BadJob, Fatal
from holdfast.tasks.values import short

if TYPE_CHECKING:
    from holdfast.core.job import NewJob
    from holdfast.tasks.bound import BoundTask, Call
    from holdfast.tasks.task import Task

__all__ = ["BAD_CONTINUATION", "KEY_TAKEN", "Continue", "continuation", "key_taken", "next_step"]


class Continue:
    """What `job.continue_with(…)` gives: returned by the function, it ends this step and creates the next, or neither."""

    __slots__ = ("call", "job")

    def __init__(self, job: NewJob, call: Call[Any] | None = None) -> None:
        self.job = job
        """The next step, ready to be created."""
        self.call = call
        """The call it was made from; `None` where it comes from another process."""

    def __repr__(self) -> str:
        return f"<Continue with {self.job.task} {self.job.args}>"


def continuation(task: Task[..., Any] | BoundTask[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Continue:
    """Return the next step as a value. Raises `BadArgs` that names the field and the task."""
    if not callable(getattr(task, "call", None)):
        raise BadJob(
            f"the next step must be a task declared with @app.task, or task.options(…), not {short(task)}", path="continue_with"
        )
    call = task.call(*args, **kwargs)
    if call.conn is not None:
        raise BadJob(
            "the next step is created with the end of this one, in its transaction: leave conn= and using= out",
            path="conn",
            task=call.job.task,
        )
    return Continue(call.job, call)


def next_step(task: Task[..., Any], value: Continue) -> NewJob:
    """Return the next step of a task's job; raises `Fatal` where the task was declared to continue with others."""
    if task.may_continue_with(value.job.task):
        return value.job
    allowed = ", ".join(sorted(task.continues_with or ())) or "none"
    raise Fatal(
        f"task {task.name!r} continued with {value.job.task!r}, which is not among those it was declared with "
        f"(continues_with: {allowed}): add it there, or continue with one of them",
        code=BAD_CONTINUATION,
    )


def key_taken(job: NewJob) -> str:
    """Say that the next step cannot be created because its unique key is held."""
    key = "" if job.unique is None else f" {job.unique.key!r}"
    return (
        f"it cannot continue with {job.task!r}: another job holds the unique key{key} of that step. "
        "The step is tried again by its retry policy; give the next one another key, or wait for that job with after="
    )
