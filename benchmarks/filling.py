"""Fills a schema with millions of jobs within a minute: rows that the store itself would have written, but for who wrote them.

    async with Filler(url) as filler:
        await filler.fill(5_000_000, [("default", "noop")])                          # ready
        await filler.fill(5_000_000, [("default", "noop")], state=State.SUCCEEDED)   # archived; before anything is ready there
        await filler.rest()

The store makes the first job of each lane the ordinary way, through every state on its way. The server then copies that job's
rows, in the order of time, with ids, places, tokens and times of their own: whatever columns they have. Counts and sequences
go on as if each copy had been enqueued, claimed and settled. PostgreSQL 18 and later, which make UUIDv7 themselves.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

import asyncpg

from holdfast.core.job import NewJob
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

Lane = tuple[str, str]
"""A queue and a task."""

ARGS: Final = '{"user_id": 42}'
CHUNK: Final = 100_000
"""Copies in one statement: what is sorted and kept in between fits into memory."""
SCHEDULED_IN: Final = timedelta(days=30)
"""How far away the first scheduled copy is due; the others follow, a second each."""
SUCCEED: Final = Write(Event.SUCCEED, 0, result="null")

WORLD: Final = SystemEnvironment()

_TABLES: Final = {State.READY: "ready", State.SCHEDULED: "scheduled", State.SUCCEEDED: "archive"}
"""What jobs can be filled in as, and where that is."""

_OWN: Final = {
    "job": {
        "id": "s.own_id",
        "place": "nextval('place')",
        "created_at": "uuid_extract_timestamp(s.own_id)",
        "run_at": "s.run_at + s.n * interval '1 s'",
    },
    "ready": {"job_id": "m.id", "place": "m.place", "ready_at": "m.created_at"},
    "scheduled": {"job_id": "m.id", "run_at": "m.run_at"},
    "archive": {
        "job_id": "m.id",
        "token": "gen_random_uuid()",
        "claimed_at": "m.created_at + (t.claimed_at - t.created_at)",
        "finished_at": "m.created_at + (t.finished_at - t.created_at)",
    },
}
"""What a copy has of its own; all else is its first job's. `s` is the copy to be made, `m` the job made, `t` the first one."""


class Filler:
    """Fills one database, whose schema it creates when it is missing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store = PostgresStore(url, WORLD, pool_size=1)
        self._worker = Worker(id=WORLD.token(), name="filler")
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def __aenter__(self) -> Self:
        await self._store.open()
        await self._store.register(self._worker)
        self._connection = await asyncpg.connect(self._url, server_settings={"search_path": "holdfast"})
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.close()
        await self._store.close()

    @property
    def _there(self) -> asyncpg.Connection[asyncpg.Record]:
        assert self._connection is not None, "use it in `async with`"
        return self._connection

    async def fill(self, jobs: int, lanes: Sequence[Lane], *, state: State = State.READY) -> None:
        """Add `jobs` in that state, taking the lanes in turn; enqueued a millisecond apart, the last one now."""
        first = [await self._first(lane, state) for lane in lanes[:jobs]]
        await self._there.execute("ANALYZE job")  # a chunk is planned knowing that the first jobs are few
        sql = await self._copying(_TABLES[state], state)
        copies = jobs - len(first)
        for start in range(0, copies, CHUNK):
            await self._there.execute(sql, first, start, min(copies, start + CHUNK), float(copies))
        if state is State.SUCCEEDED and copies:
            await self._there.execute("SELECT setval('claim_no', (SELECT last_value FROM claim_no) + $1)", copies)

    async def _first(self, lane: Lane, state: State) -> UUID:
        """Have the store bring one job of a lane into a state."""
        run_at = datetime.now(UTC) + SCHEDULED_IN if state is State.SCHEDULED else None
        job = NewJob(id=WORLD.job_id(), queue=lane[0], task=lane[1], args=ARGS, run_at=run_at)
        await self._store.enqueue([job])
        if state is State.SUCCEEDED:
            tasks, queues = frozenset({job.task}), frozenset({job.queue})
            claimed = await self._store.claim(
                ClaimRequest(worker=self._worker.id, tasks=tasks, queues=queues, limit=1, look=True)
            )
            if [one.job_id for one in claimed] != [job.id]:
                raise ValueError(f"{lane} holds ready jobs already: fill in what has ended before what is ready")
            await self._store.settle([Settlement(one.lease, SUCCEED) for one in claimed])
        return job.id

    async def _copying(self, table: str, state: State) -> str:
        """Return the statement that makes copies number $2 + 1 to $3, of $4, of the first jobs $1."""
        job, its = await self._columns("job"), await self._columns(table)
        job_values = ", ".join(_OWN["job"].get(column, f"s.{column}") for column in job)
        values = ", ".join(_OWN[table].get(column, f"t.{column}") for column in its)
        created = "" if "created_at" in its else ", j.created_at"
        return f"""
            WITH made AS (
                INSERT INTO job ({", ".join(job)}) SELECT {job_values} FROM (
                    SELECT i.*, uuidv7((i.n - $4::float8) * interval '1 ms') AS own_id FROM (
                        SELECT n, j.* FROM generate_series($2::int + 1, $3::int) n
                        JOIN (SELECT *, row_number() OVER (ORDER BY place) - 1 AS turn FROM job WHERE id = ANY ($1::uuid[])) j
                            ON j.turn = n % cardinality($1)
                        ORDER BY n
                    ) i OFFSET 0
                ) s RETURNING id, place, lane, created_at, run_at
            ), placed AS (
                INSERT INTO {table} ({", ".join(its)}) SELECT {values}
                FROM made m
                JOIN (
                    SELECT x.*, j.lane AS of_lane{created} FROM {table} x JOIN job j ON j.id = x.job_id WHERE j.id = ANY ($1)
                ) t ON t.of_lane = m.lane
                ORDER BY m.place
            )
            INSERT INTO tally (lane, {state}) SELECT lane, count(*) FROM made GROUP BY lane
        """

    async def _columns(self, table: str) -> list[str]:
        sql = (
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum"
        )
        return [row[0] for row in await self._there.fetch(sql, table)]

    async def forget(self, job_ids: Sequence[UUID]) -> None:
        """Remove jobs that have succeeded, as pruning does, but these very ones: so that a history stays as long as it is."""
        await self._there.execute(_FORGET, list(job_ids))

    async def rest(self) -> None:
        """Do what the server would have done by itself by now: vacuum, statistics, a checkpoint."""
        await self._there.execute("VACUUM (ANALYZE)")
        await self._there.execute("CHECKPOINT")


_FORGET: Final = """
WITH gone AS (
    DELETE FROM archive WHERE job_id = ANY ($1::uuid[]) RETURNING job_id, lane
), counted AS (
    INSERT INTO tally (lane, succeeded) SELECT lane, -count(*) FROM gone GROUP BY lane
)
SELECT forget(array_agg(job_id)) FROM gone
"""
