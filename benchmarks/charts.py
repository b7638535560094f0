"""Draws docs/images/performance-*.svg from benchmarks/results/: what was not measured is not drawn.

./dev bench charts              draw them
./dev bench charts --check      only tell whether they are as the results have them
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import captions
from benchmarks.results import FOLDER, REFERENCE, is_peer, load, store_of, summary
from benchmarks.svg import Bar, Kind, bars
from benchmarks.tables import figure
from holdfast.charts import Line, lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.results import Cell, Report

IMAGES = Path(__file__).parent.parent / "docs" / "images"

GROWTH = {
    "p50": "milliseconds, median",
    "p99": "milliseconds, 99th percentile",
    "blocks": "pages of 8 KB that the server touches",
}
GROWING = {
    "backlog": "ready jobs",
    "history": "ended jobs",
    "scheduled": "scheduled jobs",
    "queues": "queues served, 100,000 jobs",
    "tasks": "ready jobs of 50 other tasks",
}


def charts(reports: Iterable[Report]) -> dict[str, str]:
    """Return every chart that can be drawn from the reports, by the name of its file."""
    drawn: dict[str, str] = {}
    for report in reports:
        cells = summary(report)
        if report.name == "peers":
            for work, members in groupby((cell for cell in cells if cell.x is None), key=lambda cell: cell.work):
                drawn[file_of(work)] = comparison(work, list(members))
        else:
            drawn |= _DRAWN.get(report.name, _nothing)(cells)
    return drawn


def file_of(what: str) -> str:
    """Return the name of a chart's file."""
    return f"performance-{what.replace(' ', '-')}.svg"


def comparison(work: str, cells: Sequence[Cell]) -> str:
    """Draw contestants side by side, by store."""
    stores = list(captions.STORES)
    known = [cell for cell in cells if store_of(cell.contestant) in captions.STORES]
    ordered = sorted(known, key=lambda cell: stores.index(store_of(cell.contestant)))  # within a store as they came: best first
    first = cells[0]
    better = "more is better" if first.better == "higher" else "less is better"
    rounds = max(cell.rounds for cell in cells)
    spread = f"median and range of {rounds} rounds" if rounds > 1 else "one round"
    subtitle = f"{captions.unit(first.unit)}, {better}; {spread}"
    rows = [
        Bar(
            label=captions.name(cell.contestant),
            group=captions.STORES[store_of(cell.contestant)],
            median=cell.median,
            low=cell.low,
            high=cell.high,
            kind=_kind(cell.contestant),
            text=figure(cell.median, "").strip(),
        )
        for cell in ordered
    ]
    return bars(captions.about(work), subtitle, rows, cut=first.better == "lower")


def _kind(contestant: str) -> Kind:
    if is_peer(contestant):
        return "peer"
    return "reference" if contestant == REFERENCE else "own"


def _growth(cells: Sequence[Cell]) -> dict[str, str]:
    """Draw what a claim of 100 jobs costs as each thing grows."""
    drawn = {}
    for of, words in GROWTH.items():
        curves = [
            curve
            for name, label in GROWING.items()
            if (curve := _line(label, _of(cells, f"{name}: claim 100"), "" if of == "p50" else of)).points
        ]
        if curves:
            drawn[file_of(f"growth {of}")] = lines(
                "A claim of 100 jobs as things grow",
                words,
                curves,
                x_label="how many there are of what grows, logarithmic",
                logarithmic=True,
                write=_axis,
            )
    return drawn


def _bloat(cells: Sequence[Cell]) -> dict[str, str]:
    """Draw the drain, and what a claim touches, beside a forgotten transaction and without it."""
    drawn = {}
    for what, title, words in (
        ("drain", "A drain beside a forgotten transaction", "jobs a second, more is better"),
        ("blocks of a claim", "What a claim touches beside a forgotten transaction", "pages of 8 KB, less is better"),
    ):
        forms = {f"{form} {kind}: {what}": label for form in ("bare", "worker") for kind, label in _SNAPSHOTS.items()}
        labels = {work: label + (", worker process" if work.startswith("worker") else "") for work, label in forms.items()}
        curves = [line for work, label in labels.items() if (line := _line(label, _of(cells, work))).points]
        if curves:
            drawn[file_of(f"bloat {what}")] = lines(
                title, words, curves, x_label="jobs that have ended", logarithmic=False, write=_axis
            )
    return drawn


_SNAPSHOTS = {"with a snapshot": "with it", "without": "without it"}


def _leases(cells: Sequence[Cell]) -> dict[str, str]:
    """Draw what heartbeats cost."""
    curves = [
        line
        for contestant in dict.fromkeys(cell.contestant for cell in cells)
        for side in ("client", "server")
        if (
            line := _line(
                f"{captions.name_and_store(contestant).removeprefix('Holdfast on ')}, {_SIDES[side]}",
                [cell for cell in _of(cells, f"leases {side}") if cell.contestant == contestant],
            )
        ).points
    ]
    if not curves:
        return {}
    title, words = "What it costs to keep leases", "percent of one core for all heartbeats, less is better"
    drawn = lines(title, words, curves, x_label="leases held, logarithmic", logarithmic=True, write=_axis)
    return {file_of("leases"): drawn}


_SIDES = {"client": "worker", "server": "server"}


def _memory(cells: Sequence[Cell]) -> dict[str, str]:
    """Draw the memory of a worker."""
    curves = [
        line
        for contestant in dict.fromkeys(cell.contestant for cell in cells)
        if (
            line := _line(
                captions.name_and_store(contestant), [cell for cell in _of(cells, "memory") if cell.contestant == contestant]
            )
        ).points
    ]
    if not curves:
        return {}
    title, words = "Memory of one worker process", "megabytes resident"
    return {
        file_of("memory"): lines(title, words, curves, x_label="jobs that have ended", logarithmic=False, write=_axis),
    }


def _nothing(cells: Sequence[Cell]) -> dict[str, str]:
    """Draw nothing: the figures of this report are tables."""
    del cells
    return {}


_DRAWN = {"growth": _growth, "bloat": _bloat, "leases": _leases, "memory": _memory}


def _of(cells: Sequence[Cell], work: str) -> list[Cell]:
    return [cell for cell in cells if cell.work == work and cell.x is not None]


def _line(label: str, cells: Sequence[Cell], extra: str = "") -> Line:
    return Line(label, tuple((cell.x or 0.0, float(cell.extra[extra]) if extra else cell.median) for cell in cells))


def _axis(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"  # noqa: PLR2004  two digits tell enough


def reports() -> list[Report]:
    """Return what has been measured, in the order of the page."""
    names = ("peers", "cost", "growth", "bloat", "leases", "memory", "limits")
    return [load(path) for name in names if (path := FOLDER / f"{name}.json").exists()]


def main(arguments: list[str] | None = None) -> int:
    """Draw; or check, and return 1 when a chart is not as the results have it."""
    parser = argparse.ArgumentParser(
        prog="./dev bench charts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a chart is stale")
    options = parser.parse_args(arguments)
    drawn = {IMAGES / name: chart for name, chart in charts(reports()).items()}
    surplus = set(IMAGES.glob("performance-*.svg")) - set(drawn)
    stale = [path for path, chart in drawn.items() if not path.exists() or path.read_text() != chart]
    if options.check:
        for path in sorted({*stale, *surplus}):
            print(f"{path.name} is not what benchmarks/results/ give. Draw it: ./dev bench charts", file=sys.stderr)
        return 1 if stale or surplus else 0
    for path in surplus:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn[path])
        print(f"drawn: {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
