"""Measure Holdfast beside its peers, and its own cost as things grow.

usage: ./dev bench [COMMAND] [OPTIONS]

  quick      Holdfast, the pgbench reference and two peers, small and short: about three minutes (the default)
  latency    only how long an idle worker takes to start a job, on PostgreSQL and SQLite, across processes
  peers      the whole comparison, five rounds: about an hour on two cores
  growth     what a claim costs as jobs wait, are archived and are scheduled, as a curve
  bloat      what a forgotten transaction does to a drain
  leases     what heartbeats of many leases cost
  memory     what a million jobs do to a worker's memory and to the tables
  cost       statements, round trips, WAL, calls and blocks of memory for a job, counted
  pages      how long the server takes for each page of the dashboard, with five million jobs behind it
  dispatch   how long a job takes to start, told of through PostgreSQL, through Redis, or both
  serving    hundreds of remote workers on one server, and hundreds of open pages that nobody reads
  limits     what limits by key cost, and whether they hold, with several processes
  media      a film made into several qualities, beside plain ffmpeg: time, bytes, SSIM and VMAF
  charts     draw docs/images/performance-*.svg from benchmarks/results/
  page       write docs/performance.md from benchmarks/results/
  full       all from peers to page: what the page is made of

`./dev bench COMMAND --help` says what else a command takes. From peers to cost, each writes benchmarks/results/COMMAND.json if
it measures all that it usually does, or more; so do pages and serving. When anything is left out or made smaller, the figures
are printed, and written only where --out (peers) or --json (the others) says. Exit code 1: something could not be measured, or
a target is missed; 2: it could not begin.

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
import importlib
import random
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, tell, this_run
from benchmarks.contest import CELL_SECONDS, Contest, Plan
from benchmarks.environments import home
from benchmarks.machine import this_machine
from benchmarks.results import REFERENCE, STORES, Failure, Report, save
from benchmarks.roster import names, roster
from benchmarks.servers import Servers
from benchmarks.tables import table
from benchmarks.works import WORKS
from tests.support.daemon import StartError
from tests.support.postgres import MissingServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.contest import Contestant
    from benchmarks.roster import Roster

FULL = ("growth", "bloat", "leases", "memory", "limits", "cost", "charts", "page")
"""Commands that are modules of their own, in the order in which `full` runs them."""
ELSEWHERE = (*FULL, "pages", "dispatch", "serving", "media")


@dataclass(frozen=True, slots=True)
class Usual:
    """What a comparison measures unless it is told otherwise."""

    about: str
    contestants: tuple[str, ...]
    works: tuple[str, ...]
    rounds: int
    scale: float = 1.0
    published: bool = False


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
            return Usual(about, everybody, everything, rounds=5, published=True)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says, and return the exit code: 1 when something could not be measured, or was missed."""
    command, *rest = arguments if arguments and not arguments[0].startswith("--") else ["quick", *arguments]
    if command in {"-h", "help"} or arguments[:1] == ["--help"]:
        print(__doc__)
    elif command in ELSEWHERE:
        return _elsewhere(command, rest)
    elif command == "full":
        return max(_compare("peers", rest), *(_elsewhere(name, []) for name in FULL))
    elif command in {"quick", "peers", "latency"}:
        return _compare(command, rest)
    else:
        tell(f"there is no command {command!r}: ./dev bench --help lists them")
        return 2
    return 0


def _elsewhere(name: str, arguments: list[str]) -> int:
    tell(name)
    try:
        code: int = importlib.import_module(f"benchmarks.{name}").main(arguments)
    except (MissingServer, StartError) as error:
        tell(f"{name} cannot be measured: {error}")
        return 2
    return code


def _compare(command: str, arguments: list[str]) -> int:
    usual = _usual(command)
    options, whole = _options(command, usual, arguments)
    run = this_run(command, arguments)
    path = destination(command, options.out, whole=whole, option="--out") if usual.published else options.out
    published = path is not None and options.out is None
    so_far = home() / f"{command}.json" if published else path  # what is published stays until all is there to replace it
    found = roster(options.contestants, tell)
    with Servers(redis_python=found.redis_python) as servers:
        absent = servers.start({contestant.store for contestant in found.contestants})
        for store, reason in absent.items():
            tell(f"no {store}: {reason}")
        found = _housed(found, absent)
        report = Report(
            name=command,
            machine=this_machine(servers.versions() | found.versions, servers.settings()),
            command=run.command,
            made=run.made,
            failures=found.failures,
            seed=options.seed,
            commit=run.commit,
        )
        plan = _plan(options, found.contestants)
        contest = Contest(plan, servers, report, saved=lambda report: so_far and save(report, so_far), tell=tell)
        if not (ended := asyncio.run(_to_the_end(contest))):
            tell("broken off: what follows is what was measured until then")
    print(table(contest.report))
    if published and (absent or not ended):
        tell(f"not the whole measurement: it is in {so_far}, and benchmarks/results/ stays as it is")
    else:
        keep(contest.report, path)
    return 1 if contest.report.failures or not ended else 0


def _housed(found: Roster, absent: Mapping[str, str]) -> Roster:
    """Return the roster without those whose server cannot be had: they are among the failures."""
    homeless = [contestant for contestant in found.contestants if contestant.store in absent]
    return replace(
        found,
        contestants=[contestant for contestant in found.contestants if contestant.store not in absent],
        failures=[*found.failures, *(Failure(one.name, "install", absent[one.store]) for one in homeless)],
    )


def _plan(options: argparse.Namespace, contestants: Sequence[Contestant]) -> Plan:
    return Plan(
        contestants=contestants,
        # Filling the queue for drain1 is the bulk enqueue: it is not measured twice.
        works=[WORKS[name] for name in WORKS if name in options.works and not (name == "bulk" and "drain1" in options.works)],
        rounds=options.rounds,
        seed=options.seed,
        scale=options.scale,
        slots=options.slots,
        limit=options.limit,
    )


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


def _options(command: str, usual: Usual, arguments: list[str]) -> tuple[argparse.Namespace, bool]:
    """Return what the command line says, and whether it leaves nothing out."""
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
    parser.add_argument("--rounds", type=at_least_one, default=usual.rounds, help="how often; the median counts (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what the order is drawn from; as drawn now")
    parser.add_argument("--scale", type=float, default=usual.scale, help="the share of the usual number of jobs (%(default)s)")
    parser.add_argument("--slots", type=int, default=0, help="jobs at once, for all; 0: what each does best")
    parser.add_argument(
        "--limit", type=float, default=CELL_SECONDS, help="seconds for one contestant at one work (%(default)s)"
    )
    parser.add_argument("--out", type=Path, help=JSON_HELP if usual.published else "where the readings go; by default nowhere")
    options = parser.parse_args(arguments)
    sizes = ("contestants", "works", "rounds", "scale", "limit")
    return options, is_whole(parser, options, *sizes) and not options.slots


def _choice(text: str, known: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in chosen if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    if not chosen:
        raise argparse.ArgumentTypeError(f"none; there are {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
