"""What is said about a task when it is declared, and about a job when it is enqueued."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence  # noqa: TC003  dataclass fields, kept readable for introspection
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

from holdfast.core.classify import Verdict  # noqa: TC001  a dataclass field
from holdfast.core.job import (
    DEFAULT_LEASE,
    DEFAULT_POLICY,
    DEFAULT_PREFER_FOR,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT,
    BlockerPolicy,
    OnConflict,
)
from holdfast.core.retry import Retry
from holdfast.errors import BadJob, BadTask
from holdfast.tasks.limiting import UNLIMITED, Limit, Limiting

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.tasks.handle import Handle

    After = Handle[Any] | UUID | str | Sequence["After"]
    """What a job may wait for: handles, chains, groups, ids, and lists of them."""

Choice = TypeVar("Choice", bound=StrEnum)

PRIORITIES: Final = {"low": 2, "normal": DEFAULT_PRIORITY, "high": 8}


class Executor(StrEnum):
    """How a function is run."""

    ASYNC = "async"
    """On the worker's event loop. For functions that await."""
    THREAD = "thread"
    """In a thread of the worker. For ordinary functions."""
    PROCESS = "process"
    """In a process of its own: killed at its time-out, and a crash costs nobody else anything."""
    COMMAND = "command"
    """The function returns a `Command`: a program that is run in its place."""
    OUTSIDE = "outside"
    """Nobody runs it: it waits until a person or another service completes it."""


class Missed(StrEnum):
    """What becomes of the slots of a periodic task that passed while no worker ran."""

    LATEST = "latest"
    """The latest one is made up for, the others are passed over."""
    ALL = "all"
    """Each is made up for, in order."""
    SKIP = "skip"
    """None is."""


class JobOptions(TypedDict, total=False):
    """What `task.options(…)` takes; what is left out stays as the task says."""

    delay: float | timedelta
    """Seconds from now until it may run."""
    run_at: datetime
    """When it may run; a past time means now."""
    queue: str
    priority: int | str
    """0-9, higher first, or low, normal, high."""
    key: str
    """At most one live job of this task (or `key_scope`) has it."""
    key_scope: str
    key_window: float | timedelta
    """Hold the key for so long from the enqueue, also when the job has ended."""
    on_conflict: OnConflict | Literal["skip", "replace", "debounce"]
    """skip, replace or debounce."""
    expires_in: float | timedelta
    """End it as canceled if it still waits then."""
    retry: Retry | int | None
    timeout: float | timedelta | None
    lease: float | timedelta
    tags: Sequence[str]
    requires: Collection[str]
    prefers: Collection[str]
    prefer_for: float | timedelta
    """Capabilities: only a worker that has all of them claims it."""
    trace: str
    after: After
    """What must end first: handles, chains, groups or ids. Their results reach the function in this order."""
    on_blocker_failure: BlockerPolicy | Literal["fail", "cancel", "run"]
    """What becomes of it when one of those fails or is canceled: fail, cancel or run."""
    id: UUID | str
    """Its id, a UUIDv7, where somebody else must know it first. Enqueuing it twice makes one job."""
    conn: Any
    """The connection, session or transaction in which it is enqueued: it exists once that has committed."""
    using: str
    """The name of the Django database in whose transaction it is enqueued."""


@dataclass(frozen=True, slots=True)
class Using:
    """A Django database by its name. Its connection is another one in every thread, so it is looked up by who enqueues."""

    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What is said about a task when it is declared."""

    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    retry: Retry = DEFAULT_POLICY.retry
    timeout: float | None = DEFAULT_TIMEOUT
    lease: float = DEFAULT_LEASE
    executor: Executor = Executor.ASYNC
    key: str | Callable[..., str] | None = None
    key_scope: str | None = None
    key_window: float | None = None
    on_conflict: OnConflict = OnConflict.SKIP
    expires_in: float | None = None
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    prefer_for: float = DEFAULT_PREFER_FOR
    limit: Limiting = UNLIMITED
    cron: str | None = None
    timezone: str = "UTC"
    missed: Missed = Missed.LATEST
    codes: Mapping[str, Verdict] = field(default_factory=dict)
    classify: Callable[[BaseException], Verdict | None] | None = None
    continues_with: frozenset[str] | None = None
    """The names of the tasks it may continue with, as they were given; `None`: any."""
    atomic: bool = False
    """Whether each attempt is one transaction, which completes it."""
    version: int = 1
    """Of its args: stored ones of an older version are upgraded before they are validated."""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What is said about a queue: `app.queue(name, …)`."""

    name: str
    fifo: bool = False
    weight: float | None = None
    max_depth: int | None = None
    limit: Limit | None = None


_NAMES: Final = {"task": "name", "unique.key": "key", "unique.scope": "key_scope", "unique.window": "key_window"}
"""What a part of a job is called where a task is declared."""


@contextmanager
def declaring(task: str) -> Iterator[None]:
    """Have what no job could be made of refused as `BadTask`: at the declaration there is a task, and no job yet."""
    try:
        yield
    except BadJob as error:
        what = _NAMES.get(error.path, error.path)
        colon = "" if error.reason.startswith(("must", "says")) else ":"
        raise BadTask(f"task {task!r}: {what}{colon} {error.reason}") from None


def seconds(value: float | timedelta) -> float:
    """Return a duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def priority_of(value: int | str) -> int:
    """Return a priority given by number or name."""
    if isinstance(value, str):
        if value not in PRIORITIES:
            raise BadJob(f"{value!r} is none of {', '.join(PRIORITIES)}, nor a number from 0 to 9", path="priority")
        return PRIORITIES[value]
    return value


def names_of(capabilities: Collection[str]) -> tuple[str, ...]:
    """Return capabilities once each and in order: sets have none, and lanes are told apart by them."""
    return tuple(sorted(set(capabilities), key=str))


def retry_of(value: Retry | int | None) -> Retry:
    """Return a retry policy; a number is a budget of attempts, `None` an endless one."""
    return value if isinstance(value, Retry) else Retry(max_attempts=value)


def choice(kind: type[Choice], value: str, path: str, task: str) -> Choice:
    """Return the member of an enumeration that `value` names; `BadTask` says which there are."""
    try:
        return kind(value)
    except ValueError:
        raise BadTask(f"task {task!r}: {path}={value!r} is none of {', '.join(map(str, kind))}") from None
