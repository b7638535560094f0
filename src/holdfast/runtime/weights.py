"""Whose turn it is: queues by weight, and now and then the retries. Fairness only; no claim goes empty for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Turns:
    """Smooth weighted round robin: over any stretch of claims each queue comes first in proportion to its weight."""

    def __init__(self, weights: Mapping[str, float], retry_share: float) -> None:
        self._weights = dict(weights) if len(set(weights.values())) > 1 else {}
        self._credit = dict.fromkeys(self._weights, 0.0)
        self._retry_share = retry_share
        self._retry_credit = 0.0

    def next(self) -> tuple[str | None, bool]:
        """Return the queue that comes first this time (`None`: the usual order), and whether retries do."""
        self._retry_credit += self._retry_share
        retries = self._retry_credit >= 1.0
        if retries:
            self._retry_credit -= 1.0
        if not self._weights:
            return None, retries
        for queue, weight in self._weights.items():
            self._credit[queue] += weight
        first = max(self._credit, key=lambda queue: self._credit[queue])
        self._credit[first] -= sum(self._weights.values())
        return first, retries
