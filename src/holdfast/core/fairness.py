"""In which order a claimer looks into its lanes, and how much it takes of each."""

from __future__ import annotations

from math import ceil, log1p
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.job import RETRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

AGING_TURN: Final = 10
"""Every tenth claim goes by age alone, so that low priorities are never starved. By age throughout, not only at its beginning:
what waited longest may be held back by a limit or a pause, and must not stand before what waits behind it."""


MOST_CREDIT: Final = 2.0
"""How many claims' worth of jobs a key may be ahead of its share, or behind it: what goes beyond is forgotten, so that neither
a key that was alone for a while nor one that a limit held back decides what happens for long after that."""


class Head(NamedTuple):
    """The oldest waiting job of a lane, as last seen."""

    lane: int
    priority: int
    ready_at: datetime
    queue: str = ""
    retries: bool = False
    """The lane holds jobs that have failed before."""
    weight: float | None = None
    """Of a lane that belongs to the key of a limit: how much its turn weighs among the keys of its queue."""
    held: bool = False
    """A limit held it back when last asked, and most likely does so still."""


def order(heads: Iterable[Head], turn: int, *, first: str | None = None, retries_first: bool = False) -> list[Head]:
    """Return the lanes in the order to claim from them; `turn` counts the claims.

    Higher priorities first; equal ones by their oldest waiting job, so that tasks interleave nearly first-in first-out.
    A claimer with weights names the queue whose turn it is (`first`), one that keeps a share for retries says so now and
    then (`retries_first`); the rest follows in the usual order, so that no claim goes empty for the sake of fairness.
    """
    if by_age(turn):
        return sorted(heads, key=lambda head: (head.held, head.ready_at))
    if first is None and not retries_first:  # the same for every head; most claims are such, and some have a hundred lanes
        return sorted(heads, key=lambda head: (-head.priority, head.ready_at))
    return sorted(
        heads, key=lambda head: (head.queue != first, retries_first and not head.retries, -head.priority, head.ready_at)
    )


def first_turn(lot: float) -> int:
    """Return where a claimer begins to count its claims: each elsewhere, or none of many short-lived ones goes by age."""
    return int(lot * AGING_TURN)


def drawn(lot: float, weight: float) -> float:
    """Return when one of this weight comes, of all who draw lots: the lowest number is the first, as often as its weight says.

    From exponential distributions, of which the smallest is drawn in proportion to the rates; so it is for the next one among
    those that are left. Who draws nothing but 0 leaves all equal.
    """
    return -log1p(-lot) / weight


def by_age(turn: int) -> bool:
    """Tell whether a claim takes what has waited longest, whatever its priority, queue or key."""
    return turn % AGING_TURN == AGING_TURN - 1


class Share(NamedTuple):
    """A lane, and how many jobs to take from it before the lanes behind it have had theirs."""

    head: Head
    quota: int


class Shares:
    """Has the keys of a queue take turns by weight, over many claims and within each.

    What flows to a key with each claim, in proportion to its weight, is its credit, and what it takes is drawn from that. Keys
    with the most credit come first, and none takes more than it has before the others were asked; what is left then is
    anybody's, so that no claim goes empty for the sake of fairness. A key that has nothing waiting saves nothing up.

    It is each claimer's own account. Among keys with equal credit, as all have in the beginning, lots are drawn by weight:
    claimers that begin together, or make but one claim each, would else all take from the same key.
    """

    def __init__(self, lot: Callable[[], float]) -> None:
        self._lot = lot
        self._credit: dict[int, float] = {}

    def spread(self, ordered: Sequence[Head], limit: int, turn: int, *, retries_first: bool = False) -> list[Share]:
        """Return lanes that are in order with their quotas. The keys of a queue and priority stand together.

        The retries of a key count as the key. They stand with the retries of the others where those come first, and with their
        key in any other turn. In a turn by age each lane stays where it is.
        """
        if all(head.weight is None for head in ordered):  # nearly always
            return [Share(head, limit) for head in ordered]
        keyed: dict[tuple[str, int], dict[int, float]] = {}
        together: dict[tuple[str, int, bool], list[Head]] = {}
        for head in ordered:
            if head.weight is not None:
                keyed.setdefault((head.queue, head.priority), {})[_key(head.lane)] = head.weight
                together.setdefault((head.queue, head.priority, retries_first and head.retries), []).append(head)
        credit: dict[int, float] = {}
        standing: dict[int, tuple[float, float]] = {}
        for weights in keyed.values():
            total = sum(weights.values())
            new = self._credit.keys().isdisjoint(
                weights
            )  # then it is the lot alone: by credit all would begin with the heaviest
            for key, weight in weights.items():
                credit[key] = min(MOST_CREDIT * limit, self._credit.get(key, 0.0) + limit * weight / total)
                standing[key] = 0.0 if new else -round(credit[key], 9), drawn(self._lot(), weight)
        self._credit = credit
        shares: list[Share] = []
        for head in ordered:
            if head.weight is None:
                shares.append(Share(head, limit))
                continue
            group = (head.queue, head.priority, retries_first and head.retries)
            heads = [head] if by_age(turn) else together.pop(group, [])
            heads.sort(key=lambda one: (standing[_key(one.lane)], one.ready_at))
            shares += [Share(one, max(1, min(limit, ceil(credit[_key(one.lane)])))) for one in heads]
        return shares

    def took(self, lane: int, jobs: int, limit: int) -> None:
        """Take note of what a claim of `limit` jobs took from a lane."""
        if (key := _key(lane)) in self._credit:
            self._credit[key] = max(-MOST_CREDIT * limit, self._credit[key] - jobs)


def _key(lane: int) -> int:
    """Return what the retries of a lane have in common with it."""
    return lane & ~RETRIES
