"""The fleet: producers and workers on a store, what befalls them, and what was noted at that moment."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast import Holdfast
from lab.soak import tasks
from lab.soak.blows import Blow
from lab.soak.books import BLOCKED, KILLED
from lab.soak.diary import KEPT, TRIED, Diary
from lab.soak.faults.kind import HOUR, Missed
from lab.soak.faults.table import FREE, MILD
from lab.soak.ground import patiently
from lab.soak.places import Place, Supervisor
from lab.soak.worker import UNREACHABLE
from tests.faults.machine.clocks import Clock

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast import Call
    from lab.soak.ground import Ground

PRODUCERS: Final = 2
HEAVY_WORKERS: Final = 2
"""How many workers also serve what needs processes of its own."""
LIGHT: Final = "default,line"
POISONED: Final = "a job that kills its worker"


class Fleet:
    """All processes, and a handle on the store that no fault touches but an outage."""

    def __init__(self, ground: Ground, folder: Path, tell: Callable[[str], None]) -> None:
        self.ground = ground
        self.clock: Clock | None = None
        """The one of a worker that never has the right time."""
        self.workers: list[Place] = []
        self.producers: list[Place] = []
        self.blows: list[Blow] = []
        self.missed = 0
        self.calm = asyncio.Event()
        """Set when no more faults are to come."""
        self.complaints: list[str] = []
        self.deaths: list[tuple[str, int]] = []
        self.diaries: list[Path] = []
        self._folder = folder
        self._tell = tell
        self._exclusive = asyncio.Lock()
        self._stack = ExitStack()
        self._own = Diary(self._diary("soak"))
        self._app = Holdfast(ground.url)
        self._notes: set[asyncio.Task[Blow]] = set()

    # life

    async def muster(self, workers: int, rate: float, backlog: int, seed: int, *, misled: bool = False) -> None:
        """Give everybody a place.

        The first worker has one on a network of its own and the last one behind the pooler, where there are such; the one
        before the last has a wrong clock if so asked.
        """
        for number in range(workers):
            name = f"worker-{number + 1}"
            queues = "all" if number < HEAVY_WORKERS else LIGHT
            network = self.ground.network if number == 0 else None
            environment = {tasks.URL: await self.ground.way(name, pooled=number == workers - 1, network=network)}
            prefix = network.prefix if network is not None else ()
            self.workers.append(Place(name, self._folder, partial(_worker, queues), environment, prefix))
        if misled:
            self.clock = self._stack.enter_context(Clock())
            self.clock.set(-HOUR)
            self.misled.environment |= self.clock.environment
        for number in range(PRODUCERS):
            name = f"producer-{number + 1}"
            command = partial(_producer, str(self._diary(name)), seed, rate / PRODUCERS, backlog)
            self.producers.append(Place(name, self._folder, command, {tasks.URL: await self.ground.way(name)}))

    @property
    def pooled(self) -> Place:
        """The worker that goes through the pooler, where there is one."""
        return self.workers[-1]

    @property
    def remote(self) -> Place:
        """The worker that has a network of its own, where there is one."""
        return self.workers[0]

    @property
    def misled(self) -> Place:
        """The worker that may have a wrong clock."""
        return self.workers[-2:][0]

    def supervisor(self) -> Supervisor:
        """Return who starts processes anew."""
        return Supervisor([*self.workers, *self.producers], self._died)

    async def close(self) -> None:
        """Kill what still runs."""
        for place in (*self.workers, *self.producers):
            if place.lives:
                place.wanted = False
                await place.kill()
        await asyncio.gather(*self._notes, return_exceptions=True)
        self._own.close()
        self._stack.close()
        await self._app.close()

    # what faults ask for

    @contextmanager
    def victim(self, rng: random.Random, places: Sequence[Place]) -> Iterator[Place]:
        """Choose somebody who is well, and see to it that nobody else strikes the same one meanwhile."""
        well = [place for place in places if place.alive and not place.troubled]
        if not well:
            raise Missed
        place = rng.choice(well)
        place.troubled = True
        try:
            yield place
        finally:
            place.troubled = False

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Have the server to oneself: it cannot be taken away twice at once."""
        if self._exclusive.locked():
            raise Missed
        async with self._exclusive:
            yield

    async def pause(self, seconds: float) -> None:
        """Leave things as they are for so long, or until no more faults are to come."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.calm.wait(), seconds)

    async def strike(self, fault: str, *lives: str, kind: str | None = None, grace: float = 0.0) -> Blow:
        """Note a fault that has just come about, and what its victims hold now, or what they hold of one kind."""
        blow = self._note(fault, *lives, grace=grace)
        for life in lives:
            if life.startswith("worker"):
                blow.held += tuple(await self.ground.held(life, kind))
        return blow

    @asynccontextmanager
    async def lasting(self, fault: str, *lives: str, grace: float = 0.0) -> AsyncIterator[None]:
        """Note a fault that has just come about, and when it was over."""
        blow = await self.strike(fault, *lives, grace=grace)
        try:
            yield
        finally:
            blow.over = time.time()

    @asynccontextmanager
    async def outage(self, fault: str) -> AsyncIterator[None]:
        """Note what all hold, take the store away, and note when it can be reached again."""
        held = tuple(await self.ground.held())
        at = time.time()
        yield
        blow = self._note(fault)
        blow.at, blow.back, blow.held = at, time.time(), held

    def _note(self, fault: str, *lives: str, grace: float = 0.0) -> Blow:
        blow = Blow(fault, " ".join(lives), time.time(), free=fault in FREE, mild=fault in MILD, grace=grace)
        self.blows.append(blow)
        self._tell(f"{fault}{': ' if lives else ''}{blow.victim}")
        return blow

    async def enqueue(self, *calls: Call[Any]) -> None:
        """Enqueue jobs of our own, as a producer would."""
        jobs = [(call.job.id, call.job.task) for call in calls]
        self._own.write(TRIED, jobs)
        await patiently(partial(self._app.enqueue_many, calls))
        self._own.write(KEPT, jobs)

    def _died(self, place: Place) -> None:
        """Note that a process has ended and nobody had asked for it. The books ask whether poison has killed it."""
        life, code = place.life, place.process.returncode
        self._tell(f"{life} has ended by itself with code {code}")
        if place not in self.workers or code not in (KILLED, BLOCKED, UNREACHABLE):
            self.complaints.append(f"{life} has ended with code {code}: {place.last_words}")
        elif code != UNREACHABLE:
            self.deaths.append((life, code))
        if place in self.workers and code == KILLED:
            note = asyncio.get_running_loop().create_task(self.strike(POISONED, life))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)

    def _diary(self, name: str) -> Path:
        path = self._folder / f"{name}.diary"
        path.touch()
        self.diaries.append(path)
        return path


def _worker(queues: str, life: str) -> list[str]:
    return ["lab.soak.worker", life, queues]


def _producer(diary: str, seed: int, rate: float, backlog: int, life: str) -> list[str]:
    return ["lab.soak.producer", diary, f"{seed} {life}", str(rate), str(backlog)]
