"""What a plain job costs, counted and not timed: nothing here depends on how fast the machine is.

    ./dev bench cost                        in memory, on SQLite and on PostgreSQL 18; servers and files of its own
    ./dev bench cost --rounds 3             several rounds; the table shows their range
    ./dev bench cost --store postgres       there alone: it is printed, not written

A plain job has no key, no chain, nothing it waits for, and is enqueued on nobody's connection. It is enqueued with the public
API, claimed, run and settled by a real worker. Workers are run twice, with few jobs and with many: what the many cost more is
what a job costs, so that neither the start nor the end of a worker counts, and statements that are sent by the clock are left
out. Then what the store does for it, one job and a hundred at a time; the memory that a job takes while it is held and after it
has ended; and what a worker asks that has nothing to do.

tests/runtime/test_cost_per_job.py holds the ceilings. The whole run writes benchmarks/results/cost.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, report_of, this_run
from benchmarks.machine import this_machine
from benchmarks.meters import CallMeter, Counts, PostgresMeter, SqliteMeter, written
from benchmarks.results import Reading, Report, best_peer, load, summary
from holdfast import Holdfast
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.runtime import counters as count
from holdfast.runtime.counters import MemoryCounters
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from benchmarks.meters import Meter
    from holdfast.core.lease import Claimed
    from holdfast.store.port import Store
    from holdfast.tasks.task import AsyncTask
    from tests.support.postgres import Server

    Fresh = Callable[[], str]
    """Makes an empty store and returns its URL."""

Phases = dict[str, Counts]
"""What was counted for each job, by what was done with it."""

STORES = ("memory", "sqlite", "postgres")
SLOTS = (1, 20, 500)
"""Of the workers: jobs at once are claims and settlements at once."""
ENQUEUED = 1_000
"""Jobs in a call."""
HELD = 500
"""Slots of the worker whose memory is looked at."""
FINISHED = 4_000
WAIT = 120.0

BATCH = 100
ROUNDS = 4
"""Batches of each kind."""
SINGLES = 200
WARM = 10
"""Calls of each kind that go first: plans are made and catalogs read once, not for each job."""
SUCCEED = Write(Event.SUCCEED, 0, result="null")
NO_CHECKPOINT = {"checkpoint_timeout": "1d", "max_wal_size": "4GB"}


# --- through a worker ----------------------------------------------------------------------------------------------------


async def count_worker(store: str, fresh: Fresh, slots: int) -> Counts:
    """Return what a job costs that is claimed, run and settled by a worker with so many slots, or 500 at once."""
    few = max(200, 2 * slots)
    more = max(800, min(100 * slots, 20_000))
    counts: Counts = {}
    if store != "memory":
        fewer, many = [await _count_statements(store, fresh(), jobs, slots) for jobs in (few, few + more)]
        counts = {what: _for_a_job(fewer[what], many[what], more, more // slots) for what in many}
    fewer_calls, many_calls = [await _count_calls(fresh(), jobs, slots) for jobs in (few, few + more)]
    return counts | {"calls": (many_calls - fewer_calls) / more}


def _for_a_job(fewer: Counter[str], many: Counter[str], more: int, batches: int) -> float:
    """Return how much was counted for each job more; without kinds that are seen less than once in ten batches."""
    least = max(5, batches / 10)
    counted = [many[kind] - fewer[kind] for kind in many]
    return sum(one for one in counted if one >= least) / more


async def _count_statements(store: str, url: str, jobs: int, slots: int) -> dict[str, Counter[str]]:
    """Run so many jobs; returns what was counted, by its name and its kind."""
    if store == "sqlite":
        lite = SqliteMeter(Path(url.removeprefix("sqlite:///")))
        with lite.tracing():
            async with _enqueued(url, jobs) as run:
                await lite.begin()
                await run(slots)
        return {"statements": lite.kinds(), "commits": lite.waits()}
    meter = PostgresMeter(url)
    async with meter.proxied() as proxied, _enqueued(proxied, jobs) as run:
        await meter.begin()
        before = await written(url)
        await run(slots)
        wal = Counter({"WAL": await written(url) - before})
    return {"statements": meter.kinds(), "round_trips": meter.waits(), "wal": wal}


async def _count_calls(url: str, jobs: int, slots: int) -> int:
    meter = CallMeter()
    async with _enqueued(url, jobs) as run:
        with meter.counting():
            await run(slots)
    return meter.calls


async def count_enqueue(fresh: Fresh) -> Counts:
    """Return what a job costs its producer, enqueued with 999 others in one call."""
    async with _opened(fresh()) as app:
        noop = _noop(app)
        await app.enqueue_many([noop.call(42) for _ in range(ENQUEUED)])
        meter = CallMeter()
        with meter.counting():
            await app.enqueue_many([noop.call(42) for _ in range(ENQUEUED)])
    return {"calls": meter.calls / ENQUEUED}


@asynccontextmanager
async def _enqueued(url: str, jobs: int) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Enqueue jobs that do nothing; returns what has a worker of so many slots run and settle them."""
    async with _opened(url) as app:
        ran = itertools.count(1)
        done = asyncio.Event()
        noop = _noop(app, lambda: done.set() if next(ran) == jobs else None)
        for start in range(0, jobs, ENQUEUED):
            await app.enqueue_many([noop.call(42) for _ in range(min(ENQUEUED, jobs - start))])

        async def run(slots: int) -> None:
            async with app.worker(concurrency=slots):
                await asyncio.wait_for(done.wait(), WAIT)

        yield run


def _noop(app: Holdfast, ran: Callable[[], None] = lambda: None) -> AsyncTask[[int], None]:
    @app.task(name="noop")
    async def noop(user_id: int) -> None:  # noqa: ARG001  what a job that does nothing is given
        ran()

    return noop


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Holdfast]:
    """Return an app whose store is open, and whose server vacuums nothing in the midst of a count."""
    app = Holdfast(url)
    try:
        await app.stats()
        await _no_vacuum(app.client().store)
        yield app
    finally:
        await app.close()


async def _no_vacuum(store: Store) -> None:
    database = getattr(store, "_db", None)
    if database is not None:
        rows = await database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
        for [table] in rows:
            await database.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = off)")


async def count_memory(fresh: Fresh) -> Counts:
    """Return how many blocks of memory a job takes in this process while it is held, and after it has ended."""
    counters = MemoryCounters()
    async with _opened(fresh()) as app:
        noop = _noop(app)
        wake = asyncio.Event()

        @app.task(name="asleep")
        async def asleep(user_id: int) -> None:  # noqa: ARG001  what a job is given
            await wake.wait()

        async def ended(jobs: int) -> None:
            before = counters.total(count.SETTLED)
            await app.enqueue_many([noop.call(42) for _ in range(jobs)])
            await _until(lambda: counters.total(count.SETTLED) - before >= jobs)

        async def blocks() -> int:
            for _ in range(WARM):
                await ended(1)  # what was last claimed and settled is kept until there is something else: let that be one job
            gc.collect()
            return sys.getallocatedblocks()

        async with app.worker(concurrency=HELD, counters=counters):
            await ended(ENQUEUED)
            begun = await blocks()
            for _ in range(FINISHED // ENQUEUED):
                await ended(ENQUEUED)
            after = await blocks()
            await app.enqueue_many([asleep.call(42) for _ in range(HELD - 1)])
            await _until(lambda: counters.total(count.CONCURRENT) == HELD - 1)
            held = await blocks()  # through the slot that is left
            wake.set()
    return {"retained": (after - begun) / FINISHED, "held": (held - after) / (HELD - 1)}


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not true():  # noqa: ASYNC110  it is counted in threads, too
            await asyncio.sleep(0.05)


async def count_idle(url: str, seconds: float) -> Counts:
    """Return how many statements a second a worker sends that has nothing to do, its notifier's included."""
    meter = PostgresMeter(url, everybody=True)
    async with meter.proxied() as proxied, _opened(proxied) as app:
        _noop(app)
        async with app.worker():
            await asyncio.sleep(2.0)  # what a start brings with it is no idling
            before, began = meter.statements.total(), time.monotonic()
            await asyncio.sleep(seconds)
            return {"statements": (meter.statements.total() - before) / (time.monotonic() - began)}


# --- the store alone -----------------------------------------------------------------------------------------------------


class Still(SystemEnvironment):
    """A world in which no time passes and ids come in order: what is due every second never is, and indexes grow alike."""

    def __init__(self) -> None:
        self._drawn = 0

    def monotonic(self) -> float:
        """Return the same moment for ever."""
        return 1000.0

    def random(self) -> float:
        """Return the middle."""
        return 0.5

    def lot(self) -> float:
        """Return the first."""
        return 0.0

    def token(self) -> UUID:
        """Return the next one."""
        return self.job_id()

    def job_id(self) -> UUID:
        """Return the next one, in the form of a UUIDv7."""
        self._drawn += 1
        return UUID(int=(0x0199_0000_0000_7000_8 << 60) | self._drawn)


class CheckpointError(Exception):
    """A checkpoint fell into the count, and whole pages were logged after it: the bytes say nothing."""


async def count_calls_of_store(store: str, fresh: Fresh) -> Phases:
    """Enqueue, claim and settle plain jobs, alone and in batches; returns what each took for one job.

    Raises `CheckpointError` where one fell into it: count again.
    """
    url = fresh()
    if store == "sqlite":
        lite = SqliteMeter(Path(url.removeprefix("sqlite:///")))
        with lite.tracing():
            return await _count_phases(url, lite)
    meter = PostgresMeter(url)
    async with meter.proxied() as proxied:
        phases = await _count_phases(proxied, meter)
    if any(counts.pop("wal_fpi") for counts in phases.values()):
        raise CheckpointError
    return phases


async def _count_phases(url: str, meter: Meter) -> Phases:
    app = Holdfast(url, environment=Still())
    try:
        return await _script(app, _noop(app), meter)
    finally:
        await app.close()


async def _script(app: Holdfast, noop: AsyncTask[[int], None], meter: Meter) -> Phases:
    await app.stats()  # opens the store
    store = app.client().store  # the very store that the app enqueues with
    await _no_vacuum(store)
    worker = Worker(id=app.new_id(), name="counted")
    await store.register(worker)
    held: list[list[Claimed]] = []

    async def one() -> None:
        await noop.enqueue(42)

    async def many() -> None:
        await app.enqueue_many([noop.call(42) for _ in range(BATCH)])

    def claim(limit: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            held.append(await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=limit)))
            if len(held[-1]) != limit:
                sys.exit(f"{len(held[-1])} jobs were claimed where {limit} waited")

        return work

    async def settle() -> None:
        answers = await store.settle([Settlement(job.lease, SUCCEED) for job in held.pop(0)])
        if not all(answer.accepted for answer in answers):
            sys.exit("a settlement was refused")

    async def look() -> None:
        await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"noop"}), limit=1, look=True))

    steps = [
        ("enqueue one", one, SINGLES, 1),
        ("claim one", claim(1), SINGLES, 1),
        ("settle one", settle, SINGLES, 1),
        (f"enqueue {BATCH}", many, ROUNDS, BATCH),
        (f"claim {BATCH}", claim(BATCH), ROUNDS, BATCH),
        (f"settle {BATCH}", settle, ROUNDS, BATCH),
    ]
    await one()
    await look()  # makes the lane known; the job it takes stays with this worker
    for _, work, _, _ in steps:
        for _ in range(WARM):
            await work()
    phases: Phases = {}
    for name, work, times, jobs in steps:
        await meter.begin(store)
        for _ in range(times):
            await work()
        phases[name] = {what: total / (times * jobs) for what, total in (await meter.end(store)).items()}
    return phases


# --- telling -------------------------------------------------------------------------------------------------------------


IDLE = "idle statements"
PROMISED_IDLE = 2.0
"""A second, of a worker that has nothing to do."""
UNITS = {"calls": "calls/job", "wal": "bytes/job", "wal_bytes": "bytes/job", "retained": "blocks/job", "held": "blocks/job"}


async def count_store(store: str, fresh: Fresh, slots: tuple[int, ...], idle_seconds: float) -> Phases:
    """Count everything on one store."""
    memory = await count_memory(fresh)  # first: what others have left behind goes when it likes
    phases: Phases = {f"enqueue {ENQUEUED}": await count_enqueue(fresh)}
    phases |= {f"worker, {number} slots": await count_worker(store, fresh, number) for number in slots}
    phases["memory"] = memory
    if store != "memory":
        phases |= await count_calls_of_store(store, fresh)
    if store == "postgres":
        phases["idle worker"] = await count_idle(fresh(), idle_seconds)
    return phases


@contextlib.contextmanager
def stores(server: Server | None, folder: Path | None = None) -> Iterator[dict[str, Fresh]]:
    """Return how to make an empty store of each kind; without a server none on PostgreSQL."""
    with ExitStack() as stack:
        where = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-cost-")))
        numbers = itertools.count()
        found: dict[str, Fresh] = {
            "memory": lambda: f"memory://cost-{next(numbers)}",
            "sqlite": lambda: f"sqlite:///{where}/{next(numbers)}.db",
        }
        if server is not None:
            found["postgres"] = server.create_database
        yield found


def readings(store: str, phases: Phases, round_number: int) -> list[Reading]:
    """Return what was counted. What a worker does has the names that the comparison with the peers uses."""
    found = []
    for phase, counts in phases.items():
        for what, value in counts.items():
            extra: dict[str, float | str] = {}
            work = IDLE if phase == "idle worker" else f"{phase}: {what}"
            if phase.startswith("worker"):
                extra["x"] = float(phase.split()[1])
                work = what.replace("_", "")
            unit = "statements/s" if work == IDLE else UNITS.get(what, "per job")
            found.append(Reading(f"holdfast_{store}", work, round_number, round(value, 4), unit, "lower", extra))
    return found


def show(report: Report) -> None:
    """Print what a job costs, beside the best peer where it was counted."""
    cells = summary(report)
    for work in dict.fromkeys(cell.work for cell in cells):
        print(f"\n{work}")
        for cell in cells:
            if cell.work == work:
                spread = "" if cell.low == cell.high else f"   [{cell.low:,.4g} - {cell.high:,.4g}]"
                at = "" if cell.x is None else f", {cell.x:g} slots"
                print(f"  {cell.contestant + at:<32}{cell.median:>12,.4f} {cell.unit}{spread}")
    with contextlib.suppress(FileNotFoundError):
        peers = summary(load("peers"))
        for work in ("wal", "statements"):
            if (best := best_peer(peers, work, "postgres")) is not None:
                print(f"\n{work} of the best peer, {best.contestant}: {best.median:,.4g} {best.unit}")


def main(arguments: list[str]) -> int:
    """Count, print, and write the report; 1 when an idle worker asks more than is promised."""
    parser = argparse.ArgumentParser(
        prog="./dev bench cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--rounds", type=at_least_one, default=1, help="how often (default: %(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=20.0, help="to watch a worker that has nothing to do")
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    run = this_run("cost", arguments)
    path = destination("cost", options.json, whole=is_whole(parser, options, "store", "rounds", "idle_seconds"))
    found: list[Reading] = []
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(18, settings=NO_CHECKPOINT)) if "postgres" in options.store else None
        fresh = stack.enter_context(stores(server))
        for round_number in range(options.rounds):
            for store in options.store:
                print(f"round {round_number + 1} of {options.rounds}, {store} …", file=sys.stderr)
                found += readings(
                    store, asyncio.run(count_store(store, fresh[store], SLOTS, options.idle_seconds)), round_number
                )
        versions = {} if server is None else {"postgres": server.execute("SHOW server_version")[0][0]}
    report = report_of("cost", run, this_machine(versions), found)
    keep(report, path)
    show(report)
    return int(any(reading.work == IDLE and reading.value >= PROMISED_IDLE for reading in found))
