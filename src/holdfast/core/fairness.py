"""In which order a claimer looks into its lanes, and how much it takes of each."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

AGING_TURN: Final = 10
"""Every tenth claim begins with the lane whose head waited longest, so that low priorities are never starved."""


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


def order(heads: Iterable[Head], turn: int, *, first: str | None = None, retries_first: bool = False) -> list[Head]:
    """Return the lanes in the order to claim from them; `turn` counts the claims.

    Higher priorities first; equal ones by their oldest waiting job, so that tasks interleave nearly first-in first-out.
    A claimer with weights names the queue whose turn it is (`first`), one that keeps a share for retries says so now and
    then (`retries_first`); the rest follows in the usual order, so that no claim goes empty for the sake of fairness.
    """
    if first is None and not retries_first:  # the same for every head; most claims are such, and some have a hundred lanes
        ordered = sorted(heads, key=lambda head: (-head.priority, head.ready_at))
    else:
        ordered = sorted(
            heads,
            key=lambda head: (head.queue != first, retries_first and not head.retries, -head.priority, head.ready_at),
        )
    if turn % AGING_TURN == AGING_TURN - 1 and ordered:
        oldest = min(range(len(ordered)), key=lambda index: ordered[index].ready_at)
        ordered.insert(0, ordered.pop(oldest))
    return ordered


class Share(NamedTuple):
    """A lane, and how many jobs to take from it before the lanes behind it have had theirs."""

    head: Head
    quota: int


class Shares:
    """Has the keys of a queue take turns by weight, over many claims and within each.

    What flows to a key with each claim, in proportion to its weight, is its credit, and what it takes is drawn from that. Keys
    with the most credit come first, and none takes more than it has before the others were asked; what is left then is
    anybody's, so that no claim goes empty for the sake of fairness. A key that has nothing waiting saves nothing up.
    """

    def __init__(self) -> None:
        self._credit: dict[int, float] = {}

    def spread(self, ordered: Sequence[Head], limit: int, turn: int) -> list[Share]:
        """Return lanes that are in order with their quotas. The keys of a queue and priority stand together.

        In an aging turn the first lane stays where it is: it was put there because its job has waited longest.
        """
        if all(head.weight is None for head in ordered):  # nearly always
            return [Share(head, limit) for head in ordered]
        aged = ordered[0].lane if turn % AGING_TURN == AGING_TURN - 1 else None
        keyed: dict[tuple[str, int], list[Head]] = {}
        for head in ordered:
            if head.weight is not None:
                keyed.setdefault((head.queue, head.priority), []).append(head)
        credit: dict[int, float] = {}
        for heads in keyed.values():
            total = sum(head.weight or 0.0 for head in heads)
            for head in heads:
                had = self._credit.get(head.lane, 0.0) + limit * (head.weight or 0.0) / total
                credit[head.lane] = min(MOST_CREDIT * limit, had)
        self._credit = credit
        shares: list[Share] = []
        for head in ordered:
            if head.weight is None:
                shares.append(Share(head, limit))
            elif heads := keyed.pop((head.queue, head.priority), []):
                heads.sort(key=lambda one: (one.lane != aged, -credit[one.lane], one.ready_at))
                shares += [Share(one, max(1, min(limit, ceil(credit[one.lane])))) for one in heads]
        return shares

    def took(self, lane: int, jobs: int, limit: int) -> None:
        """Take note of what a claim of `limit` jobs took from a lane."""
        if lane in self._credit:
            self._credit[lane] = max(-MOST_CREDIT * limit, self._credit[lane] - jobs)
