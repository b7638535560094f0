"""Limits: how many jobs of a queue, of a task or with a key may run at once, and how many may start in a span of time."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.core.numbers import check_number, check_seconds
from holdfast.core.text import checked_name
from holdfast.errors import BadJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.needs import Needs

MOST_AT_ONCE: Final = 1_000_000
MOST_RATE: Final = 1e9
LEAST_RATE: Final = 1e-9
LEAST_COST: Final = 1e-6
MOST_COST: Final = 1e9
LEAST_WEIGHT: Final = 1e-3
MOST_WEIGHT: Final = 1e3
SHORTEST_PER: Final = 0.001
AGAIN: Final = 2.0
"""Seconds after which it is worth asking again for jobs that a limit holds back, should nobody tell that there is room."""


class LimitKind(StrEnum):
    """What a limit is about."""

    QUEUE = "queue"
    """All jobs of a queue."""
    TASK = "task"
    """All jobs of a task."""
    KEY = "key"
    """The jobs of a scope that have the same key."""


class LimitName(NamedTuple):
    """Which limit: the queue's, the task's, or that of a scope, for each of its keys (`None`) or one of them."""

    kind: LimitKind
    name: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.key is None else f"{self.kind} {self.name} {self.key}"


@lru_cache(maxsize=100_000)
def limit_id(name: LimitName) -> int:
    """Return the number of a limit, from 1 to 2**63 - 1, the same on every client without asking anyone."""
    parts = (name.kind.value, name.name) if name.key is None else (name.kind.value, name.name, name.key)
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


class LimitKey(msgspec.Struct, frozen=True):
    """The key that a job shares a limit by, and how much its turn weighs among the other keys of its queue."""

    scope: str
    key: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no store could keep."""
        checked_name(self.scope, "limit.scope")
        if self.key:
            checked_name(self.key, "limit.key")
        check_number(self.weight, "limit.weight", least=LEAST_WEIGHT, most=MOST_WEIGHT)

    @property
    def name(self) -> LimitName:
        """The limit that it counts for."""
        return LimitName(LimitKind.KEY, self.scope, self.key)


class LimitRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit says. `None`: nothing of that kind.

    A job starts when no more than `most` run with it, and when the bucket has its cost: `rate` flows in each second, and no
    more than `burst` is kept. One that costs more than the bucket holds starts when that is full, and leaves a debt.
    """

    most: int | None = None
    rate: float | None = None
    burst: float | None = None
    """By default what flows in within a second, and at least one."""
    weight: float | None = None
    """How much the turn of a queue weighs, or that of a single key, instead of what its program or its jobs say."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        if self.most is not None and (type(self.most) is not int or not 0 <= self.most <= MOST_AT_ONCE):
            raise BadJob(f"must be a whole number from 0 to {MOST_AT_ONCE:,}, not {self.most}", path="limit.most")
        if self.rate is not None:
            check_number(self.rate, "limit.rate", least=LEAST_RATE, most=MOST_RATE)
        if self.burst is not None:
            if self.rate is None:
                raise BadJob("says how much of a rate is kept, and there is none: give rate= too", path="limit.burst")
            check_number(self.burst, "limit.burst", least=LEAST_COST, most=MOST_COST)
        if self.weight is not None:
            check_number(self.weight, "limit.weight", least=LEAST_WEIGHT, most=MOST_WEIGHT)

    @property
    def size(self) -> float:
        """How much its bucket holds."""
        return self.burst if self.burst is not None else max(1.0, self.rate or 0.0)

    @property
    def nothing(self) -> bool:
        """Whether it holds nothing back and changes no turn."""
        return self.most is None and self.rate is None and self.weight is None

    def __str__(self) -> str:
        return rule_text(self)

    @property
    def weighs_alone(self) -> bool:
        """Whether it speaks of the weight alone: then what else holds goes on to hold."""
        return self.weight is not None and self.most is None and self.rate is None


def rate_text(rate: float) -> str:
    """Return a rate as people say it: in the shortest span in which at least one flows in."""
    for seconds, word in ((1, "a second"), (60, "a minute"), (3600, "an hour")):
        if rate * seconds >= 1:
            return f"{rate * seconds:g} {word}"
    return f"{rate * 86_400:g} a day"


def rule_text(rule: LimitRule | None) -> str:
    """Return what a limit says, as people say it."""
    if rule is None or rule.nothing:
        return "no limit"
    said = [] if rule.most is None else [f"at most {rule.most} at once"]
    if rule.rate is not None:
        burst = f", up to {rule.burst:g} at a time" if rule.burst is not None else ""
        said.append(f"{rate_text(rule.rate)}{burst}")
    if rule.weight is not None:
        said.append(f"weight {rule.weight:g}")
    return ", ".join(said)


def check_cost(cost: float) -> None:
    """Refuse a cost that is none."""
    check_number(cost, "cost", least=LEAST_COST, most=MOST_COST)


def names_over(queue: str, task: str, needs: Needs, *, fifo: bool) -> Iterator[LimitName]:
    """Go through the limits that may hold back the jobs of a lane. A `fifo` lane has several tasks: only its queue's does."""
    yield LimitName(LimitKind.QUEUE, queue)
    if not fifo:
        yield LimitName(LimitKind.TASK, task)
    if needs.limit is not None:
        yield needs.limit.name


class Bucket(NamedTuple):
    """How much of a rate is there, and since when that is known (seconds on some clock)."""

    tokens: float
    at: float

    def filled(self, rule: LimitRule, now: float) -> Bucket:
        """Return it as it stands now. A clock that went back fills nothing."""
        flowed = (rule.rate or 0.0) * max(0.0, now - self.at)
        return Bucket(min(rule.size, self.tokens + flowed), now)


class Room:
    """What one limit leaves for the jobs of one claim. Counts down as they are taken."""

    __slots__ = ("_rule", "at", "running", "spent", "tokens")

    def __init__(self, rule: LimitRule, running: int, bucket: Bucket | None, now: float) -> None:
        self._rule = rule
        self.at = now
        self.running = running
        self.tokens = rule.size if bucket is None else bucket.filled(rule, now).tokens
        self.spent = False

    @property
    def full(self) -> bool:
        """Whether no job may start, whatever it costs."""
        return self._rule.most is not None and self.running >= self._rule.most

    def admits(self, cost: float) -> bool:
        """Tell whether one more job may start. What costs more than the bucket holds needs it full."""
        if self.full:
            return False
        return self._rule.rate is None or self.tokens >= min(cost, self._rule.size) - SLACK

    @property
    def starts(self) -> int | None:
        """How many jobs may start now that cost what jobs usually do; `None`: any number."""
        most = None if self._rule.most is None else max(0, self._rule.most - self.running)
        if self._rule.rate is None:
            return most
        # a bucket that holds less than a whole one lets one start when it is full
        flowing = max(int(self.tokens + SLACK), int(self.tokens >= min(1.0, self._rule.size) - SLACK))
        return flowing if most is None else min(most, flowing)

    def take(self, cost: float) -> None:
        """Count a job that starts."""
        self.running += 1
        if self._rule.rate is not None:
            self.tokens -= cost
            self.spent = True

    def again(self, cost: float) -> float:
        """Return in how many seconds it is worth asking again for a job that is not admitted."""
        if self.full:
            return AGAIN
        lacking = min(cost, self._rule.size) - self.tokens
        return AGAIN if self._rule.rate is None else max(0.0, lacking / self._rule.rate)


SLACK: Final = 1e-9
"""Sums of fractions fall short of what they should be."""


def ruling(own: LimitRule | None, override: LimitRule | None, declared: LimitRule | None) -> LimitRule | None:
    """Return what a limit says: what was set for the very key, else what people have set, else what was declared.

    What was set for a key and speaks of its weight alone leaves it under the limit of its scope; so does the weight of a queue
    with what was declared for it.
    """
    if own is not None and (own.most is not None or own.rate is not None):
        return own
    rule = declared if override is None or override.weighs_alone else override
    return None if rule is None or (rule.most is None and rule.rate is None) else rule


def limit_named(
    *, queue: str | None = None, task: str | None = None, scope: str | None = None, key: str | None = None
) -> LimitName:
    """Return which limit somebody means who names a queue, a task or a scope, for each of its keys or one of them."""
    named = {LimitKind.QUEUE: queue, LimitKind.TASK: task, LimitKind.KEY: scope}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise BadJob("name one of queue, task and scope", path="limit")
    name = LimitName(given[0][0], given[0][1], key)
    check_limit(name, None)
    return name


def make_rule(
    *,
    most: int | None = None,
    rate: float | None = None,
    per: float = 1.0,
    burst: float | None = None,
    weight: float | None = None,
) -> LimitRule:
    """Return what somebody says about a limit, whose rate is so many in `per` seconds."""
    check_seconds(per, "limit.per", least=SHORTEST_PER)
    if rate is not None:
        check_number(rate, "limit.rate", least=0.0, most=MOST_RATE)
    return LimitRule(most=most, rate=None if rate is None else rate / per, burst=burst, weight=weight)


def check_limit(name: LimitName, rule: LimitRule | None) -> None:
    """Refuse a limit that no store could keep, or that would not do what it says."""
    checked_name(name.name, f"limit.{name.kind}")
    if name.key is not None:
        if name.kind is not LimitKind.KEY:
            raise BadJob(f"a {name.kind} has no keys: name the scope that they belong to", path="limit.key")
        if name.key:
            checked_name(name.key, "limit.key")
    elif rule is not None and rule.weight is not None and name.kind is not LimitKind.QUEUE:
        problem = "queues and single keys have a weight"
        raise BadJob(f"{problem}: name the key too" if name.kind is LimitKind.KEY else problem, path="limit.weight")
