"""What limits cost: the same jobs without a limit, with keys that take turns, and with at most two of a key at once.

    ./dev bench limits                           50 keys, 20,000 jobs of 50, 20 and 5 ms, four processes of 25 slots; three
                                                 rounds in turn (about 12 minutes)
    ./dev bench limits --jobs 2000 --rounds 1    a short look: it is printed, not written
    ./dev bench limits --store sqlite --ms 0     one store; jobs that do nothing

All jobs of a key are enqueued together, before those of the next: who takes them as they come has many of one key at once, and
a limit has something to hold back. Every job says from when to when it ran; a sweep over all of them finds how many of one key
ran at the same time. A run in which a limit did not hold ends the measurement. What is promised is in benchmarks/targets.toml.
The whole run writes benchmarks/results/limits.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from uuid_utils.compat import uuid7

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, none_missed, report_of, tell, this_run
from benchmarks.machine import this_machine
from benchmarks.results import Reading, summary
from benchmarks.servers import Servers
from holdfast.connect import connect
from holdfast.core.job import NewJob
from holdfast.core.limits import LimitKey
from holdfast.core.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.store.port import Store

STORES: Final = ("postgres", "sqlite")
KINDS: Final = ("free", "turns", "limited")
ROOT: Final = Path(__file__).parents[1]
PATIENCE: Final = 1800.0
AT_ONCE: Final = 1000
MOST: Final = 2
"""What `benchmarks.limits_app` lets run of a key at once."""
CROWDED: Final = 10
"""So many of a key run at once where nothing holds them back, or the run with limits would show nothing."""


class Run(NamedTuple):
    """What one run gave."""

    rate: float
    """Jobs a second, from the start of the first to the end of the last."""
    overlap: int
    """How many jobs of a key ran at the same time, at most."""
    keys: int
    unfair: float
    """When the last key had its first job, as a share of the whole time."""


def main(arguments: list[str]) -> int:
    """Measure each kind in turn on each store, print the tables, and write the report; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="./dev bench limits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--jobs", type=at_least_one, default=20_000)
    parser.add_argument("--keys", type=at_least_one, default=50)
    parser.add_argument(
        "--ms", type=float, nargs="+", default=[50.0, 20.0, 5.0], help="how long a job takes (default: 50 20 5)"
    )
    parser.add_argument("--processes", type=at_least_one, default=4)
    parser.add_argument("--slots", type=at_least_one, default=25, help="of each process (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least_one, default=3, help="how often (default: %(default)s)")
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    usual = ("store", "jobs", "rounds", "ms")
    as_usual = all(getattr(options, name) == parser.get_default(name) for name in ("keys", "processes", "slots"))
    path = destination("limits", options.json, whole=as_usual and is_whole(parser, options, *usual))
    run, found = this_run("limits", arguments), []
    with Servers() as servers:
        for number in range(options.rounds):
            for milliseconds, store, kind in product(options.ms, options.store, KINDS):
                with servers.fresh(store) as place, tempfile.TemporaryDirectory() as folder:
                    seen = asyncio.run(measure(kind, milliseconds, place.url, Path(folder), options))
                check(kind, seen)
                if kind == "free" and seen.overlap < CROWDED:
                    tell(f"without limits no more than {seen.overlap} of a key ran at once: what a limit costs is not measured")
                found.append(reading(store, work_of(kind, milliseconds), number, seen, options.jobs))
                tell(f"round {number + 1}: {store}, {kind}, {milliseconds:g} ms: {seen.rate:,.0f} jobs/s")
        machine = this_machine(servers.versions(), servers.settings())
    report = report_of("limits", run, machine, found)
    slots = options.processes * options.slots
    print(f"{options.jobs:,} jobs, {options.keys} keys, {slots} slots in {options.processes} processes")
    print("| | jobs/s, median [range] | most of a key at once | last key's first job |\n|---|---|---|---|")
    for cell in summary(report):
        rate = f"{cell.median:,.0f} [{cell.low:,.0f}-{cell.high:,.0f}]"
        print(
            f"| {cell.contestant}, {cell.work} | {rate} | {cell.extra['overlap']:g} | at {cell.extra['late']:.0%} of the time |"
        )
    keep(report, path)
    return 0 if none_missed(report) else 1


def check(kind: str, seen: Run) -> None:
    """Refuse to publish a run in which the limit did not hold: the median of several rounds would hide it."""
    if kind == "limited" and seen.overlap > MOST:
        raise SystemExit(f"{seen.overlap} jobs of a key ran at once where {MOST} are admitted")


def work_of(kind: str, milliseconds: float) -> str:
    """Return what the work of one kind is called, with jobs of so many milliseconds."""
    return f"limits {kind} {milliseconds:g} ms"


def reading(store: str, work: str, number: int, seen: Run, jobs: int) -> Reading:
    """Return what one run gave, as it is published."""
    extra: dict[str, float | str] = {"overlap": seen.overlap, "late": seen.unfair, "keys": seen.keys, "jobs": jobs}
    return Reading(f"holdfast_{store}", work, number, seen.rate, "jobs/s", "higher", extra)


async def measure(kind: str, milliseconds: float, url: str, folder: Path, options: argparse.Namespace) -> Run:
    """Have workers run the jobs of one kind, and look at when each ran."""
    store = connect(url)
    await store.open()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        made = [job(kind, key, milliseconds / 1000) for key in in_blocks(options.jobs, options.keys)]
        await store.enqueue(made)
        environment = os.environ | {"HOLDFAST_URL": url, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        words = [sys.executable, "-m", "holdfast", "worker", "benchmarks.limits_app:app", "--concurrency", str(options.slots)]
        workers += [start([*words, "--log-level", "warning"], folder, environment) for _ in range(options.processes)]
        deadline = time.monotonic() + PATIENCE
        while not await _all_ended(store, kind, options.jobs):
            if time.monotonic() > deadline:
                raise SystemExit(f"{kind}: not ended within {PATIENCE:g} s")
            await asyncio.sleep(0.25)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            await asyncio.to_thread(worker.wait, 60)
    try:
        ids = [one.id for one in made]
        spans: list[tuple[int, float, float]] = []
        for begin in range(0, len(ids), AT_ONCE):
            for view in await store.get(ids[begin : begin + AT_ONCE]):
                if view is None or view.result is None:
                    raise SystemExit(f"{kind}: a job was lost")
                spans.append((json.loads(view.args)["key"], *json.loads(view.result)))
    finally:
        await store.close()
    return account(spans)


def start(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker."""
    return subprocess.Popen(words, cwd=folder, env=environment)


async def _all_ended(store: Store, kind: str, jobs: int) -> bool:
    stats = await store.stats()
    return sum(row.counts.get(State.SUCCEEDED, 0) for row in stats.tasks if row.task == kind) >= jobs


def in_blocks(jobs: int, keys: int) -> list[int]:
    """Return the key of each of so many jobs in the order in which they are enqueued: all of one key, then all of the next.

    Dealt out in turn they would keep any limit by themselves: whoever takes a hundred gets two of each of 50 keys.
    """
    return sorted(number % keys for number in range(jobs))


def job(kind: str, key: int, seconds: float) -> NewJob:
    """Return one job, as its task would make it."""
    limit = None if kind == "free" else LimitKey(kind, str(key))
    return NewJob(id=uuid7(), task=kind, args=json.dumps({"key": key, "seconds": seconds}), limit=limit)


def account(spans: Iterable[tuple[int, float, float]]) -> Run:
    """Return what a run gave, from (key, begun, over) of every job."""
    of_key: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for key, begun, over in spans:
        of_key[key].append((begun, over))
    first = min(begun for some in of_key.values() for begun, _ in some)
    last = max(over for some in of_key.values() for _, over in some)
    jobs = sum(len(some) for some in of_key.values())
    late = max(min(begun for begun, _ in some) for some in of_key.values())
    return Run(
        jobs / (last - first), max(most_at_once(some) for some in of_key.values()), len(of_key), (late - first) / (last - first)
    )


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return how many of these stretches of time lie over each other, at most."""
    running = most = 0
    for _, step in sorted((moment, step) for begun, over in spans for moment, step in ((begun, 1), (over, -1))):
        running += step
        most = max(most, running)
    return most
