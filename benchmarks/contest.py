"""Contestants, works and rounds: everybody does everything, in an order drawn anew for each round and work.

Within a round each work is done by all contestants before the next one begins, so that what is compared was measured within
minutes. Each cell has an empty store, a server that has written everything out, and a time limit. Who fails twice at a work is
not asked for it again; why it failed is in the report.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import mean
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from benchmarks.programs import ProgramError, started
from benchmarks.results import Failure, Reading, Report
from benchmarks.tables import figure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager, AsyncExitStack

    from benchmarks.programs import Program
    from benchmarks.servers import Place
    from benchmarks.works import Finding, Work

TRIES = 2
"""Failures of a contestant at one work after which it is not asked for it again."""
CELL_SECONDS = 240.0
"""How long one contestant may take for one work."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Somebody who is measured."""

    name: str
    store: str
    command: tuple[str, ...]
    """Its interpreter and its program, to which what it is asked is added."""
    jobs: int
    """How many no-ops it is given in a drain."""
    burn_processes: int = 2
    """Worker processes that it needs to keep two cores busy."""
    works: frozenset[str] | None = None
    """What it is asked for; None: everything."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def does(self, work: str) -> bool:
        """Tell whether it is asked for a work."""
        return self.works is None or work in self.works


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and how thoroughly."""

    contestants: Sequence[Contestant]
    works: Sequence[Work]
    rounds: int
    seed: int
    """What the order is drawn from."""
    scale: float = 1.0
    """The share of the usual jobs: below 1 for a quick look."""
    slots: int = 0
    """Jobs at once, for all; 0: what each does best."""
    limit: float = CELL_SECONDS
    """Seconds for one cell."""

    def cells(self) -> list[tuple[int, Work, Contestant]]:
        """Return round, work and contestant in the order in which they are run. The same plan always gives the same order."""
        rng = random.Random(self.seed)
        found = []
        for number in range(1, self.rounds + 1):
            for work in self.works:
                if not (work.once and number > 1):
                    takers = [contestant for contestant in self.contestants if takes(contestant, work)]
                    found += [(number, work, contestant) for contestant in rng.sample(takers, len(takers))]
        return found


class Stores(Protocol):
    """Where empty stores come from."""

    def fresh(self, store: str) -> AbstractContextManager[Place]:
        """Return an empty store of that kind, removed with the block."""
        ...


def takes(contestant: Contestant, work: Work) -> bool:
    """Tell whether a contestant is asked for a work, and its store is one that the work is about."""
    return contestant.does(work.name) and (work.stores is None or contestant.store in work.stores)


class Stage:
    """One cell while it is measured: the contestant, its empty store, and the programs through which it is asked."""

    def __init__(self, contestant: Contestant, place: Place, *, scale: float = 1.0, slots: int = 0) -> None:
        self.contestant = contestant
        self.place = place
        self.slots = slots
        self.environment = dict(contestant.environment)
        """What its programs find in theirs."""
        self.unfinished: list[str] = []
        """What ran when the cell was broken off, each with its last words."""
        self._scale = scale

    def size(self, jobs: int, *, least: int = 100) -> int:
        """Return how many jobs a work has in this run."""
        return max(least, int(jobs * self._scale))

    async def ask(self, command: str, **options: object) -> dict[str, Any]:
        """Run one of the contestant's commands to its end, and return its answer."""
        async with self.program(command, **options) as program:
            answer = await program.answer()
            await program.end()
            return answer

    async def worker(self, stack: AsyncExitStack, task: str, *, slots: int = 0, url: str | None = None) -> Program:
        """Start a worker process, which ends with the stack, and return it when it is ready."""
        program = await stack.enter_async_context(self.program("work", task=task, slots=slots, **({"url": url} if url else {})))
        await program.answer()
        return program

    @asynccontextmanager
    async def program(self, command: str, **options: object) -> AsyncIterator[Program]:
        """Start one of the contestant's commands, and end it with the block."""
        given = {"url": self.place.url} | options
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        line = [*self.contestant.command, command, *words]
        async with started(line, name=f"{self.contestant.name} {command}", environment=self.environment) as program:
            try:
                yield program
            except asyncio.CancelledError:
                self.unfinished.append(str(program.error("was still at it")))
                raise


class Contest:
    """Runs a plan. `saved` gets the report after every cell, so that a run that is broken off leaves what it measured."""

    def __init__(
        self, plan: Plan, stores: Stores, report: Report, *, saved: Callable[[Report], object], tell: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._stores = stores
        self._saved = saved
        self._tell = tell
        self._failed: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[tuple[str, str], list[float]] = {}
        self.report = report

    async def run(self) -> Report:
        """Measure every cell; returns the report, in which failures stand beside the readings."""
        cells = self._plan.cells()
        self._tell(f"{len(cells)} cells in {self._plan.rounds} round(s), seed {self._plan.seed}; {self._left(cells)} in all")
        for position, (number, work, contestant) in enumerate(cells):
            if self._failed[contestant.name, work.name] >= TRIES:
                continue
            begun = time.monotonic()
            said = await self._cell(number, work, contestant)
            self._seconds.setdefault((contestant.name, work.name), []).append(time.monotonic() - begun)
            left = self._left(cells[position + 1 :])
            self._tell(f"[{position + 1}/{len(cells)}] round {number} {work.name} {contestant.name}: {said} ({left} left)")
            self._saved(self.report)
        return self.report

    async def _cell(self, number: int, work: Work, contestant: Contestant) -> str:
        """Measure one cell, put what came of it into the report, and return it in words."""
        unfinished: list[str] = []
        limit = asyncio.timeout(self._plan.limit)
        try:
            with self._stores.fresh(contestant.store) as place:
                stage = Stage(contestant, place, scale=self._plan.scale, slots=self._plan.slots)
                unfinished = stage.unfinished
                async with limit:
                    await stage.ask("prepare")
                    findings = await work.run(stage)
        except ProgramError as error:
            return self._fail(work, contestant, str(error))
        except Exception as error:  # noqa: BLE001  whatever a contestant answers or a server refuses, the others go on
            if limit.expired():
                running = "\n".join(unfinished)
                return self._fail(work, contestant, f"not finished within {self._plan.limit:g} s. {running}")
            return self._fail(work, contestant, repr(error))
        self._take(number, contestant, findings)
        return ", ".join(f"{finding.work} {figure(finding.value, finding.unit)}" for finding in findings)

    def _take(self, number: int, contestant: Contestant, findings: Sequence[Finding]) -> None:
        readings = [
            Reading(contestant.name, finding.work, number, finding.value, finding.unit, finding.better, finding.extra)
            for finding in findings
        ]
        self.report = msgspec.structs.replace(self.report, readings=[*self.report.readings, *readings])

    def _fail(self, work: Work, contestant: Contestant, reason: str) -> str:
        self._failed[contestant.name, work.name] += 1
        failure = Failure(contestant.name, work.name, reason.strip())
        if failure not in self.report.failures:
            self.report = msgspec.structs.replace(self.report, failures=[*self.report.failures, failure])
        return f"FAILED: {failure.reason}"

    def _left(self, cells: Sequence[tuple[int, Work, Contestant]]) -> str:
        """Say how long these may take: as long as before, or what the work usually takes, and some for starting."""
        seconds = sum(
            mean(seen) if (seen := self._seconds.get((contestant.name, work.name))) else work.guess * self._plan.scale + 3
            for _, work, contestant in cells
            if self._failed[contestant.name, work.name] < TRIES
        )
        return f"about {seconds / 60:.0f} min" if seconds >= 60 else f"about {seconds:.0f} s"  # noqa: PLR2004  a minute
