"""What works, contestants and stores are called where people read about them: the page and the charts."""

from __future__ import annotations

from benchmarks.results import store_of
from benchmarks.works import WORKS

STORES = {
    "postgres": "PostgreSQL, fsync and synchronous_commit on",
    "sqlite": "SQLite, WAL, synchronous=FULL",
    "redis": "Redis, nothing on disk unless said",
}
"""In the order of the charts."""

_STORES_SHORT = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "Redis"}

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


def name(contestant: str) -> str:
    """Return what a contestant is called beside others on its store."""
    return _NAMES.get(contestant, contestant)


def name_and_store(contestant: str) -> str:
    """Return what a contestant is called anywhere: "Holdfast on PostgreSQL"."""
    store = _STORES_SHORT.get(store_of(contestant))
    return f"{name(contestant)} on {store}" if store and contestant.startswith("holdfast") else name(contestant)


def about(work: str) -> str:
    """Return what a work is, in words that begin a sentence."""
    words = WORKS[work].about if work in WORKS else _ABOUT.get(work, work)
    return words[0].upper() + words[1:]


def unit(short: str) -> str:
    """Return a unit in words."""
    return _UNITS.get(short, short)
