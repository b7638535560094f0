"""Bars with ranges, written by hand as SVG, in the manner of the charts of lines that Holdfast itself draws.

What is drawn is also said in words (`<title>`, `<desc>`), and no colour says anything that a label does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.charts import HEAD, MARGIN, WIDTH, document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Kind: TypeAlias = Literal["own", "peer", "reference"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A contestant: its median, and its lowest and highest reading."""

    label: str
    group: str
    median: float
    low: float
    high: float
    kind: Kind
    text: str
    """The figure as it is written beside the bar."""


def bars(title: str, subtitle: str, rows: Sequence[Bar], *, cut: bool = False) -> str:
    """Draw horizontal bars in the order given, under a heading for each run of one group; whiskers span all readings.

    `cut` shortens bars far longer than most, and shows it: for figures of which less is better, where the worst would
    otherwise flatten all others.
    """
    left, right, pitch = 190.0, WIDTH - 150.0, 27.0
    limit = _limit(rows) if cut else max((row.high for row in rows), default=1.0)
    parts: list[str] = []
    y = float(HEAD)

    def at(value: float) -> float:
        return left + (right - left) * min(value, limit) / (limit or 1.0)

    for group, members in groupby(rows, key=lambda row: row.group):
        if group:
            parts.append(f'<text class="group" x="{MARGIN}" y="{y + 14:.1f}">{escape(group)}</text>')
            y += 24
        for row in members:
            parts += _bar(row, y, left, at, limit)
            y += pitch
        y += 8
    described = "; ".join(f"{row.label}: {row.text}" for row in rows)
    return document(title, subtitle, described, parts, y + 10)


def _limit(rows: Sequence[Bar]) -> float:
    """Return where bars are cut: at four times the middle one, unless all fit into a little more."""
    medians = sorted(row.median for row in rows)
    longest = max((row.high for row in rows), default=1.0)
    usual = 4 * medians[len(medians) // 2] if medians else longest
    return longest if longest <= 1.5 * usual else usual


def _bar(row: Bar, y: float, left: float, at: Callable[[float], float], limit: float) -> Iterator[str]:
    middle, height = y + 10, 16
    strong = ' class="strong"' if row.kind == "own" else ""
    yield f'<text{strong} x="{left - 12:.1f}" y="{middle + 4.5:.1f}" text-anchor="end">{escape(row.label)}</text>'
    yield (
        f'<rect class="{row.kind}" x="{left:.1f}" y="{middle - height / 2:.1f}" '
        f'width="{max(at(row.median) - left, 1.5):.1f}" height="{height}" rx="2"/>'
    )
    if row.low < row.high and row.low < limit:
        low, high = at(row.low), at(row.high)
        yield (
            f'<path class="range {row.kind}-range" d="M{low:.1f} {middle:.1f}H{high:.1f}'
            f'M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"/>'
        )
    if row.median > limit:
        for offset in (26, 19):
            x = at(limit) - offset
            yield f'<path class="cut" d="M{x:.1f} {middle + 10:.1f}l7 -20"/>'
    yield f'<text{strong} x="{at(max(row.high, row.median)) + 10:.1f}" y="{middle + 4.5:.1f}">{escape(row.text)}</text>'
