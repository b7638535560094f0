"""A million jobs through one worker process: its memory stays where it is, and no table keeps more than its live rows need.

    ./dev bench memory                                   PostgreSQL and SQLite, a million jobs each
    ./dev bench memory --jobs 200000 --store postgres    a short look: it is printed, not written

One process enqueues, a thousand in a call, never more than 20,000 ahead of what is settled; another one is the worker, which
says how much memory it takes after every 10,000 jobs. What it takes after the 100,000th (in a shorter run after a tenth) is
what all later samples are held against.

Then the tables are vacuumed, the plain way that does not rewrite them, and each is held against a copy that was never anything
but what it is now, filled in the same order with the same settings. Indexes are shown beside it. A plain vacuum frees the pages
of an index but leaves them in the file: where every job passes through, it stays as large as the jobs between two vacuums made
it. What counts is that these pages are used again: another 100,000 jobs go through, and an index of a table that is empty is
looked at once more.

What is promised is in benchmarks/targets.toml. The whole run writes benchmarks/results/memory.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sqlite3
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from benchmarks.commands import JSON_HELP, destination, is_whole, keep, none_missed, report_of, this_run
from benchmarks.machine import this_machine
from benchmarks.programs import started, while_running
from benchmarks.results import Reading
from benchmarks.servers import Servers
from benchmarks.talking import say, told_to_end
from holdfast import Holdfast
from holdfast.runtime import counters as count
from holdfast.runtime.counters import MemoryCounters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.programs import Program

STORES = ("postgres", "sqlite")
JOBS = 1_000_000
SETTLED_IN = 100_000
"""Jobs after which the memory of the worker is what it is."""
EVERY = 10_000
AHEAD = 20_000
ENQUEUED = 1_000
SLOTS = 500
MEGABYTE = 1_000_000
LITTLE = MEGABYTE / 10
"""Bytes that are not worth a line."""
AFTERWARDS = 100_000
"""Jobs that go through once more, to see that freed pages are used again."""


# --- the worker, in a process of its own -----------------------------------------------------------------------------------


async def work(url: str, jobs: int) -> None:
    """Run and settle so many jobs; says every now and then how much memory that takes."""
    app = Holdfast(url)
    counters = MemoryCounters()

    @app.task(name="noop")
    async def noop(user_id: int) -> None: ...

    async with app, app.worker(concurrency=SLOTS, counters=counters):
        for settled in range(EVERY, jobs + 1, EVERY):
            while counters.total(count.SETTLED) < settled:  # noqa: ASYNC110  nobody tells of single settlements
                await asyncio.sleep(0.02)
            say(settled=settled, rss=_resident())
        await told_to_end()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- the jobs --------------------------------------------------------------------------------------------------------------


async def run(url: str, jobs: int) -> dict[int, float]:
    """Pass so many jobs through a worker; returns its memory in megabytes by how many it had settled."""
    app = Holdfast(url)

    @app.task(name="noop")
    async def noop(user_id: int) -> None: ...

    await app.stats()  # makes the tables, before two do
    command = [sys.executable, "-m", "benchmarks.memory", "--work", url, "--jobs", str(jobs)]
    async with app, started(command, name="the worker") as worker:
        samples = await while_running([worker], _feed(app, noop, worker, jobs))
        await worker.end()
    return samples


async def _feed(app: Holdfast, noop: Any, worker: Program, jobs: int) -> dict[int, float]:
    samples: dict[int, float] = {}
    enqueued = 0
    for settled in range(0, jobs, EVERY):
        while enqueued < min(jobs, settled + AHEAD):
            await app.enqueue_many([noop.call(n) for n in range(ENQUEUED)])
            enqueued += ENQUEUED
        said = await worker.answer()
        samples[said["settled"]] = said["rss"] / MEGABYTE
        print(f"\r{said['settled']:>10,} settled, {samples[said['settled']]:.1f} MB", end="", file=sys.stderr)
    print(file=sys.stderr)
    return samples


def drift(samples: dict[int, float]) -> float:
    """Return how far the memory moved from where it was after the first 100,000 jobs, or the first tenth."""
    begin = min(SETTLED_IN, max(samples) // 10)
    later = [megabytes for settled, megabytes in samples.items() if settled >= begin]
    return max(abs(megabytes - later[0]) for megabytes in later)


# --- what is left behind ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """A table, an index or a file, in bytes."""

    name: str
    rows: int
    real: int
    fresh: int
    """As large as a copy of it that never held anything else."""
    index: bool = False
    vacuums: int | None = None
    """How often the server had vacuumed the table by itself."""
    later: int | None = None
    """As large as it was after more jobs had gone through, if nothing of them is left in it."""


async def sizes_in_postgres(url: str) -> list[Size]:
    """Vacuum all tables and hold each against a fresh copy; then see whether what became free is used again."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' "
            "ORDER BY relname"
        )
        stats = await connection.fetch(
            "SELECT relname, autovacuum_count FROM pg_stat_user_tables WHERE schemaname = 'holdfast'"
        )
        vacuums: dict[str, int] = {row[0]: row[1] for row in stats}
        for table, _ in tables * 2:  # pages of an index that a vacuum empties are free after the next one
            await connection.execute(f'VACUUM holdfast."{table}"')
        await connection.execute("CREATE SCHEMA fresh")
        found = []
        for table, settings in tables:
            await _copy(connection, table, settings or [])
            found += await _sizes(connection, table, vacuums[table])
        await run(url, AFTERWARDS)
        return [await _seen_again(connection, size) for size in found]
    finally:
        await connection.close()


async def _copy(connection: Any, table: str, settings: Sequence[str]) -> None:
    """Fill a copy of a table row by row in the order of the original; its indexes grow with it, as those did."""
    options = ", ".join([*(one for one in settings if one.startswith("fillfactor")), "autovacuum_enabled=off"])
    await connection.execute(f'CREATE TABLE fresh."{table}" (LIKE holdfast."{table}" INCLUDING ALL) WITH ({options})')
    await connection.execute(f'INSERT INTO fresh."{table}" OVERRIDING SYSTEM VALUE SELECT * FROM holdfast."{table}"')


async def _sizes(connection: Any, table: str, vacuums: int) -> list[Size]:
    real, fresh = f'holdfast."{table}"', f'fresh."{table}"'
    rows: int = await connection.fetchval(f"SELECT count(*) FROM {fresh}")
    sizes = await connection.fetchrow("SELECT pg_relation_size($1::regclass), pg_relation_size($2::regclass)", real, fresh)
    # the indexes of a copy have names of their own: they are told by what they are on
    indexes = await connection.fetch(
        "SELECT a.indexrelid::regclass::text, pg_relation_size(a.indexrelid), pg_relation_size(b.indexrelid) "
        "FROM pg_index a JOIN pg_index b ON split_part(pg_get_indexdef(a.indexrelid), ' USING ', 2) = "
        "split_part(pg_get_indexdef(b.indexrelid), ' USING ', 2) "
        "WHERE a.indrelid = $1::regclass AND b.indrelid = $2::regclass ORDER BY 1",
        real,
        fresh,
    )
    found = [Size(table, rows, real=sizes[0], fresh=sizes[1], vacuums=vacuums)]
    for name, size, fresh_size in indexes:
        found.append(Size(name.removeprefix("holdfast."), rows, real=size, fresh=fresh_size, index=True))
    return found


async def _seen_again(connection: Any, size: Size) -> Size:
    if not size.index or size.rows:
        return size
    later: int = await connection.fetchval("SELECT pg_relation_size($1::regclass)", f"holdfast.{size.name}")
    return replace(size, later=later)


def size_of_file(path: Path) -> list[Size]:
    """Hold a file of SQLite against what its own VACUUM makes of it."""
    copy = path.with_name("fresh.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(f"VACUUM INTO '{copy}'")
        [rows] = connection.execute("SELECT count(*) FROM holdfast_job").fetchone()
    return [Size(path.name, rows, path.stat().st_size, copy.stat().st_size)]


# --- telling ---------------------------------------------------------------------------------------------------------------


def readings(store: str, samples: dict[int, float], sizes: Sequence[Size]) -> list[Reading]:
    """Return the curve of the worker's memory, how far it moved, and the sizes."""
    contestant = f"holdfast_{store}"
    found = [Reading(contestant, "memory", 0, round(mb, 1), "MB", "lower", {"x": settled}) for settled, mb in samples.items()]
    found.append(Reading(contestant, "memory drift", 0, round(drift(samples), 1), "MB", "lower", {"jobs": max(samples)}))
    for size in sizes:
        extra: dict[str, float | str] = {"fresh": size.fresh / MEGABYTE, "rows": size.rows}
        if size.index:
            extra["index"] = 1.0
        if size.later is not None:
            extra["later"] = size.later / MEGABYTE
        if size.vacuums is not None:
            extra["vacuums"] = size.vacuums
        found.append(Reading(contestant, f"size of {size.name}", 0, size.real / MEGABYTE, "MB", "lower", extra))
    return found


def show(store: str, samples: dict[int, float], sizes: Sequence[Size]) -> None:
    """Print what was seen."""
    shown = [settled for settled in samples if settled % (max(samples) // 10) == 0]
    print(f"\n{store}: memory of the worker moved by {drift(samples):.1f} MB")
    print("  " + ", ".join(f"{settled:,}: {samples[settled]:.1f} MB" for settled in shown))
    print(f"  {'':<28}{'rows':>12}{'MB':>10}{'fresh':>10}{'later':>10}{'vacuums':>10}")
    for size in sizes:
        if max(size.real, size.fresh, size.later or 0) < LITTLE and not size.vacuums:
            continue
        seen = (size.real, size.fresh, size.later)
        figures = "".join(" " * 10 if bytes_ is None else f"{bytes_ / MEGABYTE:>10.2f}" for bytes_ in seen)
        vacuums = "" if size.vacuums is None else str(size.vacuums)
        print(f"  {size.name:<28}{size.rows:>12,}{figures}{vacuums:>10}")


def measure(store: str, jobs: int, servers: Servers) -> tuple[dict[int, float], list[Size]]:
    """Pass the jobs through one store."""
    with servers.fresh(store) as place:
        samples = asyncio.run(run(place.url, jobs))
        if store == "postgres":
            return samples, asyncio.run(sizes_in_postgres(place.url))
        return samples, size_of_file(Path(place.url.removeprefix("sqlite:///")))


def main(arguments: list[str]) -> int:
    """Measure, print, and write the report; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="./dev bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="default: %(default)s; whole tens of thousands")
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.jobs < 10 * EVERY or options.jobs % EVERY:
        parser.error(f"--jobs must be a multiple of {EVERY} from {10 * EVERY}")
    if options.work:
        asyncio.run(work(options.work, options.jobs))
        return 0
    begun = this_run("memory", arguments)
    path = destination("memory", options.json, whole=is_whole(parser, options, "jobs", "store"))
    found: list[Reading] = []
    with Servers() as servers:
        for store in options.store:
            samples, sizes = measure(store, options.jobs, servers)
            found += readings(store, samples, sizes)
            show(store, samples, sizes)
        machine = this_machine(servers.versions(), servers.settings())
    report = report_of("memory", begun, machine, found)
    keep(report, path)
    return 0 if none_missed(report) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
