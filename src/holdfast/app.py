"""The app: what users write against. Declares tasks, enqueues, makes workers."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import socket
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from holdfast.connect import Adapters
from holdfast.core.job import OnConflict
from holdfast.core.states import LIVE, State
from holdfast.core.text import checked_name
from holdfast.errors import BadArgs, BadSetting, BadTask
from holdfast.runtime.client import Client, bury, outcome
from holdfast.runtime.portal import Portal
from holdfast.store.port import Retention
from holdfast.system import SystemEnvironment
from holdfast.tasks.codec import DEFAULT_MAX_BYTES
from holdfast.tasks.handle import Handle
from holdfast.tasks.options import (
    Executor,
    Missed,
    QueueOptions,
    TaskOptions,
    choice,
    declaring,
    priority_of,
    retry_of,
    seconds,
)
from holdfast.tasks.task import AsyncTask, Call, CommandTask, SyncTask, Task, check_importable, task_name
from holdfast.tasks.values import short

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from types import TracebackType
    from uuid import UUID

    from holdfast.core.classify import Verdict
    from holdfast.core.environment import WorkerEnvironment
    from holdfast.core.retry import Retry
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.entry import Middleware
    from holdfast.runtime.worker import RunningWorker
    from holdfast.runtime.world import World
    from holdfast.store.port import EventView, JobView, LogView, Stats
    from holdfast.tasks.codec import ResultCodec
    from holdfast.tasks.report import Report
    from holdfast.tasks.typed import Declare

T = TypeVar("T")
M = TypeVar("M", bound="Callable[..., Any]")

DAY: Final = 86_400.0
DEFAULT_RETENTION: Final = Retention(succeeded=7 * DAY, failed=30 * DAY, canceled=7 * DAY)


class Holdfast:
    """Durable jobs in the store a URL names.

    Nothing is opened before it is needed. One app may be used from several event loops and threads: each loop has its own
    connections, and `_sync` methods share one thread.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        create: bool = True,
        retention: Retention = DEFAULT_RETENTION,
        max_args_bytes: int = DEFAULT_MAX_BYTES,
        environment: WorkerEnvironment | None = None,
    ) -> None:
        """Declare an app; `create=False` leaves a missing schema alone, `retention` says how long ended jobs are kept.

        Without a URL it works on the store that the settings name when it is first used: `HOLDFAST_URL`, else `url` in
        `holdfast.toml` or in `[tool.holdfast]` of `pyproject.toml`. Raises `BadUrl` for one that names no store.
        """
        self._environment: WorkerEnvironment = environment or SystemEnvironment()
        self._adapters = Adapters(url, create=create, environment=self._environment)
        self._retention = retention
        self._max_bytes = max_args_bytes
        self._tasks: dict[str, Task[..., Any]] = {}
        self._queues: dict[str, QueueOptions] = {}
        self._middlewares: list[Middleware] = []
        self._lifespans: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self._listeners: list[Callable[[str, UUID], None]] = []
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()
        self._portal = Portal()
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """The store's URL; raises `BadSetting` when none was given and no setting says it."""
        return self._adapters.url

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The declared tasks, by name."""
        return self._tasks

    # declaring

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
        lease: float | timedelta = 60.0,
        executor: str | None = None,
        key: str | Callable[..., str] | None = None,
        key_scope: str | None = None,
        key_window: float | timedelta | None = None,
        on_conflict: OnConflict | str = OnConflict.SKIP,
        expires_in: float | timedelta | None = None,
        tags: Sequence[str] = (),
        cron: str | None = None,
        timezone: str = "UTC",
        missed: str = "latest",
        codes: Mapping[str, Verdict] | None = None,
        classify: Callable[[BaseException], Verdict | None] | None = None,
    ) -> Declare:
        """Declare a function as a task: `@app.task(queue="mail", retry=5, timeout=30)`.

        `retry` is a `Retry`, a budget of attempts, or `None` for endless retries. `timeout` bounds one attempt, `lease` is
        how long a silent worker keeps a job. `executor` is async, thread, process or command; by default a function that
        awaits runs async, any other in a thread. `key` (text with `{arg}` fields, or a function of the args) makes jobs
        unique while they are live. `cron` makes it periodic, in `timezone`. Raises `BadTask` for what cannot work.
        """
        if function is not None:
            raise BadTask("@app.task needs its parentheses: write @app.task()")
        if isinstance(tags, str):
            raise BadTask(f"tags={tags!r} is one text: write tags=[{tags!r}]")

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            label = task_name(function) if name is None else name
            kind = self._executor_of(function, executor, label)
            with declaring(label):
                options = TaskOptions(
                    queue=checked_name(queue, "queue"),
                    priority=priority_of(priority),
                    retry=retry_of(retry),
                    timeout=None if timeout is None else seconds(timeout),
                    lease=seconds(lease),
                    executor=kind,
                    key=key,
                    key_scope=key_scope,
                    key_window=None if key_window is None else seconds(key_window),
                    on_conflict=choice(OnConflict, on_conflict, "on_conflict", label),
                    expires_in=None if expires_in is None else seconds(expires_in),
                    tags=tuple(tags),
                    cron=cron,
                    timezone=timezone,
                    missed=choice(Missed, missed, "missed", label),
                    codes=codes or {},
                    classify=classify,
                )
                return self._declared(function, label, options)

        return cast("Declare", declare)  # whose overloads are for type checkers

    def _executor_of(self, function: Callable[..., Any], executor: str | None, name: str) -> Executor:
        awaits = inspect.iscoroutinefunction(inspect.unwrap(function))
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
        kinds: dict[Executor, type[Task[..., Any]]] = {Executor.ASYNC: AsyncTask, Executor.COMMAND: CommandTask}
        task = kinds.get(options.executor, SyncTask)(function, name, options, self, max_bytes=self._max_bytes)
        if options.cron is None and (options.timezone != "UTC" or options.missed is not Missed.LATEST):
            raise BadTask(f"task {name!r} has timezone= or missed= without cron=: both say something about a periodic task")
        if options.cron is not None:
            from holdfast.runtime.scheduler import check_cron  # noqa: PLC0415  cron is for those who use it

            check_cron(name, options.cron, options.timezone)
            try:
                task.args.encode()
            except Exception as error:
                raise BadTask(f"task {name!r} has cron=, so it must run without args: {error}") from error
        self._tasks[name] = task
        return task

    def queue(self, name: str, *, fifo: bool = False, weight: float = 1.0, max_depth: int | None = None) -> QueueOptions:
        """Say something about a queue.

        `fifo` keeps one strict order across its tasks. `weight` is its share of the claims against other queues. `max_depth`
        is how many jobs may wait in it: an enqueue beyond raises `QueueFull`.
        """
        checked_name(name, "queue")
        if type(weight) not in {int, float} or not 0 < weight < math.inf:
            raise BadSetting(f"queue {name!r}: weight must be above 0, not {weight!r}")
        if max_depth is not None and (type(max_depth) is not int or max_depth < 1):
            raise BadSetting(f"queue {name!r}: max_depth must be a whole number from 1, not {max_depth}")
        said = QueueOptions(name, fifo, weight, max_depth)
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

    def on_worker(self, function: M) -> M:
        """Have `function(event, worker_id)` called when a worker has started (`worker_started`), stops and has stopped."""
        self._listeners.append(function)
        return function

    # enqueuing

    def new_id(self) -> UUID:
        """Return a fresh job id."""
        return self._environment.job_id()

    def queue_options(self, name: str) -> QueueOptions | None:
        """Return what was said about a queue."""
        return self._queues.get(name)

    async def enqueue_many(self, calls: Sequence[Call[Any]]) -> list[Handle[Any]]:
        """Enqueue calls (`task.call(…)`) in order, all or none; returns their handles in the same order."""
        calls = list(calls)
        for index, call in enumerate(calls):
            if not isinstance(call, Call):
                raise BadArgs(f"must be a call: write task.call(…), not {short(call)}", path=f"calls[{index}]")
        caps = {
            call.job.queue: queue.max_depth
            for call in calls
            if (queue := self._queues.get(call.job.queue)) is not None and queue.max_depth is not None
        }
        answers = await self._client().enqueue([call.job for call in calls], caps)
        return [
            Handle(answer.job_id, self, call.task.results, answer.status) for call, answer in zip(calls, answers, strict=True)
        ]

    def enqueue_many_sync(self, calls: Sequence[Call[Any]]) -> list[Handle[Any]]:
        """Do as `enqueue_many`, from blocking code."""
        return self.blocking(self.enqueue_many(calls))

    def job(self, job_id: UUID | str) -> Handle[Any]:
        """Return a handle on a job that was enqueued at some time. Nothing is looked up before it is used."""
        from uuid import UUID  # noqa: PLC0415  only here at run time

        if isinstance(job_id, str):
            try:
                job_id = UUID(job_id)
            except ValueError:
                raise BadSetting(f"{job_id!r} is no job id: a job id is a UUID") from None
        return Handle(job_id, self)

    # looking

    async def stats(self) -> dict[str, Any]:
        """Return counts: each state, `live`, `queues` and `tasks` (counts per state), `oldest_waiting` seconds per queue."""
        client = self._client()
        await client.open()
        return stats_dict(await client.store.stats())

    def stats_sync(self) -> dict[str, Any]:
        """Do as `stats`, from blocking code."""
        return self.blocking(self.stats())

    async def pause(self, queue: str, *, reason: str = "") -> None:
        """Stop claims from a queue."""
        client = self._client()
        await client.open()
        await client.store.pause(queue, reason=reason)

    def pause_sync(self, queue: str, *, reason: str = "") -> None:
        """Do as `pause`, from blocking code."""
        self.blocking(self.pause(queue, reason=reason))

    async def resume(self, queue: str) -> None:
        """Let claims from a queue go on."""
        from holdfast.notify.port import Hint  # noqa: PLC0415  only here

        client = self._client()
        await client.open()
        await client.store.resume(queue)
        client.notifier.hint(Hint(frozenset({queue})))

    def resume_sync(self, queue: str) -> None:
        """Do as `resume`, from blocking code."""
        self.blocking(self.resume(queue))

    # working

    def worker(
        self,
        *,
        concurrency: int = 20,
        queues: Sequence[str] | None = None,
        name: str | None = None,
        delay: float = 0.0,
        prefetch: int = 0,
        poll: float | None = None,
        retry_share: float = 0.2,
        shutdown_timeout: float = 30.0,
        exit_when_blocked: bool = False,
        retention: Retention | None = None,
        counters: Counters | None = None,
    ) -> RunningWorker:
        """Return a worker for the declared tasks: `async with app.worker(concurrency=20): …`, or `await worker.serve()`.

        `queues` limits it to some queues. `prefetch` lets it hold more short jobs than it has slots. `delay` is a rest after
        each claim. `poll` is how often it looks for itself: every minute while hints arrive and every second otherwise.
        `retention` says how long it lets ended jobs stand, instead of the app's.
        """
        from holdfast import __version__  # noqa: PLC0415  a circle otherwise
        from holdfast.runtime.worker import RunningWorker  # noqa: PLC0415  only workers need all of it
        from holdfast.runtime.world import WorkerOptions  # noqa: PLC0415  as above

        if isinstance(queues, str):
            raise BadSetting(f"queues={queues!r} is one text: write queues=[{queues!r}]")
        options = WorkerOptions(
            name=name or f"{socket.gethostname()}:{os.getpid()}",
            version=__version__,
            concurrency=concurrency,
            queues=None if queues is None else frozenset(queues),
            prefetch=prefetch,
            delay=delay,
            poll=60.0 if poll is None else poll,
            poll_unhinted=1.0 if poll is None else min(poll, 1.0),
            retry_share=retry_share,
            shutdown_timeout=shutdown_timeout,
            exit_when_blocked=exit_when_blocked,
        )
        return RunningWorker(self.world(retention), options, counters)

    def world(self, retention: Retention | None = None) -> World:
        """Return what a worker is made of: the tasks and hooks declared so far, and the adapters. For tools and tests."""
        from holdfast.runtime.world import World  # noqa: PLC0415  only workers need it

        return World(
            url=self.url,
            make_store=self._adapters.store,
            make_notifier=self._adapters.notifier,
            environment=self._environment,
            tasks=dict(self._tasks),
            middlewares=tuple(self._middlewares),
            lifespans=tuple(self._lifespans),
            listeners=tuple(self._listeners),
            weights={queue.name: queue.weight for queue in self._queues.values()},
            retention=retention or self._retention,
        )

    # life

    @contextmanager
    def override(self, url: str, environment: WorkerEnvironment | None = None) -> Iterator[Self]:
        """Have the app use another store inside this `with` block, with the tasks it has. For tests: `memory://`.

        Connections opened inside must be closed inside: `await app.close()`, or `app.close_sync()`.
        """
        kept = self._environment, self._adapters, self._clients, self._portal
        self._environment = environment or SystemEnvironment()
        self._adapters = Adapters(url, environment=self._environment)
        self._clients, self._portal = weakref.WeakKeyDictionary(), Portal()
        try:
            yield self
        finally:
            self._environment, self._adapters, self._clients, self._portal = kept

    async def __aenter__(self) -> Self:
        await self._client().open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections of this event loop and of the portal. Safe to call again; use opens them anew."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        if self._portal.running:
            runner = self._environment.runner("holdfast-close")
            try:
                await runner.run(self._close_portal)
            finally:
                runner.close()

    def close_sync(self) -> None:
        """Do as `close`, from blocking code."""
        self._portal.refuse_on_loop("close")
        if self._portal.running:
            self._close_portal()

    def _close_portal(self) -> None:
        self._portal.close(self._close_client)

    async def _close_client(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from blocking code; refused inside a running event loop."""
        return self._portal.run(coroutine)

    def _client(self) -> Client:
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            # a forked child must not speak through its parent's connections: they are left alone, not closed
            self._process, self._clients, self._portal = os.getpid(), weakref.WeakKeyDictionary(), Portal()
        client = self._clients.get(loop)
        if client is None:
            self._bury_the_dead()
            client = self._clients[loop] = Client(self._adapters.store(), self._adapters.notifier(), self._environment)
        return client

    def _bury_the_dead(self) -> None:
        """Let go of what event loops have left behind that ended without closing the app, such as one `asyncio.run` each."""
        for loop, client in list(self._clients.items()):
            if loop.is_closed():
                del self._clients[loop]
                bury(client)

    # what handles ask for

    @property
    def desk(self) -> Self:
        """Return what handles talk to."""
        return self

    async def view(self, job_id: UUID) -> JobView:
        """Return a job; raises `JobNotFound`."""
        return await self._client().view(job_id)

    async def wait(self, job_id: UUID, timeout: float | None) -> JobView:
        """Return a job once it is terminal; raises `TimeoutError`, `JobNotFound`."""
        return await self._client().wait(job_id, timeout)

    async def cancel(self, job_id: UUID, reason: str) -> bool:
        """Cancel a job; returns False when it had ended."""
        return await self._client().cancel(job_id, reason)

    async def retry(self, job_id: UUID) -> None:
        """Bring a job that has ended back."""
        await self._client().retry(job_id)

    async def events(self, job_id: UUID) -> list[EventView]:
        """Return the event log of a job."""
        return await self._client().events(job_id)

    async def logs(self, job_id: UUID, after: int, limit: int) -> list[LogView]:
        """Return log lines of a job."""
        return await self._client().logs(job_id, after, limit)

    async def report(self, job_id: UUID) -> Report:
        """Return how a job went."""
        return await self._client().report(job_id)

    def outcome(self, view: JobView, codec: ResultCodec | None) -> Any:
        """Return the result of a terminal job, or raise `JobFailed` or `JobCanceled`."""
        return outcome(view, codec)


def stats_dict(stats: Stats) -> dict[str, Any]:
    """Return counts as plain data: by state, `live`, by queue, by task, oldest waiting."""
    total = dict.fromkeys(map(str, State), 0)
    queues: dict[str, dict[str, int]] = {}
    tasks: dict[str, dict[str, int]] = {}
    for row in stats.tasks:
        own = (
            total,
            queues.setdefault(row.queue, dict.fromkeys(total, 0)),
            tasks.setdefault(row.task, dict.fromkeys(total, 0)),
        )
        for state, count in row.counts.items():
            for counts in own:
                counts[str(state)] += count
    return {
        **total,
        "live": sum(total[state] for state in LIVE),
        "queues": dict(sorted(queues.items())),
        "tasks": dict(sorted(tasks.items())),
        "oldest_waiting": dict(stats.oldest_waiting),
    }


def _where(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return repr(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
