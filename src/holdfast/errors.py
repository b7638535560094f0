"""Every error Holdfast raises, as one tree.

    HoldfastError
    ├── BadArgs                 (also ValueError)  args that are not accepted, or no longer decode
    ├── BadResult               (also ValueError)  a result that cannot be stored
    ├── BadTask                 (also TypeError)   a function that cannot be declared as a task
    ├── BadJob                  (also ValueError)  a name, key, priority, … that no store accepts
    ├── BadUrl                  (also ValueError)  a store URL that names no known store
    ├── BadSetting              (also ValueError)  a setting, an option or an app that cannot be used
    ├── QueueFull               the queue holds as many waiting jobs as it may
    ├── KeyBusy                 somebody's open transaction holds the unique key: whether it is taken is not decided yet
    ├── TransactionTooLong      a job's transaction on an embedded store was undone after 5 seconds
    ├── JobFailed               the job whose result was awaited has failed
    ├── JobCanceled             the job whose result was awaited was canceled
    ├── JobNotFound             (also LookupError) no job with this id
    ├── NotAllowed              a request that the state of the job does not allow
    ├── MissingExtra            (also ImportError) an adapter whose packages are not installed
    ├── StoreUnavailable        (also ConnectionError) the database did not answer in time
    ├── SchemaError
    │   ├── SchemaMissing       no Holdfast schema there, and it was not to be created
    │   ├── SchemaTooOld        written by an older Holdfast: migrate it
    │   └── SchemaTooNew        written by a newer Holdfast: upgrade this one
    ├── Fatal                   raised by a handler: fail now, another attempt cannot help
    ├── Retryable               raised by a handler: fail this attempt, with a code
    ├── Reschedule              raised by a handler: run again later, costs no failure
    ├── Cancel                  raised by a handler: end the job as canceled
    ├── Aborted                 raised by `job.abort.check()`: the handler was asked to stop
    ├── StaleLease              a write under a token that is no longer current
    └── UnknownWorker           a claim by a worker that was never registered

Each message says what happened, why, and what to do; the facts are also fields.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

CENTURY: Final = timedelta(days=36600).total_seconds()
"""No delay, lease or window may be longer: beyond that stores disagree about the calendar."""


class HoldfastError(Exception):
    """The root of everything Holdfast raises on purpose."""


class _Refused(HoldfastError, ValueError):
    """A value was refused: `path` says where it stands, `reason` why."""

    what = "value"

    def __init__(self, reason: str, *, path: str = "", task: str = "", what: str = "") -> None:
        self.what = what or self.what
        self.reason = reason
        self.path = path
        self.task = task
        where = f" at {path}" if path else ""
        owner = f" of task {task!r}" if task else ""
        super().__init__(f"{self.what}{owner} refused{where}: {reason}")


class BadArgs(_Refused):
    """Args that are not accepted at enqueue, or that no longer decode at claim."""

    what = "args"


class BadResult(_Refused):
    """A result that cannot be stored."""

    what = "result"


class BadTask(HoldfastError, TypeError):
    """A function that cannot be declared as a task."""


class BadJob(_Refused):
    """A job with a name, key, priority or time that no store accepts."""

    what = "job"


class BadUrl(HoldfastError, ValueError):
    """A store URL that names no known store."""


class BadSetting(HoldfastError, ValueError):
    """A setting, an option or an app that cannot be used; the message says what would be accepted."""


class QueueFull(HoldfastError):
    """The queue holds as many waiting jobs as it may. Nothing of the call was enqueued."""

    def __init__(self, queue: str, depth: int, max_depth: int) -> None:
        self.queue = queue
        self.depth = depth
        self.max_depth = max_depth
        super().__init__(
            f"queue {queue!r} is full: {depth} jobs would wait, and it takes {max_depth}. Nothing was enqueued; "
            "try again later, add workers, or raise max_depth"
        )


class KeyBusy(HoldfastError):
    """Somebody's open transaction holds a unique key, or an id, of this call: whether it is taken is not decided.

    Nothing was enqueued.
    """

    def __init__(self, keys: Sequence[str] = (), *, ids: Sequence[UUID] = ()) -> None:
        self.keys = tuple(keys)
        self.ids = tuple(ids)
        what, given = ("unique key", [*self.keys]) if self.keys else ("id", [str(job_id) for job_id in self.ids])
        named = f"the {what} {given[0]!r}" if len(given) == 1 else f"one of the {what}s {given!r}"
        super().__init__(
            f"{named} is being taken by a transaction that is still open, so it cannot be said whether it is free. "
            f"Nothing was enqueued; try again, and keep transactions short that enqueue jobs with a {what} of your own"
        )


class TransactionTooLong(HoldfastError):
    """A job's transaction on an embedded store was undone: it kept every other writer waiting for too long."""


class JobFailed(HoldfastError):
    """The job whose result was awaited has failed."""

    def __init__(self, job_id: UUID, code: str, error: str, traceback: str = "") -> None:
        self.job_id = job_id
        self.code = code
        self.error = error
        self.traceback = traceback
        super().__init__(f"job {job_id} failed with {code}: {error}")


class JobCanceled(HoldfastError):
    """The job whose result was awaited was canceled."""

    def __init__(self, job_id: UUID, code: str, reason: str) -> None:
        self.job_id = job_id
        self.code = code
        self.reason = reason
        super().__init__(f"job {job_id} was canceled" + (f": {reason}" if reason else ""))


class JobNotFound(HoldfastError, LookupError):
    """No job with this id: it never was, or it was deleted or pruned."""

    def __init__(self, job_id: UUID) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id} here: it never was, or it was deleted or pruned")


class NotAllowed(HoldfastError):
    """A request that the state of the job does not allow; nothing changed."""


class MissingExtra(HoldfastError, ImportError):
    """An adapter whose packages are not installed."""

    def __init__(self, extra: str, needed_for: str, package: str) -> None:
        self.extra = extra
        self.package = package
        super().__init__(
            f"{needed_for} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'holdfast[{extra}]'"
        )


class StoreUnavailable(HoldfastError, ConnectionError):
    """The database did not answer; `target` is where, `waited` how many seconds were spent trying."""

    def __init__(self, target: str, waited: float, cause: str, *, fix: str = "") -> None:
        self.target = target
        self.waited = waited
        self.cause = cause
        self.fix = fix
        tried = f" (tried for {waited:.1f} s)" if waited else ""
        what = "server" if target.startswith(("http://", "https://")) else "database"
        super().__init__(f"cannot use the {what} at {target}{tried}: {cause}" + (f". {fix}" if fix else ""))


class SchemaError(HoldfastError):
    """The database does not hold the schema this version works with."""


class SchemaMissing(SchemaError):
    """No Holdfast schema there, and it was not to be created (or the role may not)."""


class SchemaTooOld(SchemaError):
    """The schema was written by an older Holdfast."""


class SchemaTooNew(SchemaError):
    """The schema was written by a newer Holdfast."""


class Fatal(HoldfastError):
    """Raised by a handler: fail now, another attempt cannot help."""

    def __init__(self, message: str = "", *, code: str = "FATAL") -> None:
        self.code = code
        super().__init__(message)


class Retryable(HoldfastError):
    """Raised by a handler: this attempt failed, another may succeed."""

    def __init__(self, message: str = "", *, code: str = "RETRYABLE") -> None:
        self.code = code
        super().__init__(message)


class Reschedule(HoldfastError):
    """Raised by a handler: run again later. Costs no failure."""

    def __init__(self, *, after: float | timedelta | None = None, at: datetime | None = None) -> None:
        if (after is None) == (at is None):
            raise BadJob("give after= or at=, one of the two", path="Reschedule")
        if at is not None and at.tzinfo is None:
            raise BadJob("must have a time zone: use datetime.now(UTC) or .astimezone()", path="Reschedule.at")
        self.after = after.total_seconds() if isinstance(after, timedelta) else (after or 0.0)
        if not 0 <= self.after <= CENTURY:
            raise BadJob(f"must be a number of seconds from 0 to a century, not {self.after}", path="Reschedule.after")
        self.at = at
        super().__init__(f"after {self.after:g} s" if at is None else f"at {at.isoformat()}")


class Cancel(HoldfastError):
    """Raised by a handler: end the job as canceled."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Aborted(HoldfastError):
    """The handler was asked to stop; `reason` says why. Let it pass: the worker knows what to write."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"asked to stop: {reason}")


class StaleLease(HoldfastError):
    """A write under a token that is no longer current: the lease was reaped, taken or ended from outside."""


class UnknownWorker(HoldfastError):
    """A claim by a worker that was never registered with this store."""
