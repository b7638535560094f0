"""`holdfast bench`: what this machine and this database do."""

import asyncio
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from time import perf_counter
from typing import Annotated, Any

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import Yes
from holdfast.cli.working import loop_factory
from holdfast.finding import Mistake

WAIT = 300.0
"""Seconds after which a measurement that makes no progress is given up."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured. Rates are jobs per second, latencies milliseconds."""

    store: str
    jobs: int
    rounds: int
    enqueue_single: float
    """One caller, one job per call, each stored before the next."""
    enqueue_concurrent: float
    """A thousand callers at once, one job per call."""
    enqueue_bulk: float
    """A thousand jobs per call."""
    drain: float
    """One worker process runs no-op jobs that wait already, counted when the store has confirmed their end."""
    drain_lowest: float
    drain_highest: float
    start_p50_ms: float
    """From the call of enqueue to the first line of the handler, one job at a time, in one process."""
    start_p99_ms: float


def bench(
    *,
    url: str | None = None,
    jobs: int = 20_000,
    rounds: int = 3,
    concurrency: int = 200,
    prefetch: int = 1000,
    keep: Yes = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Measure enqueuing, draining and latency with no-op async tasks, in this one process.

    Example: holdfast bench --url postgresql://user@host/database

    Without a URL it makes a SQLite file of its own and removes it afterwards; on PostgreSQL it makes a schema of its own and
    drops it. Figures on a machine that does something else meanwhile mean little: look at the spread.

    Parameters
    ----------
    url
        A PostgreSQL database to measure instead: postgresql://user@host/database.
    jobs
        How many jobs each round drains, from 1000.
    rounds
        How often; the median counts.
    concurrency
        Slots of the worker.
    prefetch
        How many jobs more it may hold.
    keep
        Leave the file or schema behind.
    as_json
        Print JSON.
    """
    if jobs < 1000 or rounds < 1:  # noqa: PLR2004  fewer measure the start of the worker
        raise Mistake("--jobs must be 1000 or more, and --rounds 1 or more")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        figures = runner.run(_measure(url, jobs, rounds, concurrency, prefetch, keep=keep))
    if as_json:
        output.print_json(asdict(figures))
        return output.OK
    rows = [
        ("enqueue, one by one", f"{figures.enqueue_single:,.0f}/s"),
        ("enqueue, 1,000 callers at once", f"{figures.enqueue_concurrent:,.0f}/s"),
        ("enqueue, 1,000 per call", f"{figures.enqueue_bulk:,.0f}/s"),
        ("drain, one process", f"{figures.drain:,.0f}/s [{figures.drain_lowest:,.0f}-{figures.drain_highest:,.0f}]"),
        ("enqueue to start, p50", f"{figures.start_p50_ms:.1f} ms"),
        ("enqueue to start, p99", f"{figures.start_p99_ms:.1f} ms"),
    ]
    output.note(
        f"{figures.store}: {figures.jobs:,} no-op jobs, {figures.rounds} round(s), median [lowest-highest]; "
        f"one worker with {concurrency} slots and a prefetch of {prefetch}"
    )
    output.print_table([output.Column("measure"), output.Column("figure", right=True)], rows, empty="")
    return output.OK


async def _measure(url: str | None, jobs: int, rounds: int, concurrency: int, prefetch: int, *, keep: bool) -> Figures:
    from holdfast import Holdfast  # noqa: PLC0415  not needed for --help
    from holdfast.demo.place import make_place  # noqa: PLC0415  as above

    async with make_place(url, keep=keep, purpose="bench") as place:
        app = Holdfast(place.url)
        started: list[float] = []

        @app.task(name="noop")
        async def noop(number: int) -> None:  # noqa: ARG001  args cost something too
            started.append(perf_counter())

        bulk: list[float] = []
        drains: list[float] = []
        async with app:
            single = await _rate(500, _one_by_one(noop, 500))
            concurrent = await _rate(5 * 1000, _at_once(noop, 5))
            async with app.worker(concurrency=concurrency, prefetch=prefetch) as worker:
                await _until(worker, 500 + 5 * 1000)
            for number in range(rounds):
                output.note(f"round {number + 1} of {rounds}")
                bulk.append(await _rate(jobs, _in_bulk(app, noop, jobs)))
                begun = perf_counter()
                async with app.worker(concurrency=concurrency, prefetch=prefetch) as worker:
                    await _until(worker, jobs)
                    drains.append(jobs / (perf_counter() - begun))
            latencies = await _latencies(app, noop, started)
        return Figures(
            store=place.kind,
            jobs=jobs,
            rounds=rounds,
            enqueue_single=single,
            enqueue_concurrent=concurrent,
            enqueue_bulk=median(bulk),
            drain=median(drains),
            drain_lowest=min(drains),
            drain_highest=max(drains),
            start_p50_ms=1000 * median(latencies),
            start_p99_ms=1000 * quantiles(latencies, n=100)[98],
        )


async def _rate(jobs: int, work: Any) -> float:
    begun = perf_counter()
    await work
    return jobs / (perf_counter() - begun)


async def _one_by_one(task: Any, jobs: int) -> None:
    for number in range(jobs):
        await task.enqueue(number)


async def _at_once(task: Any, times: int) -> None:
    for _ in range(times):
        await asyncio.gather(*[task.enqueue(number) for number in range(1000)])


async def _in_bulk(app: Any, task: Any, jobs: int) -> None:
    for start in range(0, jobs, 1000):
        await app.enqueue_many([task.call(number) for number in range(start, min(jobs, start + 1000))])


async def _until(worker: Any, jobs: int) -> None:
    """Wait until the store has confirmed so many ends."""
    async with asyncio.timeout(WAIT):
        while worker.counters.snapshot().get("settled_jobs:succeeded", 0) < jobs:  # noqa: ASYNC110  a count, not an event
            await asyncio.sleep(0.005)


async def _latencies(app: Any, task: Any, started: list[float]) -> list[float]:
    found = []
    async with app.worker(concurrency=10) as worker:
        for number in range(200):
            started.clear()
            begun = perf_counter()
            await task.enqueue(number)
            await _until(worker, number + 1)
            found.append(started[0] - begun)
    return found
