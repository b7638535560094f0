"""No statement of the SQLite store walks a table that grows with the jobs, and the hot ones sort nothing."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib import resources
from typing import TYPE_CHECKING

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.states import State
from holdfast.store.port import JobFilter
from holdfast.store.sqlite import _sql, chaining, looking, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAIN = uuid7()

SCANS = {
    "reap.lapsed": {"lease"},  # one row for each running job
    "holding.leases": {"holdfast_lease"},  # as above
    "stats.counts": {"tally"},  # one row for each lane and state
    "queues.known": {"holdfast_lane", "holdfast_queue"},  # one row for each lane
    "queues.paused": {"holdfast_queue"},
    "workers.workers": {"holdfast_worker"},  # the living, and then others, to its limit
    "workers.behind_the_living": {"holdfast_worker"},  # the same
    "workers.held": {"holdfast_lease"},
    "prune.workers": {"holdfast_lease"},  # one for each running job
    "running.first": {"lease"},  # an index would be written by every heartbeat
    "running.lapsed": {"lease"},  # as above
    "beat.held": {"holdfast_lease"},  # one row for each running job
    "revoke.held": {"holdfast_lease"},
    "keys.keys": {"holdfast_key"},  # as many as people have made
    "schedules.schedules": {"holdfast_schedule"},  # as many as the code names
    "writing.advance": {"holdfast_meta"},
    "limit.any": {"holdfast_limits"},  # stops at the first row
    "claim.worker": {"holdfast_waiting_key"},  # as above
    "claim.plain_heads": {"lane"},  # one row for each lane that belongs to no key
    "limit.said": {"holdfast_limits"},  # by an index of those that somebody has said something about
    "limit.running": {"lease"},  # one row for each running job
    "moving.any_blocked": {"holdfast_blocked"},  # stops at the first row
}
"""Tables a statement may read from end to end, and why."""

NOT_TABLES = {"waiting", "recorded", "claim", "tag", "known", "side", "retries", "oldest", "json_each", "CONSTANT"}

HOT = ("enqueue", "claim", "settle", "extend", "moving", "promote", "writing")
"""The files in which nothing may be sorted either."""

SORTS = {"claim.heads", "claim.oldest_keys"}
"""Hot, but sorts lanes, not jobs."""


def statements() -> Iterator[str]:
    for file in sorted(resources.files("holdfast.store.sqlite").joinpath("sql").iterdir(), key=lambda file: file.name):
        operation = file.name.removesuffix(".sql")
        yield from (f"{operation}.{name}" for name in _sql._statements(operation))


def plan(statement: str) -> list[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.upgrade(connection, ":memory:")
        named = re.findall(r"(?<![:\w]):([a-z_]+)", statement)
        values = dict.fromkeys(named) if named else (None,) * statement.count("?")
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def scanned(lines: list[str]) -> set[str]:
    found = {match[1] for line in lines if (match := re.match(r"SCAN (\S+)", line))}
    return found - NOT_TABLES


@pytest.mark.row(39)
@pytest.mark.parametrize("name", [name for name in statements() if not name.startswith("find")])
def test_statement_finds_its_rows_by_an_index(name: str) -> None:
    statement = _sql.sql(name).replace("{ids}", "?, ?")
    lines = plan(statement)
    assert scanned(lines) == SCANS.get(name, set()), lines
    assert not any("AUTOMATIC" in line for line in lines), lines
    if name.startswith(HOT) and name not in SORTS:
        assert not any("TEMP B-TREE" in line for line in lines), lines


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("workers.workers", "SCAN holdfast_worker USING INDEX holdfast_worker_listed"),
        ("mark_offline.silent", "SEARCH holdfast_worker USING INDEX holdfast_worker_listed (offline_at=?)"),
        ("beat.capable", "SEARCH holdfast_worker USING INDEX holdfast_worker_listed (offline_at=?)"),
    ],
)
def test_workers_of_the_past_are_not_read(name: str, by: str) -> None:
    assert plan(_sql.sql(name)) == [by]


@pytest.mark.parametrize(
    "name",
    [
        "drop_overdue.waiting",
        "logs.lines",
        "failures.attempts",
        "audits.lines",
        "audits.lines_by",
        "audits.lines_of",
        "audits.lines_by_of",
        "figures.figures",
    ],
)
def test_a_bounded_look_needs_no_sort_before_its_bound(name: str) -> None:
    lines = plan(_sql.sql(name))
    assert not any("TEMP B-TREE" in line for line in lines), lines


@pytest.mark.parametrize(
    "states",
    [None, {State.RUNNING}, {State.READY, State.SCHEDULED}, {State.FAILED, State.CANCELED}, {State.READY, State.FAILED}],
)
@pytest.mark.parametrize("what", ["jobs", "steps of a chain", "chains"])
def test_lists_walk_backwards_from_the_newest(what: str, states: set[State] | None) -> None:
    of = CHAIN if what == "steps of a chain" else None
    where = JobFilter(states=None if states is None else frozenset(states), chain_id=of)
    lines = plan((chaining if what == "chains" else looking).candidates(where))
    assert scanned(lines) == set(), lines
    assert not any("TEMP B-TREE" in line for line in lines), lines


def test_steps_of_a_chain_are_found_by_its_index_and_plain_jobs_are_not_in_it() -> None:
    lines = plan(looking.candidates(JobFilter(chain_id=CHAIN)))
    assert any("USING INDEX holdfast_job_chain" in line for line in lines), lines
    assert "chain_id IS NOT NULL" in schema.snapshot().split("holdfast_job_chain")[1].split(";")[0]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("moving.waits", "holdfast_blocker_of (waiter_id=? AND ended=?)"),
        ("moving.steps", "holdfast_job_chain (chain_id=?)"),
        ("emit.suspended", "holdfast_scheduled_signal (signal=?)"),
        ("prune.signals", "holdfast_signal_age (emitted_at<?)"),
        ("prune.lines", "holdfast_audit_action (action=?)"),
        ("audits.lines_by", "holdfast_audit_actor (actor=? AND no<?)"),
        ("audits.lines_of", "holdfast_audit_action (action=? AND no<?)"),
    ],
)
def test_what_is_looked_for_stands_at_one_end_of_an_index(name: str, index: str) -> None:
    lines = plan(_sql.sql(name))
    assert any(line.endswith(f"INDEX {index}") for line in lines), lines
