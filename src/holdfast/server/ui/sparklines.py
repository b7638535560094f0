"""The last half hour of each queue, as a line that fits into a row of a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.server.ui.charts import FAILED, RETRIED
from holdfast.store.port import Grain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store.port import FigureView, Store

MINUTES: Final = 30
WIDTH: Final = 116.0
HEIGHT: Final = 20.0
STROKE: Final = 1.0
"""What a line needs above and below it, so as not to be cut."""
LEAST: Final = 0.12
"""Of the height: what a stroke needs to be seen."""
KEPT_FOR: Final = 15.0
"""Seconds: minutes that are over hardly change, and there is a figure for each task of each of them."""
MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Attempts that ended, minute by minute: all of them, and those that ended badly."""

    all: str
    """As the points of a line in SVG."""
    bad: str
    """As a path in SVG, with a stroke for each minute in which any did; empty: in none."""
    told: str
    """The same for those who do not see it."""


class Sparklines:
    """The lines of all queues, read for every viewer together. Belongs to one event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._read_at: float | None = None
        self._lines: dict[str, Sparkline] = {}

    async def of(self, store: Store) -> dict[str, Sparkline]:
        """Return the line of each queue in which anything ended."""
        now = self._monotonic()
        if self._read_at is None or now - self._read_at > KEPT_FOR:
            self._lines = await _lines(store)
            self._read_at = now
        return self._lines


async def _lines(store: Store) -> dict[str, Sparkline]:
    now = await store.now()
    # the minute that has begun would look like a standstill, and is left out
    first = now - timedelta(seconds=now.second, microseconds=now.microsecond) - MINUTES * MINUTE
    by_queue: dict[str, list[FigureView]] = defaultdict(list)
    for view in await store.figures(Grain.MINUTE, since=first):
        by_queue[view.figure.queue].append(view)
    return {queue: line for queue, views in by_queue.items() if (line := _line(views, first)) is not None}


def _line(views: Sequence[FigureView], first: datetime) -> Sparkline | None:
    every, bad = [0] * MINUTES, [0] * MINUTES
    for view in views:
        minute = MINUTES if view.at is None else (view.at - first) // MINUTE
        if 0 <= minute < MINUTES:
            every[minute] += view.figure.count
            bad[minute] += view.figure.count if view.figure.event in FAILED | RETRIED else 0
    if not (most := max(every)):
        return None
    told = f"ended a minute over the last {MINUTES} minutes: {every[-1]:,} in the latest, {most:,} at most"
    if any(bad):
        told += f"; {bad[-1]:,} badly in the latest"
    line = " ".join(f"{_x(minute):.1f},{_y(count / most):.1f}" for minute, count in enumerate(every))
    # a line of these along the ground would look as if something failed all the time
    strokes = (f"M{_x(minute):.1f},{_y(0):.1f}V{_y(max(LEAST, count / most)):.1f}" for minute, count in enumerate(bad) if count)
    return Sparkline(line, "".join(strokes), told)


def _x(minute: int) -> float:
    return WIDTH * minute / (MINUTES - 1)


def _y(share: float) -> float:
    return STROKE + (HEIGHT - 2 * STROKE) * (1 - share)
