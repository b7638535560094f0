"""Who may do what, and who did: keys, and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.numbers import check_seconds
from holdfast.errors import BadJob
from holdfast.store.port import Action, AuditView, Key, Role, audit_line, check_rotation, names_a_key, rotation_line
from holdfast.store.postgres.handle import Handle, most
from holdfast.store.postgres.steering import said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

    from holdfast.store.postgres.connection import Connection

MOST_NUMBER: Final = 2**63 - 1

_COLUMNS: Final = "id, name, role, digest, queues, actions, created_by, created_at, expires_at, revoked_at, revoked_by, used_at"
_ADD: Final = """
INSERT INTO {schema}.key (id, name, role, digest, queues, actions, created_by, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp(), $8)
ON CONFLICT (id) DO NOTHING
"""
_EXPIRE: Final = """
UPDATE {schema}.key SET expires_at = least(expires_at, clock_timestamp() + $2 * interval '1 s') WHERE id = $1 RETURNING true
"""
_ROTATE: Final = """
UPDATE {schema}.key SET expires_at = least(expires_at, clock_timestamp() + $2 * interval '1 s')
WHERE id = $1 AND (
    (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()))
    OR EXISTS (SELECT FROM {schema}.key WHERE id = $3 AND digest = $4)  -- asked for again
)
RETURNING true
"""
_REVOKE: Final = """
UPDATE {schema}.key
SET revoked_by = CASE WHEN revoked_at IS NULL THEN $2 ELSE revoked_by END, revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE id = $1 RETURNING true
"""
_USE: Final = """
UPDATE {schema}.key SET used_at = clock_timestamp()
WHERE id = $1 AND (used_at IS NULL OR used_at <= clock_timestamp() - interval '1 minute')
"""
_AUDITS: Final = """
SELECT no, at, actor, action, targets, count, detail FROM {schema}.audit WHERE no < $1 {where}
ORDER BY no DESC LIMIT $2
"""
_BY: Final = "AND actor = ${n} AND left(actor, 100) = left(${n}, 100)"
_OF: Final = "AND action = ${n}"
"""Each where it is asked for, so that its index is used: what people do stands among many lines about enqueues."""

_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


class Access(Handle):
    """The access section of the port."""

    async def add_key(self, key: Key, *, by: str = "") -> None:
        """Keep a key; one that is known stays as it is."""

        async def work(connection: Connection) -> None:
            await self._keep(connection, key, by)
            if by:
                line = audit_line(Action.ADD_KEY, [key.id], by=by, detail=f"{key.role} {key.name}")
                await self._write_line(connection, line)

        await self._db.in_transaction(work)

    async def _keep(self, connection: Connection, key: Key, by: str) -> None:
        scopes = (_text(key.queues), _text(key.actions))
        row = (key.id, key.name, key.role.value, key.digest, *scopes, said(key.created_by or by), key.expires_at)
        await connection.execute(self._sql(_ADD), *row)
        if await connection.fetchval(self._sql("SELECT digest FROM {schema}.key WHERE id = $1"), key.id) != key.digest:
            raise BadJob("there is another key of this id", path="key.id")

    async def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        """Return all keys or those of these ids, newest first."""
        where, values = ("", ()) if ids is None else ("WHERE id = ANY($1)", (list(filter(names_a_key, ids)),))
        sql = f'SELECT {_COLUMNS} FROM {{schema}}.key {where} ORDER BY created_at DESC, id COLLATE "C" DESC'
        return [_key(row) for row in await self._db.fetch(self._sql(sql), *values)]

    async def expire_key(self, key_id: str, within: float, *, by: str = "") -> bool:
        """Have a key end within so many seconds, sooner where it would anyway."""
        check_seconds(within, "within", least=0.0)
        return await self._end(Action.EXPIRE_KEY, key_id, by, self._sql(_EXPIRE), float(within), detail=f"within {within:g} s")

    async def rotate_key(self, key_id: str, new: Key, within: float, *, by: str = "") -> bool:
        """Keep a key in the place of another, which ends a while later."""
        check_rotation(key_id, new, within)

        async def work(connection: Connection) -> bool:
            if not await connection.fetchval(self._sql(_ROTATE), key_id, float(within), new.id, new.digest):
                return False
            await self._keep(connection, new, by)
            if by:
                await self._write_line(connection, rotation_line(key_id, new, within, by=by))
            return True

        return names_a_key(key_id) and await self._db.in_transaction(work)

    async def revoke_key(self, key_id: str, *, by: str = "") -> bool:
        """End a key at once; the first revocation stands."""
        return await self._end(Action.REVOKE_KEY, key_id, by, self._sql(_REVOKE), said(by))

    async def _end(self, action: Action, key_id: str, by: str, sql: str, value: object, *, detail: str = "") -> bool:
        if not names_a_key(key_id):
            return False
        known = await self._audited(
            by,
            lambda connection: connection.fetchval(sql, key_id, value),
            lambda known: audit_line(action, [key_id], by=by, detail=detail) if known else None,
        )
        return known is not None

    async def use_key(self, key_id: str) -> None:
        """Note that a key was used, once a minute at most."""
        if names_a_key(key_id):
            await self._db.execute(self._sql(_USE), key_id)

    async def note(self, action: Action, targets: Sequence[str] = (), *, by: str, detail: str = "") -> None:
        """Write a line into the audit log for what is no operation of the store."""
        line = audit_line(action, targets, by=by, detail=detail)
        await self._db.run(lambda connection: self._write_line(connection, line))

    async def audits(
        self, *, limit: int, before: int | None = None, actor: str | None = None, action: Action | None = None
    ) -> list[AuditView]:
        """Return lines of the audit log, newest first, below number `before`."""
        below = MOST_NUMBER if before is None else max(0, min(before, MOST_NUMBER))
        asked = [(_BY, said(actor))] if actor is not None else []
        asked += [(_OF, action.value)] if action is not None else []
        where = " ".join(template.replace("{n}", str(n)) for n, (template, _) in enumerate(asked, start=3))
        rows = await self._db.fetch(
            self._sql(_AUDITS.replace("{where}", where)), below, most(limit), *(value for _, value in asked)
        )
        return [_line(row) for row in rows]


def _text(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else msgspec.json.encode(names).decode()


def _key(row: Record) -> Key:
    scopes = {field: None if row[field] is None else _names(row[field]) for field in ("queues", "actions")}
    return Key(**{**row, **scopes, "role": Role(row["role"])})


def _line(row: Record) -> AuditView:
    return AuditView(**{**row, "action": Action(row["action"]), "targets": _names(row["targets"])})
