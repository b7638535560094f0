"""One soak: load and faults for so long, then everything is finished, read and balanced."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg

from holdfast.core.states import LIVE, State
from lab.soak import pulse, telling
from lab.soak.books import ORDERED, TICK, balance, notes
from lab.soak.diary import Told
from lab.soak.faults.kind import Fault, Missed
from lab.soak.faults.table import chosen, possible
from lab.soak.fleet import PRODUCERS, Fleet
from lab.soak.ground import AWAY, GROUNDS, Ground, machine
from lab.soak.logs import admitted, complaints, unlearnt
from lab.soak.needs import CLOCK, lacking
from lab.soak.reading import read, refused
from lab.soak.recovery import recoveries
from lab.soak.stopping import Stopping
from lab.soak.tasks import CRON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import Stats
    from lab.soak.blows import Stall
    from lab.soak.books import Found, Line
    from lab.soak.places import Place
    from lab.soak.recovery import Recovery

TELL_EVERY: Final = 10.0
"""Seconds between two lines of status."""
STUCK: Final = 120.0
"""Seconds without a job ending, after the faults, until those that are left count as stuck."""
BACKLOG: Final = 15
"""Seconds of load that may wait before producers hold back."""
WAIT: Final = 60.0
MISTAKES: Final = (TypeError, AttributeError, LookupError, asyncpg.SyntaxOrAccessError)
"""Errors of the soak itself: a fault that never comes about must not pass for one that met nobody."""
UUIDS: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
OFFENDERS: Final = 4
"""Jobs of each line that does not add up, whose story is told."""


class LeftOut(Exception):
    """None of the faults that were asked for can be brought about on this machine."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for."""

    minutes: float
    store: str
    seed: int
    workers: int
    every: float
    rate: float
    only: str | None = None
    """Rows of the catalogue."""

    @property
    def command(self) -> str:
        """What makes the same choices again."""
        return (
            f"./dev soak --minutes {self.minutes:g} --store {self.store} --seed {self.seed} "
            f"--workers {self.workers} --every {self.every:g} --rate {self.rate:g}"
            + (f" --only {self.only}" if self.only else "")
        )


@dataclass(slots=True)
class Outcome:
    """What a soak gave."""

    settings: Settings
    books: list[Line]
    faults: dict[str, Recovery]
    notes: dict[str, int]
    refused: dict[str, int]
    missed: int
    seconds: float
    """Of load and faults."""
    drained: float
    """Seconds that it took to finish what was left."""
    jobs: int
    version: str
    interrupted: bool
    lives: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Faults that this machine cannot bring about, each with the reason."""

    @property
    def ok(self) -> bool:
        """Whether every line of the books adds up, and nothing that a fault took away was lost."""
        return all(line.ok for line in self.books) and all(one.injected == one.survived for one in self.faults.values())

    def figures(self) -> dict[str, Any]:
        """Return everything for machines."""
        return {
            "ok": self.ok,
            "command": self.settings.command,
            "store": self.settings.store,
            "version": self.version,
            "machine": machine(),
            "seed": self.settings.seed,
            "workers": self.settings.workers,
            "producers": PRODUCERS,
            "seconds": round(self.seconds, 1),
            "drained_seconds": round(self.drained, 1),
            "jobs": self.jobs,
            "jobs_per_second": round(self.jobs / self.seconds, 1),
            "faults": telling.figures(self.faults),
            "faults_missed": self.missed,
            "faults_left_out": self.left_out,
            "books": [
                {"what": line.what, "expected": line.expected, "found": line.found, "ok": line.ok, "shown": list(line.shown)}
                for line in self.books
            ],
            "notes": self.notes,
            "refused_stale_writes": self.refused,
            "processes": self.lives,
        }


async def soak(settings: Settings) -> Outcome:
    """Run one soak from its beginning to its end; raises `LeftOut` when nothing that was asked for can be done here."""
    stopping = Stopping(lambda text: print(text, flush=True))
    left_out = lacking()
    faults = possible(settings.store, settings.only)
    there = [fault for fault in faults if fault.needs not in left_out]
    missing = {fault.name: left_out[fault.needs] for fault in faults if fault.needs in left_out}
    for name, why in missing.items():
        print(f"left out: {name}: {why}", flush=True)
    if not there:
        raise LeftOut
    folder = Path(tempfile.mkdtemp(prefix="holdfast-soak-"))
    balanced = False
    try:
        async with GROUNDS[settings.store](folder, frozenset(fault.needs for fault in there)) as ground:
            run = Soak(settings, ground, folder, there, stopping.enough)
            try:
                outcome = await run.run()
            finally:
                await run.fleet.close()
        outcome.left_out = missing
        balanced = outcome.ok
    finally:
        if balanced:
            shutil.rmtree(folder)
        else:
            print(f"what every process logged, and what producers wrote down: {folder}", flush=True)
    return outcome


class Soak:
    """A run, from its beginning to its end."""

    def __init__(
        self, settings: Settings, ground: Ground, folder: Path, faults: Sequence[Fault], enough: asyncio.Event
    ) -> None:
        self.settings = settings
        self.ground = ground
        self.fleet = Fleet(ground, folder, self._tell)
        self._rng = random.Random(settings.seed)
        self._begun = time.monotonic()
        self._enough = enough
        self._faults = faults
        self._injecting: set[asyncio.Task[None]] = set()
        self._first_slot: float | None = None
        self._stalls: list[Stall] = []

    async def run(self) -> Outcome:
        """Do all of it."""
        rate, backlog = self.settings.rate, int(self.settings.rate * BACKLOG)
        misled = any(fault.needs == CLOCK for fault in self._faults)
        await self.fleet.muster(self.settings.workers, rate, backlog, self.settings.seed, misled=misled)
        self._tell(f"{self.settings.workers} workers and {PRODUCERS} producers on {self.ground.version()}")
        for place in (*self.fleet.workers, *self.fleet.producers):
            place.start()
        await self._see_the_schedule()
        begun = time.monotonic()
        rests = random.Random(
            f"{self.settings.seed} rests"
        )  # apart from the chance of faults: who dies when is no choice of ours
        helpers = [
            asyncio.create_task(self.fleet.supervisor().run(lambda: rests.uniform(0.1, 0.8))),
            asyncio.create_task(self._tell_status()),
            asyncio.create_task(pulse.watch(self.ground.answered, self._stalls.append)),
        ]
        try:
            await self._trouble()
            seconds = time.monotonic() - begun
            drained = time.monotonic()
            await self._drain()
        finally:
            left = [*helpers, *self._injecting]  # faults too, when it is given up
            for helper in left:
                helper.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return await self._account(seconds, time.monotonic() - drained)

    # faults

    async def _trouble(self) -> None:
        """Inject a fault every few seconds until the time is over, then wait for the last ones to pass."""
        deadline = time.monotonic() + 60 * self.settings.minutes
        while not self._enough.is_set() and time.monotonic() < deadline:
            rest = self._rng.uniform(0.5, 1.5) * self.settings.every
            await self._pause(min(rest, max(0.0, deadline - time.monotonic())))
            if self._enough.is_set() or time.monotonic() >= deadline:
                break
            task = asyncio.create_task(self._inject(chosen(self._faults, self._rng), self._rng.randrange(2**32)))
            self._injecting.add(task)
            task.add_done_callback(self._injecting.discard)
        self._tell("no more faults; producers stop, and what is left is finished")
        self.fleet.calm.set()
        if self._injecting:
            await asyncio.wait(self._injecting)

    async def _inject(self, fault: Fault, seed: int) -> None:
        try:
            await fault.bring(self.fleet, random.Random(seed))
        except (Missed, *AWAY):
            self.fleet.missed += 1
        except Exception as error:  # noqa: BLE001  a fault that cannot be brought about is no fault of those it was meant for
            self.fleet.missed += 1
            trouble = f"{fault.name}: it could not be brought about: {type(error).__name__}: {error}"
            self._tell(trouble)
            if isinstance(error, MISTAKES):
                self.fleet.complaints.append(trouble)

    # the end

    async def _drain(self) -> None:
        """Stop producers, have new workers that leave the schedule alone finish all there is, and stop them too."""
        await self._stop(self.fleet.producers)
        await self._stop(self.fleet.workers)
        for place in self.fleet.workers:
            place.environment[CRON] = "off"
            place.start()
        least, since = None, time.monotonic()
        while True:
            stats = await self.ground.stats()
            live = None if stats is None else stats.live
            if live == 0:
                break
            if live is not None and (least is None or live < least):
                least, since = live, time.monotonic()
            if time.monotonic() > since + STUCK:
                self._tell(f"{live} jobs do not end")
                break
            await asyncio.sleep(0.2)
        await self._stop(self.fleet.workers)

    async def _stop(self, places: Sequence[Place]) -> None:
        for place in places:
            place.wanted = False
            if place.alive:
                place.send(signal.SIGTERM)
        for place in places:
            if not await place.ended(WAIT):
                self.fleet.complaints.append(f"{place.life} was asked to stop and had not after {WAIT:g} s")
                await place.kill()

    async def _account(self, seconds: float, drained: float) -> Outcome:
        """Read everything and balance the books."""
        told = Told()
        for diary in self.fleet.diaries:
            told.read(diary, ORDERED)
        shown = time.monotonic()

        def progress(count: int) -> None:
            nonlocal shown
            if time.monotonic() > shown + TELL_EVERY:
                shown = time.monotonic()
                self._tell(f"{count} jobs read")

        self._tell("reading every job with its event log")
        found = await read(self.ground, self._first_slot, progress)
        found.complaints = [*self.fleet.complaints, *self._logged()]
        found.blows = self.fleet.blows
        found.deaths = self.fleet.deaths
        found.workers = tuple(place.name for place in self.fleet.workers)
        found.stalls = list(self._stalls)
        self._hear_workers(found)
        books = balance(told, found)
        await self._tell_offenders(books)
        return Outcome(
            settings=self.settings,
            books=books,
            faults=recoveries(self.fleet.blows, found.jobs),
            notes=notes(told, found),
            refused=await refused(self.ground),
            missed=self.fleet.missed,
            seconds=seconds,
            drained=drained,
            jobs=len(found.jobs),
            version=self.ground.version(),
            interrupted=self._enough.is_set(),
            lives={place.name: place.lives for place in (*self.fleet.workers, *self.fleet.producers)},
        )

    def _logged(self) -> list[str]:
        """Return what processes logged that they should not have."""
        return [
            f"{path.stem}: {complaint}"
            for place in (*self.fleet.workers, *self.fleet.producers)
            for path in place.logs
            for complaint in complaints(path.read_text(errors="replace"), worker=place in self.fleet.workers)
        ]

    def _hear_workers(self, found: Found) -> None:
        """Take into account what workers said of a busy machine, and of leases that they could not help losing."""
        for path in [path for place in self.fleet.workers for path in place.logs]:
            text = path.read_text(errors="replace")
            found.stalls += pulse.stalls(path.stem, text)
            found.unlearnt |= unlearnt(text)
            if admitted(text):
                found.admitted.add(path.stem)

    async def _tell_offenders(self, books: Sequence[Line]) -> None:
        """Show the whole story of some jobs that do not add up."""
        for line in books:
            for job_id in re.findall(UUIDS, " ".join(line.shown))[:OFFENDERS]:
                self._tell(f"{line.what}: {job_id}")
                for event in await self.ground.store.events(UUID(job_id)):
                    self._tell(f"    {event.at:%H:%M:%S.%f} {event.event} attempt {event.attempt} {event.actor} {event.detail}")

    # telling

    async def _see_the_schedule(self) -> None:
        """Note the first slot, as soon as a worker has made the schedule known."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            for view in await self.ground.store.schedules():
                if view.schedule.task == TICK:
                    first = view.schedule.next_at if view.last_at is None else view.last_at
                    self._first_slot = first.timestamp()
                    return
            await asyncio.sleep(0.05)
        raise RuntimeError("no worker has begun to serve; see the logs of the workers")

    async def _tell_status(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            stats = await self.ground.stats()
            faults = f"{len(self.fleet.blows)} faults"
            self._tell(f"the store does not answer, {faults}" if stats is None else f"{_counts(stats)}, {faults}")

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:8.1f}s  {text}", flush=True)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._enough.wait(), seconds)


def _counts(stats: Stats) -> str:
    ended = stats.terminal
    live = ", ".join(f"{count} {state}" for state in State if state in LIVE and (count := stats.count(state)))
    return f"enqueued {stats.count()}, ended {ended}, live {stats.live}{f' ({live})' if live else ''}"
