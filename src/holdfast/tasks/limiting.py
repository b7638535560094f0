"""`Limit`: what a task or a queue says about how many of its jobs run at once, and how often they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.limits import check_cost, make_rule
from holdfast.errors import BadJob

if TYPE_CHECKING:
    from holdfast.core.limits import LimitRule


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs may run at once over all workers (`most`), and how often they may start (`rate` in `per` seconds).

    For all jobs of the task or queue that says it; with `key`, for those with the same key, each. `key` is text with `{arg}`
    fields, or a function of the args. Tasks that name the same `scope` share its keys. `burst` is how much of the rate may be
    used at once, `cost` how much of it a job takes. Keys of a queue take turns; one of `weight` 2 has twice as many.
    """

    most: int | None = None
    _: KW_ONLY
    key: str | Callable[..., str] | None = None
    scope: str | None = None
    rate: float | None = None
    per: float | timedelta = 1.0
    burst: float | None = None
    cost: float | Callable[..., float] = 1.0
    weight: float | Callable[..., float] = 1.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        self.rule()
        if not callable(self.cost):
            check_cost(self.cost)
        if self.key is not None and not isinstance(self.key, str) and not callable(self.key):
            raise BadJob(f"must be a text or a function of the args, not {self.key!r}", path="limit.key")
        if self.most is None and self.rate is None and not self.keyed:
            raise BadJob("limits nothing: give most=, rate= or key=", path="limit")
        if not self.keyed and self.weight != 1.0:
            raise BadJob("is that of a key among others: give key= too", path="limit.weight")

    @property
    def keyed(self) -> bool:
        """Whether it is about keys."""
        return self.key is not None or self.scope is not None

    @property
    def says_cost(self) -> bool:
        """Whether it has a word on what a job takes: 1 is what every job does."""
        return callable(self.cost) or self.cost != 1.0

    def rule(self) -> LimitRule:
        """Return what it says, as stores keep it."""
        per = self.per.total_seconds() if isinstance(self.per, timedelta) else self.per
        return make_rule(most=self.most, rate=self.rate, per=per, burst=self.burst)


class Limiting(NamedTuple):
    """The limits of a task: one over all of its jobs, and one by key."""

    whole: Limit | None = None
    keyed: Limit | None = None

    @property
    def cost(self) -> float | Callable[..., float]:
        """How much of a rate a job takes, of each of them."""
        return next((limit.cost for limit in self if limit is not None and limit.says_cost), 1.0)


UNLIMITED: Final = Limiting()


def limiting_of(limits: Limit | Sequence[Limit] | None) -> Limiting:
    """Return the limits of a task, told apart."""
    if limits is None:
        return UNLIMITED
    given = tuple(limits) if isinstance(limits, Sequence) else (limits,)
    for one in given:
        if not isinstance(one, Limit):
            raise BadJob(f"must be a Limit or a list of them, not {one!r}", path="limit")
    whole, keyed = [one for one in given if not one.keyed], [one for one in given if one.keyed]
    if len(whole) > 1 or len(keyed) > 1:
        raise BadJob("a task has one limit for all of its jobs and one by key", path="limit")
    costs = [one.cost for one in given if one.says_cost]
    if any(cost != costs[0] for cost in costs):
        told = " and ".join("a function" if callable(cost) else f"{cost:g}" for cost in costs)
        raise BadJob(f"{told}: a job has one cost, which it takes of every rate. Say it in one limit", path="limit.cost")
    return Limiting(whole[0] if whole else None, keyed[0] if keyed else None)
