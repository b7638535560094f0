"""What every section of the PostgreSQL store works with: the connections, and what this handle remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import asyncpg
import msgspec

from holdfast.core.rotation import AGED, OFFERED, SCANNED
from holdfast.store.port import SEARCH_LIMIT
from holdfast.store.postgres import scripts
from holdfast.store.postgres.connection import Connections
from holdfast.store.postgres.due import Due
from holdfast.store.postgres.lanes import Lanes, Snapshot
from holdfast.store.postgres.leases import Leases
from holdfast.store.postgres.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.store.port import AuditLine
    from holdfast.store.postgres.connection import Connection

T = TypeVar("T")

SNAPSHOT: Final = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
    CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmax(pg_current_snapshot()) ELSE pg_current_xact_id() END
        ::text::bigint AS xnext,
    clock_timestamp() AS now, concat_ws(' ', pg_postmaster_start_time(), identity, rewound) AS life,
    extract(epoch FROM clock_timestamp() - pg_postmaster_start_time() + rewound)::float8 AS up_for,
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.place) AS last_place,
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.claim_no) AS last_claim
FROM {schema}.meta
"""
"""The bounds of a statement's own snapshot, its time, and which life of the server and schema it belongs to.

`xnext` lies above every transaction id handed out so far. The snapshot's own xmax does not: it lies above every id that has
*ended*, so that a lone open transaction is not below it.
"""

_AUDIT: Final = (
    "INSERT INTO {schema}.audit (at, actor, action, targets, count, detail) VALUES (clock_timestamp(), $1, $2, $3, $4, $5)"
)

MOST_TRANSACTIONS: Final = 20
"""Connections for transactions of handlers, apart from those of the store's own work; none is made before it is asked for."""

_LOOK: Final = (
    "SELECT s.xmin, s.xnext, s.now, s.life, s.last_place, "
    "(SELECT json_agg(json_build_array(t.kind, t.name, t.key, t.override)) FROM {schema}.limits t "
    "WHERE t.override IS NOT NULL) AS chosen, "
    f"l.* FROM ({SNAPSHOT}) s LEFT JOIN ("
    "SELECT *, NULL::bigint, NULL::text, NULL::bigint FROM {schema}.look($1, $2, $3) "
    "UNION ALL SELECT * FROM {schema}.look_keys($1, $2, $4, $5, $6, $7, $8, $9, $10, $11)) l ON true"
)


class Handle:
    """One handle on a schema."""

    def __init__(
        self,
        url: str,
        environment: Environment,
        *,
        schema: str = "holdfast",
        create: bool = True,
        pool_size: int = 4,
        connect_for: float = 5.0,
        timeout: float = 30.0,
        prepare: bool = True,
        search_limit: int = SEARCH_LIMIT,
        channel: str | None = None,
    ) -> None:
        self._environment = environment
        self._schema = schema
        self._name = quoted(schema)
        self._create = create
        self._search_limit = search_limit
        self._db = Connections(url, environment, size=pool_size, connect_for=connect_for, timeout=timeout, prepare=prepare)
        self._db.on_loss = self._forget
        self._handlers = Connections(
            url, environment, size=MOST_TRANSACTIONS, connect_for=connect_for, timeout=timeout, prepare=prepare, lent=True
        )
        self._channel = channel or f"holdfast.{schema}"
        self._timeout = timeout
        self._lanes = Lanes(environment.lot)
        self._leases = Leases()
        self._scheduled = Due()
        self._deadlines = Due()
        self._workers: dict[UUID, int] = {}
        self._server_clock: tuple[datetime, float] | None = None
        self._next_fold = 0.0
        self._statements: dict[str, str] = {}

    def _sql(self, template: str) -> str:
        text = self._statements.get(template)
        if text is None:
            text = self._statements[template] = template.replace("{schema}", self._name)
        return text

    async def _script(
        self,
        connection: Connection,
        script: scripts.Script[T],
        jobs: Sequence[NewJob] = (),
        caps: Mapping[str, int] | None = None,
    ) -> T:
        """Run a script on a connection; `jobs` and `caps` put into words what the server refuses of them."""

        async def fetch(sql: str, parameters: Sequence[Any]) -> scripts.Rows:
            rows: scripts.Rows = cast("Any", await connection.fetch(self._sql(sql), *parameters))
            return rows

        try:
            return await scripts.drive(script, fetch)
        except asyncpg.PostgresError as error:
            if (refused := self._refused(error, jobs, caps)) is error:
                raise
            raise refused from error

    def _refused(
        self, error: asyncpg.PostgresError, jobs: Sequence[NewJob], caps: Mapping[str, int] | None = None
    ) -> Exception:
        """Return what the server's refusal means; what is none of ours stays as it is."""
        return scripts.refusal(error.sqlstate or "", str(error), jobs, caps) or error

    def _forget(self) -> None:
        self._lanes.forget()
        self._leases.forget()
        self._scheduled.forget()
        self._deadlines.forget()
        self._workers.clear()

    async def _look(self) -> None:
        while True:
            question = self._lanes.question()
            started = self._environment.monotonic()
            asked = (question.lanes, question.bases, question.fronts, *question.keys)
            rows = await self._db.fetch(self._sql(_LOOK), *asked, OFFERED + 1, SCANNED, AGED)
            ended = self._environment.monotonic()
            seen = [row[6:] for row in rows]
            if self._lanes.looked(question, seen, Snapshot(*rows[0][:5]), rows[0][5], at=ended, took=ended - started):
                if self._lanes.settled:
                    return
            else:
                self._workers.clear()

    async def _audited(self, by: str, work: Callable[[Connection], Awaitable[T]], line: Callable[[T], AuditLine | None]) -> T:
        """Run an operation, and write the line about it into the audit log, in one transaction; alone where nobody is named."""
        if not by:
            return await self._db.run(work)

        async def both(connection: Connection) -> T:
            answer = await work(connection)
            if (written := line(answer)) is not None:
                await self._write_line(connection, written)
            return answer

        return await self._db.in_transaction(both)

    async def _write_line(self, connection: Connection, line: AuditLine) -> None:
        await connection.execute(self._sql(_AUDIT), *line_row(line))


def line_row(line: AuditLine) -> tuple[object, ...]:
    """Return a line of the audit log as a statement takes it; when it was written, the server says."""
    return line.actor, line.action.value, msgspec.json.encode(line.targets).decode(), line.count, line.detail


def most(limit: int) -> int:
    """Return a limit that fits a statement: none below zero, none beyond what a parameter holds."""
    return max(0, min(limit, 2**31 - 1))
