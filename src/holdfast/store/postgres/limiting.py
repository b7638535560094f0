"""Limits: what is said about them, and how far they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.limits import LimitKind, LimitName, LimitRule, check_limit, limit_id, names_over, rule_text
from holdfast.core.needs import needs_of
from holdfast.store.port import MOST_LIMITS, Action, LimitView, audit_line
from holdfast.store.postgres.handle import Handle
from holdfast.store.postgres.steering import said

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.store.postgres.connection import Connection

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(LimitRule)

_KNOWN: Final = "SELECT id, declared FROM {schema}.limits WHERE id = ANY ($1)"
_DECLARE: Final = """
INSERT INTO {schema}.limits (id, kind, name, key, declared) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET declared = excluded.declared, base = 0
"""
_SET: Final = """
INSERT INTO {schema}.limits (id, kind, name, key, override, override_by, override_at)
VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $5::text IS NOT NULL THEN clock_timestamp() END)
ON CONFLICT (id) DO UPDATE
SET override = excluded.override, override_by = excluded.override_by, override_at = excluded.override_at, base = 0
"""
_UNDECLARE: Final = "UPDATE {schema}.limits SET declared = NULL WHERE id = $1"
_FORGET: Final = "DELETE FROM {schema}.limits WHERE id = $1 AND declared IS NULL AND override IS NULL AND kind <> 'key'"
_RUNNING: Final = """
SELECT l.job_id, l.attempt, l.no, j.queue, j.task, e.requires, j.entry <> j.lane AND e.requires IS NULL AS fifo
FROM {schema}.lease l
JOIN {schema}.job j ON j.id = l.job_id
LEFT JOIN LATERAL (
    SELECT e.requires FROM {schema}.lane e WHERE e.id = j.lane AND e.entry = j.entry AND e.keyed LIMIT 1
) e ON true
"""
_ADOPT: Final = """
INSERT INTO {schema}.permit (limit_id, no, job_id, attempt)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::int[]) ON CONFLICT DO NOTHING
"""
_KEYS: Final = """
INSERT INTO {schema}.limits (id, kind, name, key)
SELECT u.id, 'key', u.name, u.key FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u(id, name, key)
ORDER BY u.id ON CONFLICT DO NOTHING
"""
_NAMED: Final = """
SELECT t.kind, t.name, t.key FROM {schema}.limits t WHERE t.declared IS NOT NULL OR t.override IS NOT NULL
UNION
SELECT t.kind, t.name, t.key
FROM (
    SELECT DISTINCT p.limit_id FROM {schema}.permit p
    WHERE EXISTS (SELECT FROM {schema}.lease l WHERE l.job_id = p.job_id AND l.attempt = p.attempt OFFSET 0)
) p
JOIN {schema}.limits t ON t.id = p.limit_id AND t.key IS NOT NULL
"""
_LIMITS: Final = """
SELECT t.declared, t.override, coalesce(t.override_by, ''), t.override_at,
    CASE WHEN t.filled_at IS NOT NULL AND r.rate IS NOT NULL THEN r.tokens END, coalesce(r.running, 0), r.id IS NOT NULL, s.said
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS w(id, scope, n)
LEFT JOIN LATERAL (SELECT * FROM {schema}.limits l WHERE l.id = w.id LIMIT 1) t ON true
LEFT JOIN LATERAL (
    SELECT coalesce(l.override, l.declared) AS said FROM {schema}.limits l WHERE l.id = w.scope LIMIT 1
) s ON true
LEFT JOIN {schema}.rulings($1, $2) r ON r.id = w.id
ORDER BY w.n
"""
_OF_SCOPES: Final = """
SELECT t.name, count(*)
FROM {schema}.permit p
JOIN {schema}.limits t ON t.id = p.limit_id AND t.kind = 'key' AND t.name = ANY ($1) AND p.no >= t.base
WHERE EXISTS (SELECT FROM {schema}.lease l WHERE l.job_id = p.job_id AND l.attempt = p.attempt OFFSET 0)
GROUP BY t.name
"""


class Limits(Handle):
    """The limits section of the port."""

    async def declare(self, rules: Mapping[LimitName, LimitRule]) -> None:
        """Say what programs say about limits. What they have said before is not written again."""
        for name, rule in rules.items():
            check_limit(name, rule)
        rows = await self._db.fetch(self._sql(_KNOWN), [limit_id(name) for name in rules])
        said_before = {number: text for number, text in rows}  # noqa: C416  records are no pairs to a type checker
        texts = {name: None if rule.nothing else _encoder.encode(rule).decode() for name, rule in rules.items()}
        changed = {name: text for name, text in texts.items() if said_before.get(limit_id(name)) != text}

        async def work(connection: Connection) -> None:
            for name in sorted(changed, key=limit_id):
                number, text = limit_id(name), changed[name]
                if text is None:
                    await connection.execute(self._sql(_UNDECLARE), number)
                    await connection.execute(self._sql(_FORGET), number)
                else:
                    await connection.execute(self._sql(_DECLARE), number, name.kind.value, name.name, name.key, text)
            await self._adopt(connection, newly)

        newly = [name for name, text in changed.items() if text is not None]
        if changed:
            await self._db.in_transaction(work)
            await self._db.in_transaction(lambda connection: self._adopt(connection, newly))
            self._lanes.look_soon()

    async def set_limit(self, name: LimitName, rule: LimitRule | None, *, by: str = "") -> None:
        """Set a limit, whatever programs declare."""
        check_limit(name, rule)
        text = None if rule is None else _encoder.encode(rule).decode()
        who = "" if rule is None else said(by)
        line = audit_line(Action.SET_LIMIT, [name], by=by, detail="as declared" if rule is None else rule_text(rule))

        async def work(connection: Connection) -> None:
            number = limit_id(name)
            await connection.execute(self._sql(_SET), number, name.kind.value, name.name, name.key, text, who)
            await connection.execute(self._sql(_FORGET), number)
            await self._adopt(connection, said_of)
            if by:
                await self._write_line(connection, line)

        said_of = [] if rule is None else [name]
        await self._db.in_transaction(work)
        await self._db.in_transaction(lambda connection: self._adopt(connection, said_of))
        self._lanes.look_soon()

    async def _adopt(self, connection: Connection, names: Collection[LimitName]) -> None:
        """Count what runs already for limits that were just set. Claims that begin later count for themselves.

        Done once with the change and once after it: a claim that had begun before may have committed in between.
        """
        if not names:
            return
        permits = []
        keys: dict[int, LimitName] = {}
        for job_id, attempt, no, queue, task, requires, fifo in await connection.fetch(self._sql(_RUNNING)):
            needs = needs_of(tuple(msgspec.json.decode(requires)) if requires else ())
            for name in names_over(queue, task, needs, fifo=fifo):
                if name in names or name._replace(key=None) in names:
                    permits.append((limit_id(name), no, job_id, attempt))
                    if name.key is not None:
                        keys[limit_id(name)] = name
        if keys:
            columns = (list(keys), [name.name for name in keys.values()], [name.key for name in keys.values()])
            await connection.execute(self._sql(_KEYS), *columns)
        if permits:
            await connection.execute(self._sql(_ADOPT), *(list(column) for column in zip(*permits, strict=True)))

    async def limits(self, names: Sequence[LimitName] | None = None) -> list[LimitView]:
        """Return every limit that was declared or set, and the keys that jobs run with; or those that are named."""
        if names is not None:
            found = await self._limit_views(list(dict.fromkeys(names)))
            return [found[name][0] for name in names]
        rows = await self._db.fetch(self._sql(_NAMED))
        named = [LimitName(LimitKind(kind), name, key) for kind, name, key in rows]
        shown = sorted(named, key=lambda name: (name.key is not None, _in_order(name)))[:MOST_LIMITS]
        found = await self._limit_views(sorted(shown, key=_in_order))
        return [view for view, ruled in found.values() if view.name.key is None or view.override is not None or ruled]

    async def _limit_views(self, names: Sequence[LimitName]) -> dict[LimitName, tuple[LimitView, bool]]:
        """Return limits by name, each with whether it holds anything back."""
        scopes = [None if name.key is None else limit_id(name._replace(key=None)) for name in names]
        rows = await self._db.fetch(self._sql(_LIMITS), [limit_id(name) for name in names], scopes)
        whole = [name.name for name in names if name.kind is LimitKind.KEY and name.key is None]
        counted = await self._db.fetch(self._sql(_OF_SCOPES), whole) if whole else []
        totals = {scope: running for scope, running in counted}  # noqa: C416  as above
        found = {}
        for name, (declared, override, by, at, tokens, running, ruled, inherited) in zip(names, rows, strict=True):
            view = LimitView(
                name=name,
                declared=_rule(declared),
                override=_rule(override),
                override_by=by,
                override_at=at,
                running=totals.get(name.name, 0) if name.kind is LimitKind.KEY and name.key is None else running,
                tokens=tokens,
                inherited=_rule(inherited),
            )
            found[name] = view, ruled
        return found


def _in_order(name: LimitName) -> tuple[str, str, bool, str]:
    return (name.kind.value, name.name, name.key is not None, name.key or "")


def _rule(text: str | None) -> LimitRule | None:
    return None if text is None else _decoder.decode(text)
