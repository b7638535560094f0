"""The worker: one task group that owns every loop, and the life of each attempt between claim and confirmation."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import socket
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from holdfast.core.abort import LOST, AbortReason
from holdfast.core.outcome import Error, Failed, Outcome, Released
from holdfast.errors import BadSetting, StoreUnavailable
from holdfast.runtime import counters as count
from holdfast.runtime.attempt import STOP_GRACE, Attempt
from holdfast.runtime.attempting import attempted
from holdfast.runtime.base import Base
from holdfast.runtime.claimer import Claimer, Claims
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.entry import Entry
from holdfast.runtime.executor.command import CommandExecutor
from holdfast.runtime.executor.process import ProcessExecutor
from holdfast.runtime.executor.thread import ThreadExecutor
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.runtime.housekeeping import Promoter, Pruner, Reaper, Sweeper
from holdfast.runtime.logs import kept_logs
from holdfast.runtime.outage import Outage
from holdfast.runtime.reporter import AttemptChannel, Reporter
from holdfast.runtime.scheduler import Scheduler
from holdfast.runtime.service import Keeper, Service, wait_for_event
from holdfast.runtime.settler import Settler
from holdfast.runtime.watchdog import Watchdog
from holdfast.store.port import Part, Worker
from holdfast.tasks.options import Executor as Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from uuid import UUID

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.core.lease import Claimed, Lease
    from holdfast.notify.port import Hint, Notifier
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.entry import Middleware
    from holdfast.runtime.executor.port import Executor
    from holdfast.store.port import Retention, Store
    from holdfast.tasks.task import Task

logger = logging.getLogger("holdfast.worker")

INFO_TASKS: Final = 200
LONGEST_TURN: Final = 0.005
"""Seconds one slot may run handlers that never suspend before it lets the others have a turn."""
EXIT_STUCK: Final = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker works."""

    name: str
    version: str
    concurrency: int = 20
    """Slots: how many jobs it runs at once."""
    queues: frozenset[str] | None = None
    prefetch: int = 0
    """How many short jobs more it may hold, so that no slot waits for a claim."""
    delay: float = 0.0
    poll: float = 60.0
    poll_unhinted: float = 1.0
    retry_share: float = 0.2
    shutdown_timeout: float = 30.0
    exit_when_blocked: bool = False
    capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if type(self.concurrency) is not int or self.concurrency < 1:
            raise BadSetting(f"concurrency must be a whole number from 1, not {self.concurrency}: a worker needs a slot")
        if type(self.prefetch) is not int or self.prefetch < 0:
            raise BadSetting(f"prefetch must be a whole number from 0, not {self.prefetch}")
        for field in ("delay", "shutdown_timeout"):
            if not getattr(self, field) >= 0:
                raise BadSetting(f"{field} must be a number of seconds from 0, not {getattr(self, field)}")
        for field in ("poll", "poll_unhinted"):
            if not getattr(self, field) > 0:
                raise BadSetting(f"{field} must be a number of seconds above 0, not {getattr(self, field)}")
        if not 0 <= self.retry_share <= 1:
            raise BadSetting(f"retry_share must be from 0 to 1, not {self.retry_share}")
        if self.queues is not None and not self.queues:
            raise BadSetting("queues is empty: leave it out to serve every queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a worker is made of: the app's tasks and hooks, and the adapters."""

    make_store: Callable[[], Store]
    make_notifier: Callable[[], Notifier]
    environment: WorkerEnvironment
    tasks: Mapping[str, Task[..., Any]]
    middlewares: Sequence[Middleware]
    lifespans: Sequence[Callable[[], AbstractAsyncContextManager[Any]]]
    listeners: Sequence[Callable[[str, UUID], None]]
    weights: Mapping[str, float]
    retention: Retention


class RunningWorker:
    """A worker between its start and its stop: `async with`, or `await worker.serve()` with signals."""

    def __init__(self, world: World, options: WorkerOptions, counters: Counters | None = None) -> None:
        self.options = options
        self.counters: Counters = MemoryCounters() if counters is None else counters
        self._world = world
        self._environment = world.environment
        self.id = world.environment.job_id()
        self._held: dict[Lease, Attempt] = {}
        self._buffer: deque[Attempt] = deque()
        """Claimed, and waiting for a slot."""
        self._idle: deque[asyncio.Future[Attempt]] = deque()
        """Slots that wait for an attempt."""
        self._settled = asyncio.Event()
        self._stuck = 0
        self._running = 0
        self._stopping = self._closing = False
        self._stop_asked = asyncio.Event()
        self._abort_asked = asyncio.Event()
        self._stack = AsyncExitStack()
        self._slots: list[asyncio.Task[None]] = []
        self._abandoned: set[asyncio.Task[None]] = set()
        self._services: list[Service] = []

    # life

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            # an error of the block is the caller's own: the task group must not wrap it
            await self._stack.aclose()

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT: the first drains, the second aborts what still runs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask_to_stop)
        try:
            async with self:
                await self._stop_asked.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._abandoned:
            logger.error("%d handler(s) do not stop: the process ends without them", len(self._abandoned))
            logging.shutdown()
            os._exit(EXIT_STUCK)

    def ask_to_stop(self) -> None:
        """Ask it to drain; asked again, it aborts what still runs."""
        if self._stop_asked.is_set():
            logger.warning("asked to stop a second time: running jobs are aborted and given back")
            self._abort_asked.set()
        else:
            logger.info("asked to stop: %d job(s) run; they have %g s", self._running, self.options.shutdown_timeout)
            self._stop_asked.set()

    async def _start(self) -> None:
        world, options = self._world, self.options
        self._outage = Outage(self._environment)
        store = self._store = world.make_store()
        self._stack.push_async_callback(store.close)
        await store.open()
        notifier = self._notifier = world.make_notifier()
        self._stack.push_async_callback(notifier.close)
        self._stack.enter_context(kept_logs())
        for lifespan in world.lifespans:
            await self._stack.enter_async_context(lifespan())
        self._entries = await self._prepare()
        self.worker = Worker(
            id=self.id,
            name=options.name,
            info=self._info(),
            version=options.version,
            slots=options.concurrency,
            capabilities=options.capabilities,
        )
        await store.register(self.worker)
        self._make_parts(store, notifier)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        await notifier.listen(self._hinted)
        self._heartbeat.start()
        for service in self._services:
            group.create_task(service.run(), name=f"holdfast-{service.name}")
        group.create_task(self._reporter.run(), name="holdfast-reporter")
        group.create_task(self._settler.run(), name="holdfast-settler")
        self._claiming = group.create_task(self._claimer.run(), name="holdfast-claimer")
        # not in the group: a handler that will not stop must not keep the worker from stopping
        self._slots = [asyncio.create_task(self._slot(), name=f"holdfast-slot-{n}") for n in range(options.concurrency)]
        self._stack.push_async_callback(self._close_slots)
        self._tell("worker_started")
        logger.info("worker %s serves %s", options.name, "every queue" if options.queues is None else sorted(options.queues))

    def _make_parts(self, store: Store, notifier: Notifier) -> None:
        world, options, environment = self._world, self.options, self._environment
        tasks = frozenset(self._entries)
        base = Base(store, notifier, environment, self._outage, self.counters)
        watchdog = Watchdog(self.id, environment, grace=STOP_GRACE, exit_when_blocked=options.exit_when_blocked)
        self._reporter = Reporter(base, self._report_refused)
        self._settler = Settler(base, self._confirmed)
        self._heartbeat = Heartbeat(
            base,
            self.worker,
            self._held,
            watchdog,
            make_store=world.make_store,
            abort=self._abort_from_thread,
            enable=self._enable_from_thread,
        )
        self._claimer = Claimer(
            base,
            Claims(
                worker=self.worker,
                tasks=tasks,
                queues=options.queues,
                weights=world.weights,
                retry_share=options.retry_share,
                poll=options.poll,
                poll_unhinted=options.poll_unhinted,
                delay=options.delay,
            ),
            room=self._room,
            take=self._take,
            held=lambda: set(self._held),
        )
        keepers: dict[str, Keeper] = {
            "promoter": Promoter(base),
            "reaper": Reaper(base, tasks),
            "sweeper": Sweeper(base),
            "pruner": Pruner(base, world.retention),
            "scheduler": Scheduler(base, [entry.task for entry in self._entries.values()]),
        }
        self._services = [Service(name, keeper, base) for name, keeper in keepers.items()]
        self._promoter = self._services[0]

    async def _prepare(self) -> dict[str, Entry]:
        """Make every task ready to run, with the executors they need and no others."""
        slots = self.options.concurrency
        made: dict[Kind, Executor] = {}
        kinds: dict[Kind, Callable[[], Executor]] = {
            Kind.THREAD: lambda: ThreadExecutor(slots),
            Kind.PROCESS: lambda: ProcessExecutor(slots),
            Kind.COMMAND: lambda: CommandExecutor(slots),
        }
        entries = {}
        for task in self._world.tasks.values():
            if task.executor in kinds and task.executor not in made:
                executor = made[task.executor] = kinds[task.executor]()
                await executor.open()
                self._stack.push_async_callback(executor.close)
            entries[task.name] = Entry(task, made.get(task.executor), self._world.middlewares)
        return entries

    def _info(self) -> str:
        tasks = sorted(self._world.tasks)
        info = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "python": platform.python_version(),
            "queues": None if self.options.queues is None else sorted(self.options.queues),
            "tasks": tasks[:INFO_TASKS],
            "more_tasks": max(0, len(tasks) - INFO_TASKS),
        }
        text = msgspec.json.encode(info).decode()
        return text if len(text) < 9_000 else msgspec.json.encode({**info, "tasks": [], "more_tasks": len(tasks)}).decode()  # noqa: PLR2004  what the registry holds

    def _tell(self, event: str) -> None:
        for listener in self._world.listeners:
            try:
                listener(event, self.id)
            except Exception:
                logger.exception("a listener of %s failed", event)

    async def stop(self, timeout: float | None = None) -> None:
        """Drain: claim nothing more, give back what has not begun, let the rest finish, abort what does not in time."""
        if self._stopping:
            return
        self._stopping = True
        self._tell("worker_stopping")
        self._claimer.stop()
        await self._claiming
        while self._buffer:
            self._settler.submit(self._buffer.popleft(), Released("its worker shut down before it began"))
        allowed = self.options.shutdown_timeout if timeout is None else timeout
        if not await self._drained(allowed, until=self._abort_asked):
            await self._abort_running()
        self._reporter.stop()
        self._settler.stop()
        await self._settler.flush(STOP_GRACE)
        for service in self._services:
            service.stop()
        await self._heartbeat.stop()
        try:
            await self._store.retire(self.id)
        except StoreUnavailable as error:
            logger.warning("could not sign off from the registry: %s", error)
        self._tell("worker_stopped")
        logger.info("worker %s stopped", self.options.name)

    async def _close_slots(self) -> None:
        self._closing = True
        for slot in self._slots:
            slot.cancel()
        if self._slots:
            _, self._abandoned = await asyncio.wait(self._slots, timeout=STOP_GRACE if self._stuck else None)

    async def _drained(self, timeout: float, *, until: asyncio.Event | None = None) -> bool:
        """Wait until nothing runs, for so long, or until told otherwise; returns whether nothing runs."""
        deadline = self._environment.monotonic() + timeout
        while self._live():
            left = deadline - self._environment.monotonic()
            if left <= 0 or (until is not None and until.is_set()):
                return False
            self._settled.clear()
            await wait_for_event(self._settled, min(left, 0.1))
        return True

    def _live(self) -> list[Attempt]:
        return [attempt for attempt in self._held.values() if not attempt.finished]

    async def _abort_running(self) -> None:
        """Ask what still runs to stop; what will not is flagged, so that its expiry costs nothing."""
        live = self._live()
        try:
            # before they are asked: whatever happens from here on is not their fault
            await self._store.flag_free([attempt.lease for attempt in live])
        except StoreUnavailable as error:
            logger.warning("running jobs could not be flagged as not at fault: %s", error)
        for attempt in live:
            self._abort(attempt, AbortReason.SHUTDOWN)
        if await self._drained(STOP_GRACE):
            return
        stubborn = self._live()
        logger.warning("%d job(s) do not stop; their leases will lapse at no cost to them", len(stubborn))
        for attempt in stubborn:
            self._detach(attempt, None)

    # claiming

    def _room(self) -> int:
        return self.options.concurrency + self.options.prefetch - len(self._held) - self._stuck

    def _take(self, claims: Sequence[Claimed], asked_at: float) -> None:
        attempts = []
        for claimed in claims:
            attempt = Attempt(claimed, self._entries[claimed.task], asked_at)
            self._held[attempt.lease] = attempt
            attempts.append(attempt)
        self._heartbeat.notice(attempts)
        self._buffer.extend(attempts)
        while self._buffer and self._idle:
            slot = self._idle.popleft()
            if not slot.done():
                slot.set_result(self._buffer.popleft())

    def _hinted(self, hint: Hint) -> None:
        if hint.anything or (hint.queues and (self.options.queues is None or hint.queues & self.options.queues)):
            self._claimer.hinted()
        if hint.anything or hint.later:
            self._promoter.wake()
        if hint.jobs and any(lease.job_id in hint.jobs for lease in self._held):
            self._heartbeat.hurry()
        elif hint.anything and self._held:
            self._heartbeat.peek()

    # running

    async def _slot(self) -> None:
        """Run one attempt after another."""
        yielded_at = self._environment.monotonic()
        while True:
            try:
                attempt = self._buffer.popleft() if self._buffer else await self._next_attempt()
                if attempt.lease in self._held and not attempt.finished:
                    await self._run(attempt)
            except asyncio.CancelledError:
                if self._closing:
                    raise
                _uncancel()  # left behind by a handler that cancelled the task it ran in: no reason to lose a slot
            now = self._environment.monotonic()
            if now - yielded_at > LONGEST_TURN:
                # handlers that never suspend would keep the event loop from everybody else
                await asyncio.sleep(0)
                yielded_at = self._environment.monotonic()

    async def _next_attempt(self) -> Attempt:
        future: asyncio.Future[Attempt] = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # handed over in the very moment this slot was closed
                self._buffer.appendleft(future.result())
            raise

    async def _run(self, attempt: Attempt) -> None:
        attempt.runner = asyncio.current_task()
        self._running += 1
        try:
            outcome = await self._outcome(attempt)
            # from here on it is no longer to be stopped; its lease is still kept
            attempt.finished = not attempt.detached
            if attempt.reported and not attempt.detached:
                await self._reporter.flush()
        finally:
            self._running -= 1
            attempt.runner = None
        if attempt.detached:
            self._stuck -= 1
            self._claimer.freed()
        elif outcome is not None:
            self._settler.submit(attempt, outcome)
        else:
            self._drop(attempt)

    async def _outcome(self, attempt: Attempt) -> Outcome | None:
        try:
            ended = await attempted(attempt, AttemptChannel(attempt, self._reporter), self._environment, self._parts)
        except asyncio.CancelledError:
            if self._closing:
                raise
            _uncancel()
            return Failed(Error("CancelledError", "the handler cancelled the asyncio task it runs in"))
        return ended.outcome

    async def _parts(self, claimed: Claimed) -> dict[str, Part]:
        while True:
            try:
                return {part.name: part for part in await self._store.parts(claimed.job_id)}
            except StoreUnavailable as error:
                await asyncio.sleep(self._outage.failed(error))

    # stopping

    def _abort_from_thread(self, attempt: Attempt, reason: AbortReason) -> None:
        """Ask a handler to stop, from the heartbeat's thread: threads see it at once, the event loop when it turns."""
        if attempt.abort.set(reason):
            self._loop_call(self._stop_handler, attempt)

    def _enable_from_thread(self, enabled: bool) -> None:  # noqa: FBT001  a callback
        self._loop_call(self._enable, enabled)

    def _enable(self, enabled: bool) -> None:  # noqa: FBT001  a callback
        if enabled != self._claimer.enabled:
            self._claimer.enabled = enabled
            logger.warning("worker %s was %s", self.options.name, "enabled again" if enabled else "disabled: it claims nothing")
            self._claimer.hinted()

    def _loop_call(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._reporter.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the event loop is closed: there is nothing left to stop
            return

    def _abort(self, attempt: Attempt, reason: AbortReason) -> None:
        if attempt.abort.set(reason):
            self._stop_handler(attempt)

    def _report_refused(self, lease: Lease) -> None:
        """Ask the store what became of a lease under which a report was refused."""
        if lease in self._held:
            self._heartbeat.hurry()

    def _stop_handler(self, attempt: Attempt) -> None:
        """Stop a handler that was asked to: cancel what can be cancelled, and settle without what will not stop."""
        reason = attempt.abort.reason
        if reason is None or attempt.finished or attempt.lease not in self._held:
            return
        logger.warning(
            "job %s (%s), attempt %d: asked to stop: %s",
            attempt.claimed.job_id,
            attempt.claimed.task,
            attempt.claimed.attempt,
            reason,
        )
        if attempt.runner is None:  # it waits for a slot
            self._buffer = deque(one for one in self._buffer if one is not attempt)
            outcome = attempt.outcome_after(reason)
            if outcome is None:
                self._drop(attempt)
            else:
                self._settler.submit(attempt, outcome)
            return
        if attempt.job is not None:
            attempt.entry.stop(attempt.job)
        if attempt.entry.cancellable:
            attempt.runner.cancel()
        if reason in LOST:
            self._detach(attempt, None)
        elif reason is AbortReason.TIMEOUT:
            self._reporter.loop.call_later(STOP_GRACE, self._detach, attempt, attempt.outcome_after(reason))

    def _detach(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Go on without a handler that does not stop: its job is settled, its slot stays taken until it ends."""
        if attempt.finished or attempt.detached or attempt.runner is None or attempt.lease not in self._held:
            return
        attempt.detached = True
        self._stuck += 1
        if outcome is None:
            self._drop(attempt)
            return
        logger.error(
            "job %s (%s): its handler does not stop; the job is settled without it, and its slot stays taken until it ends",
            attempt.claimed.job_id,
            attempt.claimed.task,
        )
        self._settler.submit(attempt, outcome)

    # letting go

    def _confirmed(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._held.pop(attempt.lease, None)
        self._let_go()

    def _drop(self, attempt: Attempt) -> None:
        """Let go of an attempt whose lease is lost."""
        attempt.finished = True
        self._held.pop(attempt.lease, None)
        self._let_go()

    def _let_go(self) -> None:
        self.counters.level(count.CONCURRENT, self._running)
        self._settled.set()
        self._claimer.freed()


def _uncancel() -> None:
    """Forget every cancellation of the running asyncio task."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
