"""Limits: what is said about them, and the room that they leave."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from holdfast.core.limits import (
    Bucket,
    LimitKind,
    LimitName,
    LimitRule,
    Room,
    check_limit,
    limit_id,
    names_over,
    rule_text,
    ruling,
)
from holdfast.core.needs import needs_of
from holdfast.core.text import clean
from holdfast.store.port import MOST_LIMITS, TEXT_LIMIT, Action, LimitView, audit_line
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.access import audit
from holdfast.store.sqlite.packing import listed
from holdfast.store.sqlite.values import moment_or_none, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.core.needs import Needs
    from holdfast.store.sqlite.facade import Executes
    from holdfast.store.sqlite.writing import Writing

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(LimitRule)
UNUSED_FOR: Final = 7 * 86_400 * 1_000_000
"""Microseconds after which the bucket of a key is forgotten: it is full again."""


class _Known(NamedTuple):
    """A limit as it is kept."""

    declared: LimitRule | None = None
    override: LimitRule | None = None
    tokens: float | None = None
    filled_at: int | None = None


class Rooms:
    """What the limits leave for the jobs of one claim."""

    def __init__(self, connection: Executes, now: int) -> None:
        self._connection = connection
        self._now = now
        self._known: dict[LimitName, _Known] = {}
        self._rooms: dict[LimitName, Room | None] = {}
        self._scopes: dict[str, LimitRule | None] = {}
        """What holds for keys of a scope that have no limit of their own."""
        self._running: Counter[LimitName] | None = None
        self.none = not connection.execute(sql("limit.any")).fetchone()[0]
        """Whether nobody has said anything about limits."""

    def know(self, names: Iterable[LimitName]) -> None:
        """Read what is kept of the keys of lanes at once: one by one takes long."""
        if self.none:
            return
        if keys := {limit_id(name): name for name in names if name not in self._known}:
            self._known |= dict.fromkeys(keys.values(), _Known())
            for number, *row in self._connection.execute(sql("limit.some"), (listed(list(keys)),)):
                self._known[keys[number]] = _known(row)

    def over(self, names: Sequence[LimitName]) -> list[Room]:
        """Return the room under each of these limits that says anything (`names_of_lane`)."""
        if self.none:
            return []
        rooms = self._rooms
        return [room for name in names if (room := rooms[name] if name in rooms else self._room(name)) is not None]

    def weight(self, needs: Needs) -> float | None:
        """Return how much the turn of a lane weighs among the keys of its queue; `None`: it has no key."""
        if needs.limit is None or self.none:
            return None if needs.limit is None else needs.limit.weight
        chosen = self._of(needs.limit.name).override
        return needs.limit.weight if chosen is None or chosen.weight is None else chosen.weight

    def weights(self, queues: frozenset[str] | None) -> dict[str, float]:
        """Return what people have set for the turns of queues."""
        if self.none:
            return {}
        rows = self._connection.execute(sql("limit.of_queues")).fetchall()
        rules = {name: _decoder.decode(rule) for name, rule in rows if queues is None or name in queues}
        return {name: rule.weight for name, rule in rules.items() if rule.weight is not None}

    def keep(self) -> None:
        """Write down what was taken out of the buckets."""
        for name, room in self._rooms.items():
            if room is not None and room.spent:
                values = (limit_id(name), name.kind.value, name.name, name.key, room.tokens, self._now)
                self._connection.execute(sql("limit.keep"), values)

    def _room(self, name: LimitName) -> Room | None:
        rule, known = self.rule(name), self._of(name)
        bucket = None if known.filled_at is None or known.tokens is None else Bucket(known.tokens, known.filled_at / 1e6)
        room = None if rule is None else Room(rule, self.running[name], bucket, self._now / 1e6)
        self._rooms[name] = room
        return room

    def rule(self, name: LimitName) -> LimitRule | None:
        """Return what a limit says; that of a key is its own, or the one of all keys of its scope."""
        known = self._of(name)
        if name.key is None:
            return ruling(None, known.override, known.declared)
        if known.override is None and name.name in self._scopes:  # as nearly always
            return self._scopes[name.name]
        scope = self._of(LimitName(LimitKind.KEY, name.name))
        self._scopes[name.name] = ruling(None, scope.override, scope.declared)
        return ruling(known.override, scope.override, scope.declared)

    def _of(self, name: LimitName) -> _Known:
        if name not in self._known:
            row = self._connection.execute(sql("limit.some"), (listed([limit_id(name)]),)).fetchone()
            self._known[name] = _Known() if row is None else _known(row[1:])
        return self._known[name]

    @property
    def running(self) -> Counter[LimitName]:
        """How many leases count for each limit: there are no more leases than slots of workers, so they are just counted."""
        if self._running is None:
            self._running = Counter()
            for queue, task, requires, fifo, jobs in self._connection.execute(sql("limit.running")):
                for name in names_of_lane(queue, task, requires, fifo=bool(fifo)):
                    self._running[name] += jobs
        return self._running


@lru_cache(maxsize=20_000)
def names_of_lane(queue: str, task: str, requires: str, *, fifo: bool) -> tuple[LimitName, ...]:
    """Return the limits that may hold for the jobs of a lane, as it is kept."""
    return tuple(names_over(queue, task, needs_of(names_of(requires)), fifo=fifo))


def declare(writing: Writing, rules: Mapping[LimitName, LimitRule]) -> None:
    """Say what programs say about limits; see the port."""
    for name, rule in rules.items():
        check_limit(name, rule)
    nothing_said = not writing.connection.execute(sql("limit.any")).fetchone()[0]
    for name, rule in rules.items():
        if rule.nothing and nothing_said:
            continue
        if rule.nothing:
            writing.connection.execute(sql("limit.undeclare"), (limit_id(name),))
        else:
            values = (limit_id(name), name.kind.value, name.name, name.key, _text(rule))
            writing.connection.execute(sql("limit.declare"), values)


def set_limit(writing: Writing, name: LimitName, rule: LimitRule | None, by: str) -> None:
    """Set a limit, whatever programs declare; see the port."""
    check_limit(name, rule)
    said = (None, "", None) if rule is None else (_text(rule), clean(by, TEXT_LIMIT), writing.now)
    writing.connection.execute(sql("limit.set"), (limit_id(name), name.kind.value, name.name, name.key, *said))
    audit(writing, audit_line(Action.SET_LIMIT, [name], by=by, detail="as declared" if rule is None else rule_text(rule)))


def limits(connection: Executes, now: int, names: Sequence[LimitName] | None) -> list[LimitView]:
    """Return every limit that was declared or set, and the keys that jobs run with, or those that are named; see the port."""
    rooms = Rooms(connection, now)
    if names is None:
        said = {LimitName(LimitKind(kind), name, key) for kind, name, key in connection.execute(sql("limit.said"))}
        said.update(name for name in rooms.running if name.key is not None and rooms.rule(name) is not None)
        shown = sorted(said, key=lambda name: (name.key is not None, _in_order(name)))[:MOST_LIMITS]
        names = sorted(shown, key=_in_order)
    return [_view(connection, rooms, name, now) for name in names]


def _in_order(name: LimitName) -> tuple[str, str, bool, str]:
    return (name.kind.value, name.name, name.key is not None, name.key or "")


def _view(connection: Executes, rooms: Rooms, name: LimitName, now: int) -> LimitView:
    row = connection.execute(sql("limit.shown"), (limit_id(name),)).fetchone()
    declared, override, by, at, kept, filled_at = row or (None, None, "", None, None, None)
    rule, tokens = rooms.rule(name), None
    if rule is not None and rule.rate is not None and filled_at is not None and kept is not None:
        tokens = Bucket(kept, filled_at / 1e6).filled(rule, now / 1e6).tokens
    whole = name.kind is LimitKind.KEY and name.key is None
    return LimitView(
        name=name,
        declared=_rule(declared),
        override=_rule(override),
        override_by=by,
        override_at=moment_or_none(at),
        running=sum(jobs for one, jobs in rooms.running.items() if one[:2] == name[:2]) if whole else rooms.running[name],
        tokens=tokens,
        inherited=None if name.key is None else rooms.rule(LimitName(LimitKind.KEY, name.name)),
    )


def _known(row: Sequence[Any]) -> _Known:
    declared, override, tokens, filled_at = row
    return _Known(_rule(declared), _rule(override), tokens, filled_at)


def _rule(text: str | None) -> LimitRule | None:
    return None if text is None else _decoder.decode(text)


def _text(rule: LimitRule) -> str:
    return _encoder.encode(rule).decode()
