"""How fast a bare loop of claim and settle runs on a store: no worker, no handlers, the port alone.

    ./dev bench                         PostgreSQL with fsync on, and SQLite with synchronous=FULL
    ./dev bench --url postgresql://…    a store of your own (its Holdfast schema is used as it is)

Counts jobs that are durably settled. Prints the median and the range of several rounds; ratios between stores or machines
only mean something within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast.core.job import NewJob
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.store.port import Store

WORLD = SystemEnvironment()
SUCCEED = Write(Event.SUCCEED, 0, result="null")


async def fill(store: Store, jobs: int, batch: int) -> float:
    """Enqueue `jobs` in batches; returns jobs per second."""
    started = time.perf_counter()
    for _ in range(0, jobs, batch):
        await store.enqueue([NewJob(id=WORLD.job_id(), task="noop", args='{"user_id": 42}') for _ in range(batch)])
    return jobs / (time.perf_counter() - started)


async def drain(store: Store, worker: UUID, batch: int) -> int:
    """Claim and settle until nothing is left; returns how many."""
    request = ClaimRequest(worker=worker, tasks=frozenset({"noop"}), limit=batch, look=True)
    onward = ClaimRequest(worker=worker, tasks=frozenset({"noop"}), limit=batch)
    done = 0
    while claimed := await store.claim(onward if done else request):
        await store.settle([Settlement(job.lease, SUCCEED) for job in claimed])
        done += len(claimed)
    return done


async def measure(url: str, *, jobs: int, batch: int, loops: int) -> tuple[float, float]:
    """Fill and drain once; returns both rates."""
    store = holdfast.connect(url, environment=WORLD)
    await store.open()
    try:
        worker = Worker(id=WORLD.token(), name="bench")
        await store.register(worker)
        filled = await fill(store, jobs, 1000)
        started = time.perf_counter()
        done = await asyncio.gather(*(drain(store, worker.id, batch) for _ in range(loops)))
        seconds = time.perf_counter() - started
    finally:
        await store.close()
    if sum(done) != jobs:
        sys.exit(f"{sum(done)} of {jobs} jobs were drained: the store is not empty, or it lost some")
    return filled, jobs / seconds


def report(name: str, rates: list[float]) -> None:
    """Print the median and the range of a figure."""
    print(f"{name:<36} {statistics.median(rates):>9,.0f}/s   [{min(rates):,.0f} - {max(rates):,.0f}]")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", action="append", help="a store to measure; may be given several times")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs in each round (default 100000; SQLite a fifth of it)")
    parser.add_argument("--batch", type=int, default=200, help="jobs in each claim and settle (default 200)")
    parser.add_argument("--loops", type=int, default=2, help="loops side by side on one store (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    options = parser.parse_args()
    with ExitStack() as stack:
        contestants = [(url.rpartition("@")[2], url, options.jobs) for url in options.url or []]
        if not contestants:
            from tests.support.postgres import PostgresServer  # noqa: PLC0415  only where it is needed

            for major in (16, 18):
                server = stack.enter_context(PostgresServer(major, durable=True))
                contestants.append((f"PostgreSQL {major}", server.url("postgres"), options.jobs))
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            contestants.append((f"SQLite {sqlite3.sqlite_version}", f"sqlite:///{Path(folder) / 'jobs.db'}", options.jobs // 5))
        results: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name, _, _ in contestants}
        for round_number in range(options.rounds):
            print(f"round {round_number + 1} of {options.rounds} …", file=sys.stderr)
            for name, url, jobs in contestants:
                filled, drained = asyncio.run(measure(url, jobs=jobs, batch=options.batch, loops=options.loops))
                results[name][0].append(filled)
                results[name][1].append(drained)
    for name, (filled_rates, drained_rates) in results.items():
        print(name)
        report("  enqueue, 1000 in a call", filled_rates)
        report(f"  claim + settle, {options.batch} in a call", drained_rates)


if __name__ == "__main__":
    main()
