"""What works, contestants and stores are called where people read about them: the page and the charts."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

from benchmarks.environments import peers
from benchmarks.results import REFERENCE
from benchmarks.works import WORKS

STORES = {
    "postgres": "PostgreSQL, fsync and synchronous_commit on",
    "sqlite": "SQLite, WAL, synchronous=FULL",
    "redis": "Redis, nothing on disk unless said",
}
"""In the order of the charts."""

STORES_SHORT = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "Redis", "memory": "memory"}

_SLOTS = Path(__file__).parent / "contestants" / "holdfast_slots.py"
_TASKS = {"noop": "drains", "sleep": "jobs that sleep", "burn": "jobs that compute", "latency": "latency"}

_NAMES = {
    "holdfast_postgres": "Holdfast",
    "holdfast_sqlite": "Holdfast",
    "holdfast_memory": "Holdfast",
    "pgbench": "pgbench reference",
    "saq_aof": "saq, every write synced",
}

_UNITS = {"jobs/s": "jobs a second", "ms": "milliseconds", "bytes/job": "bytes a job", "per job": "a job"}

_ABOUT = {
    "wal": "WAL that PostgreSQL writes for a job while no-ops are drained",
    "transactions": "transactions for a job while no-ops are drained",
}


_COUNTED = {
    "calls": "Python calls",
    "roundtrips": "round trips",
    "round_trips": "round trips",
    "wal": "bytes of WAL",
    "wal_bytes": "bytes of WAL",
    "wal_records": "records of WAL",
    "buffers": "pages touched",
    "pages": "pages written",
    "retained": "blocks left behind",
    "held": "blocks while it is held",
    "idle statements": "statements a second of an idle worker",
}


def name(contestant: str) -> str:
    """Return what a contestant is called beside others on its store."""
    return _NAMES.get(contestant, contestant)


def name_and_store(contestant: str) -> str:
    """Return what a contestant is called anywhere: "Holdfast on PostgreSQL"."""
    own = contestant.startswith("holdfast_")
    return f"{name(contestant)} on {STORES_SHORT[contestant.removeprefix('holdfast_')]}" if own else name(contestant)


@cache
def setting(contestant: str) -> str:
    """Return how a contestant is run; nothing for an unknown one."""
    if contestant.startswith("holdfast_"):
        slots = runpy.run_path(str(_SLOTS))["SLOTS"]
        return "; ".join(f"{_TASKS[task]}: {_slots(*chosen)}" for task, chosen in slots.items()) + "; uvloop"
    if contestant == REFERENCE:
        return "2 connections, prepared statements"
    known = peers()
    return known[contestant].setting if contestant in known else ""


def _slots(slots: int, prefetch: int) -> str:
    return f"{slots} slots, prefetch {prefetch}" if prefetch else f"{slots} slots"


def about(work: str) -> str:
    """Return what a work is, in words that begin a sentence."""
    words = WORKS[work].about if work in WORKS else _ABOUT.get(work, work)
    return words[0].upper() + words[1:]


def counted(work: str) -> str:
    """Return what was counted for a job: "enqueue one: bytes of WAL"."""
    phase, separator, what = work.rpartition(": ")
    return f"{phase}{separator}{_COUNTED.get(what, what)}"


def unit(short: str) -> str:
    """Return a unit in words."""
    return _UNITS.get(short, short)
