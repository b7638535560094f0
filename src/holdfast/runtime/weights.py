"""Whose turn it is: queues by weight, and now and then the retries. Fairness only; no claim goes empty for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Turns:
    """Smooth weighted round robin: over any stretch of claims each queue comes first in proportion to its weight.

    A queue that nobody said anything about has the weight 1; it takes part from the first job it was seen to have.
    """

    def __init__(self, weights: Mapping[str, float], retry_share: float, served: frozenset[str] | None = None) -> None:
        self._said = weights
        self._served = served
        self._weights: dict[str, float] = {}
        self._credit: dict[str, float] = {}
        self._retry_share = retry_share
        self._retry_credit = 0.0
        self.saw([*weights, *(served or ())])

    def saw(self, queues: Iterable[str]) -> None:
        """Take note of queues that have jobs."""
        for queue in queues:
            if queue not in self._weights and (self._served is None or queue in self._served):
                self._weights[queue] = self._said.get(queue, 1.0)
                self._credit[queue] = 0.0

    def brought_nothing(self, queue: str) -> None:
        """Forget a queue that came first and had no job, until it is seen to have one; those that were declared stay."""
        if queue not in self._said and queue not in (self._served or ()):
            self._weights.pop(queue, None)
            self._credit.pop(queue, None)

    def next(self) -> tuple[str | None, bool]:
        """Return the queue that comes first this time (`None`: the usual order), and whether retries do."""
        self._retry_credit += self._retry_share
        retries = self._retry_credit >= 1.0
        if retries:
            self._retry_credit -= 1.0
        if len(set(self._weights.values())) <= 1:
            return None, retries
        for queue, weight in self._weights.items():
            self._credit[queue] += weight
        first = max(self._credit, key=lambda queue: self._credit[queue])
        self._credit[first] -= sum(self._weights.values())
        return first, retries
