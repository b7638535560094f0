"""Reports as tables for the terminal."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from benchmarks.results import summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.results import Cell, Report

_HEADS = ("", "median", "lowest", "highest", "rounds", "x best peer", "x pgbench", "")
_SHOWN = {
    "p90": "p90 {:.1f}",
    "p99": "p99 {:.1f}",
    "max": "max {:.1f}",
    "missing": "not started {:.0f}",
    "busy": "busy {:.0%}",
    "cores": "of two cores {:.0%}",
    "round_trips": "round trips {:.3f}",
}
"""What is shown besides the value."""


def figure(value: float, unit: str) -> str:
    """Write a value with as many digits as mean something."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 4  # noqa: PLR2004  powers of ten
    return f"{value:,.{digits}f} {unit}"


def table(report: Report) -> str:
    """Return the report for people: a table for each work, then who failed and why."""
    parts = [_one(work, list(cells)) for work, cells in groupby(summary(report), key=lambda cell: cell.work)]
    parts += [f"{one.contestant} has no figure for {one.work}: {one.reason}" for one in report.failures]
    return "\n\n".join(parts)


def _one(work: str, cells: Sequence[Cell]) -> str:
    rows = [(f"{work} ({cells[0].unit})", *_HEADS[1:]), *(tuple(_row(cell)) for cell in cells)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in {0, len(_HEADS) - 1} else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(cell: Cell) -> Iterator[str]:
    yield f"  {cell.contestant}" + ("" if cell.x is None else f" at {cell.x:,.0f}")
    for value in (cell.median, cell.low, cell.high):
        yield figure(value, "").rstrip()
    yield str(cell.rounds)
    for ratio in (cell.to_best_peer, cell.to_reference):
        yield "" if ratio is None else f"{ratio:.2f}"
    yield ", ".join(shown.format(cell.extra[name]) for name, shown in _SHOWN.items() if name in cell.extra)
