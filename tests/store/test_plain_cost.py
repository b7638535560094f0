"""Plain jobs pay nothing for chains, blockers and callers' transactions: counted, never timed.

The figures of before are those of commit 5dc7168, in which none of that existed. They were counted there, by this tree's
benchmarks/plain_cost.py:

    python -m benchmarks.plain_cost --rounds 5 --json before.json      (where the app's store was `app._client().store`)

Five rounds gave the same figures to the last digit, on both stores. The ones to beat are for one job each, so a call with a
batch of 100 is 0.01 statements; the first claim also looks once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.plain_cost import CheckpointError, Phases, count_postgres, count_sqlite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresServers

ALLOWED: Final = 1.05
"""Of what was counted before."""

BEFORE_POSTGRES: Final[Phases] = {
    "enqueue one": {"statements": 1.0, "round_trips": 1.0, "wal_bytes": 660.59, "wal_records": 8.045, "buffers": 14.125},
    "claim one": {"statements": 1.005, "round_trips": 1.005, "wal_bytes": 617.95, "wal_records": 8.11, "buffers": 18.575},
    "settle one": {"statements": 1.0, "round_trips": 1.0, "wal_bytes": 558.56, "wal_records": 7.01, "buffers": 15.095},
    "enqueue 100": {"statements": 0.01, "round_trips": 0.01, "wal_bytes": 465.34, "wal_records": 5.07, "buffers": 10.1525},
    "claim 100": {"statements": 0.0125, "round_trips": 0.0125, "wal_bytes": 414.695, "wal_records": 5.08, "buffers": 13.2275},
    "settle 100": {"statements": 0.01, "round_trips": 0.01, "wal_bytes": 363.53, "wal_records": 4.04, "buffers": 7.1825},
    "worker": {"statements": 2.0},
}
BEFORE_SQLITE: Final[Phases] = {
    "enqueue one": {"statements": 9.04, "pages": 6.31},
    "claim one": {"statements": 10.03, "pages": 4.42},
    "settle one": {"statements": 8.03, "pages": 3.615},
    "enqueue 100": {"statements": 2.07, "pages": 0.1975},
    "claim 100": {"statements": 1.09, "pages": 0.1325},
    "settle 100": {"statements": 2.06, "pages": 0.1225},
    "worker": {"statements": 14.0},
}


async def test_a_plain_job_costs_postgres_what_it_did_before_chains(postgres_servers: PostgresServers) -> None:
    server = postgres_servers[18]
    databases: list[str] = []
    counted: Phases | None = None
    try:
        while counted is None:
            assert len(databases) < 10, "a checkpoint in every count: whose is it?"
            pair = [server.create_database(), server.create_database()]
            databases += pair
            try:
                counted = await count_postgres(*pair)
            except CheckpointError:
                continue
    finally:
        for database in databases:
            server.drop_database(database)
    assert dearer(counted, BEFORE_POSTGRES) == {}


async def test_a_plain_job_costs_sqlite_what_it_did_before_chains(tmp_path: Path) -> None:
    assert dearer(await count_sqlite(tmp_path), BEFORE_SQLITE) == {}


def test_one_statement_or_buffer_more_for_a_job_is_noticed() -> None:
    for phase, counts in BEFORE_POSTGRES.items():
        for what, count in counts.items():
            if what in {"statements", "round_trips", "buffers"}:
                counted = BEFORE_POSTGRES | {phase: counts | {what: count + 1}}
                assert dearer(counted, BEFORE_POSTGRES) == {f"{phase}: {what}": (count, count + 1)}


def dearer(counted: Phases, before: Phases) -> dict[str, tuple[float, float]]:
    """Return what costs more than it may, with the figures of before and of now."""
    return {
        f"{phase}: {what}": (count, counted[phase][what])
        for phase, counts in before.items()
        for what, count in counts.items()
        if counted[phase][what] > count * ALLOWED
    }
