"""Charts of lines, written as SVG. They fit light and dark surroundings.

What is drawn is also said in words (`<title>`, `<desc>`), and no colour says anything that a label does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WIDTH = 780
MARGIN = 24
HEAD = 70
"""Where the drawing begins below title and subtitle."""

_STYLE = """
svg { --paper: #ffffff; --edge: #d8dee4; --ink: #1f2328; --soft: #636c76; --grid: #e6eaef;
      --own: #0b7285; --own-range: #053b46; --peer: #b4bfca; --peer-range: #57606a; --reference: #e3d3b4;
      --line-1: #0b7285; --line-2: #d9480f; --line-3: #7048c8; --line-4: #2b8a3e; --line-5: #b8860b; --line-6: #c2255c; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0d1117; --edge: #30363d; --ink: #e6edf3; --soft: #9198a1; --grid: #21262d;
        --own: #22b8cf; --own-range: #c5f6fa; --peer: #4a545f; --peer-range: #b1bac4; --reference: #5c4f33;
        --line-1: #3bc9db; --line-2: #ff922b; --line-3: #b197fc; --line-4: #69db7c; --line-5: #ffd43b; --line-6: #faa2c1; }
}
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; font-size: 13px;
       fill: var(--ink); font-variant-numeric: tabular-nums; }
.paper { fill: var(--paper); stroke: var(--edge); }
.title { font-size: 17px; font-weight: 600; }
.soft { fill: var(--soft); }
.small { font-size: 12px; }
.group { fill: var(--soft); font-size: 12px; font-weight: 600; }
.strong { font-weight: 600; }
.grid { stroke: var(--grid); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.own { fill: var(--own); } .own-range { stroke: var(--own-range); }
.peer { fill: var(--peer); } .peer-range { stroke: var(--peer-range); }
.reference { fill: var(--reference); } .reference-range { stroke: var(--peer-range); }
.range { stroke-width: 1.5; fill: none; }
.cut { stroke: var(--paper); stroke-width: 3; }
.line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; }
"""

_DASHES = ("", "8 4", "2 4", "10 3 2 3", "5 3", "1 3")


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with its name; points by rising x."""

    label: str
    points: tuple[tuple[float, float], ...]
    stepped: bool = False
    """Each y holds until the next: nothing lies between two points."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments at which something happened, with their name: arrows at the top of a panel, up or down."""

    label: str
    moments: tuple[float, ...]
    up: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """A heading with curves over a common x, of several that stand one below the other."""

    heading: str
    curves: tuple[Line, ...]
    marks: tuple[Marks, ...] = ()
    whole: bool = False
    """There is nothing between two whole numbers."""

    @property
    def needs_legend(self) -> bool:
        """Whether the heading alone does not say what is drawn."""
        return not self.heading or len(self.curves) + len(self.marks) > 1


def panels(title: str, subtitle: str, drawn: Sequence[Panel], *, x_label: str, write: Callable[[float], str]) -> str:
    """Draw curves in several panels over the same x, each with a scale of its own."""
    xs = [x for panel in drawn for curve in panel.curves for x, _ in curve.points]
    across = (min(xs, default=0.0), max(xs, default=1.0))
    parts: list[str] = []
    y = float(HEAD)
    for number, panel in enumerate(drawn):
        parts.append(f'<text class="group" x="{MARGIN}" y="{y + 12:.1f}">{escape(panel.heading)}</text>')
        label = x_label if number == len(drawn) - 1 else ""
        own, y = _panel(panel, y + 18, 110.0, across, x_label=label, logarithmic=False, write=write)
        parts += own
        y += 14 if label else -6
    said = [_described(curve, write) for panel in drawn for curve in panel.curves if curve.points]
    said += [
        f"{some.label}: at {', '.join(map(short, some.moments))}" for panel in drawn for some in panel.marks if some.moments
    ]
    return document(title, subtitle, "; ".join(said), parts, y)


def lines(
    title: str, subtitle: str, curves: Sequence[Line], *, x_label: str, logarithmic: bool, write: Callable[[float], str]
) -> str:
    """Draw curves over a common x, from y = 0 up; a legend names them. `write` gives the labels of the y axis."""
    xs = [x for curve in curves for x, _ in curve.points]
    across = (min(xs, default=0.0), max(xs, default=1.0))
    parts, bottom = _panel(Panel("", tuple(curves)), HEAD, 230.0, across, x_label=x_label, logarithmic=logarithmic, write=write)
    described = "; ".join(_described(curve, write) for curve in curves)
    return document(title, subtitle, described, parts, bottom + 16)


def _panel(
    panel: Panel,
    head: float,
    height: float,
    ends: tuple[float, float],
    *,
    x_label: str,
    logarithmic: bool,
    write: Callable[[float], str],
) -> tuple[list[str], float]:
    """Return a legend, axes and curves below `head`, and where they end."""
    curves, marks = panel.curves, panel.marks
    rows = 1 + (len(curves) + len(marks) - 1) // 3 if panel.needs_legend else 0
    left, right, top = 70.0, WIDTH - 34.0, head + 8.0 + 22 * rows + (12 if marks else 0)
    bottom = top + height
    low, high = ends
    steps = _steps(max((y for curve in curves for _, y in curve.points), default=1.0), whole=panel.whole)

    def across(x: float) -> float:
        share = _share(x, low, high, logarithmic=logarithmic)
        return left + (right - left) * share

    def up(y: float) -> float:
        return bottom - (bottom - top) * max(y, 0.0) / steps[-1]

    parts = list(_legend(panel, left, head)) if panel.needs_legend else []
    for step in steps:
        parts.append(f'<path class="grid" d="M{left:.1f} {up(step):.1f}H{right:.1f}"/>')
        parts.append(_note(left - 10, up(step) + 4, write(step), "end"))
    for tick in _ticks(low, high, logarithmic=logarithmic):
        parts.append(f'<path class="axis" d="M{across(tick):.1f} {bottom:.1f}v5"/>')
        parts.append(_note(across(tick), bottom + 20, short(tick)))
    parts.append(f'<path class="axis" d="M{left:.1f} {bottom:.1f}H{right:.1f}"/>')
    if x_label:
        parts.append(_note((left + right) / 2, bottom + 40, x_label))
    for number, some in enumerate(marks, len(curves)):
        thin = f"stroke: {_colour(number)}; stroke-width: 1; stroke-dasharray: 2 3"
        for x in map(across, some.moments):
            parts += (f'<path style="{thin}" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>', _arrow(number, x, top - 4, up=some.up))
    for number, curve in enumerate(curves):
        parts += _curve(number, [(across(x), up(y)) for x, y in curve.points], stepped=curve.stepped)
    return parts, bottom + 40


def _note(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="soft small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(panel: Panel, left: float, head: float) -> Iterator[str]:
    named: tuple[Line | Marks, ...] = (*panel.curves, *panel.marks)
    for number, one in enumerate(named):
        x, y = left + (number % 3) * 225, head + 8 + 22 * (number // 3)
        if isinstance(one, Marks):
            yield _arrow(number, x + 22, y, up=one.up)
        else:
            yield f'<path {_stroke(number)} d="M{x:.1f} {y:.1f}h28"/>'
        yield f'<text class="small" x="{x + 36:.1f}" y="{y + 4:.1f}">{escape(one.label)}</text>'


def _arrow(number: int, x: float, y: float, *, up: bool) -> str:
    base, tip = (y + 5, y - 5) if up else (y - 5, y + 5)
    return f'<path d="M{x - 6:.1f} {base:.1f}L{x:.1f} {tip:.1f}L{x + 6:.1f} {base:.1f}Z" style="fill: {_colour(number)}"/>'


def _curve(number: int, points: Sequence[tuple[float, float]], *, stepped: bool) -> Iterator[str]:
    if not points:
        return
    (x, y), *rest = points
    path = f"{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" if stepped else f"L{x:.1f} {y:.1f}" for x, y in rest)
    yield f'<path {_stroke(number)} d="M{path}"/>'
    if len(points) <= 12 and not stepped:  # noqa: PLR2004  more would be a band of dots
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" style="fill: {_colour(number)}"/>'


def _stroke(number: int) -> str:
    dash = f"; stroke-dasharray: {_DASHES[number % 6]}" if _DASHES[number % 6] else ""
    return f'class="line" style="stroke: {_colour(number)}{dash}"'


def _colour(number: int) -> str:
    return f"var(--line-{number % 6 + 1})"


def _described(curve: Line, write: Callable[[float], str]) -> str:
    (first_x, first), (last_x, last) = curve.points[0], curve.points[-1]
    return f"{curve.label}: {write(first)} at {short(first_x)}, {write(last)} at {short(last_x)}"


def _share(x: float, low: float, high: float, *, logarithmic: bool) -> float:
    if low == high:
        return 0.5
    return math.log(x / low) / math.log(high / low) if logarithmic else (x - low) / (high - low)


def _ticks(low: float, high: float, *, logarithmic: bool) -> list[float]:
    if not logarithmic:
        return [step for step in _steps(high) if low <= step <= high]
    powers = [10.0**power for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]
    if high / (powers[-1] if powers else low) >= 2:  # noqa: PLR2004  room for the label of the last point
        powers.append(high)
    return powers


def _steps(highest: float, *, whole: bool = False) -> list[float]:
    """Return four to six round steps from 0 to at least `highest`; fewer where they are to be whole."""
    if highest <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(highest))
    steps = (size * factor for factor in (0.2, 0.25, 0.5, 1.0, 2.0))
    step = next((step for step in steps if step * 5 >= highest and not (whole and step % 1)), 1.0)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def short(value: float) -> str:
    """Write a size as people say it: 1,000 is 1k, 5,000,000 is 5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def document(title: str, subtitle: str, described: str, parts: Sequence[str], height: float) -> str:
    """Return the whole picture around what was drawn."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        f'role="img" aria-labelledby="title desc">'
    )
    return "\n".join(
        [
            head,
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(subtitle)}. {escape(described)}.</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>',
            f'<text class="title" x="{MARGIN}" y="34">{escape(title)}</text>',
            f'<text class="soft" x="{MARGIN}" y="54">{escape(subtitle)}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )
