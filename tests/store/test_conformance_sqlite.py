"""The SQLite store keeps every promise of the port, within one process and among several on one file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.store.conformance import Harness, ProcessConformance, StoreConformance
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator


_PLACES = """
    SELECT job_id, 'blocked' AS state FROM holdfast_blocked
    UNION ALL SELECT job_id, 'scheduled' FROM holdfast_scheduled
    UNION ALL SELECT job_id, 'ready' FROM holdfast_ready
    UNION ALL SELECT job_id, 'running' FROM holdfast_lease
    UNION ALL SELECT job_id, state FROM holdfast_archive
"""

FLAWS = {
    "jobs that are not in exactly one state's table": f"""
        SELECT hex(id), group_concat(place.state) FROM holdfast_job LEFT JOIN ({_PLACES}) AS place ON place.job_id = id
        GROUP BY id HAVING count(place.state) <> 1
    """,
    "records of jobs that are not there": f"""
        SELECT hex(job_id) FROM (
            SELECT job_id FROM ({_PLACES}) UNION SELECT job_id FROM holdfast_attempt UNION SELECT job_id FROM holdfast_event
            UNION SELECT job_id FROM holdfast_log UNION SELECT job_id FROM holdfast_part
            UNION SELECT job_id FROM holdfast_progress UNION SELECT job_id FROM holdfast_deadline
            UNION SELECT job_id FROM holdfast_unique_key UNION SELECT waiter_id FROM holdfast_blocker
        ) WHERE job_id NOT IN (SELECT id FROM holdfast_job)
    """,
    "ended jobs that would expire": """
        SELECT hex(job_id) FROM holdfast_deadline WHERE job_id IN (SELECT job_id FROM holdfast_archive)
    """,
    "leases that do not know whether their job expires": """
        SELECT hex(job_id) FROM holdfast_lease WHERE expires <> (job_id IN (SELECT job_id FROM holdfast_deadline))
    """,
    "ready jobs in a wrong lane": """
        SELECT hex(job_id), ready.lane, entry, failures FROM holdfast_ready AS ready JOIN holdfast_job AS job ON id = job_id
        WHERE abs(ready.lane) <> iif(failures > 0 AND job.lane = entry, entry + 1, entry)
    """,
    "counts that are wrong": f"""
        SELECT lane, state, sum(more) FROM (
            SELECT lane, state, count AS more FROM holdfast_tally
            UNION ALL SELECT job.lane, place.state, -1 FROM ({_PLACES}) AS place JOIN holdfast_job AS job ON id = job_id
        ) GROUP BY lane, state HAVING sum(more) <> 0
    """,
}
"""What no test may leave in the file, as statements that find it."""


def open_sqlite(url: str) -> SqliteStore:
    """Return a store for a child process, not yet opened."""
    return SqliteStore(url, SystemEnvironment())


class SqliteHarness(Harness):
    """A fresh file each time the data is to be clean."""

    opener = "tests.store.test_conformance_sqlite:open_sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0

    @property
    def url(self) -> str:
        return str(self.folder / f"jobs-{self.files}.db")

    async def clean(self) -> None:
        self.check()
        self.files += 1

    def check(self) -> None:
        """Look for rows that contradict each other, when a test has ended."""
        if Path(self.url).exists():
            with closing(sqlite3.connect(self.url)) as file:
                for what, statement in FLAWS.items():
                    found = file.execute(f"{statement} LIMIT 5").fetchall()
                    assert not found, f"the test left {what}: {found}"

    async def open(self) -> SqliteStore:
        store = open_sqlite(self.url)
        await store.open()
        return store


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has such a place: promises are tested here, not the speed of its disk."""
    if os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-") as name:
            yield Path(name)
    else:
        yield tmp_path


@pytest.fixture
def harness(folder: Path) -> Iterator[SqliteHarness]:
    """Files of one test, looked through when it has ended."""
    harness = SqliteHarness(folder)
    yield harness
    harness.check()


class TestSqliteStore(StoreConformance):
    """Within one process."""


class TestSqliteProcesses(ProcessConformance):
    """Among several processes."""
