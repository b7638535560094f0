"""Limits: what is said about them, and the room that they leave."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.core.limits import Bucket, LimitKind, LimitName, Room, check_limit, names_over, rule_text, ruling
from holdfast.core.needs import needs_of
from holdfast.core.states import State
from holdfast.core.text import clean
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.records import Limiting
from holdfast.store.port import MOST_LIMITS, TEXT_LIMIT, Action, LimitView, audit_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.core.job import NewJob
    from holdfast.core.limits import LimitRule
    from holdfast.store.memory.model import MemoryData


class Rooms:
    """What the limits leave for the jobs of one claim."""

    def __init__(self, data: MemoryData, now: datetime) -> None:
        self._limits = data.limits
        self._now = now
        self._rooms: dict[LimitName, Room | None] = {}
        self._running = running(data) if data.limits else Counter()

    def over(self, job: NewJob) -> list[Room]:
        """Return the room under each limit that holds for a job."""
        if not self._limits:
            return []
        return [room for name in names_of(job) if (room := self._room(name)) is not None]

    def _room(self, name: LimitName) -> Room | None:
        if name not in self._rooms:
            rule, known = rule_of(self._limits, name), self._limits.get(name)
            bucket = None
            if known is not None and known.filled_at is not None:
                bucket = Bucket(known.tokens, known.filled_at.timestamp())
            self._rooms[name] = None if rule is None else Room(rule, self._running[name], bucket, self._now.timestamp())
        return self._rooms[name]

    def weights(self, queues: frozenset[str] | None) -> dict[str, float]:
        """Return what people have set for the turns of queues."""
        return {
            name.name: known.override.weight
            for name, known in self._limits.items()
            if name.kind is LimitKind.QUEUE and known.override is not None and known.override.weight is not None
            if queues is None or name.name in queues
        }

    def keep(self) -> None:
        """Write down what was taken out of the buckets."""
        for name, room in self._rooms.items():
            if room is not None and room.spent:
                known = self._limits.setdefault(name, Limiting())
                known.tokens, known.filled_at = room.tokens, self._now


def names_of(job: NewJob) -> list[LimitName]:
    """Return the limits that may hold for a job."""
    return list(names_over(job.queue, job.task, needs_of(job.entry_needs), fifo=job.fifo))


def rule_of(limits: Mapping[LimitName, Limiting], name: LimitName) -> LimitRule | None:
    """Return what a limit says; that of a key is its own, or the one of all keys of its scope."""
    if (known := limits.get(name)) is None:
        known = Limiting()
    if name.key is None:
        return ruling(None, known.override, known.declared)
    scope = limits.get(LimitName(LimitKind.KEY, name.name)) or Limiting()
    return ruling(known.override, scope.override, scope.declared)


def running(data: MemoryData) -> Counter[LimitName]:
    """Return how many leases count for each limit."""
    return Counter(name for record in data.by_state[State.RUNNING].values() for name in names_of(record.job))


class Limits(Handle):
    """The limits section of the port."""

    async def declare(self, rules: Mapping[LimitName, LimitRule]) -> None:
        """Say what programs say about limits."""
        for name, rule in rules.items():
            check_limit(name, rule)
            if rule.nothing:
                if (known := self.data.limits.get(name)) is not None:
                    known.declared = None
            else:
                self.data.limits.setdefault(name, Limiting()).declared = rule

    async def set_limit(self, name: LimitName, rule: LimitRule | None, *, by: str = "") -> None:
        """Set a limit, whatever programs declare."""
        check_limit(name, rule)
        known = self.data.limits.setdefault(name, Limiting())
        known.override = rule
        known.override_by = clean(by, TEXT_LIMIT) if rule is not None else ""
        known.override_at = self.environment.now() if rule is not None else None
        self.audit(audit_line(Action.SET_LIMIT, [name], by=by, detail="as declared" if rule is None else rule_text(rule)))

    async def limits(self, names: Sequence[LimitName] | None = None) -> list[LimitView]:
        """Return every limit that was declared or set, and the keys that jobs run with; or those that are named."""
        now, counts = self.environment.now(), running(self.data)
        if names is not None:
            return [self._limit_view(name, counts, now) for name in names]
        said = {name for name, known in self.data.limits.items() if known.declared or known.override}
        ruled = {name for name in counts if name.key is not None and rule_of(self.data.limits, name) is not None}
        shown = sorted(said | ruled, key=lambda name: (name.key is not None, _in_order(name)))[:MOST_LIMITS]
        return [self._limit_view(name, counts, now) for name in sorted(shown, key=_in_order)]

    def _limit_view(self, name: LimitName, counts: Counter[LimitName], now: datetime) -> LimitView:
        known, rule = self.data.limits.get(name, Limiting()), rule_of(self.data.limits, name)
        tokens = None
        if rule is not None and rule.rate is not None and known.filled_at is not None:
            tokens = Bucket(known.tokens, known.filled_at.timestamp()).filled(rule, now.timestamp()).tokens
        whole = name.kind is LimitKind.KEY and name.key is None
        return LimitView(
            name=name,
            declared=known.declared,
            override=known.override,
            override_by=known.override_by,
            override_at=known.override_at,
            running=sum(count for one, count in counts.items() if one[:2] == name[:2]) if whole else counts[name],
            tokens=tokens,
            inherited=None if name.key is None else rule_of(self.data.limits, LimitName(LimitKind.KEY, name.name)),
        )


def _in_order(name: LimitName) -> tuple[str, str, bool, str]:
    return (name.kind.value, name.name, name.key is not None, name.key or "")
