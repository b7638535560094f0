"""The workers: what they say of themselves, their signs of life, and what people decide about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.needs import idle_besides, running_said
from holdfast.core.outcome import Error
from holdfast.core.settle import revoke
from holdfast.errors import UnknownWorker
from holdfast.store.port import HEARD_EVERY, Action, Signal, Worker, WorkerKind, WorkerView, audit_line
from holdfast.store.postgres.handle import Handle, most
from holdfast.store.postgres.steering import said

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from asyncpg import Record

    from holdfast.store.port import AuditLine, Beat, WorkerPlace

MOST_JOBS: Final = 100

_REGISTER: Final = """
INSERT INTO {schema}.worker (id, name, info, kind, version, slots, capabilities, owner, registered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET name = excluded.name, info = excluded.info, kind = excluded.kind, version = excluded.version,
    slots = excluded.slots, capabilities = excluded.capabilities, heartbeat_at = clock_timestamp(), offline_at = NULL,
    draining_at = NULL, owner = excluded.owner, past = false
RETURNING no
"""

_BEAT: Final = """
WITH me AS (
    UPDATE {schema}.worker SET heartbeat_at = clock_timestamp(), counters = $2, offline_at = NULL, past = false
    WHERE id = $1 RETURNING disabled_at, draining_at, capabilities
)
SELECT me.disabled_at IS NOT NULL, me.draining_at IS NOT NULL, me.capabilities, (
    SELECT json_agg(json_build_array(w.no, w.capabilities, w.slots, w.counters))::text FROM {schema}.worker w
    WHERE NOT w.past AND w.offline_at IS NULL AND w.disabled_at IS NULL AND w.draining_at IS NULL
        AND w.capabilities <> '[]' AND w.capabilities <> me.capabilities
        AND coalesce(w.heartbeat_at, w.registered_at) > clock_timestamp() - interval '60 s'
) FROM me
"""
"""With those that may have what this one has not: in most fleets nobody has."""

_HELD: Final = "SELECT worker, count(*) FROM {schema}.lease WHERE worker = ANY ($1) GROUP BY worker"
"""Asked only for those that do not say how many jobs they run: it reads every lease, as there is no index by worker."""

_MARK_OFFLINE: Final = """
UPDATE {schema}.worker SET offline_at = clock_timestamp()
WHERE no = ANY (ARRAY(
    SELECT no FROM {schema}.worker
    WHERE NOT past AND offline_at IS NULL AND coalesce(heartbeat_at, registered_at) <= clock_timestamp() - $1 * interval '1 s'
    ORDER BY no FOR NO KEY UPDATE SKIP LOCKED
)) RETURNING id
"""
"""Skips who is giving a sign of life right now, and whom another caller is marking."""

_HEARD: Final = """
UPDATE {schema}.worker SET heartbeat_at = clock_timestamp(), offline_at = NULL, past = false
WHERE no = ANY (ARRAY(
    SELECT no FROM {schema}.worker
    WHERE id = ANY ($1)
        AND (offline_at IS NOT NULL OR coalesce(heartbeat_at, registered_at) <= clock_timestamp() - $2 * interval '1 s')
    ORDER BY no FOR NO KEY UPDATE SKIP LOCKED
))
"""
"""Skips who is giving a sign of life right now, and who is being noted by another server."""

_WORKERS: Final = """
SELECT w.*, l.running, l.jobs
FROM (
    SELECT * FROM {schema}.worker {which}
    ORDER BY offline_at DESC NULLS FIRST, registered_at DESC, id DESC LIMIT $1
) w
LEFT JOIN (
    SELECT worker, count(*) AS running, (array_agg(job_id ORDER BY job_id))[:{jobs}] AS jobs FROM {schema}.lease GROUP BY worker
) l ON l.worker = w.no
ORDER BY w.offline_at DESC NULLS FIRST, w.registered_at DESC, w.id DESC
""".replace("{jobs}", str(MOST_JOBS))
_BEHIND_THE_LIVING: Final = "(offline_at IS NOT NULL OR (registered_at, id) < ($2, $3))"
_BEHIND_THE_GONE: Final = "(offline_at, registered_at, id) < ($2, $3, $4)"


class Registry(Handle):
    """What the port says about workers."""

    async def register(self, worker: Worker) -> None:
        """Make a worker known."""
        self._workers[worker.id] = await self._db.fetch_value(
            self._sql(_REGISTER),
            worker.id,
            worker.name,
            worker.info,
            worker.kind.value,
            worker.version,
            worker.slots,
            msgspec.json.encode(worker.capabilities).decode(),
            worker.owner,
        )

    async def beat(self, beat: Beat) -> Signal:
        """Note that a worker is alive."""
        rows = await self._db.fetch(self._sql(_BEAT), beat.worker, beat.counters)
        if not rows:
            raise UnknownWorker(f"worker {beat.worker} is not registered with this store: call register() first")
        disabled, draining, own, others = rows[0]
        if others is None:
            return Signal(disabled, draining)
        rest = [
            (no, msgspec.json.decode(capabilities), slots, running_said(counters))
            for no, capabilities, slots, counters in msgspec.json.decode(others)
        ]
        unsaid = [no for no, *_, said in rest if said is None]
        held = {row[0]: row[1] for row in await self._db.fetch(self._sql(_HELD), unsaid)} if unsaid else {}
        idle = idle_besides(
            msgspec.json.decode(own),
            [(capabilities, slots, held.get(no, 0) if said is None else said) for no, capabilities, slots, said in rest],
        )
        return Signal(disabled, draining, idle)

    async def heard(self, workers: Collection[UUID]) -> None:
        """Note that workers are alive that claimed or reported."""
        await self._db.execute(self._sql(_HEARD), list(workers), HEARD_EVERY)

    async def retire(self, worker: UUID) -> None:
        """Note that a worker has stopped."""
        sql = self._sql("UPDATE {schema}.worker SET offline_at = clock_timestamp() WHERE id = $1 AND offline_at IS NULL")
        await self._db.execute(sql, worker)

    async def mark_offline(self, after: float) -> list[UUID]:
        """Mark workers offline that were silent for too long."""
        return sorted(row[0] for row in await self._db.fetch(self._sql(_MARK_OFFLINE), after))

    async def disable(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker claim nothing more."""
        sql = self._sql(
            "UPDATE {schema}.worker SET disabled_at = coalesce(disabled_at, clock_timestamp()), disabled_by = $2 "
            "WHERE id = $1 RETURNING true"
        )
        return await self._change(Action.DISABLE, worker, by, sql, said(by))

    async def enable(self, worker: UUID, *, by: str = "") -> bool:
        """Let a disabled worker claim again, and one that was asked to end go on."""
        sql = self._sql(
            "UPDATE {schema}.worker SET disabled_at = NULL, disabled_by = '', draining_at = NULL WHERE id = $1 RETURNING true"
        )
        return await self._change(Action.ENABLE, worker, by, sql)

    async def drain(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker finish what it runs and end."""
        sql = self._sql(
            "UPDATE {schema}.worker SET draining_at = coalesce(draining_at, clock_timestamp()) WHERE id = $1 RETURNING true"
        )
        return await self._change(Action.DRAIN, worker, by, sql)

    async def _change(self, action: Action, worker: UUID, by: str, sql: str, *args: object) -> bool:
        known = await self._audited(
            by,
            lambda connection: connection.fetchval(sql, worker, *args),
            lambda known: audit_line(action, [worker], by=by) if known else None,
        )
        return known is not None

    async def revoke(self, worker: UUID, *, by: str = "") -> list[UUID] | None:
        """Disable a worker and take back every lease it holds."""
        write, sql = revoke(0), self._sql("SELECT {schema}.revoke($1, $2, $3, $4, $5, $6)")
        error = write.error or Error("")

        def line(released: list[UUID] | None) -> AuditLine | None:
            if released is None:
                return None
            return audit_line(Action.REVOKE_WORKER, [worker], by=by, detail=f"{len(released)} released")

        released: list[UUID] | None = await self._audited(
            by,
            lambda connection: connection.fetchval(
                sql, worker, said(by), write.event.value, write.state.value, error.code, error.message
            ),
            line,
        )
        self._lanes.look_soon()
        return released

    async def workers(
        self, *, limit: int = 1000, ids: Collection[UUID] | None = None, after: WorkerPlace | None = None
    ) -> list[WorkerView]:
        """Return the registered workers, the living first."""
        parameters: list[Any] = [most(limit)]
        conditions = []
        if after is not None:
            gone = after.offline_at is not None
            conditions.append(_BEHIND_THE_GONE if gone else _BEHIND_THE_LIVING)
            parameters += [*([after.offline_at] if gone else []), after.registered_at, after.id]
        if ids is not None:
            parameters.append(list(ids))
            conditions.append(f"id = ANY (${len(parameters)})")
        else:
            conditions.append("NOT past")
        which = f"WHERE {' AND '.join(conditions)}"
        rows = await self._db.fetch(self._sql(_WORKERS.replace("{which}", which)), *parameters)
        return [_worker_view(row) for row in rows]


def _worker_view(row: Record) -> WorkerView:
    worker = Worker(
        id=row["id"],
        name=row["name"],
        info=row["info"],
        kind=WorkerKind(row["kind"]),
        version=row["version"],
        slots=row["slots"],
        capabilities=tuple(msgspec.json.decode(row["capabilities"])),
        owner=row["owner"],
    )
    return WorkerView(
        worker=worker,
        registered_at=row["registered_at"],
        heartbeat_at=row["heartbeat_at"],
        offline_at=row["offline_at"],
        disabled_at=row["disabled_at"],
        disabled_by=row["disabled_by"],
        draining_at=row["draining_at"],
        running=row["running"] or 0,
        jobs=tuple(row["jobs"] or ()),
        counters=row["counters"],
    )
