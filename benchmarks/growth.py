"""What a claim costs as things grow: curves over what the tables hold, on PostgreSQL 18 with fsync on.

    ./dev bench growth                                   every curve, up to 5 million jobs (about 20 minutes)
    ./dev bench growth --most 100000 --passes 2          a short look: it is printed, not written
    ./dev bench growth --curve backlog queues --json F   these; what the file holds of the others stays

Curves:
    backlog     1,000 to 5,000,000 jobs are ready
    history     1,000 to 5,000,000 jobs have ended; 1,000 are ready
    scheduled   1,000 to 1,000,000 jobs are scheduled; 1,000 are ready
    queues      100,000 jobs are ready in 1 to 100 queues, all of them served
    tasks       1,000 to 1,000,000 jobs of fifty other tasks are ready, ahead of 3,000 of the three that the worker knows

Every point has a database of its own. A pass visits all of them in random order, and at each claims, settles, enqueues as many
anew and removes what has ended, in batches of 100 and of 1: so a table stays at its size. Times are of the awaiting client;
several passes show what of them is the machine's mood. Processor time, of the server's session and of the client, does not
depend on who else is busy. Blocks (8 KB, in memory or not) are counted by the server, exactly.
A claim looks at all lanes when a second has passed since the last look, which is every 200th here; claims that look before they
claim, as those of an idle worker that was notified, are a row of their own.

What is promised, largest against smallest, is in benchmarks/targets.toml. The whole run writes benchmarks/results/growth.json.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, none_missed, report_of, this_run
from benchmarks.filling import ARGS, SUCCEED, WORLD, Filler
from benchmarks.machine import this_machine
from benchmarks.results import Cell, Reading, Report, put_together, summary
from benchmarks.servers import PostgresServer, Servers
from benchmarks.sessions import Cost, Session
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

CONTESTANT: Final = "holdfast_postgres"
BATCHES: Final = (100, 1)
READY: Final = 1_000
"""Ready jobs of each task where it is something else that grows."""
WARM: Final = 5
"""Cycles that go first in every visit: connections have been idle, and pages have left the processor's cache."""
LOOKS: Final = 30
CLAIM_SECONDS: Final = 0.005
"""By how much the claimer's clock goes on with each claim, so that every 200th looks, on any machine."""

NOOP: Final = ("default", "noop")
OWN: Final = tuple(("default", f"own.{name}") for name in "abc")
OTHERS: Final = tuple(("default", f"other.{number}") for number in range(50))


# --- the curves ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve:
    """What grows, how far, and how a database comes to hold it."""

    sizes: tuple[int, ...]
    grows: str
    fill: Callable[[Filler, int], Awaitable[None]]
    tasks: frozenset[str] = frozenset({"noop"})


async def _backlog(filler: Filler, size: int) -> None:
    await filler.fill(size, [NOOP])


async def _history(filler: Filler, size: int) -> None:
    await filler.fill(size, [NOOP], state=State.SUCCEEDED)
    await filler.fill(READY, [NOOP])


async def _scheduled(filler: Filler, size: int) -> None:
    await filler.fill(size, [NOOP], state=State.SCHEDULED)
    await filler.fill(READY, [NOOP])


async def _queues(filler: Filler, size: int) -> None:
    await filler.fill(100_000, [(f"queue.{number}", "noop") for number in range(size)])


async def _tasks(filler: Filler, size: int) -> None:
    await filler.fill(size, OTHERS)
    await filler.fill(READY * len(OWN), OWN)


CURVES: Final = {
    "backlog": Curve((1_000, 10_000, 100_000, 1_000_000, 5_000_000), "ready jobs", _backlog),
    "history": Curve((1_000, 10_000, 100_000, 1_000_000, 5_000_000), "ended jobs", _history),
    "scheduled": Curve((1_000, 10_000, 100_000, 1_000_000), "scheduled jobs", _scheduled),
    "queues": Curve((1, 3, 10, 30, 100), "queues", _queues),
    "tasks": Curve((1_000, 10_000, 100_000, 1_000_000), "jobs of other tasks", _tasks, frozenset(task for _, task in OWN)),
}


# --- one point -------------------------------------------------------------------------------------------------------------


class Paced(SystemEnvironment):
    """A world whose monotonic clock goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        """Return how late it is here."""
        return self.seconds


@dataclass(slots=True)
class Taken:
    """What calls of one kind took: milliseconds each; all together the client's processor time, and what the server's was."""

    times: list[float] = field(default_factory=list)
    client: float = 0.0
    server: Cost = field(default_factory=Cost)

    async def call(self, coroutine: Awaitable[T]) -> T:
        """Await a call, taking the time."""
        started, busy = time.perf_counter(), time.process_time()
        result = await coroutine
        self.times.append((time.perf_counter() - started) * 1000)
        self.client += time.process_time() - busy
        return result

    def percentile(self, share: float) -> float:
        """Return the time that this share of the calls did not exceed."""
        return sorted(self.times)[min(len(self.times) - 1, int(share * len(self.times)))]

    def reading(self, work: str, number: int, x: int) -> Reading:
        """Return it as a reading."""
        return Reading(
            contestant=CONTESTANT,
            work=work,
            round=number,
            value=round(statistics.median(self.times), 4),
            unit="ms",
            better="lower",
            extra={
                "x": x,
                "p90": round(self.percentile(0.90), 4),
                "p99": round(self.percentile(0.99), 4),
                "max": round(max(self.times), 4),
                "calls": len(self.times),
                "blocks": round(self.server.blocks / len(self.times), 2),
                "server_ms": round(self.server.seconds / len(self.times) * 1000, 4),
                "client_ms": round(self.client / len(self.times) * 1000, 4),
            },
        )


class Point:
    """One database of a curve, with a session for each kind of call."""

    def __init__(self, x: int, url: str, tasks: frozenset[str]) -> None:
        self.x = x
        self._clock = Paced()
        self._claims = Session(url, self._clock)
        self._settles = Session(url)
        self._enqueues = Session(url)
        self._filler = Filler(url)
        self._worker = Worker(id=self._clock.token(), name="bench")
        self._tasks = tasks

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect; the stack closes."""
        for session in (self._claims, self._settles, self._enqueues, self._filler):
            await stack.enter_async_context(session)
        await self._claims.store.register(self._worker)

    async def visit(self, batch: int, claims: int, *, look: bool = False) -> dict[str, Taken]:
        """Go through so many cycles and return what each kind of call took."""
        await self._cycles(batch, WARM, {name: Taken() for name in ("claim", "settle", "enqueue")}, look=True)
        sessions = {"claim": self._claims, "settle": self._settles, "enqueue": self._enqueues}
        taken = {name: Taken(server=await session.cost()) for name, session in sessions.items()}
        await self._cycles(batch, claims, taken, look=look)
        for name, session in sessions.items():
            taken[name].server = await session.cost() - taken[name].server
        return taken

    async def _cycles(self, batch: int, count: int, taken: dict[str, Taken], *, look: bool) -> None:
        request = ClaimRequest(worker=self._worker.id, tasks=self._tasks, limit=batch, look=look)
        for _ in range(count):
            self._clock.seconds += CLAIM_SECONDS
            claimed = await taken["claim"].call(self._claims.store.claim(request))
            if len(claimed) != batch:
                raise RuntimeError(f"a claim of {batch} got {len(claimed)} jobs, though more are ready")
            settlements = [Settlement(job.lease, SUCCEED) for job in claimed]
            await taken["settle"].call(self._settles.store.settle(settlements))
            jobs = [NewJob(id=WORLD.job_id(), queue=job.queue, task=job.task, args=ARGS) for job in claimed]
            await taken["enqueue"].call(self._enqueues.store.enqueue(jobs))
            await self._filler.forget([job.job_id for job in claimed])


# --- all of them -----------------------------------------------------------------------------------------------------------


async def measure(server: PostgresServer, name: str, sizes: Iterable[int], *, passes: int, claims: int) -> list[Reading]:
    """Fill the databases of one curve, and visit them pass by pass."""
    curve = CURVES[name]
    async with AsyncExitStack() as stack:
        points: list[Point] = []
        for size in sizes:
            say(f"{name}: filling in {size:,} {curve.grows}")
            url = server.create_database()
            stack.callback(server.drop_database, url)
            async with Filler(url) as filler:
                await curve.fill(filler, size)
                await filler.rest()
            points.append(Point(size, url, curve.tasks))
        async with AsyncExitStack() as opened:
            for point in points:
                await point.open(opened)
            return await visit_all(name, points, passes, claims)


async def visit_all(name: str, points: list[Point], passes: int, claims: int) -> list[Reading]:
    """Visit every point in every pass, each time in random order."""
    readings: list[Reading] = []
    for number, point in ((number, point) for number in range(passes) for point in random.sample(points, len(points))):
        say(f"{name}: pass {number + 1}, {point.x:,} {CURVES[name].grows}")
        for batch in BATCHES:
            for kind, taken in (await point.visit(batch, claims)).items():
                readings.append(taken.reading(f"{name}: {kind} {batch}", number, point.x))
        looked = (await point.visit(1, LOOKS, look=True))["claim"]
        readings.append(looked.reading(f"{name}: look and claim 1", number, point.x))
    return readings


def say(what: str) -> None:
    """Tell how far it is, away from the figures."""
    print(f"{what} …", file=sys.stderr, flush=True)


# --- telling ---------------------------------------------------------------------------------------------------------------


def show(report: Report) -> None:
    """Print the curves."""
    works: dict[str, list[Cell]] = {}
    for cell in summary(report):
        works.setdefault(cell.work, []).append(cell)
    p99s: dict[tuple[str, float], list[float]] = {}
    for reading in report.readings:
        p99s.setdefault((reading.work, float(reading.extra["x"])), []).append(float(reading.extra["p99"]))
    for work, cells in works.items():
        print(f"\n{work}")
        titles = " ".join(f"{title:>9}" for title in ("server ms", "client ms", "blocks"))
        print(f"{CURVES[work.split(':')[0]].grows:>20} {'p50 ms [range]':>22} {'p99 ms [range]':>24} {titles}")
        quietest = [min(p99s[work, cell.x or 0.0]) for cell in cells]
        for cell, low in zip(cells, quietest, strict=True):
            p50 = f"{cell.median:.2f} [{cell.low:.2f} - {cell.high:.2f}]"
            p99 = f"{_number(cell, 'p99'):.2f} [{low:.2f} - {max(p99s[work, cell.x or 0.0]):.2f}]"
            told = " ".join(f"{_number(cell, name):>9.2f}" for name in ("server_ms", "client_ms", "blocks"))
            print(f"{cell.x:>20,.0f} {p50:>22} {p99:>24} {told}")
        if len(cells) > 1 and ": claim " in work:
            first, last = cells[0], cells[-1]
            slower, blocks = (_number(last, name) / _number(first, name) for name in ("p99", "blocks"))
            print(
                f"  largest against smallest: p50 {last.median / first.median:.2f}x, p99 {slower:.2f}x "
                f"({quietest[-1] / quietest[0]:.2f}x in the quietest passes), blocks {blocks:.2f}x"
            )


def _number(cell: Cell, name: str) -> float:
    return float(cell.extra[name])


def main(arguments: list[str]) -> int:
    """Measure, write, print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="./dev bench growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curve", choices=list(CURVES), nargs="+", default=list(CURVES), help="only these")
    parser.add_argument("--most", type=int, default=5_000_000, help="leave out larger points (default %(default)s)")
    parser.add_argument("--passes", type=at_least_one, default=5, help="how often each point is visited (default %(default)s)")
    parser.add_argument(
        "--claims", type=at_least_one, default=200, help="claims of each batch size in a visit (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    run = this_run("growth", arguments)
    path = destination("growth", options.json, whole=is_whole(parser, options, "curve", "most", "passes", "claims"))
    readings: list[Reading] = []
    with Servers() as servers:
        for name in options.curve:
            sizes = [size for size in CURVES[name].sizes if size <= options.most]
            readings += asyncio.run(measure(servers.postgres(), name, sizes, passes=options.passes, claims=options.claims))
        machine = this_machine(servers.versions(), servers.settings())
    report = report_of("growth", run, machine, readings)
    if options.json:
        report = put_together(report, options.curve, options.json)
    keep(report, path)
    show(report)
    return 0 if none_missed(report) else 1
