"""The PostgreSQL store keeps every promise of the port, within one process and among several.

All of them on the newest major version, and on the older one with `--slow`; what an older version could do differently is in
test_conformance_postgres_older.py and runs each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from holdfast.core.job import HIGHEST_PRIORITY
from holdfast.core.states import TERMINAL, TRANSITIONS, State
from holdfast.store.conformance import Harness, ProcessConformance, StoreConformance
from tests.support.lots import Drawing, Steady
from tests.support.majors import NEWEST
from tests.support.openers import open_postgres
from tests.support.sweeping import Broom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.environment import Environment
    from holdfast.store.postgres import PostgresStore
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

SCHEMA = "holdfast"
_MISPLACED = """
    SELECT coalesce(j.id, s.job_id) AS job_id, count(s.state) AS tables, array_agg(s.state) AS states
    FROM holdfast.job j
    FULL JOIN (
        SELECT job_id, 'blocked' AS state FROM holdfast.blocked UNION ALL SELECT job_id, 'scheduled' FROM holdfast.scheduled
        UNION ALL SELECT job_id, 'ready' FROM holdfast.ready UNION ALL SELECT job_id, 'running' FROM holdfast.lease
        UNION ALL SELECT job_id, state FROM holdfast.archive
    ) s ON s.job_id = j.id
    GROUP BY 1 HAVING count(s.state) <> 1 OR count(j.id) <> 1 LIMIT 5
"""
"""The state is the table that holds the row: every job in one of them, every row of a job that exists."""
_OUT_OF_SIGHT = """
    SELECT j.id, 'no deadline' AS why FROM holdfast.job j
    WHERE j.start_by IS NOT NULL AND NOT EXISTS (SELECT FROM holdfast.deadline d WHERE d.job_id = j.id)
        AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = j.id)
        AND NOT EXISTS (SELECT FROM holdfast.archive a WHERE a.job_id = j.id)
    UNION ALL
    SELECT r.job_id, 'a lane that no look reads' FROM holdfast.ready r
    WHERE NOT EXISTS (SELECT FROM holdfast.lane l WHERE l.entry = abs(r.lane))
    LIMIT 5
"""
"""What waits must be found: by who drops what is overdue, and by who looks at the known lanes."""
_OUT_OF_STEP = """
    SELECT c.id, 'a chain that does not stand with the last of its steps' AS why FROM holdfast.chain c
    WHERE c.steps <> (SELECT count(*) FROM holdfast.job j WHERE j.chain_id = c.id)
        OR NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = c.step AND j.chain_id = c.id)
        OR EXISTS (SELECT FROM holdfast.archive a WHERE a.job_id = c.step AND a.continued_by IS NOT NULL)
    UNION ALL
    SELECT j.id, 'a step of no chain' FROM holdfast.job j
    WHERE j.chain_id IS NOT NULL AND NOT EXISTS (SELECT FROM holdfast.chain c WHERE c.id = j.chain_id)
    UNION ALL
    SELECT s.job_id, 'a chain that lease or archive do not know' FROM (
        SELECT job_id, chain FROM holdfast.lease UNION ALL SELECT job_id, chain FROM holdfast.archive
    ) s JOIN holdfast.job j ON j.id = s.job_id WHERE s.chain IS DISTINCT FROM j.chain_id
    UNION ALL
    SELECT b.job_id, 'a count that is not that of its open edges' FROM holdfast.blocked b
    WHERE b.remaining <> (SELECT count(*) FROM holdfast.blocker e WHERE e.job_id = b.job_id AND NOT e.ended)
    UNION ALL
    SELECT e.job_id, 'waits for a chain that has ended' FROM holdfast.blocker e
    JOIN holdfast.blocked b ON b.job_id = e.job_id LEFT JOIN holdfast.chain c ON c.id = e.chain_id
    JOIN holdfast.archive a ON a.job_id = coalesce(c.step, e.chain_id)
    WHERE NOT e.ended AND NOT EXISTS (SELECT FROM holdfast.doubt d WHERE d.chain_id = e.chain_id)
    UNION ALL
    SELECT u.job_id, 'a key held by a chain that has ended' FROM holdfast.unique_key u
    JOIN holdfast.job j ON j.id = u.job_id LEFT JOIN holdfast.chain c ON c.id = j.id
    JOIN holdfast.archive a ON a.job_id = coalesce(c.step, j.id) WHERE u.until IS NULL
    UNION ALL
    SELECT s.job_id, 'waits for a signal that was emitted' FROM holdfast.scheduled s JOIN holdfast.signal g ON g.name = s.signal
    LIMIT 5
"""
"""What is written down about chains, blockers, keys and signals says the same as the rows of their jobs."""
_OUT_OF_BOUNDS = """
    SELECT a.job_id, 'an archived job in state ' || a.state AS why FROM holdfast.archive a WHERE a.state <> ALL ($1)
    UNION ALL
    SELECT a.job_id, 'archived as ' || a.state || ' with ' || coalesce('the code ' || a.code, 'no code') FROM holdfast.archive a
    WHERE (a.state = $2) <> (a.code IS NULL)
    UNION ALL
    SELECT j.id, 'born as ' || j.born FROM holdfast.job j WHERE j.born <> ALL ($3)
    UNION ALL
    SELECT j.id, 'of priority ' || j.priority FROM holdfast.job j WHERE j.priority NOT BETWEEN 0 AND $4
    UNION ALL
    SELECT l.job_id, 'leased for attempt ' || l.attempt FROM holdfast.lease l WHERE l.attempt <= 0
    LIMIT 5
"""
"""What no constraint keeps out of job, lease and archive."""
_BOUNDS = (
    sorted(str(state) for state in TERMINAL),
    str(State.SUCCEEDED),
    sorted(str(state) for (origin, _), state in TRANSITIONS.items() if origin is None and state is not None),
    HIGHEST_PRIORITY,
)


def check(broom: Broom) -> None:
    """Read row by row what a test has left: whatever it asserted, its tables must agree."""

    def fetch(statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return broom.connection.execute(statement.encode(), parameters).fetchall()

    if not broom.few(SCHEMA):
        broom.connection.execute("ANALYZE")  # tables that are taken for empty would be read once for each row
    misplaced = fetch(_MISPLACED)
    assert not misplaced, f"jobs that are not in exactly one state's table: {misplaced}"
    unseen = fetch(_OUT_OF_SIGHT)
    assert not unseen, f"waiting jobs that would not be found: {unseen}"
    strayed = fetch(_OUT_OF_STEP)
    assert not strayed, f"rows that do not agree: {strayed}"
    strange = fetch(_OUT_OF_BOUNDS, *_BOUNDS)
    assert not strange, f"rows with what cannot be: {strange}"


class PostgresHarness(Harness):
    """One database for the module; its tables are emptied, not made again."""

    opener = "tests.support.openers:open_postgres"

    def __init__(self, url: str, broom: Broom) -> None:
        self._url = url
        self._broom = broom
        self._used = False
        self._joined = 0

    @property
    def url(self) -> str:
        return self._url

    async def clean(self) -> None:
        self.check()  # an earlier world of the same test
        self._broom.sweep(SCHEMA)

    def check(self) -> None:
        """Check what the test has left, if it has opened the store at all."""
        if self._used:
            check(self._broom)

    async def join(self) -> PostgresStore:
        self._joined += 1
        return await self.open(Drawing(self._joined))

    async def open(self, environment: Environment | None = None) -> PostgresStore:
        store = open_postgres(self._url, environment or Steady())
        await store.open()
        self._used = True
        return store


@pytest.fixture(scope="module", params=NEWEST)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of the newest version; the older one with `--slow`."""
    return postgres_servers[request.param]


@pytest.fixture(scope="module")
def broom(postgres_url: str) -> Iterator[Broom]:
    broom = Broom(postgres_url)
    yield broom
    broom.close()


@pytest.fixture
def postgres_harness(postgres_url: str, broom: Broom) -> Iterator[PostgresHarness]:
    harness = PostgresHarness(postgres_url, broom)
    yield harness
    harness.check()


class TestPostgresStore(StoreConformance):
    walk_examples: ClassVar[int] = 40

    @pytest.fixture
    def harness(self, postgres_harness: PostgresHarness) -> PostgresHarness:
        return postgres_harness


class TestPostgresProcesses(ProcessConformance):
    processes: ClassVar[int] = 8
    jobs: ClassVar[int] = 40_000

    @pytest.fixture
    def harness(self, postgres_harness: PostgresHarness) -> PostgresHarness:
        return postgres_harness
