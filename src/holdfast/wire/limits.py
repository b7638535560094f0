"""Limits on the wire: as they stand, and as they are set."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.limits import LimitKind, LimitName, LimitRule, limit_named, make_rule
from holdfast.errors import BadJob
from holdfast.wire.values import seconds

if TYPE_CHECKING:
    from holdfast.store.port import LimitView


class RuleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit says; null: nothing of that kind. The rate is for each second."""

    most: int | None = None
    rate: float | None = None
    burst: float | None = None
    weight: float | None = None

    @classmethod
    def of(cls, rule: LimitRule | None) -> RuleInfo | None:
        """Return a rule for the wire."""
        if rule is None:
            return None
        return cls(most=rule.most, rate=rule.rate, burst=rule.burst, weight=rule.weight)


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it stands: what holds (`rule`), what programs declare and what people have set, and how far it is used."""

    kind: LimitKind
    """`queue`, `task`, or `key`: then the name is that of the scope."""
    name: str
    key: str | None
    """A single key of a scope; null: the queue, the task, or each key of the scope."""
    rule: RuleInfo | None
    declared: RuleInfo | None
    override: RuleInfo | None
    override_by: str
    override_at: datetime | None
    running: int
    tokens: float | None
    """What is left of the rate; null: all of it, or there is none."""

    @classmethod
    def of(cls, view: LimitView) -> LimitInfo:
        """Return a view for the wire."""
        return cls(
            kind=view.name.kind,
            name=view.name.name,
            key=view.name.key,
            rule=RuleInfo.of(view.rule),
            declared=RuleInfo.of(view.declared),
            override=RuleInfo.of(view.override),
            override_by=view.override_by,
            override_at=view.override_at,
            running=view.running,
            tokens=view.tokens,
        )


class LimitsAnswer(msgspec.Struct, frozen=True):
    """The limits by their names, up to 1,000: those of queues, tasks and scopes first among them."""

    limits: list[LimitInfo]


class ClearLimitRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which limit: that of a queue, of a task, of each key of a scope, or of one of them."""

    queue: str | None = None
    task: str | None = None
    scope: str | None = None
    key: str | None = None

    def named(self) -> LimitName:
        """Return the limit that is meant."""
        return limit_named(queue=self.queue, task=self.task, scope=self.scope, key=self.key)


class SetLimitRequest(ClearLimitRequest, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A limit, and all that is to hold: what is not said holds no more. The rate is for `per_ms` milliseconds."""

    most: int | None = None
    rate: float | None = None
    per_ms: float = 1000.0
    burst: float | None = None
    weight: float | None = None

    def rule(self) -> LimitRule:
        """Return what is to hold."""
        rule = make_rule(most=self.most, rate=self.rate, per=seconds(self.per_ms), burst=self.burst, weight=self.weight)
        if rule.nothing:
            raise BadJob("says nothing: give most, rate or weight; what is declared holds again by /limits/clear", path="limit")
        return rule
