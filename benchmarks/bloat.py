"""What a forgotten transaction does to the queue: jobs pass by the hundred thousand while vacuum may remove nothing.

    ./dev bench bloat                        500,000 jobs through bare loops of claim and settle, with the snapshot and without,
                                             and then the same through a worker process
    ./dev bench bloat --jobs 100000          a short look: it is printed, not written
    ./dev bench bloat --form worker --json F the worker process alone; what the file holds of the bare loops stays

A session opens a REPEATABLE READ transaction before the first job and leaves it idle. Then 500,000 jobs are enqueued and
drained on PostgreSQL 18 with fsync on, about 20,000 always waiting: by two loops that claim and settle 200 at a time, or by one
worker process. All the while a bystander, another process with a table of its own, reads and updates single rows by their
primary key. Blocks that a claim touches are counted by the server, exactly. Afterwards the snapshot is given up and the tables
are vacuumed, and each is held against what it takes when it is written anew.

What is promised, at the end against the start and beside the snapshot against without, is in benchmarks/targets.toml. The whole
run writes benchmarks/results/bloat.json.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, none_missed, report_of, this_run
from benchmarks.filling import ARGS, SUCCEED
from benchmarks.machine import this_machine
from benchmarks.results import Cell, Reading, Report, put_together, summary
from benchmarks.servers import Servers
from benchmarks.sessions import Cost, Session
from holdfast import Holdfast
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from multiprocessing.connection import Connection as Pipe

CONTESTANT: Final = "holdfast_postgres"
THIRDS: Final = 3
FORMS: Final = ("bare", "worker")
SPARE: Final = 64 * 8192
"""A few pages more or less are nobody's bloat."""

BATCH: Final = 200
LOOPS: Final = 2
BACKLOG: Final = 20_000
ENQUEUED: Final = 1_000
SLOTS: Final = 500
SAMPLES: Final = 50
"""How many steps the curve has."""
STARTING: Final = 5
"""Steps that are not counted: they are start-up."""
HOUSEKEEPING_SECONDS: Final = 5.0
BYSTANDER_ROWS: Final = 10_000
BYSTANDER_REST: Final = 0.005

WORLD: Final = SystemEnvironment()


@dataclass(frozen=True, slots=True)
class Sample:
    """How far it was: jobs that had ended, when, and what claims and settles had cost the server by then.

    Of a worker the claims are not counted, and what they cost is in one with all else that it does.
    """

    jobs: int
    at: float
    claims: float = 0
    claiming: Cost = field(default_factory=Cost)
    settling: Cost = field(default_factory=Cost)


@dataclass(slots=True)
class Run:
    """One drain, with or without the snapshot."""

    samples: list[Sample] = field(default_factory=list)
    reads: list[tuple[float, float]] = field(default_factory=list)
    updates: list[tuple[float, float]] = field(default_factory=list)
    """When a row was read or updated, and how many milliseconds that took."""


# --- the bystander, in a process of its own ----------------------------------------------------------------------------------


def stand_by(url: str, pipe: Pipe) -> None:
    """Read and update rows until told to stop, and tell how long each took."""
    pipe.send(asyncio.run(_stand_by(url, pipe)))


async def _stand_by(url: str, pipe: Pipe) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    connection = await asyncpg.connect(url)
    reads: list[tuple[float, float]] = []
    updates: list[tuple[float, float]] = []
    try:
        row = 0
        while not pipe.poll():
            row = (row + 7919) % BYSTANDER_ROWS  # a prime: every row in turn, neighbours far apart
            for taken, sql in (
                (reads, "SELECT told FROM public.bystander WHERE id = $1"),
                (updates, "UPDATE public.bystander SET told = told + 1 WHERE id = $1"),
            ):
                started = time.monotonic()
                await connection.fetch(sql, row)
                ended = time.monotonic()
                taken.append((ended, (ended - started) * 1000))
            if len(reads) == 1:
                pipe.send("at work")
            await asyncio.sleep(BYSTANDER_REST)
    finally:
        await connection.close()
    return reads, updates


@asynccontextmanager
async def bystander(url: str, run: Run) -> AsyncIterator[None]:
    """Keep a bystander busy meanwhile, and take down what it saw."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "CREATE TABLE public.bystander (id int PRIMARY KEY, told int NOT NULL, note text NOT NULL); "
        f"INSERT INTO public.bystander SELECT n, 0, repeat('x', 100) FROM generate_series(0, {BYSTANDER_ROWS - 1}) n"
    )
    await connection.execute("VACUUM (ANALYZE) public.bystander")
    await connection.close()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=stand_by, args=(url, there), daemon=True)
    process.start()
    try:
        here.recv()  # at work; nobody here has anything else to do meanwhile
        yield
    finally:
        here.send("stop")
        run.reads, run.updates = here.recv()
        process.join()


# --- the drain ---------------------------------------------------------------------------------------------------------------


class Drain:
    """Jobs that come and go, until so many have ended."""

    def __init__(self, url: str, jobs: int, run: Run) -> None:
        self._url = url
        self._jobs = jobs
        self._run = run
        self._enqueues = Session(url)
        self._claims = Session(url, connections=LOOPS)
        self._settles = Session(url, connections=LOOPS)
        self._worker = Worker(id=WORLD.token(), name="bench")
        self._enqueued = 0
        self._ended = 0
        self._claimed = 0
        self._sampling = asyncio.Lock()

    async def bare(self) -> None:
        """Drain by loops of claim and settle."""
        async with self._enqueues, self._claims, self._settles, asyncio.TaskGroup() as tasks:
            await self._claims.store.register(self._worker)
            await self._top_up()
            producing = tasks.create_task(self._produce())
            keeping = tasks.create_task(self._keep_house())
            async with asyncio.TaskGroup() as loops:
                for _ in range(LOOPS):
                    loops.create_task(self._loop())
            await producing
            keeping.cancel()

    async def by_worker(self) -> None:
        """Drain by a worker process."""
        async with self._enqueues, self._claims, asyncio.TaskGroup() as tasks:
            await self._top_up()
            here, there = multiprocessing.Pipe()
            process = multiprocessing.get_context("spawn").Process(target=work, args=(self._url, there), daemon=True)
            process.start()
            producing = tasks.create_task(self._produce())
            while self._ended < self._jobs:
                self._ended = (await self._claims.store.stats()).count(State.SUCCEEDED)
                if self._is_due():
                    self._sample(await self._claims.cost_of_others(self._enqueues))
                await asyncio.sleep(0.1)
            await producing
            here.send("stop")
            process.join()  # nobody here has anything left to do

    async def _top_up(self) -> None:
        while self._enqueued < self._jobs and self._enqueued - self._ended < BACKLOG:
            count = min(ENQUEUED, self._jobs - self._enqueued)
            await self._enqueues.store.enqueue([NewJob(id=WORLD.job_id(), task="noop", args=ARGS) for _ in range(count)])
            self._enqueued += count

    async def _produce(self) -> None:
        while self._enqueued < self._jobs:
            await self._top_up()
            await asyncio.sleep(0.01)

    async def _keep_house(self) -> None:
        """Do what a worker does every few seconds: counts are folded."""
        while True:
            await self._settles.store.promote(0)
            await asyncio.sleep(HOUSEKEEPING_SECONDS)

    async def _loop(self) -> None:
        request = ClaimRequest(worker=self._worker.id, tasks=frozenset({"noop"}), limit=BATCH)
        while self._ended < self._jobs:
            claimed = await self._claims.store.claim(request)
            if not claimed:
                await asyncio.sleep(0.01)  # the other loop settles the last ones
                continue
            self._claimed += 1
            await self._settles.store.settle([Settlement(job.lease, SUCCEED) for job in claimed])
            self._ended += len(claimed)
            if self._is_due():
                async with self._sampling:
                    if self._is_due():  # the other loop did not do it meanwhile
                        self._sample(await self._claims.cost(), await self._settles.cost())

    def _is_due(self) -> bool:
        return self._ended >= (len(self._run.samples) + 1) * self._jobs // SAMPLES

    def _sample(self, *costs: Cost) -> None:
        self._run.samples.append(Sample(self._ended, time.monotonic(), self._claimed, *costs))


def work(url: str, pipe: Pipe) -> None:
    """Be a worker until told to stop."""
    asyncio.run(_work(url, pipe))


async def _work(url: str, pipe: Pipe) -> None:
    app = Holdfast(url)

    @app.task(name="noop")
    async def noop(user_id: int) -> None:
        del user_id

    async with app.worker(concurrency=SLOTS):
        await asyncio.to_thread(pipe.recv)


# --- one run -----------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def pinned(url: str, *, pin: bool) -> AsyncIterator[None]:
    """Keep a snapshot open meanwhile, in a session that does nothing else."""
    if not pin:
        yield
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM holdfast.job")
            yield
    finally:
        await connection.close()


async def drain(url: str, jobs: int, *, pin: bool, worker: bool) -> Run:
    """Drain once, with the snapshot or without it."""
    run = Run()
    async with Session(url):  # creates the schema
        pass
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(pinned(url, pin=pin))
        await stack.enter_async_context(bystander(url, run))
        load = Drain(url, jobs, run)
        await (load.by_worker() if worker else load.bare())
    return run


async def sizes(url: str) -> dict[str, tuple[int, int]]:
    """Vacuum, and return for each table, without and with its indexes, its bytes now and when it is written anew."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
    sql = (
        "SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid) FROM pg_class c "
        "WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r'"
    )
    try:
        await connection.execute("VACUUM")
        after = {row[0]: row[1:] for row in await connection.fetch(sql)}
        await connection.execute("VACUUM FULL")
        needed = {row[0]: row[1:] for row in await connection.fetch(sql)}
    finally:
        await connection.close()
    return {
        f"{name}{part}": (after[name][index], needed[name][index])
        for name in sorted(after)
        for index, part in enumerate(("", ", indexes"))
    }


# --- readings ---------------------------------------------------------------------------------------------------------------


def at_steps(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield how far it was at every step, in proportion between two samples: so all rounds have the same points."""
    step = max(1, samples[-1].jobs // SAMPLES)
    for before, after in pairwise(samples):
        for jobs in range((before.jobs // step + 1) * step, after.jobs + 1, step):
            share = (jobs - before.jobs) / (after.jobs - before.jobs)
            if jobs >= STARTING * step:
                yield Sample(
                    jobs,
                    before.at + (after.at - before.at) * share,
                    before.claims + (after.claims - before.claims) * share,
                    _between(before.claiming, after.claiming, share),
                    _between(before.settling, after.settling, share),
                )


def _between(before: Cost, after: Cost, share: float) -> Cost:
    more = after - before
    return Cost(before.blocks + round(more.blocks * share), before.seconds + more.seconds * share)


def readings_of(run: Run, form: str, number: int) -> list[Reading]:
    """Return a run as readings: curves over the jobs that had ended."""
    readings: list[Reading] = []

    def reading(work: str, value: float, unit: str, better: Any, **extra: float) -> None:
        readings.append(Reading(CONTESTANT, f"{form}: {work}", number, round(value, 4), unit, better, dict(extra)))

    for before, after in pairwise(at_steps(run.samples)):
        reading("drain", (after.jobs - before.jobs) / (after.at - before.at), "jobs/s", "higher", x=after.jobs)
        jobs, claims = after.jobs - before.jobs, after.claims - before.claims
        claiming, settling = after.claiming - before.claiming, after.settling - before.settling
        if claims:
            reading("blocks of a claim", claiming.blocks / claims, "blocks", "lower", x=after.jobs)
            reading("blocks of a settle", settling.blocks / claims, "blocks", "lower", x=after.jobs)
        else:
            reading("blocks of a job", claiming.blocks / jobs, "blocks", "lower", x=after.jobs)
        server = (claiming.seconds + settling.seconds) / jobs * 1e6
        reading("processor time of the server", server, "microseconds of a job", "lower", x=after.jobs)
    started, ended = run.samples[0].at, run.samples[-1].at
    for kind, taken in (("reads", run.reads), ("updates", run.updates)):
        for third in range(THIRDS):
            low, high = (started + (ended - started) * share / THIRDS for share in (third, third + 1))
            times = sorted(took for at, took in taken if low <= at < high)
            p99 = times[int(0.99 * len(times))]
            reading(f"bystander {kind}", statistics.median(times), "ms", "lower", x=third + 1, p99=round(p99, 4))
    return readings


def size_readings(found: dict[str, tuple[int, int]], form: str, number: int) -> list[Reading]:
    """Return the sizes after the vacuum as readings."""
    return [
        Reading(CONTESTANT, f"{form}: size of {name}", number, after, "bytes", "lower", {"needed": needed})
        for name, (after, needed) in found.items()
        if max(after, needed) > SPARE
    ]


def show(report: Report) -> None:
    """Print what was measured."""
    works: dict[str, list[Cell]] = {}
    for cell in summary(report):
        works.setdefault(cell.work, []).append(cell)
    for work, cells in works.items():
        if len(cells) > THIRDS:
            first, middle, last = (statistics.fmean(cell.median for cell in part) for part in _thirds(cells))
            against = f"; last {last / first:.2f}x" if first else ""
            print(f"{work:<44} {first:>10,.1f} {middle:>10,.1f} {last:>10,.1f} {cells[0].unit}, thirds{against}")
        elif ": bystander " in work:
            told = " ".join(f"{cell.median:>10.3f}" for cell in cells)
            ratio = cells[-1].median / cells[0].median
            print(f"{work:<44} {told} ms, p50 of thirds; last {ratio:.2f}x; p99 {float(cells[-1].extra['p99']):.1f}")
        else:
            needed = float(cells[0].extra["needed"])
            print(f"{work:<44} {cells[0].median / 2**20:>10.1f} MB after a vacuum, {needed / 2**20:.1f} MB needed")


def _thirds(cells: list[Cell]) -> list[list[Cell]]:
    third = len(cells) // THIRDS
    return [cells[:third], cells[third : len(cells) - third], cells[len(cells) - third :]]


def measure(servers: Servers, form: str, jobs: int, rounds: int) -> list[Reading]:
    """Drain with the snapshot and without, round by round."""
    worker = form == "worker"
    readings: list[Reading] = []
    with servers.fresh("postgres") as place:  # the log's files are made by the first to write: nobody shall pay for that
        asyncio.run(drain(place.url, jobs // 10, pin=False, worker=worker))
    for number in range(rounds):
        for pin in (False, True) if number % 2 else (True, False):  # who comes second finds the machine otherwise
            name = f"{form} {'with a snapshot' if pin else 'without'}"
            print(f"round {number + 1}, {name} …", file=sys.stderr, flush=True)
            with servers.fresh("postgres") as place:
                run = asyncio.run(drain(place.url, jobs, pin=pin, worker=worker))
                readings += readings_of(run, name, number)
                if pin:
                    readings += size_readings(asyncio.run(sizes(place.url)), name, number)
    return readings


def main(arguments: list[str]) -> int:
    """Measure, write, print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="./dev bench bloat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=FORMS, nargs="+", default=list(FORMS), help="through what: only this")
    parser.add_argument("--jobs", type=at_least_one, default=500_000, help="jobs in each run (default %(default)s)")
    parser.add_argument(
        "--rounds", type=at_least_one, default=2, help="runs with and runs without the snapshot, each (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    run = this_run("bloat", arguments)
    path = destination("bloat", options.json, whole=is_whole(parser, options, "form", "jobs", "rounds"))
    readings: list[Reading] = []
    with Servers() as servers:
        for form in options.form:
            readings += measure(servers, form, options.jobs, options.rounds)
        machine = this_machine(servers.versions(), servers.settings())
    report = report_of("bloat", run, machine, readings)
    if options.json:
        report = put_together(report, options.form, options.json)
    keep(report, path)
    show(report)
    return 0 if none_missed(report) else 1
