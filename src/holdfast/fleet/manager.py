"""The manager: looks, decides, and keeps as many workers as it decided. Its life from start to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.core.scaling import Sample, begin, decide, occupied
from holdfast.core.spans import span
from holdfast.errors import HoldfastError
from holdfast.fleet.crew import Crew
from holdfast.fleet.observing import Observer
from holdfast.fleet.record import Record
from holdfast.fleet.repeating import Repeating
from holdfast.fleet.starting import StartTimes
from holdfast.fleet.telling import Telling
from holdfast.runtime import counters as count
from holdfast.runtime.attempt import STOP_GRACE
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.service import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.core.scaling import Decision
    from holdfast.fleet.options import ManagerOptions
    from holdfast.runtime.world import World
    from holdfast.store.port import WorkerView

logger = logging.getLogger("holdfast.manager")

BEAT: Final = 5.0
"""Seconds between two signs of life at most, and decisions; each change is followed by one too."""
TICK: Final = 0.1
"""Seconds between two looks at the processes."""
PATIENCE: Final = 5.0
"""Seconds that a worker which was told to abort gets beyond what it allows its handlers."""
GOODBYE: Final = 2.0


class Manager:
    """Runs worker processes until it is asked to stop: `await manager.serve()`, in the main thread. Used once."""

    def __init__(self, world: World, options: ManagerOptions, command: Callable[[str, int | None], Sequence[str]]) -> None:
        self.options = options
        self.counters = MemoryCounters()
        self._world = world
        self._environment = world.environment
        self._crew = Crew(options, world.environment, self.counters, command)
        self._store = world.make_store()
        self._observer = Observer(self._store, world.tasks, options.queues)
        self._record = Record(self._store, options, self.counters, world.environment.job_id())
        self._starts = StartTimes()
        self._decision = begin(options.scaling)
        self._telling = Telling(self._decision)
        self._stop_asked = asyncio.Event()
        self._abort_asked = asyncio.Event()
        self._holds = False
        """Whether a person has disabled it: it leaves the number of workers as it is."""

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT: the first has all workers finish and end, the second has them give back what runs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask_to_stop)
        try:
            await self._store.open()
            await self._record.begin()
            await self._run()
        finally:
            # where something went wrong workers are left alone: the kernel asks them to finish when this process ends
            await self._store.close()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def ask_to_stop(self) -> None:
        """Ask it to let its workers finish and to end; asked again, they give back what still runs."""
        if self._stop_asked.is_set():
            logger.warning("asked to stop a second time: running jobs are aborted and given back")
            self._abort_asked.set()
        else:
            allowed = span(self.options.shutdown_timeout)
            logger.info("asked to stop: what runs may take %s to end; asked again, it is aborted and given back", allowed)
            self._stop_asked.set()

    async def _run(self) -> None:
        logger.info("manager %s: %s", self.options.name, self.options.plan)
        await self._take(self._decision)
        repeat = Repeating(lambda: self._crew.wanted, logger.warning, logger.info).again_and_again
        async with asyncio.TaskGroup() as group:
            deciding = group.create_task(repeat(self._look_and_decide, self.options.interval), name="holdfast-decide")
            beating = group.create_task(repeat(self._beat, min(BEAT, BEAT * self.options.interval)), name="holdfast-beat")
            while not self._stop_asked.is_set():
                self._crew.keep_up()
                await wait_for_event(self._stop_asked, TICK)
            deciding.cancel()
            self._crew.drain_all()
            self.counters.level(count.DRAINS, 1)
            self._record.reason = f"asked to stop: {len(self._crew.members)} worker(s) finish what they run"
            await self._soon(self._record.beat())
            await self._all_end()  # that may take hours, in which it lives
            beating.cancel()
        await self._soon(self._record.end())
        logger.info("manager %s stopped", self.options.name)

    async def _soon(self, writing: Awaitable[object]) -> None:
        """Write something as it ends, if the store answers."""
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(GOODBYE):
                await writing

    async def _all_end(self) -> None:
        """Wait for the workers: for as long as they may take, then until they have given back what runs."""
        if not await self._none_left(self.options.shutdown_timeout, self._abort_asked):
            self._crew.abort_all()
            if not await self._none_left(STOP_GRACE + PATIENCE):
                logger.warning("%d worker(s) do not stop and are killed", len(self._crew.members))
                self._crew.kill_all()

    async def _none_left(self, timeout: float, until: asyncio.Event | None = None) -> bool:
        deadline = self._environment.monotonic() + timeout
        while self._crew.members:
            left = deadline - self._environment.monotonic()
            if left <= 0 or (until is not None and until.is_set()):
                return False
            await wait_for_event(until or asyncio.Event(), min(left, TICK))
            self._crew.keep_up()
        return True

    # deciding

    async def _beat(self) -> None:
        """Give a sign of life, and do what people have decided about this manager."""
        told = await self._record.beat()
        self._holds = told.disabled
        if told.drain and not self._stop_asked.is_set():
            logger.warning("manager %s was asked by an operator to finish and end", self.options.name)
            self._stop_asked.set()

    async def _look_and_decide(self) -> None:
        own = {member.process_id: member.name for member in self._crew.members}
        views = await self._observer.workers(own, socket.gethostname())
        self._crew.seen({process: view.running for process, view in views.items()})
        if self._holds:
            self._record.reason = f"stays at {self._crew.wanted}: somebody has disabled it"
            return
        decision = decide(self.options.scaling, await self._sample(views), self._decision.memory)
        self._record.reason = decision.reason
        if decision.obstacle is not None:
            self.counters.add(count.STAYS, label=decision.obstacle)
        is_news = self._telling.is_news(decision, self._environment.monotonic())
        if decision.count != self._decision.count:
            await self._change(decision)
        else:
            self._decision = decision
            if is_news:
                await self._tell(decision)

    async def _sample(self, views: dict[int, WorkerView]) -> Sample:
        up = [member for member in self._crew.staying if member.process_id in views]
        backlog, now = await self._observer.backlog(), self._environment.monotonic()
        self._starts.note(self._crew.members, views, now)
        running, ahead = occupied([member.running for member in up], self.options.slots)
        return Sample(
            now=now,
            ready=backlog.ready + ahead,
            running=running,
            workers=len(up),
            resting=tuple(member.running for member in self._crew.resting),
            draining=self._crew.draining,
            slots=self.options.slots,
            service=await self._observer.service(now),
            oldest=backlog.oldest,
            held=backlog.throttled,
            start=self._starts.seconds,
            not_up=tuple(member.name for member in self._crew.staying if member.process_id not in views),
            crashing=self._crew.crashing,
            too_heavy=self._crew.too_heavy,
        )

    async def _change(self, decision: Decision) -> None:
        """Do first what was decided, then write it down: a store that fails now must not undo it."""
        up = decision.count > self._decision.count
        self._decision = decision
        self.counters.add(count.CHANGES, label="up" if up else "down")
        await self._take(decision)

    async def _take(self, decision: Decision) -> None:
        self._crew.wanted = decision.count
        self._crew.keep_up()
        self.counters.level(count.DESIRED, decision.count)
        self._record.reason = decision.reason
        await self._tell(decision)
        await self._beat()

    async def _tell(self, decision: Decision) -> None:
        logger.info("%s", decision.reason)
        await self._record.decided(decision)
