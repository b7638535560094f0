"""Measure Holdfast beside its peers, and its own cost as things grow.

usage: ./dev bench [COMMAND] [OPTIONS]

  quick      Holdfast, the pgbench reference and two peers, small and short: about three minutes (the default)
  peers      the whole comparison, five rounds: about an hour on two cores; writes benchmarks/results/peers.json
  latency    only how long an idle worker takes to start a job, on PostgreSQL and SQLite, across processes
  growth     what a claim costs as jobs wait, are archived and are scheduled, as a curve
  bloat      what a forgotten transaction does to a drain
  leases     what heartbeats of many leases cost
  memory     what a million jobs do to a worker's memory and to the tables
  cost       statements, round trips, WAL and processor time for a job
  charts     draw docs/images/performance-*.svg from benchmarks/results/
  page       write docs/performance.md from benchmarks/results/
  full       peers and everything below it

`./dev bench COMMAND --help` says what else a command takes.

It starts its own PostgreSQL (fsync and synchronous_commit on) and Redis on free ports of 127.0.0.1 and removes them afterwards,
and installs each peer as pinned in benchmarks/peers.toml into an environment of its own in .bench/ (HOLDFAST_BENCH_HOME
overrides). Tables go to standard output, progress to standard error. Figures of a machine that does something else meanwhile
mean little: look at the spread, and compare only within one run.

  ./dev bench                                         a first look
  ./dev bench peers --contestants holdfast_postgres,pgqueuer,pgbench --works drain1,drain2 --rounds 3 --out drains.json
  ./dev bench peers --contestants holdfast_postgres --works drain1 --slots 500 --out slots.json
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import importlib
import random
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contest import CELL_SECONDS, Contest, Plan
from benchmarks.machine import this_machine
from benchmarks.results import FOLDER, REFERENCE, STORES, Failure, Report, save
from benchmarks.roster import names, roster
from benchmarks.servers import Servers
from benchmarks.tables import table
from benchmarks.works import WORKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.roster import Roster

ELSEWHERE = ("growth", "bloat", "leases", "memory", "cost", "charts", "page")
"""Commands that are modules of their own, in the order in which `full` runs them."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What a comparison measures unless it is told otherwise."""

    about: str
    contestants: tuple[str, ...]
    works: tuple[str, ...]
    rounds: int
    scale: float = 1.0
    out: Path | None = None


def _usual(command: str) -> Usual:
    everybody, everything = tuple(names()), tuple(WORKS)
    match command:
        case "quick":
            few = ("holdfast_postgres", "holdfast_sqlite", REFERENCE, "pgqueuer", "huey")
            about = "A first look in about three minutes; the figures are rough. Writes nothing unless --out says where."
            return Usual(about, few, ("drain1", "single", "callers50", "latency"), rounds=1, scale=0.3)
        case "latency":
            lasting = tuple(name for name in everybody if STORES.get(name) != "redis")
            about = "How long an idle worker takes to start a job. Writes nothing unless --out says where."
            return Usual(about, lasting, ("latency",), rounds=3)
        case _:
            about = "Holdfast beside its peers: every contestant does every work in every round, in an order drawn anew."
            return Usual(about, everybody, everything, rounds=5, out=FOLDER / "peers.json")


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says, and return the exit code: 1 when something could not be measured."""
    command, *rest = arguments if arguments and not arguments[0].startswith("--") else ["quick", *arguments]
    if command in {"-h", "help"} or arguments[:1] == ["--help"]:
        print(__doc__)
    elif command in ELSEWHERE:
        return _elsewhere(command, rest)
    elif command == "full":
        return max(_compare("peers", rest), *(_elsewhere(name, []) for name in ELSEWHERE))
    elif command in {"quick", "peers", "latency"}:
        return _compare(command, rest)
    else:
        _tell(f"there is no command {command!r}: ./dev bench --help lists them")
        return 2
    return 0


def _elsewhere(name: str, arguments: list[str]) -> int:
    _tell(name)
    code: int = importlib.import_module(f"benchmarks.{name}").main(arguments)
    return code


def _compare(command: str, arguments: list[str]) -> int:
    usual = _usual(command)
    options = _options(command, usual, arguments)
    found = roster(options.contestants, _tell)
    with Servers(redis_python=found.redis_python) as servers:
        absent = servers.start({contestant.store for contestant in found.contestants})
        for store, reason in absent.items():
            _tell(f"no {store}: {reason}")
        contest = _contest(shlex.join(["./dev", "bench", command, *arguments]), options, found, servers, absent)
        if not (whole := asyncio.run(_to_the_end(contest))):
            _tell("broken off: what follows is what was measured until then")
    print(table(contest.report))
    if options.out:
        _tell(f"written: {options.out}")
    return 1 if contest.report.failures or not whole else 0


async def _to_the_end(contest: Contest) -> bool:
    """Run a contest; returns False when it was broken off by a signal, having ended all that it had started."""
    running = asyncio.ensure_future(contest.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait([running])
    if running.cancelled():
        return False
    running.result()
    return True


def _contest(command: str, options: argparse.Namespace, found: Roster, servers: Servers, absent: Mapping[str, str]) -> Contest:
    plan = Plan(
        contestants=[contestant for contestant in found.contestants if contestant.store not in absent],
        # Filling the queue for drain1 is the bulk enqueue: it is not measured twice.
        works=[WORKS[name] for name in WORKS if name in options.works and not (name == "bulk" and "drain1" in options.works)],
        rounds=options.rounds,
        seed=options.seed,
        scale=options.scale,
        slots=options.slots,
        limit=options.limit,
    )
    homeless = [contestant for contestant in found.contestants if contestant.store in absent]
    report = Report(
        name="peers",
        machine=this_machine(servers.versions() | found.versions, servers.settings()),
        command=command,
        made=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        failures=[*found.failures, *(Failure(one.name, "install", absent[one.store]) for one in homeless)],
        seed=options.seed,
    )
    return Contest(plan, servers, report, saved=lambda report: options.out and save(report, options.out), tell=_tell)


def _options(command: str, usual: Usual, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"./dev bench {command}", description=usual.about)
    parser.add_argument(
        "--contestants",
        type=lambda text: _choice(text, names()),
        default=usual.contestants,
        metavar="A,B",
        help=f"of {', '.join(names())}; by default {', '.join(usual.contestants)}",
    )
    works = "; ".join(f"{work.name}: {work.about}" for work in WORKS.values())
    parser.add_argument(
        "--works",
        type=lambda text: _choice(text, list(WORKS)),
        default=usual.works,
        metavar="A,B",
        help=f"{works}; by default {', '.join(usual.works)}",
    )
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="how often; the median counts (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what the order is drawn from; as drawn now")
    parser.add_argument("--scale", type=float, default=usual.scale, help="the share of the usual number of jobs (%(default)s)")
    parser.add_argument("--slots", type=int, default=0, help="jobs at once, for all; 0: what each does best")
    parser.add_argument(
        "--limit", type=float, default=CELL_SECONDS, help="seconds for one contestant at one work (%(default)s)"
    )
    parser.add_argument("--out", type=Path, default=usual.out, help="where the JSON goes (%(default)s)")
    return parser.parse_args(arguments)


def _choice(text: str, known: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in chosen if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def _tell(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
