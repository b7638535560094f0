"""Declaring: tasks, queues, and what goes with every worker."""

from __future__ import annotations

import inspect
import math
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from holdfast.app.producing import Producing
from holdfast.core.job import DEFAULT_LEASE, DEFAULT_PREFER_FOR, OnConflict
from holdfast.core.text import checked_name
from holdfast.errors import BadSetting, BadTask
from holdfast.tasks.limiting import Limit, limiting_of
from holdfast.tasks.options import (
    Executor,
    Missed,
    QueueOptions,
    TaskOptions,
    choice,
    declaring,
    names_of,
    priority_of,
    retry_of,
    seconds,
)
from holdfast.tasks.task import AsyncTask, CommandTask, SyncTask, Task, check_importable, task_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import timedelta

    from holdfast.core.classify import Verdict
    from holdfast.core.retry import Retry
    from holdfast.tasks.typed import Declare

M = TypeVar("M", bound="Callable[..., Any]")


class Declaring(Producing):
    """The part of an app that tasks are declared with."""

    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int | str = "normal",
        retry: Retry | int | None = 3,
        timeout: float | timedelta | None = 1800.0,
        lease: float | timedelta | None = None,
        executor: Executor | Literal["async", "thread", "process", "command", "outside"] | None = None,
        key: str | Callable[..., str] | None = None,
        key_scope: str | None = None,
        key_window: float | timedelta | None = None,
        on_conflict: OnConflict | Literal["skip", "replace", "debounce"] = OnConflict.SKIP,
        expires_in: float | timedelta | None = None,
        tags: Sequence[str] = (),
        requires: Collection[str] = (),
        prefers: Collection[str] = (),
        prefer_for: float | timedelta = DEFAULT_PREFER_FOR,
        limit: Limit | Sequence[Limit] | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed | Literal["latest", "all", "skip"] = Missed.LATEST,
        codes: Mapping[str, Verdict] | None = None,
        classify: Callable[[BaseException], Verdict | None] | None = None,
        version: int = 1,
        continues_with: Sequence[Task[..., Any] | str] | None = None,
        atomic: bool = False,
    ) -> Declare:
        """Declare a function as a task: `@app.task(queue="mail", retry=5, timeout=30)`.

        `retry` is a `Retry`, a budget of attempts, or `None` for endless retries. `timeout` bounds one attempt, `lease` is
        how long a silent worker keeps a job: by default 60 s, or what the settings say where the app has its URL from them.
        `executor` is async, thread, process, command or outside; by default a function that awaits runs async, any other in
        a thread. `key` (text with `{arg}` fields, or a function of the args) makes jobs
        unique while they are live. `requires` names capabilities that a worker must have to claim them; jobs are left to
        idle workers that have what it `prefers`, but not for longer than `prefer_for` seconds. `limit` says how many run at
        once over all workers, and how often they start: of the task, or of each key. `cron` makes it periodic, in
        `timezone`. `version` is that of its args: `@task.upgrade(1)` brings stored ones of version 1 to the next.
        `continues_with` names the tasks that a step of it may continue with; names may be declared later. `atomic` makes each
        attempt one transaction (`job.tx`). Raises `BadTask` for what cannot work.
        """
        if function is not None:
            raise BadTask("@app.task needs its parentheses: write @app.task()")
        if isinstance(tags, str):
            raise BadTask(f"tags={tags!r} is one text: write tags=[{tags!r}]")
        if isinstance(requires, str):
            raise BadTask(f"requires={requires!r} is one text: write requires={{{requires!r}}}")
        if isinstance(prefers, str):
            raise BadTask(f"prefers={prefers!r} is one text: write prefers={{{prefers!r}}}")

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            label = task_name(function) if name is None else name
            kind = self._executor_of(function, executor, label)
            with declaring(label):
                options = TaskOptions(
                    queue=checked_name(queue, "queue"),
                    priority=priority_of(priority),
                    retry=retry_of(retry),
                    timeout=None if timeout is None else seconds(timeout),
                    lease=self._lease() if lease is None else seconds(lease),
                    executor=kind,
                    key=key,
                    key_scope=key_scope,
                    key_window=None if key_window is None else seconds(key_window),
                    on_conflict=choice(OnConflict, on_conflict, "on_conflict", label),
                    expires_in=None if expires_in is None else seconds(expires_in),
                    tags=tuple(tags),
                    requires=names_of(requires),
                    prefers=names_of(prefers),
                    prefer_for=seconds(prefer_for),
                    limit=limiting_of(limit),
                    cron=cron,
                    timezone=timezone,
                    missed=choice(Missed, missed, "missed", label),
                    codes=codes or {},
                    classify=classify,
                    version=version,
                    continues_with=_names(continues_with, label),
                    atomic=atomic,
                )
                return self._declared(function, label, options)

        return cast("Declare", declare)  # whose overloads are for type checkers

    def _lease(self) -> float:
        """Return the lease of tasks that do not say it. Read once, and only where the settings are to decide anyway."""
        if self._default_lease is None:
            from holdfast.config import configured_lease  # noqa: PLC0415  for apps that are given no URL

            self._default_lease = (configured_lease() if self._by_settings else None) or DEFAULT_LEASE
        return self._default_lease

    def _executor_of(self, function: Callable[..., Any], executor: str | None, name: str) -> Executor:
        awaits = _awaits(function)
        if executor is None:
            return Executor.ASYNC if awaits else Executor.THREAD
        kind = choice(Executor, executor, "executor", name)
        if kind is Executor.ASYNC and not awaits:
            raise BadTask(f"task {name!r} has executor='async', but its function does not await: use 'thread' or 'process'")
        if kind is Executor.THREAD and awaits:
            raise BadTask(f"task {name!r} has executor='thread', but its function awaits: use 'async' or 'process'")
        if kind is Executor.PROCESS:
            check_importable(function, name)
        return kind

    def _declared(self, function: Callable[..., Any], name: str, options: TaskOptions) -> Task[..., Any]:
        if name in self._tasks:
            there = self._tasks[name].function
            raise BadTask(
                f"there are two tasks named {name!r}: {_where(there)} and {_where(function)}. "
                "Give one of them another name with @app.task(name=…)"
            )
        if options.executor is Executor.OUTSIDE and options.continues_with is not None:
            raise BadTask(f"task {name!r}: nobody runs it, so it continues with nothing: leave continues_with= out")
        if options.atomic and options.executor not in (Executor.ASYNC, Executor.THREAD):
            raise BadTask(
                f"task {name!r} has atomic=True, but executor={str(options.executor)!r} runs where the worker's transaction "
                "cannot be reached: use 'async' or 'thread'"
            )
        task = _kind(function, options)(function, name, options, self, max_bytes=self._max_bytes)
        if options.cron is None and (options.timezone != "UTC" or options.missed is not Missed.LATEST):
            raise BadTask(f"task {name!r} has timezone= or missed= without cron=: both say something about a periodic task")
        if options.cron is not None:
            if options.executor is Executor.OUTSIDE:
                raise BadTask(f"task {name!r} has cron= and executor='outside': nobody runs it, so its jobs would only pile up")
            from holdfast.runtime.scheduler import check_cron  # noqa: PLC0415  cron is for those who use it

            check_cron(name, options.cron, options.timezone)
            try:
                task.args.encode()
            except Exception as error:
                raise BadTask(f"task {name!r} has cron=, so it must run without args: {error}") from error
        self._tasks[name] = task
        return task

    def check_continuations(self) -> None:
        """Raise `BadTask` where a task is to continue with one that nobody has declared."""
        for task in self._tasks.values():
            for name in sorted(task.continues_with or ()):
                if name not in self._tasks and task.neighbour(name) not in self._tasks:
                    near = get_close_matches(name, self._tasks, n=1)
                    meant = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(self._tasks))}"
                    raise BadTask(f"task {task.name!r}: continues_with names {name!r}, and there is no such task; {meant}")

    def queue(
        self,
        name: str,
        *,
        fifo: bool = False,
        weight: float | None = None,
        max_depth: int | None = None,
        limit: Limit | None = None,
    ) -> QueueOptions:
        """Say something about a queue.

        `fifo` keeps one strict order across its tasks. `weight` is its share of the claims against other queues, which
        take turns as soon as one has a weight; one that nobody said anything about has 1. `max_depth`
        is how many jobs may wait in it: an enqueue beyond raises `QueueFull`. `limit` says how many of its jobs run at once
        over all workers, and how often they start.
        """
        checked_name(name, "queue")
        if weight is not None and (type(weight) not in {int, float} or not 0 < weight < math.inf):
            raise BadSetting(f"queue {name!r}: weight must be above 0, not {weight!r}")
        if max_depth is not None and (type(max_depth) is not int or max_depth < 1):
            raise BadSetting(f"queue {name!r}: max_depth must be a whole number from 1, not {max_depth}")
        if limit is not None and limit.keyed:
            raise BadSetting(f"queue {name!r}: limit must be a Limit without a key, not {limit!r}: keys belong to tasks")
        said = QueueOptions(name, fifo, weight, max_depth, limit)
        if (before := self._queues.setdefault(name, said)) != said:
            raise BadSetting(f"queue {name!r} was declared before, as {before}: say everything about it in one place")
        return said

    def middleware(self, function: M) -> M:
        """Have every attempt wrapped in a function: `async def timed(job, call_next)`. The first declared is the outermost."""
        self._middlewares.append(function)
        return function

    def lifespan(self, function: M) -> M:
        """Have an async context manager function entered when a worker starts and left when it stops.

        For pools and clients that handlers share. Entered in the order declared, left in reverse.
        """
        self._lifespans.append(function)
        return function

    def capabilities(self, function: M) -> M:
        """Have `await function()` asked when a worker starts: the names it returns are among the worker's capabilities.

        For what a machine can tell by itself, such as the hardware it has. Asked after the lifespans are entered.
        """
        self._capabilities.append(function)
        return function

    def on_worker(self, function: M) -> M:
        """Have `function(event, worker_id)` called when a worker has started (`worker_started`), stops and has stopped."""
        self._listeners.append(function)
        return function


def _kind(function: Callable[..., Any], options: TaskOptions) -> type[Task[..., Any]]:
    if options.executor is Executor.COMMAND:
        return CommandTask
    return AsyncTask if options.executor is Executor.ASYNC or _awaits(function) else SyncTask


def _names(tasks: Sequence[Task[..., Any] | str] | None, label: str) -> frozenset[str] | None:
    if tasks is None:
        return None
    if isinstance(tasks, (str, Task)):
        raise BadTask(f"task {label!r}: continues_with is a list: write continues_with=[{tasks!r}]")
    return frozenset(task if isinstance(task, str) else _task_of(task, label).name for task in tasks)


def _task_of(value: Any, label: str) -> Task[..., Any]:
    if not isinstance(value, Task):
        raise BadTask(f"task {label!r}: continues_with holds tasks or their names, not {value!r}")
    return value


def _awaits(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def _where(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return repr(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
