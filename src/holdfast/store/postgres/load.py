"""Filling an empty schema with everything another store held, in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.job import DEFAULT_POLICY, RETRIES, policy_of
from holdfast.core.needs import needs_of
from holdfast.errors import SchemaError
from holdfast.store.postgres.connection import Connections
from holdfast.store.postgres.schema import quoted, upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.store.postgres.connection import Connection

HALF_A_DAY: Final = 43_200.0
"""Seconds a statement may take here: a large file is one COPY."""
OF_A_STORE: Final = ("job", "worker", "queue", "schedule", "signal", "unique_key", "key", "audit", "figure", "limits")
"""Tables that are all empty when a store is."""

_TALLY: Final = """
INSERT INTO tally (lane, blocked, scheduled, ready, running, succeeded, failed, canceled)
SELECT j.lane, count(b.job_id), count(s.job_id), count(r.job_id), 0, count(*) FILTER (WHERE a.state = 'succeeded'),
    count(*) FILTER (WHERE a.state = 'failed'), count(*) FILTER (WHERE a.state = 'canceled')
FROM job j
LEFT JOIN blocked b ON b.job_id = j.id
LEFT JOIN scheduled s ON s.job_id = j.id
LEFT JOIN ready r ON r.job_id = j.id
LEFT JOIN archive a ON a.job_id = j.id
GROUP BY j.lane
"""

_DEADLINES: Final = """
INSERT INTO deadline (job_id, at)
SELECT j.id, greatest(clock_timestamp(), j.start_by) FROM job j
WHERE j.start_by IS NOT NULL AND NOT EXISTS (SELECT FROM archive a WHERE a.job_id = j.id)
"""

_FACTS: Final = """
SELECT j.id, j.args, a.result,
    CASE WHEN a.job_id IS NOT NULL THEN a.state WHEN r.job_id IS NOT NULL THEN 'ready'
        WHEN s.job_id IS NOT NULL THEN 'scheduled' WHEN b.job_id IS NOT NULL THEN 'blocked' END,
    coalesce(a.attempt, r.attempt, s.attempt, 0), coalesce(a.failures, r.failures, s.failures, 0)
FROM job j
LEFT JOIN archive a ON a.job_id = j.id
LEFT JOIN ready r ON r.job_id = j.id
LEFT JOIN scheduled s ON s.job_id = j.id
LEFT JOIN blocked b ON b.job_id = j.id
ORDER BY j.id
"""


class Load:
    """A schema that is being filled, inside one transaction: until it ends, nobody sees anything of it."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._workers: dict[UUID, int] = {}
        self._lane_of: dict[UUID, int] = {}
        self._entries: dict[tuple[int, int], tuple[str, str, int, str]] = {}
        self._keyed: dict[int, tuple[Any, ...]] = {}
        """The lanes of keys."""
        self._start_by: dict[UUID, datetime] = {}
        self._on_failure: dict[UUID, str] = {}
        self._remaining: dict[UUID, int] = {}
        self._chain_of: dict[UUID, UUID] = {}
        self._signals: list[tuple[str, UUID]] = []
        self._retries: set[int] = set()
        self._offset = 0
        self._last = 0

    async def begin(self) -> None:
        """Learn where numbers go on, and make handles that are open on the schema forget what they saw of it."""
        await self._connection.execute("UPDATE meta SET identity = gen_random_uuid()")
        self._offset = self._last = await self._connection.fetchval(
            "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM place"
        )

    async def copy(self, table: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        """Write the rows of one table of the portable form. The order of `store.transfer.TABLES` must be kept."""
        special = getattr(self, f"_{table}", None)
        if special is not None:
            columns, rows = special(columns, rows)
        if columns:
            await self._connection.copy_records_to_table(table, schema_name=self._schema, columns=columns, records=rows)

    async def finish(self) -> None:
        """Write what follows from the rows: lanes, counts, deadlines, and where the sequences go on."""
        await self._connection.copy_records_to_table(
            "lane",
            schema_name=self._schema,
            columns=("id", "entry", "queue", "task", "priority", "requires"),
            records=[(lane, entry, *rest) for (lane, entry), rest in self._entries.items()]
            + [
                (lane, entry | RETRIES, *rest)
                for (lane, entry), rest in self._entries.items()
                if entry | RETRIES in self._retries
            ],
        )
        await self._connection.executemany("UPDATE scheduled SET signal = $1 WHERE job_id = $2", self._signals)
        await self._connection.execute(_TALLY)
        await self._connection.execute(_DEADLINES)
        await self._connection.execute("SELECT setval('place', $1)", max(self._last, 1))
        for table in ("worker", "event", "log", "part", "audit"):
            await self._connection.execute(
                f"SELECT setval(pg_get_serial_sequence($1, 'no'), coalesce((SELECT max(no) FROM {table}), 1))",
                f"{quoted(self._schema)}.{table}",
            )
        for table in ("job", "ready", "archive", "event"):
            await self._connection.execute(f"ANALYZE {table}")

    async def count(self, table: str) -> int:
        """Return how many rows a table holds now."""
        where = "scheduled WHERE signal IS NOT NULL" if table == "suspended" else table
        return int(await self._connection.fetchval(f"SELECT count(*) FROM {where}"))

    async def facts(self) -> AsyncIterator[tuple[Any, ...]]:
        """Return (id, args, result, state, attempt, failures) of every job, by id."""
        async for row in self._connection.cursor(_FACTS, prefetch=1000):
            yield tuple(row)

    # --- tables whose rows look different here: what they are called as, and what they become ---

    def _worker(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        place, capabilities = columns.index("id"), columns.index("capabilities")

        def made() -> Iterable[tuple[Any, ...]]:
            for no, row in enumerate(rows, start=1):
                self._workers[row[place]] = no
                yield no, *row[:capabilities], row[capabilities] or "[]", *row[capabilities + 1 :]

        return ("no", *columns), made()

    def _deadline(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        self._start_by = {row[columns.index("job_id")]: row[columns.index("start_by")] for row in rows}
        return (), ()

    def _lane(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        for row in rows:
            lane = dict(zip(columns, row, strict=True))
            known = (lane["queue"], lane["task"], lane["priority"], lane["requires"])
            if needs_of(tuple(msgspec.json.decode(lane["requires"]))).limit is not None:
                self._keyed[lane["lane"]] = known
            elif lane["task"]:  # a lane that tasks share is known by the jobs that enter it
                self._entries[lane["lane"], lane["lane"]] = known
        return (), ()

    def _job(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        def made() -> Iterable[tuple[Any, ...]]:
            for row in rows:
                job = dict(zip(columns, row, strict=True))
                requires = msgspec.json.encode(sorted(msgspec.json.decode(job["requires"] or "[]"))).decode()
                of_lane = (job["queue"], job["task"], job["priority"], requires)
                self._lane_of[job["id"]] = job["lane"]
                if job["chain_id"] is not None:
                    self._chain_of[job["id"]] = job["chain_id"]
                if (keyed := self._keyed.get(job["entry"])) is not None:
                    of_lane = keyed
                elif job["lane"] != job["entry"]:
                    self._entries.pop((job["lane"], job["lane"]), None)
                self._entries[job["lane"], job["entry"]] = of_lane
                if (policy := policy_of(job["policy"])).on_blocker_failure is not DEFAULT_POLICY.on_blocker_failure:
                    self._on_failure[job["id"]] = policy.on_blocker_failure.value
                windowed = job["held_for"] is not None
                yield (
                    *(job[name] for name in _JOB_AS_IS),
                    *(0, self._start_by.get(job["id"]), round(job["lease"] * 1000), windowed),
                )

        return (*_JOB_AS_IS, "place", "start_by", "lease_ms", "windowed"), made()

    def _blocker(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        waiter, ended = columns.index("waiter_id"), columns.index("ended")

        def made() -> Iterable[tuple[Any, ...]]:
            for row in rows:
                self._remaining[row[waiter]] = self._remaining.get(row[waiter], 0) + (not row[ended])
                yield row

        return tuple({"waiter_id": "job_id", "blocker_id": "chain_id"}.get(name, name) for name in columns), made()

    def _blocked(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        key, default = columns.index("job_id"), DEFAULT_POLICY.on_blocker_failure.value
        made = ((*row, self._remaining.get(row[key], 0), self._on_failure.get(row[key], default)) for row in rows)
        return (*columns, "remaining", "on_failure"), made

    def _ready(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        """Every place lies above those drawn so far, and none is where its job would be looked for without the index."""
        lane_at, seq_at = columns.index("lane"), columns.index("seq")

        def made() -> Iterable[tuple[Any, ...]]:
            for number, row in enumerate(rows, start=1):
                place = row[seq_at] + self._offset
                entered = number + self._offset if row[lane_at] < 0 else None
                self._last = max(self._last, place, number + self._offset)
                self._retries.add(abs(row[lane_at]))
                yield *row[:seq_at], place, *row[seq_at + 1 :], True, entered

        return (*("place" if name == "seq" else name for name in columns), "moved", "entered"), made()

    def _suspended(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        signal, key = columns.index("signal"), columns.index("job_id")
        self._signals = [(row[signal], row[key]) for row in rows]
        return (), ()

    def _archive(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        """Keep the token of a step that has continued in its attempt alone."""
        key, token, continued_by = columns.index("job_id"), columns.index("token"), columns.index("continued_by")
        names, numbered = self._by_number(columns, rows)

        def made() -> Iterable[tuple[Any, ...]]:
            for row in numbered:
                kept = row[token] if row[continued_by] is None else None
                yield *row[:token], kept, *row[token + 1 :], self._lane_of[row[key]], self._chain_of.get(row[key])

        return (*names, "lane", "chain"), made()

    def _attempt(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        return self._by_number(columns, rows)

    def _by_number(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        """Name workers by their number."""
        at = columns.index("worker_id")
        names = tuple("worker" if name == "worker_id" else name for name in columns)
        return names, ((*row[:at], None if row[at] is None else self._workers[row[at]], *row[at + 1 :]) for row in rows)

    def _event(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        return _numbered(columns), rows

    def _log(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        return _numbered(columns), rows

    def _part(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        return _numbered(columns), rows

    def _figure(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        """Histograms are arrays here."""
        plain = columns.index("waits")
        return columns, ((*row[:plain], *(msgspec.json.decode(text) for text in row[plain:])) for row in rows)

    def _progress(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> tuple[Any, Any]:
        now = datetime.now(UTC)
        return (*columns, "at"), ((*row, now) for row in rows)


_JOB_AS_IS: Final = (
    *("id", "lane", "entry", "created_at", "priority", "born", "task", "queue", "args", "policy", "scope", "key", "chain_id"),
    *("tags", "trace", "blockers"),
)


def _numbered(columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("no" if name == "number" else name for name in columns)


async def load(
    url: str, environment: Environment, schema: str, work: Callable[[Load], Awaitable[None]], *, prepare: bool = True
) -> None:
    """Run `work` on a schema that is empty, made if it is missing. All of it happens, the schema included, or nothing."""
    connections = Connections(url, environment, size=1, connect_for=5.0, timeout=HALF_A_DAY, prepare=prepare)
    await connections.open()
    try:

        async def fill(connection: Connection) -> None:
            await upgrade(connection, schema, connections.target)
            await connection.execute(f"SET LOCAL search_path TO {quoted(schema)}")
            await connection.execute(f"LOCK TABLE {', '.join(OF_A_STORE)} IN EXCLUSIVE MODE")
            for table in OF_A_STORE:
                if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})"):
                    raise SchemaError(
                        f"the schema {schema!r} at {connections.target} is not empty: its table {table!r} has rows. "
                        "Name an empty one (?schema=other), or drop this one first"
                    )
            filling = Load(connection, schema)
            await filling.begin()
            await work(filling)

        await connections.in_transaction(fill)
    finally:
        await connections.close()
