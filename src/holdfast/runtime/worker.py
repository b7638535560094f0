"""The worker: its life from start to stop, and the one task group that owns its loops."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from holdfast.core.abort import AbortReason
from holdfast.core.redact import redact
from holdfast.core.spans import span
from holdfast.errors import BadSetting, HoldfastError
from holdfast.notify.port import SHOWN, Serving
from holdfast.runtime import counters as count
from holdfast.runtime.attempt import STOP_GRACE
from holdfast.runtime.base import Base
from holdfast.runtime.claimer import Claimer, Claims
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.endpoint import Endpoint
from holdfast.runtime.entry import prepare
from holdfast.runtime.executor.boot import STARTED_BY
from holdfast.runtime.figures import Measurer
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.runtime.housekeeping import Promoter, Pruner, Reaper, Sweeper
from holdfast.runtime.logs import kept_logs
from holdfast.runtime.orders import Orders
from holdfast.runtime.outage import Outage
from holdfast.runtime.scheduler import Scheduler
from holdfast.runtime.service import Service, wait_for_event
from holdfast.runtime.slots import Slots
from holdfast.runtime.vitals import Stage, Vitals
from holdfast.runtime.watchdog import Watchdog
from holdfast.store.port import WORKER_TEXT_LIMIT, Worker, WorkerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from holdfast.core.health import WorkerHealth
    from holdfast.notify.port import Hint
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.entry import Entry
    from holdfast.runtime.service import Keeper
    from holdfast.runtime.world import WorkerOptions, World
    from holdfast.store.port import Signal

logger = logging.getLogger("holdfast.worker")

GREETED: Final = 20
"""Tasks that are named when a worker starts."""
MOST_OUTSIDE: Final = 15
"""Tasks that are completed from outside, as many as are surely stored with the worker."""
SIGN_OFF: Final = 2.0
ENDLESS: Final = 365 * 86_400.0
"""Seconds to end that stand for no bound, as a manager gives them to the workers that it lets go."""
RESTING: Final = 0.1
"""Seconds between two looks whether anything still runs in a worker that rests."""
EXIT_STUCK: Final = 75
"""The exit code of a process whose handlers did not stop."""


class RunningWorker:
    """A worker between its start and its stop: `async with`, or `await worker.serve()` with signals. Used once."""

    def __init__(self, world: World, options: WorkerOptions, counters: Counters | None = None) -> None:
        self.id = world.environment.job_id()
        self.options = options
        self.counters: Counters = MemoryCounters() if counters is None else counters
        self.reaps = True
        """Whether it sees to lapsed leases too. Not inside a server: that knows whether remote workers could reach it."""
        self._world = world
        self._vitals = Vitals(world.environment)
        self._stack = AsyncExitStack()
        self._stopping = asyncio.Lock()
        self._used = self._stopped = False
        self._signalled = False
        self._stop_asked = asyncio.Event()
        self._abort_asked = asyncio.Event()
        self._end_asked = asyncio.Event()
        """Whether it is to stop by itself, or has stopped."""
        self._woken = asyncio.Event()
        """Whether the latest rest is over: it was woken, or stops."""
        self._orders: Orders | None = None

    # life

    async def __aenter__(self) -> Self:
        if self._used:
            raise BadSetting("a worker is used once: make another one with app.worker(…)")
        self._used = True
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
        except BaseException:
            self._halt()
            raise
        finally:
            # an error of the block is the caller's own: the task group must not wrap it
            await self._stack.aclose()

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT, or until a person drains it: the first drains, the second aborts what still runs.

        SIGHUP drains too, however often it comes: the terminal or the process is gone that it was started from.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask_to_stop)
        heeds_hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # by `nohup`
        if heeds_hangup:
            loop.add_signal_handler(signal.SIGHUP, self._abandoned)
        watching = loop.create_task(self._watch_over_parent())
        self._orders = Orders.inherited()
        try:
            async with self:
                if self._orders is not None:
                    self._orders.heed(loop, rest=self.rest, wake=self.wake)
                await self._stop_asked.wait()
        finally:
            watching.cancel()
            if self._orders is not None:
                self._orders.close()
            for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if heeds_hangup else [])):
                loop.remove_signal_handler(number)
        if abandoned := self._slots.abandoned:
            logger.error("%d handler(s) do not stop: the process ends without them", len(abandoned))
            logging.shutdown()
            os._exit(EXIT_STUCK)

    def health(self) -> WorkerHealth:
        """Return whether it lives and whether it is ready, each with its checks. From any thread.

        From another thread than its own it takes up to a second while the event loop is blocked.
        """
        return self._vitals.health(self._vitals.silence())

    def ask_to_stop(self) -> None:
        """Ask it to drain; asked again, it aborts what still runs. One that drains already goes on doing so."""
        if self._signalled:
            logger.warning("asked to stop a second time: running jobs are aborted and given back")
            self._abort_asked.set()
        else:
            self._signalled = True
            allowed = self.options.shutdown_timeout
            how_long = "goes on until it ends" if allowed >= ENDLESS else f"may take {span(allowed)} to end"
            logger.info("asked to stop: what runs %s", how_long)
            self._stop_asked.set()

    async def _watch_over_parent(self) -> None:
        """Notice that the manager has ended, where the system does not tell."""
        if (parent := os.environ.get(STARTED_BY, "")).isdecimal():
            while os.getppid() == int(parent):  # noqa: ASYNC110  nothing tells when that changes
                await asyncio.sleep(1)
            self._abandoned()

    def _abandoned(self) -> None:
        if not self._stop_asked.is_set():
            logger.warning("who started this worker is gone: it finishes what it runs, and ends")
            self.finish()

    def rest(self) -> None:
        """Have it claim nothing more, and end once nothing runs, unless it is woken before. On its event loop."""
        if self._claimer.rests or self._stop_asked.is_set() or self._vitals.stage is not Stage.WORKING:
            return
        logger.info("worker %s is let go: it finishes what it runs, and ends unless it is needed before", self.options.name)
        self._claimer.rests = True
        self._show_draining(1)
        self._woken = asyncio.Event()
        self._group.create_task(self._end_when_empty(self._woken), name="holdfast-rest")

    def wake(self) -> None:
        """Have it claim again; one that ends already goes on doing so. On its event loop."""
        if not self._claimer.rests or self._stop_asked.is_set() or self._vitals.stage is not Stage.WORKING:
            return
        logger.info("worker %s is needed again: it claims", self.options.name)
        self._claimer.rests = False
        self._woken.set()
        self._show_draining(0)
        self._claimer.hinted()

    async def _end_when_empty(self, woken: asyncio.Event) -> None:
        self._slots.give_back()
        while not woken.is_set():
            if self._slots.empty and not self._claimer.asks:
                self.finish()
                return
            await wait_for_event(woken, RESTING)

    def _show_draining(self, level: int) -> None:
        self.counters.level(count.DRAINS, level)
        self._heartbeat.tell()

    def finish(self) -> None:
        """Have it drain and end by itself, as if a person had drained it. On its event loop."""
        self._stop_asked.set()
        self._end_asked.set()

    async def stop(self, timeout: float | None = None) -> None:
        """Drain: claim nothing more, give back what has not begun, let the rest finish, abort what does not in time.

        `timeout` is how long the rest may take (default: the worker's `shutdown_timeout`). Safe to call again.
        """
        async with self._stopping:
            if self._stopped:
                return
            self._vitals.stage = Stage.DRAINING
            self._woken.set()
            if self._orders is not None:
                self._orders.ends()
            self._show_draining(1)
            self._tell("worker_stopping")
            self._claimer.stop()
            await asyncio.wait({self._claiming})
            allowed = self.options.shutdown_timeout if timeout is None else timeout
            await self._slots.drain(allowed, until=self._abort_asked)
            self._slots.reporter.stop()
            await self._slots.settler.stop(STOP_GRACE)
            for service in self._services.values():
                service.stop()
            await self._measurer.finish()
            await self._heartbeat.stop()
            await self._sign_off()
            self._stopped = True
            self._vitals.stage = Stage.STOPPED
            self._end_asked.set()
            self._tell("worker_stopped")
            logger.info("worker %s stopped", self.options.name)

    async def _sign_off(self) -> None:
        try:
            async with asyncio.timeout(SIGN_OFF):
                await self._base.store.retire(self.id)
        except (HoldfastError, TimeoutError) as error:
            logger.warning("could not sign off from the registry: %s", str(error) or "the store does not answer")

    def _halt(self) -> None:
        """Have every loop end at once: stopping in peace was itself cut short."""
        self._claimer.stop()
        for service in self._services.values():
            service.stop()
        for attempt in list(self._slots.held.values()):
            self._slots.abort(attempt, AbortReason.ERROR)
        self._slots.reporter.stop()
        self._slots.settler.give_up()
        self._heartbeat.halt()
        self._woken.set()
        self._stopped = True
        self._vitals.stage = Stage.STOPPED
        self._end_asked.set()

    # starting

    async def _start(self) -> None:
        world, options = self._world, self.options
        outage = Outage(world.environment)
        self._vitals.begin(outage)
        if options.health is not None:
            endpoint = Endpoint(options.health, options.name, self.id, self._vitals, self.counters)
            self._stack.push_async_callback(endpoint.stop)
            endpoint.start(world.environment)
        store = world.make_store()
        self._stack.push_async_callback(store.close)
        await store.open()
        notifier = world.make_notifier()
        self._stack.push_async_callback(notifier.close)
        self._base = Base(store, notifier, world.environment, outage, self.counters, world.make_caller)
        self._stack.enter_context(kept_logs())
        for lifespan in world.lifespans:
            await self._stack.enter_async_context(lifespan())
        entries = await prepare(world.tasks.values(), world.middlewares, options.concurrency, self._stack)
        self.worker = Worker(
            id=self.id,
            name=options.name,
            info=introduction(options, world.tasks, world.outside),
            kind=WorkerKind.REMOTE if world.remote else WorkerKind.LOCAL,
            version=options.version,
            slots=options.concurrency,
            capabilities=await self._capabilities(),
        )
        await store.register(self.worker)
        if not world.remote:
            await store.declare(world.limits)
        outage.heard()
        self._vitals.registered = True
        self._make_parts(entries)
        await notifier.listen(self._hinted, Serving(options.queues))
        await self._run_parts()
        self._vitals.stage = Stage.WORKING
        notifier.hint(SHOWN)
        self._tell("worker_started")
        logger.info("%s", self._greeting())
        if self._world.remote and any(task.options_declared.cron is not None for task in self._world.tasks.values()):
            logger.warning(
                "periodic tasks are not fired from here: have `holdfast server MODULE:APP` know the app, or run a "
                "worker beside the database"
            )

    async def _capabilities(self) -> tuple[str, ...]:
        """Return what it was told that it has, and what it finds."""
        found = [name for ask in self._world.capabilities for name in await ask()]
        return tuple(sorted({*self.options.capabilities, *found}))

    def _make_parts(self, entries: Mapping[str, Entry]) -> None:
        world, options, base = self._world, self.options, self._base
        tasks = frozenset(entries)
        slots = self._slots = Slots(base, entries, concurrency=options.concurrency, prefetch=options.prefetch)
        self._heartbeat = Heartbeat(
            base,
            self.worker,
            slots.held,
            Watchdog(self.id, world.environment, grace=STOP_GRACE, exit_when_blocked=options.exit_when_blocked),
            make_store=world.make_store,
            abort=slots.abort_from_thread,
            heed=self._heed,
        )
        claims = Claims(
            worker=self.worker,
            tasks=tasks,
            queues=options.queues,
            weights=world.weights,
            retry_share=options.retry_share,
            poll=options.poll,
            poll_unhinted=options.poll_unhinted,
            delay=options.delay,
        )
        self._claimer = Claimer(base, claims, room=slots.room, take=slots.take, held=lambda: set(slots.held))
        slots.taken, slots.freed, slots.doubted = self._heartbeat.notice, self._claimer.freed, self._heartbeat.hurry
        slots.let_in = self._claimer.let_in
        self._measurer = Measurer(base)
        keepers: dict[str, Keeper] = {"measurer": self._measurer}
        if not world.remote:  # behind a server it is the server that does it
            keepers |= self._housekeeping(entries)
        if options.prefetch:
            keepers["prefetch"] = slots
        self._services = {name: Service(name, keeper, base) for name, keeper in keepers.items()}
        services = (service.pulse for service in self._services.values())
        self._vitals.watch(self._claimer, self._heartbeat, [slots.settler.pulse, slots.reporter.pulse, *services])

    def _housekeeping(self, entries: Mapping[str, Entry]) -> dict[str, Keeper]:
        base = self._base
        reaper = {"reaper": Reaper(base, frozenset(entries))} if self.reaps else {}
        return {
            "promoter": Promoter(base),
            **reaper,
            "sweeper": Sweeper(base),
            "pruner": Pruner(base, self._world.retention),
            "scheduler": Scheduler(base, [entry.task for entry in entries.values()]),
        }

    async def _run_parts(self) -> None:
        """Start every loop. Nothing here may fail once the group is entered: it would wait for its loops for ever."""
        self._stack.push_async_callback(self._slots.close)
        group = self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        for service in self._services.values():
            group.create_task(service.run(), name=f"holdfast-{service.name}")
        group.create_task(self._slots.reporter.run(), name="holdfast-reporter")
        group.create_task(self._slots.settler.run(), name="holdfast-settler")
        group.create_task(self._end(), name="holdfast-end")
        self._claiming = group.create_task(self._claimer.run(), name="holdfast-claimer")
        self._slots.open()
        self._heartbeat.start()

    async def _end(self) -> None:
        """Stop when a person wants it to; whoever made the worker may stop it first."""
        await self._end_asked.wait()
        await self.stop()

    # being told

    def _hinted(self, hint: Hint) -> None:
        named = bool(hint.queues if self.options.queues is None else hint.queues & self.options.queues)
        if hint.anything or named:
            self._claimer.hinted(surely=named)
        if hint.anything or hint.later:
            self._wake("promoter")
        if hint.waiters:
            self._wake("sweeper")
        if hint.jobs and any(lease.job_id in hint.jobs for lease in self._slots.held):
            self._heartbeat.hurry()
        elif hint.anything and self._slots.held:
            self._heartbeat.peek()
        if hint.anything:  # such as that Redis is lost, or back
            self._heartbeat.heed_redis()

    def _wake(self, name: str) -> None:
        if (service := self._services.get(name)) is not None:
            service.wake()

    def _heed(self, signal: Signal) -> None:
        """Do what people have decided about this worker."""
        enabled = not signal.disabled
        self._claimer.idle = frozenset(signal.idle)
        if signal.drain and not self._stop_asked.is_set() and not self._stopping.locked():
            logger.warning("worker %s was asked by an operator to finish and end", self.options.name)
            self.finish()
        if enabled != self._claimer.enabled:
            self._claimer.enabled = enabled
            logger.warning("worker %s was %s", self.options.name, "enabled again" if enabled else "disabled: it claims nothing")
            self._claimer.hinted()

    def _greeting(self) -> str:
        options, tasks = self.options, sorted(self._world.tasks)
        queues = "every queue" if options.queues is None else f"the queues {', '.join(sorted(options.queues))}"
        shown = ", ".join(tasks[:GREETED]) + (f" and {len(tasks) - GREETED} more" if len(tasks) > GREETED else "")
        return (
            f"worker {options.name} (holdfast {options.version}) on {redact(self._world.url)}: {options.concurrency} slots, "
            f"{queues}, {len(tasks)} task(s): {shown or 'none, so it will claim nothing'}"
        )

    def _tell(self, event: str) -> None:
        for listener in self._world.listeners:
            try:
                listener(event, self.id)
            except Exception:
                logger.exception("a listener of %s failed", event)


def introduction(options: WorkerOptions, tasks: Mapping[str, Any], outside: Iterable[str] = ()) -> str:
    """Return what a worker says of itself in the registry, as JSON text; the tasks are named as far as there is room."""
    about: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "python": platform.python_version(),
        "queues": None if options.queues is None else sorted(options.queues),
    }
    if by_others := sorted(outside)[:MOST_OUTSIDE]:
        about["outside"] = by_others
    named = sorted(tasks)
    while True:
        text = msgspec.json.encode({**about, "tasks": named, "more_tasks": len(tasks) - len(named)}).decode()
        if len(text.encode()) <= WORKER_TEXT_LIMIT or not named:
            return text
        named = named[: len(named) // 2]
