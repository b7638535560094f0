"""What it costs to keep leases: workers whose handlers sleep, 10 to 20,000 at once, with the default lease and heartbeat.

    ./dev bench leases                                   PostgreSQL and SQLite, the whole curve
    ./dev bench leases --rounds 3                        several times
    ./dev bench leases --leases 20000 --store postgres   a short look: it is printed, not written

Counts processor time, not the clock: of each worker process and of its heartbeat's thread, and on PostgreSQL of the sessions
that serve it. A worker of as many slots that holds nothing runs beside the others: what it uses is no heartbeat's cost and is
taken off. All points of a store are measured at the same time, each by a process and on a database of its own: together they
use a fraction of one core.

What is promised is in benchmarks/targets.toml. The whole run writes benchmarks/results/leases.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import threading
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, none_missed, report_of, this_run
from benchmarks.machine import this_machine
from benchmarks.programs import started
from benchmarks.results import Reading
from benchmarks.servers import Servers
from benchmarks.talking import say, told_to_end
from holdfast import Holdfast
from holdfast.runtime import counters as count
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.heartbeat import BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.programs import Program

CURVE = (10, 100, 1_000, 10_000, 20_000)
STORES = ("postgres", "sqlite")
ENQUEUED = 1000
"""Jobs in a call."""
FILL_SECONDS = 90.0
SETTLE = 25.0
"""Seconds before anything is counted: the first heartbeat passes, the reaper learns of the leases, and so many new objects
are collected once."""
THREAD = "holdfast-heartbeat"


# --- one worker, in a process of its own -----------------------------------------------------------------------------------


async def hold(url: str, leases: int, slots: int, seconds: float) -> None:
    """Hold so many leases; says when all are held, when it begins to count, and so many seconds later what that took."""
    app = Holdfast(url)
    held = 0
    all_held = asyncio.Event()

    @app.task(name="asleep")
    async def asleep() -> None:
        nonlocal held
        held += 1
        if held == leases:
            all_held.set()
        await asyncio.Event().wait()

    for start in range(0, leases, ENQUEUED):
        await app.enqueue_many([asleep.call() for _ in range(min(ENQUEUED, leases - start))])
    counters = MemoryCounters()
    async with app.worker(concurrency=slots, counters=counters):
        if leases:
            await asyncio.wait_for(all_held.wait(), FILL_SECONDS)
        say(held=held)
        await asyncio.sleep(SETTLE)
        say(begun=1)
        process, thread, statements = _process_seconds(), _thread_seconds(), counters.total(count.HEARTBEATS)
        began = time.monotonic()
        await asyncio.sleep(seconds)
        say(
            seconds=time.monotonic() - began,
            process=_process_seconds() - process,
            thread=_thread_seconds() - thread,
            statements=counters.total(count.HEARTBEATS) - statements,
        )
        await told_to_end()
        os._exit(0)  # the handlers sleep for ever, and the store is thrown away: there is nothing to drain


def _process_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _thread_seconds() -> float:
    thread = next(one for one in threading.enumerate() if one.name == THREAD)
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


# --- all workers of a store --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """What holding some leases took, in seconds of processor time; `seconds` of the clock."""

    leases: int
    seconds: float
    process: float
    thread: float
    statements: float
    server: float
    """Of all sessions of the worker's database."""

    @property
    def heartbeats(self) -> float:
        """How often every lease was extended."""
        return self.statements / max(1, -(-self.leases // BATCH))


async def measure(urls: Sequence[str], curve: Sequence[int], seconds: float) -> list[Held]:
    """Hold every number of leases at the same time, each on a store of its own; returns what each took."""
    async with AsyncExitStack() as stack:
        waiting = []
        for url, leases in zip(urls, curve, strict=True):  # one after another: a start takes much of a core
            command = [sys.executable, "-m", "benchmarks.leases", "--hold", url, "--leases", str(leases)]
            command += ["--slots", str(max(curve)), "--seconds", str(seconds)]
            worker = await stack.enter_async_context(started(command, name=f"the worker of {leases} leases"))
            await worker.answer()
            waiting.append(asyncio.create_task(_measured(worker, leases, await _sessions(url))))
        return [await one for one in waiting]


async def _measured(worker: Program, leases: int, sessions: Sequence[int]) -> Held:
    await worker.answer()
    before = _server_seconds(sessions)
    answer = await worker.answer()
    return Held(leases=leases, server=_server_seconds(sessions) - before, **answer)


async def _sessions(url: str) -> list[int]:
    """Return the processes of the server that serve the one worker on this store."""
    if not url.startswith("postgresql"):
        return []
    connection: Any = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
    finally:
        await connection.close()
    return [row[0] for row in rows]


def _server_seconds(sessions: Sequence[int]) -> float:
    """Return the processor time of processes so far: user and system, in ticks of 10 ms as a rule."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in sessions]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def measure_store(store: str, curve: Sequence[int], seconds: float, servers: Servers) -> list[Held]:
    """Measure a curve on one store."""
    with ExitStack() as stack:
        urls = [stack.enter_context(servers.fresh(store)).url for _ in curve]
        return asyncio.run(measure(urls, curve, seconds))


# --- telling -----------------------------------------------------------------------------------------------------------------


def readings(store: str, held: Sequence[Held], round_number: int) -> list[Reading]:
    """Return what heartbeats took, in percent of a core: that of the worker that held nothing is taken off."""
    idle = held[0]
    found = []
    for one in held[1:]:
        sides = {"client": (one.process, idle.process), "server": (one.server, idle.server)}
        for side, (used, unused) in sides.items():
            if side == "server" and store == "sqlite":
                continue
            share = 100 * (used / one.seconds - unused / idle.seconds)
            extra: dict[str, float | str] = {
                "x": one.leases,
                "idle": round(100 * unused / idle.seconds, 3),
                "heartbeats": round(one.heartbeats, 2),
                "ms_per_heartbeat": round(10 * share * one.seconds / max(one.heartbeats, 1), 2),
            }
            if side == "client":
                extra["thread"] = round(100 * one.thread / one.seconds, 3)
            work = f"leases {side}"
            found.append(Reading(f"holdfast_{store}", work, round_number, round(share, 3), "% of a core", "lower", extra))
    return found


def show(reading: Reading) -> None:
    """Print a point of a curve."""
    extra = reading.extra
    thread = f", {extra['thread']:.2f} % its heartbeat's thread in all" if "thread" in extra else ""
    print(
        f"{reading.contestant:<18} {extra['x']:>6,} {reading.work:<14} {reading.value:6.2f} % of a core, beyond the "
        f"{extra['idle']:.2f} % of an idle worker{thread}; {extra['heartbeats']:.1f} heartbeats, "
        f"{extra['ms_per_heartbeat']:.1f} ms each",
        flush=True,
    )


def main(arguments: list[str]) -> int:
    """Measure the curves, print them, and write the report; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="./dev bench leases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, nargs="+", default=list(CURVE), help="the curve (default: %(default)s)")
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--seconds", type=float, default=60.0, help="to watch for: three heartbeats by default")
    parser.add_argument("--rounds", type=at_least_one, default=1, help="how often (default: %(default)s)")
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--slots", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.hold:
        asyncio.run(hold(options.hold, options.leases[0], options.slots, options.seconds))
        return 0
    run = this_run("leases", arguments)
    path = destination("leases", options.json, whole=is_whole(parser, options, "leases", "store", "seconds", "rounds"))
    found: list[Reading] = []
    with Servers() as servers:
        for round_number in range(options.rounds):
            for store in options.store:
                held = measure_store(store, [0, *options.leases], options.seconds, servers)
                found += (points := readings(store, held, round_number))
                for point in points:
                    show(point)
        machine = this_machine(servers.versions(), servers.settings())
    report = report_of("leases", run, machine, found)
    keep(report, path)
    return 0 if none_missed(report) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
