"""What limits cost: the same jobs without a limit, with keys that take turns, and with at most two of a key at once.

    ./dev bench limits                          50 keys, 20,000 jobs of 50 ms, four processes of 25 slots; three rounds in turn
    ./dev bench limits --jobs 2000 --rounds 1   a short look
    ./dev bench limits --store sqlite --ms 0    another store; jobs that do nothing

Every job says from when to when it ran; a sweep over all of them finds how many of one key ran at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from uuid_utils.compat import uuid7

from benchmarks.commands import at_least_one, tell
from benchmarks.machine import this_machine
from benchmarks.servers import Servers
from holdfast.connect import connect
from holdfast.core.job import NewJob
from holdfast.core.limits import LimitKey
from holdfast.core.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.store.port import Store

KINDS: Final = ("free", "turns", "limited")
ROOT: Final = Path(__file__).parents[1]
PATIENCE: Final = 1800.0
AT_ONCE: Final = 1000


class Run(NamedTuple):
    """What one run gave."""

    rate: float
    """Jobs a second, from the start of the first to the end of the last."""
    overlap: int
    """How many jobs of a key ran at the same time, at most."""
    keys: int
    unfair: float
    """When the last key had its first job, as a share of the whole time."""


def main(arguments: Sequence[str]) -> int:
    """Measure each kind in turn, and print the table."""
    parser = argparse.ArgumentParser(prog="./dev bench limits", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--jobs", type=at_least_one, default=20_000)
    parser.add_argument("--keys", type=at_least_one, default=50)
    parser.add_argument("--ms", type=float, default=50.0, help="how long a job takes")
    parser.add_argument("--processes", type=at_least_one, default=4)
    parser.add_argument("--slots", type=at_least_one, default=25, help="of each process")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    options = parser.parse_args(arguments)
    tell(f"{this_machine()}")
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    with Servers() as servers:
        for number in range(options.rounds):
            for kind in KINDS:
                with servers.fresh(options.store) as place, tempfile.TemporaryDirectory() as folder:
                    runs[kind].append(asyncio.run(measure(kind, place.url, Path(folder), options)))
                tell(f"round {number + 1}: {kind}: {runs[kind][-1].rate:,.0f} jobs/s")
    slots = options.processes * options.slots
    print(f"{options.jobs:,} jobs of {options.ms:g} ms, {options.keys} keys, {slots} slots in {options.processes} processes")
    print("| | jobs/s, median [range] | of the free run | most of a key at once | last key's first job |")
    print("|---|---|---|---|---|")
    free = statistics.median(run.rate for run in runs["free"])
    for kind, some in runs.items():
        rates = sorted(run.rate for run in some)
        middle = statistics.median(rates)
        print(
            f"| {kind} | {middle:,.0f} [{rates[0]:,.0f}-{rates[-1]:,.0f}] | {middle / free:.2f} "
            f"| {max(run.overlap for run in some)} | at {max(run.unfair for run in some):.0%} of the time |"
        )
    return 0


async def measure(kind: str, url: str, folder: Path, options: argparse.Namespace) -> Run:
    """Have workers run the jobs of one kind, and look at when each ran."""
    store = connect(url)
    await store.open()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        made = [job(kind, number % options.keys, options.ms / 1000) for number in range(options.jobs)]
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
