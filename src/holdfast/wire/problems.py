"""Errors on the wire: one shape for all, and the way to Holdfast's own errors and back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.core.states import State
from holdfast.errors import (
    BadArgs,
    BadJob,
    BadResult,
    HoldfastError,
    JobNotFound,
    KeyBusy,
    NotAllowed,
    QueueFull,
    StaleLease,
    UnknownWorker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a job now."""

    worker_id: UUID | None
    worker: str | None
    attempt: int
    since: datetime | None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused: a code for programs, what happened and what to do for people."""

    error: str
    message: str
    fix: str = ""
    path: str = ""
    """Where in the request the reason lies."""
    state: State | None = None
    """Where the job stands, for writes that came too late."""
    holder: Holder | None = None
    """Who holds it now, if anybody does."""
    facts: dict[str, Any] = {}
    """The same for programs."""


BAD_VALUE: Final = "bad_value"
BAD_RESULT: Final = "bad_result"
QUEUE_FULL: Final = "queue_full"
KEY_BUSY: Final = "key_busy"
STALE: Final = "stale"
UNKNOWN_WORKER: Final = "unknown_worker"
JOB_NOT_FOUND: Final = "job_not_found"
NOT_ALLOWED: Final = "not_allowed"


def problem_of(error: HoldfastError) -> tuple[int, Problem] | None:
    """Return how an error is told, with its status; `None` for one that is the server's own."""
    match error:
        case BadResult():
            return 422, _refused(BAD_RESULT, error)
        case BadJob() | BadArgs():
            return 422, _refused(BAD_VALUE, error)
        case QueueFull():
            facts: dict[str, Any] = {"queue": error.queue, "depth": error.depth, "max_depth": error.max_depth}
            return 409, Problem(
                error=QUEUE_FULL, message=str(error), fix="try again later, or add workers", path="caps", facts=facts
            )
        case KeyBusy():
            facts = {"keys": list(error.keys), "ids": [str(one) for one in error.ids]}
            return 409, Problem(error=KEY_BUSY, message=str(error), fix="try again", facts=facts)
        case StaleLease():
            return 409, Problem(error=STALE, message=str(error), fix="stop: another worker may run it")
        case UnknownWorker():
            return 404, Problem(error=UNKNOWN_WORKER, message=str(error), fix="register it: POST /api/v1/workers")
        case JobNotFound():
            return 404, Problem(error=JOB_NOT_FOUND, message=str(error), facts={"job_id": str(error.job_id)})
        case NotAllowed():
            return 409, Problem(error=NOT_ALLOWED, message=str(error))
        case _:
            return None


def error_of(problem: Problem) -> HoldfastError | None:
    """Return the error that a problem tells of; `None` where it is none of the store's."""
    make = _ERRORS.get(problem.error)
    return None if make is None else make(problem)


def _refused(code: str, error: BadJob | BadResult | BadArgs) -> Problem:
    return Problem(
        error=code,
        message=str(error),
        fix="change the value",
        path=error.path,
        facts={"reason": error.reason, "task": error.task, "what": error.what},
    )


def _given(problem: Problem) -> Mapping[str, str]:
    facts = problem.facts
    told = {name: str(facts.get(name, "")) for name in ("task", "what")}
    return {"reason": str(facts.get("reason", problem.message)), "path": problem.path, **told}


def _queue_full(problem: Problem) -> QueueFull:
    facts = problem.facts
    return QueueFull(str(facts.get("queue", "")), int(facts.get("depth", 0)), int(facts.get("max_depth", 0)))


_ERRORS: Final[Mapping[str, Callable[[Problem], HoldfastError]]] = {
    BAD_VALUE: lambda problem: BadJob(**_given(problem)),
    BAD_RESULT: lambda problem: BadResult(**_given(problem)),
    QUEUE_FULL: _queue_full,
    KEY_BUSY: lambda problem: KeyBusy(
        [str(key) for key in problem.facts.get("keys", ())], ids=[UUID(one) for one in problem.facts.get("ids", ())]
    ),
    STALE: lambda problem: StaleLease(problem.message),
    UNKNOWN_WORKER: lambda problem: UnknownWorker(problem.message),
    NOT_ALLOWED: lambda problem: NotAllowed(problem.message),
    JOB_NOT_FOUND: lambda problem: JobNotFound(UUID(problem.facts["job_id"])),
}
