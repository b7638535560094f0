"""What has been enqueued, and assertions about it. Blocking, in every kind of test: an assertion must not wait for `await`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.errors import BadArgs, BadTask
from holdfast.store.port import JobFilter
from holdfast.tasks.options import priority_of, seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from holdfast.app import Holdfast
    from holdfast.core.states import State
    from holdfast.store.port import JobView, Store
    from holdfast.tasks.task import Task
    from holdfast.testing.jobs import Declared

T = TypeVar("T")

PAGE: Final = 500
SHOWN: Final = 20
"""How many jobs the message of a failed assertion lists."""
SAME_MOMENT: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A job as it was asked for, and where it stands."""

    id: UUID
    task: str
    args: Mapping[str, Any]
    """By parameter name, decoded, with the defaults of what was left out."""
    state: State
    queue: str
    priority: int
    key: str | None
    """Its unique key as it is stored: hashed, where the app encrypts."""
    tags: tuple[str, ...]
    created_at: datetime
    run_at: datetime | None
    """When it is due, while it is scheduled."""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        extras = [f"queue={self.queue}", f"state={self.state}"]
        extras += [] if self.key is None else [f"key={self.key}"]
        extras += [] if self.run_at is None else [f"delay={(self.run_at - self.created_at).total_seconds():g}"]
        return f"{self.task}({given})  {' '.join(extras)}"


def enqueued(app: Holdfast, task: Declared | None = None) -> list[EnqueuedJob]:
    """Return every job in the store, or those of one task, oldest first, in whatever state.

    Blocks, and may be called anywhere: it uses a handle on the store of its own. Jobs enqueued in a transaction that is not
    committed are not seen.
    """
    views = _ask(app, lambda store: _all(store, JobFilter(task=None if task is None else task.name)))
    return [_job(app, view) for view in sorted(views, key=lambda view: (view.created_at, view.id))]


def assert_enqueued(
    app: Holdfast,
    task: Declared,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    count: int | None = None,
    queue: str | None = None,
    priority: int | str | None = None,
    key: str | None = None,
    tags: Sequence[str] | None = None,
    delay: float | timedelta | None = None,
    run_at: datetime | None = None,
    state: State | str | None = None,
) -> list[EnqueuedJob]:
    """Assert that the task was enqueued, as everything given says; returns the jobs that match, oldest first.

    `args` by name must be among the job's args, others may be anything; in a sequence they are the first ones by position.
    Values match when they are equal, so `unittest.mock.ANY` fits all. `delay` and `run_at` fit while the job is scheduled;
    `delay=0` means not scheduled. `count` says how many must match: without it, at least one.
    """
    __tracebackhide__ = True
    wanted = _Wanted(task.name, _named(app, task, args), queue, priority, _stored_key(app, key), tags, delay, run_at, state)
    there = enqueued(app)
    found = [job for job in there if wanted.fits(job)]
    if count is None and not found:
        raise AssertionError(f"nothing was enqueued like {wanted}; {_list(there, task)}")
    if count is not None and len(found) != count:
        raise AssertionError(f"{len(found)} and not {count} job(s) were enqueued like {wanted}; {_list(there, task)}")
    return found


def assert_not_enqueued(
    app: Holdfast,
    task: Declared,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: str | None = None,
    key: str | None = None,
) -> None:
    """Assert that the task was not enqueued, or not as everything given says."""
    __tracebackhide__ = True
    wanted = _Wanted(task.name, _named(app, task, args), queue, None, _stored_key(app, key), None, None, None, None)
    there = enqueued(app)
    found = [job for job in there if wanted.fits(job)]
    if found:
        raise AssertionError(f"{len(found)} job(s) were enqueued like {wanted}; {_list(there, task)}")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an assertion asks for; `None` asks for nothing."""

    task: str
    args: Mapping[str, Any] | None
    queue: str | None
    priority: int | str | None
    key: str | None
    tags: Sequence[str] | None
    delay: float | timedelta | None
    run_at: datetime | None
    state: str | None

    def fits(self, job: EnqueuedJob) -> bool:
        return (
            job.task == self.task
            and all(name in job.args and job.args[name] == value for name, value in (self.args or {}).items())
            and self.queue in (None, job.queue)
            and (self.priority is None or priority_of(self.priority) == job.priority)
            and self.key in (None, job.key)
            and (self.tags is None or set(self.tags) <= set(job.tags))
            and (self.delay is None or self._delayed(job, seconds(self.delay)))
            and (self.run_at is None or (job.run_at is not None and abs(job.run_at - self.run_at) <= SAME_MOMENT))
            and self.state in (None, job.state)
        )

    def _delayed(self, job: EnqueuedJob, delay: float) -> bool:
        if job.run_at is None or not delay:
            return job.run_at is None and not delay
        return abs(job.run_at - job.created_at - timedelta(seconds=delay)) <= SAME_MOMENT

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in (self.args or {}).items())
        names = ("queue", "priority", "key", "tags", "delay", "run_at", "state")
        extras = [f"{name}={value}" for name in names if (value := getattr(self, name)) is not None]
        call = f"{self.task}({given or '…'})"
        return "  ".join([call, " ".join(extras)]) if extras else call


def _named(app: Holdfast, declared: Declared, args: Mapping[str, Any] | Sequence[Any] | None) -> Mapping[str, Any] | None:
    task = app.tasks.get(declared.name)
    if task is None:
        raise BadTask(f"task {declared.name!r} is not declared with this app: give the app it was declared with")
    if args is None:
        return None
    names = [name for name in inspect.signature(task.function).parameters if name != task.job_parameter]
    if isinstance(args, str) or not isinstance(args, (Mapping, Sequence)):
        raise BadArgs(f"give args as a mapping or a sequence, not {args!r}", task=task.name)
    if not isinstance(args, Mapping):
        if len(args) > len(names):
            raise BadArgs(f"the task takes {len(names)} args, not {len(args)}", task=task.name)
        return dict(zip(names, args, strict=False))
    if unknown := set(args) - set(names):
        # else a misspelt name would pass every assert_not_enqueued
        raise BadArgs(f"the task has no parameter {min(unknown)!r}; it has {', '.join(names) or 'none'}", task=task.name)
    return args


def _stored_key(app: Holdfast, key: str | None) -> str | None:
    return key if key is None or app.sealer is None else app.sealer.hash(key)


def _list(there: Sequence[EnqueuedJob], task: Declared) -> str:
    if not there:
        return "nothing was enqueued at all"
    first = sorted(there, key=lambda job: job.task != task.name)  # its own first, each in the order of enqueuing
    lines = [f"  {job}" for job in first[:SHOWN]]
    more = [f"  … and {len(first) - SHOWN:,} more"] if len(first) > SHOWN else []
    return "\n".join([f"there are {len(first)}:", *lines, *more])


def _job(app: Holdfast, view: JobView) -> EnqueuedJob:
    return EnqueuedJob(
        view.id,
        view.task,
        _args(app.tasks.get(view.task), view),
        view.state,
        view.queue,
        view.priority,
        view.key,
        view.tags,
        view.created_at,
        view.run_at,
    )


def _args(task: Task[..., Any] | None, view: JobView) -> Mapping[str, Any]:
    if task is None:
        return {"args": view.args}  # of a task this app does not declare: as they are stored
    positional, named = task.args.decode(view.args)
    bound = inspect.signature(task.function).bind_partial(*positional, **named)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name != task.job_parameter}


async def _all(store: Store, where: JobFilter) -> list[JobView]:
    views: list[JobView] = []
    after: UUID | None = None
    while True:
        page = await store.find(where, limit=PAGE, after=after)
        views += page.jobs
        after = page.after
        if after is None:
            return views


def _ask(app: Holdfast, question: Callable[[Store], Awaitable[T]]) -> T:
    """Ask the store from wherever this is called: in a thread, with an event loop and a handle of its own."""

    async def asked() -> T:
        store = app.world().make_store()
        try:
            await store.open()
            return await question(store)
        finally:
            await store.close()

    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-testing") as pool:
        return pool.submit(lambda: asyncio.run(asked())).result()
