"""Counts and times of attempts, as they are added up: what charts and metrics are made of."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.states import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    *(150.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0),
)
"""Seconds: the upper bounds of the buckets of a histogram. One more bucket holds what took longer."""
BUCKETS: Final = len(BOUNDS) + 1
EMPTY: Final = (0,) * BUCKETS


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """How attempts of one task in one queue ended in one way: how many, how long they had waited, how long they ran."""

    queue: str
    task: str
    event: Event
    code: str = ""
    """Of the error, where there was one."""
    count: int
    waited: float = 0.0
    """Seconds in all from when they were due until they were claimed."""
    ran: float = 0.0
    """Seconds in all from claim to end."""
    waits: tuple[int, ...] = EMPTY
    """How many of them fall into each bucket."""
    runs: tuple[int, ...] = EMPTY

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is about: figures of one key are added up. Keys have an order."""
        return self.queue, self.task, self.event.value, self.code

    def plus(self, other: Figure) -> Figure:
        """Return two figures about the same as one."""
        return msgspec.structs.replace(
            self,
            count=self.count + other.count,
            waited=self.waited + other.waited,
            ran=self.ran + other.ran,
            waits=added(self.waits, other.waits),
            runs=added(self.runs, other.runs),
        )


def bucket(seconds: float) -> int:
    """Return the number of the bucket that a time falls into."""
    return bisect_left(BOUNDS, seconds)


def added(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Return two histograms as one."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


def combined(figures: Iterable[Figure]) -> list[Figure]:
    """Return figures with one for each key, in the order of the keys: who writes them so meets nobody halfway."""
    found: dict[tuple[str, str, str, str], Figure] = {}
    for figure in figures:
        known = found.get(figure.key)
        found[figure.key] = figure if known is None else known.plus(figure)
    return [found[key] for key in sorted(found)]


def with_whole(figures: Iterable[Figure]) -> list[Figure]:
    """Return figures as they are kept: one for each key, and for each event one of all tasks, queues and codes together.

    The whole has empty names, which no task or queue has: a chart of a week does not have to read every task.
    """
    each = combined(figures)
    return combined([*each, *(msgspec.structs.replace(figure, queue="", task="", code="") for figure in each)])


def summed(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Return all of these histograms as one."""
    total = EMPTY
    for histogram in histograms:
        total = added(total, histogram)
    return total


def quantile(histogram: Sequence[int], share: float) -> float | None:
    """Return a time below which so large a share lies, read between the bounds of its bucket; nothing where there is none."""
    count = sum(histogram)
    if not count:
        return None
    rank, seen = share * count, 0
    for number, there in enumerate(histogram):
        if there and seen + there >= rank:
            low = BOUNDS[number - 1] if number else 0.0
            high = BOUNDS[number] if number < len(BOUNDS) else low
            return low + (high - low) * max(0.0, rank - seen) / there
        seen += there
    return BOUNDS[-1]
