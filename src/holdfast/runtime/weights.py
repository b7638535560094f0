"""Whose turn it is: queues by weight, and now and then the retries. Fairness only; no claim goes empty for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.fairness import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Turns:
    """Smooth weighted round robin: over any stretch of claims each queue comes first in proportion to its weight.

    Queues take turns as soon as somebody has said what one of them weighs, by declaring it or at run time (`weigh`); until
    then the usual order holds, first in, first out. A queue that nobody said anything about has the weight 1; it takes part
    from the first job it was seen to have.

    The first turn is drawn by lot, and so are those of equals and the moment at which retries come first: many claimers that
    begin together, or make but one claim each, keep the shares too.
    """

    def __init__(
        self,
        declared: Mapping[str, float],
        retry_share: float,
        lot: Callable[[], float],
        served: frozenset[str] | None = None,
    ) -> None:
        self._declared = declared
        self._said = dict(declared)
        self._served = served
        self._lot = lot
        self._queues: dict[str, float] = {}
        """Those that take turns, each with its credit."""
        self._begun = False
        self._retry_share = retry_share
        self._retry_credit = lot()
        self.saw([*declared, *(served or ())])

    def weigh(self, chosen: Mapping[str, float]) -> None:
        """Take in what people have set: it stands above what is declared until they take it back."""
        self._said = {**self._declared, **chosen}
        self.saw(chosen)

    def saw(self, queues: Iterable[str]) -> None:
        """Take note of queues that have jobs."""
        for queue in queues:
            if queue not in self._queues and (self._served is None or queue in self._served):
                self._queues[queue] = 0.0

    def brought_nothing(self, queue: str) -> None:
        """Forget a queue that came first and had no job, until it is seen to have one; those with a word of their own stay."""
        if queue not in self._said and queue not in (self._served or ()):
            self._queues.pop(queue, None)

    def next(self) -> tuple[str | None, bool]:
        """Return the queue that comes first this time (`None`: the usual order), and whether retries do."""
        self._retry_credit += self._retry_share
        retries = self._retry_credit >= 1.0
        if retries:
            self._retry_credit -= 1.0
        if not self._said or len(self._queues) <= 1:
            return None, retries
        weights = {queue: self._said.get(queue, 1.0) for queue in self._queues}
        for queue, weight in weights.items():
            self._queues[queue] += weight
        # nothing but the lot decides the first: by credit every claimer would begin with the heaviest
        credit = {queue: round(had, 9) if self._begun else 0.0 for queue, had in self._queues.items()}
        first = min(weights, key=lambda queue: (-credit[queue], drawn(self._lot(), weights[queue])))
        self._begun = True
        self._queues[first] -= sum(weights.values())
        return first, retries
