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
from tests.support.lots import Drawing, Steady
from tests.support.openers import open_sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.environment import Environment
    from holdfast.store.sqlite import SqliteStore


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
    "jobs of keys that no claim would look at": """
        SELECT hex(job_id) FROM holdfast_ready AS ready JOIN holdfast_job AS job ON job.id = ready.job_id
        WHERE job.entry & 2 AND NOT EXISTS (
            SELECT 1 FROM holdfast_waiting_key AS known WHERE known.lane = job.lane AND known.entry = job.entry
        )
    """,
    "records of jobs that are not there": f"""
        SELECT hex(job_id) FROM (
            SELECT job_id FROM ({_PLACES}) UNION SELECT job_id FROM holdfast_attempt UNION SELECT job_id FROM holdfast_event
            UNION SELECT job_id FROM holdfast_log UNION SELECT job_id FROM holdfast_part
            UNION SELECT job_id FROM holdfast_progress UNION SELECT job_id FROM holdfast_deadline
            UNION SELECT job_id FROM holdfast_unique_key UNION SELECT waiter_id FROM holdfast_blocker
            UNION SELECT id FROM holdfast_chain UNION SELECT step FROM holdfast_chain
            UNION SELECT continued_by FROM holdfast_archive WHERE continued_by IS NOT NULL
        ) WHERE job_id NOT IN (SELECT id FROM holdfast_job)
    """,
    "ended jobs that would expire": """
        SELECT hex(job_id) FROM holdfast_deadline WHERE job_id IN (SELECT job_id FROM holdfast_archive)
    """,
    "leases that do not know whether their job expires": """
        SELECT hex(job_id) FROM holdfast_lease WHERE expires <> (job_id IN (SELECT job_id FROM holdfast_deadline))
    """,
    "leases that do not know their job's chain": """
        SELECT hex(job_id) FROM holdfast_lease JOIN holdfast_job ON id = job_id
        WHERE holdfast_lease.chain_id IS NOT holdfast_job.chain_id
    """,
    "chains whose steps are not as many as they say": """
        SELECT hex(id), steps FROM holdfast_chain AS chain
        WHERE steps <> (SELECT count(*) FROM holdfast_job AS job WHERE job.chain_id = chain.id)
        UNION ALL
        SELECT hex(id), 0 FROM holdfast_job WHERE chain_id IS NOT NULL AND chain_id NOT IN (SELECT id FROM holdfast_chain)
    """,
    "chains that do not lead from their first step to their last": """
        WITH RECURSIVE walk (chain, step) AS (
            SELECT id, id FROM holdfast_chain
            UNION ALL
            SELECT walk.chain, continued_by FROM walk JOIN holdfast_archive ON job_id = walk.step WHERE continued_by IS NOT NULL
        )
        SELECT hex(id), steps FROM holdfast_chain WHERE steps <> (SELECT count(*) FROM walk WHERE chain = id)
            OR step NOT IN (SELECT step FROM walk WHERE chain = id)
            OR step IN (SELECT job_id FROM holdfast_archive WHERE continued_by IS NOT NULL)
    """,
    "blocked jobs that wait for nobody, or for a chain that has ended or is gone": """
        SELECT hex(blocked.job_id), hex(blocker_id) FROM holdfast_blocked AS blocked
        LEFT JOIN holdfast_blocker AS edge ON edge.waiter_id = blocked.job_id AND edge.ended = 0
        LEFT JOIN holdfast_chain AS chain ON chain.id = blocker_id
        WHERE blocker_id IS NULL OR coalesce(chain.step, blocker_id) NOT IN (
            SELECT id FROM holdfast_job WHERE id NOT IN (SELECT job_id FROM holdfast_archive)
        )
    """,
    "jobs that do not know how many chains they were to wait for": """
        SELECT hex(id), blockers FROM holdfast_job
        WHERE coalesce(blockers, 0) <> (SELECT count(*) FROM holdfast_blocker WHERE waiter_id = id)
    """,
    "keys of chains that have ended": """
        SELECT hex(hold.job_id), hold.key FROM holdfast_unique_key AS hold JOIN holdfast_job AS job ON job.id = hold.job_id
        LEFT JOIN holdfast_chain AS chain ON chain.id = job.id
        WHERE until IS NULL AND coalesce(chain.step, job.id) IN (SELECT job_id FROM holdfast_archive)
    """,
    "jobs that wait for a signal that was emitted": """
        SELECT hex(job_id), signal FROM holdfast_scheduled WHERE signal IN (SELECT name FROM holdfast_signal)
    """,
    "ready jobs in a wrong lane": """
        SELECT hex(job_id), ready.lane, entry, failures FROM holdfast_ready AS ready JOIN holdfast_job AS job ON id = job_id
        WHERE abs(ready.lane) <> iif(failures > 0 AND (job.lane = entry OR entry & 2), entry + 1, entry)
    """,
    "counts that are wrong": f"""
        SELECT lane, state, sum(more) FROM (
            SELECT lane, state, count AS more FROM holdfast_tally
            UNION ALL SELECT job.lane, place.state, -1 FROM ({_PLACES}) AS place JOIN holdfast_job AS job ON id = job_id
        ) GROUP BY lane, state HAVING sum(more) <> 0
    """,
}
"""What no test may leave in the file, as statements that find it."""


class SqliteHarness(Harness):
    """A fresh file each time the data is to be clean."""

    opener = "tests.support.openers:open_sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        self.joined = 0

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

    async def join(self) -> SqliteStore:
        self.joined += 1
        return await self.open(Drawing(self.joined))

    async def open(self, environment: Environment | None = None) -> SqliteStore:
        store = open_sqlite(self.url, environment or Steady())
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

    writers_wait = True


class TestSqliteProcesses(ProcessConformance):
    """Among several processes."""
