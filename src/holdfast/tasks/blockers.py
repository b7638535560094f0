"""The results of the chains a job waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.states import State
from holdfast.errors import BadArgs, BadResult, JobCanceled, JobFailed, JobNotFound, NotAllowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import BlockerView
    from holdfast.tasks.task import Task


def results_in_order(views: Sequence[BlockerView], tasks: Sequence[Task[..., Any]], task: str) -> tuple[Any, ...]:
    """Return the result of each blocker, decoded as that of the task named at its place. `task` is the waiter's."""
    if len(tasks) != len(views):
        raise BadArgs(
            f"{len(tasks)} task(s) are named, and the job waited for {len(views)}: name one for each, in the order of after=",
            path="results",
            task=task,
        )
    for index, (view, named) in enumerate(zip(views, tasks, strict=True)):
        # values of one type would pass for each other unnoticed
        if view.state is not None and named.name not in (view.task, view.step_task):
            raise BadArgs(f"after[{index}] is {_chain(view)}, not of {named.name!r}", path="results", task=task)
    return tuple(_result(view, named) for view, named in zip(views, tasks, strict=True))


def results_of_task(views: Sequence[BlockerView], named: Task[..., Any], task: str) -> list[Any]:
    """Return the results of those blockers that began or ended with a job of one task, in the order of after=."""
    given = [_result(view, named) for view in views if named.name in (view.task, view.step_task) or view.state is None]
    if views and not given:
        known = ", ".join(dict.fromkeys(_chain(view) for view in views))
        reason = f"the job waited for no chain of task {named.name!r}; it waited for {known}"
        raise BadArgs(reason, path="results_of", task=task)
    return given


def _chain(view: BlockerView) -> str:
    ended = "" if view.step_task == view.task else f" that ended with {view.step_task!r}"
    return f"a chain of {view.task!r}{ended}"


def _result(view: BlockerView, task: Task[..., Any]) -> Any:
    error = view.error
    code, message, trace = ("ERROR", "", "") if error is None else (error.code, error.message, error.traceback)
    match view.state:
        case State.SUCCEEDED:
            return _decoded(view, task)
        case State.FAILED:
            raise JobFailed(view.chain_id, code, message, trace)
        case State.CANCELED:
            raise JobCanceled(view.chain_id, code, message)
        case None:
            raise JobNotFound(view.chain_id)
        case State.BLOCKED | State.SCHEDULED | State.READY | State.RUNNING:
            raise NotAllowed(f"{view.chain_id} has no result now: it had ended, and was brought back ({view.state})")


def _decoded(view: BlockerView, task: Task[..., Any]) -> Any:
    try:
        return task.results.decode(view.result or "null")
    except BadResult as error:
        by = f" (it ended with task {view.step_task!r})" if view.step_task != task.name else ""
        raise BadResult(
            f"blocker {view.chain_id}{by} gave what does not decode as a result of this task: {error.reason}",
            path=error.path,
            task=task.name,
        ) from error
