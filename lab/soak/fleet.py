"""The fleet: producers and workers on a store, what befalls them, and what was noted at that moment."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast import Holdfast
from lab.soak import tasks
from lab.soak.diary import KEPT, TRIED, Diary
from lab.soak.faults import Missed
from lab.soak.ground import patiently
from lab.soak.places import Place, Supervisor
from lab.soak.recovery import Blow
from lab.soak.worker import UNREACHABLE

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
        self.workers: list[Place] = []
        self.producers: list[Place] = []
        self.blows: list[Blow] = []
        self.missed = 0
        self.complaints: list[str] = []
        self.diaries: list[Path] = []
        self._folder = folder
        self._tell = tell
        self._exclusive = asyncio.Lock()
        self._own = Diary(self._diary("soak"))
        self._app = Holdfast(ground.url)
        self._notes: set[asyncio.Task[None]] = set()

    # life

    async def muster(self, workers: int, rate: float, backlog: int, seed: int) -> None:
        """Give everybody a place."""
        for number in range(workers):
            name = f"worker-{number + 1}"
            queues = "all" if number < HEAVY_WORKERS else LIGHT
            environment = {tasks.URL: await self.ground.way(name)}
            self.workers.append(Place(name, self._folder, partial(_worker, queues), environment))
        for number in range(PRODUCERS):
            name = f"producer-{number + 1}"
            command = partial(_producer, str(self._diary(name)), seed, rate / PRODUCERS, backlog)
            self.producers.append(Place(name, self._folder, command, {tasks.URL: await self.ground.way(name)}))

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

    async def strike(self, fault: str, *lives: str, kind: str | None = None) -> None:
        """Note a fault that has just come about, and what its victims hold now, or what they hold of one kind."""
        blow = Blow(fault, " ".join(lives), time.time())
        self.blows.append(blow)
        self._tell(f"{fault}{': ' if any(lives) else ''}{blow.victim}")
        for life in lives:
            if life.startswith("worker"):
                blow.held += tuple(await self.ground.held(life, kind))

    async def came_back(self, fault: str) -> None:
        """Note that the store can be reached again."""
        self.blows.append(Blow(fault, "", time.time(), back=time.time()))
        self._tell(fault)

    async def enqueue(self, *calls: Call[Any]) -> None:
        """Enqueue jobs of our own, as a producer would."""
        jobs = [(call.job.id, call.job.task) for call in calls]
        self._own.write(TRIED, jobs)
        await patiently(partial(self._app.enqueue_many, calls))
        self._own.write(KEPT, jobs)

    def _died(self, place: Place) -> None:
        """Note that a worker has ended and nobody had asked for it: that is what poison does."""
        life, code = place.life, place.process.returncode
        self._tell(f"{life} has ended by itself with code {code}")
        if place in self.workers:
            waiting = [blow for blow in self.blows if blow.fault == POISONED and not blow.victim]
            blow = waiting[0] if waiting else Blow(POISONED, "", 0.0)
            if code == -9 and waiting:
                blow.victim, blow.at = life, time.time()
                note = asyncio.get_running_loop().create_task(self._note_held(blow, life))
                self._notes.add(note)
                note.add_done_callback(self._notes.discard)
            elif code not in (-9, 70, UNREACHABLE):
                self.complaints.append(f"{life} has ended with code {code}: {place.last_words}")
        else:
            self.complaints.append(f"{life} has ended with code {code}: {place.last_words}")

    async def _note_held(self, blow: Blow, life: str) -> None:
        blow.held = tuple(await self.ground.held(life))

    def _diary(self, name: str) -> Path:
        path = self._folder / f"{name}.diary"
        path.touch()
        self.diaries.append(path)
        return path


def _worker(queues: str, life: str) -> list[str]:
    return ["lab.soak.worker", life, queues]


def _producer(diary: str, seed: int, rate: float, backlog: int, life: str) -> list[str]:
    return ["lab.soak.producer", diary, f"{seed} {life}", str(rate), str(backlog)]
