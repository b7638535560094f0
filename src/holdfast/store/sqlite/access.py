"""Who may do what, and who did: keys, and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.core.text import clean
from holdfast.errors import BadJob
from holdfast.store.port import TEXT_LIMIT, Action, AuditView, Key, Role, audit_line, names_a_key, rotation_line
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.values import list_of, list_text, microseconds, moment, moment_or_none, names_of, stamp

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from holdfast.store.port import Answer, AuditLine
    from holdfast.store.sqlite.writing import Writing

USE_NOTED: Final = 60.0
"""Seconds after which another use of a key is written down."""
MOST_NUMBER: Final = 2**63 - 1


def audit(writing: Writing, line: AuditLine) -> None:
    """Write a line into the audit log, where somebody is named in it."""
    if line.actor:
        write_line(writing, line)


def audit_batch(
    writing: Writing, action: Action, targets: Collection[object], answers: list[Answer], *, by: str, reason: str = ""
) -> list[Answer]:
    """Write the line about a call that many answers were given to; returns these."""
    if by and targets:
        audit(writing, audit_line(action, targets, by=by, detail=reason, answers=answers))
    return answers


def write_line(writing: Writing, line: AuditLine) -> None:
    """Write a line into the audit log."""
    row = (writing.now, line.actor, line.action.value, list_text(line.targets), line.count, line.detail)
    writing.connection.execute(sql("note.line"), row)


def note(writing: Writing, action: Action, targets: Sequence[str], by: str, detail: str) -> None:
    """Write a line for what is no operation of the store; see the port."""
    write_line(writing, audit_line(action, targets, by=by, detail=detail))


def audits(
    connection: sqlite3.Connection, limit: int, before: int | None, actor: str | None, action: Action | None
) -> list[AuditView]:
    """Return lines of the audit log, newest first."""
    below = MOST_NUMBER if before is None else max(0, min(before, MOST_NUMBER))
    wanted = None if actor is None else clean(actor, TEXT_LIMIT)
    values = {"before": below, "actor": wanted, "action": action and action.value, "limit": max(0, limit)}
    # a statement for each way to ask, so that an index is used: what people do stands among many lines about enqueues
    asked = "lines" + ("" if actor is None else "_by") + ("" if action is None else "_of")
    return [
        AuditView(
            no=no,
            at=moment(at),
            actor=actor,
            action=Action(action),
            targets=names_of(targets),
            count=count,
            detail=detail,
        )
        for no, at, actor, action, targets, count, detail in connection.execute(sql(f"audits.{asked}"), values)
    ]


def add_key(writing: Writing, key: Key, by: str) -> None:
    """Keep a key; one that is known stays as it is."""
    _keep(writing, key, by)
    audit(writing, audit_line(Action.ADD_KEY, [key.id], by=by, detail=f"{key.role} {key.name}"))


def _keep(writing: Writing, key: Key, by: str) -> None:
    execute = writing.connection.execute
    known = execute(sql("add_key.digest"), (key.id,)).fetchone()
    if known is not None and known[0] != key.digest:
        raise BadJob("there is another key of this id", path="key.id")
    if known is None:
        created_by = clean(key.created_by or by, TEXT_LIMIT)
        scopes = (list_text(key.queues), list_text(key.actions))
        expires_at = None if key.expires_at is None else stamp(key.expires_at)
        row = (key.id, key.name, key.role.value, key.digest, *scopes, created_by, writing.now, expires_at)
        execute(sql("add_key.key"), row)


def expire_key(writing: Writing, key_id: str, within: float, by: str) -> bool:
    """Have a key end within so many seconds, sooner where it would anyway."""
    values = {"id": key_id, "end": writing.now + microseconds(within)}
    if not writing.connection.execute(sql("expire_key.key"), values).rowcount:
        return False
    audit(writing, audit_line(Action.EXPIRE_KEY, [key_id], by=by, detail=f"within {within:g} s"))
    return True


def rotate_key(writing: Writing, key_id: str, new: Key, within: float, by: str) -> bool:
    """Keep a key in the place of another, which ends a while later."""
    values = {"id": key_id, "end": writing.now + microseconds(within), "now": writing.now, "new": new.id, "digest": new.digest}
    if not writing.connection.execute(sql("rotate_key.old"), values).rowcount:
        return False
    _keep(writing, new, by)
    audit(writing, rotation_line(key_id, new, within, by=by))
    return True


def revoke_key(writing: Writing, key_id: str, by: str) -> bool:
    """End a key at once; the first revocation stands."""
    values = {"id": key_id, "now": writing.now, "by": clean(by, TEXT_LIMIT)}
    if not writing.connection.execute(sql("revoke_key.key"), values).rowcount:
        return False
    audit(writing, audit_line(Action.REVOKE_KEY, [key_id], by=by))
    return True


def use_key(writing: Writing, key_id: str) -> None:
    """Note that a key was used."""
    writing.connection.execute(sql("use_key.key"), {"id": key_id, "now": writing.now, "noted": microseconds(USE_NOTED)})


def unnoted(connection: sqlite3.Connection, key_id: str, now: int) -> bool:
    """Tell whether a use of a key is to be written down."""
    values = {"id": key_id, "now": now, "noted": microseconds(USE_NOTED)}
    return connection.execute(sql("use_key.unnoted"), values).fetchone() is not None


def keys(connection: sqlite3.Connection, ids: Sequence[str] | None = None) -> list[Key]:
    """Return all keys or those of these ids, newest first."""
    if ids is None:
        return [_key(row) for row in connection.execute(sql("keys.keys"))]
    wanted = list_text(tuple(filter(names_a_key, ids)))
    return [_key(row) for row in connection.execute(sql("keys.by_id"), (wanted,))]


_COLUMNS: Final = (
    *("id", "name", "role", "digest", "queues", "actions", "created_by"),
    *("created_at", "expires_at", "revoked_at", "revoked_by", "used_at"),
)


def _key(values: Sequence[Any]) -> Key:
    row = dict(zip(_COLUMNS, values, strict=True))
    return Key(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        digest=row["digest"],
        queues=list_of(row["queues"]),
        actions=list_of(row["actions"]),
        created_by=row["created_by"],
        created_at=moment(row["created_at"]),
        expires_at=moment_or_none(row["expires_at"]),
        revoked_at=moment_or_none(row["revoked_at"]),
        revoked_by=row["revoked_by"],
        used_at=moment_or_none(row["used_at"]),
    )
