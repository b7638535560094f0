"""Figures as charts show them: one value for each step of a window of time."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.figures import quantile, summed
from holdfast.core.states import Event
from holdfast.store.port import Grain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.figures import Figure
    from holdfast.store.port import FigureView, Store

SUCCEEDED: Final = frozenset({Event.SUCCEED, Event.CONTINUE, Event.COMPLETE_OUTSIDE})
FAILED: Final = frozenset({Event.FAIL, Event.FAIL_OUTSIDE, Event.EXPIRE_FAIL})
RETRIED: Final = frozenset({Event.RETRY, Event.RETRY_LATER, Event.EXPIRE, Event.EXPIRE_LATER})
RECENT: Final = timedelta(minutes=5)
"""Over which "a minute" is taken."""
MEDIAN: Final = 0.5
HIGH: Final = 0.95


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time: the grain of its figures, seconds of a step, and how many steps."""

    name: str
    grain: Grain
    step: int
    steps: int


WINDOWS: Final = {
    window.name: window
    for window in (
        Window("15m", Grain.MINUTE, 60, 15),
        Window("6h", Grain.MINUTE, 300, 72),
        Window("7d", Grain.HOUR, 3600, 168),
    )
}
DEFAULT_WINDOW: Final = "15m"
LAGGING: Final = 20.0
"""Seconds of a step before it is shown: workers add up every ten."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: what it shows, in words too."""

    id: str
    title: str
    unit: str
    data: str
    """JSON for the script that draws it."""
    told: str
    """What it shows, for those who do not see it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How many attempts ended of late."""

    well: int = 0
    badly: int = 0

    @property
    def badly_a_minute(self) -> float:
        """How many ended badly in a minute."""
        return self.badly / (RECENT.total_seconds() / 60)

    @property
    def share(self) -> float:
        """How many of all ended badly."""
        return self.badly / max(1, self.well + self.badly)


async def charts(store: Store, window: Window, now: datetime, queues: frozenset[str] | None) -> list[Chart]:
    """Return throughput, waits and runs over a window, of these queues; `None`: of all."""
    first = _step_of(now, window) - (window.steps - 1) * window.step
    views = await store.figures(window.grain, since=datetime.fromtimestamp(first, UTC), whole=queues is None)
    steps = _by_step(views, window, queues)
    times = [first + index * window.step for index in range(window.steps)]
    figures = [steps.get(at, ()) for at in times]
    seconds = [float(window.step)] * (window.steps - 1) + [now.timestamp() - times[-1]]
    if times[-1] not in steps or seconds[-1] < LAGGING:  # it has just begun, and little was added up yet: that is no standstill
        times, figures, seconds = times[:-1], figures[:-1], seconds[:-1]
    counts = {
        name: [
            60 * sum(figure.count for figure in step if figure.event in events) / length
            for step, length in zip(figures, seconds, strict=True)
        ]
        for name, events in (("succeeded", SUCCEEDED), ("failed", FAILED), ("retried", RETRIED))
    }
    return [
        _chart("throughput", "Throughput", "a minute", times, counts),
        _chart("waits", "Wait until claimed", "s", times, _quantiles(figures, "waits")),
        _chart("runs", "Run time", "s", times, _quantiles(figures, "runs")),
    ]


async def ended(store: Store, now: datetime, queues: frozenset[str] | None) -> Ended:
    """Return how many attempts ended of late, in these queues; `None`: in all."""
    views = await store.figures(Grain.MINUTE, since=now - RECENT, whole=queues is None)
    figures = [view.figure for view in views if queues is None or view.figure.queue in queues]
    return Ended(
        well=sum(figure.count for figure in figures if figure.event in SUCCEEDED),
        badly=sum(figure.count for figure in figures if figure.event in FAILED | RETRIED),
    )


def _by_step(views: Sequence[FigureView], window: Window, queues: frozenset[str] | None) -> dict[int, list[Figure]]:
    steps: dict[int, list[Figure]] = defaultdict(list)
    for view in views:
        if view.at is not None and (queues is None or view.figure.queue in queues):
            steps[_step_of(view.at, window)].append(view.figure)
    return steps


def _step_of(at: datetime, window: Window) -> int:
    seconds = int(at.timestamp())
    return seconds - seconds % window.step


def _quantiles(figures: Sequence[Sequence[Figure]], field: str) -> dict[str, list[float | None]]:
    histograms = [summed(getattr(figure, field) for figure in step) for step in figures]
    return {
        "p50": [quantile(histogram, MEDIAN) for histogram in histograms],
        "p95": [quantile(histogram, HIGH) for histogram in histograms],
    }


def _chart(id: str, title: str, unit: str, times: list[int], series: dict[str, Any]) -> Chart:  # noqa: A002  as in HTML
    told = ", ".join(f"{name} {_last(values)}" for name, values in series.items())
    data = {"times": times, "series": series, "unit": unit}
    return Chart(id, title, unit, json.dumps(data, separators=(",", ":")), f"{title}, {unit}; latest: {told}")


def _last(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{known[-1]:.3g}" if known else "nothing"
