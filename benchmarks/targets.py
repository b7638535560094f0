"""Judges what was measured by what is aimed at: targets.toml holds the targets and explains their fields."""

from __future__ import annotations

import statistics
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from benchmarks.environments import peers
from benchmarks.results import REFERENCE, store_of, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.results import Cell, Report

FILE = Path(__file__).with_name("targets.toml")
THIRDS = 3

State: TypeAlias = Literal["held", "missed", "no figure", "not measured"]


class Target(Struct, frozen=True, forbid_unknown_fields=True):
    """What is aimed at; targets.toml says what each field means."""

    text: str
    report: str
    contestant: str
    work: str
    at: float | None = None
    of: str | None = None
    against: str | None = None
    against_work: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    over: float = 0.0
    unless: str | None = None
    but: str = ""
    missed_because: str = ""
    needs_x: float = 0.0
    needs_x_of: str | None = None
    needs_jobs: int = 0
    needs_rounds: int = 1

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"the target {self.text!r} needs either at_least or at_most")

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"

    def held_by(self, number: float) -> bool:
        """Tell whether a number is within the bound."""
        return number >= self.at_least if self.at_least is not None else number <= (self.at_most or 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured."""

    target: Target
    number: float | None
    """The worst that was found; nothing when there is not enough to judge by, which is not a target held."""
    where: str = ""
    """Which work the number is of, where several count, and who it is held against."""
    rounds: int = 0
    """Of how many rounds the number is, and what it is held against."""
    lacks: str | None = None
    """What was missing for a verdict; `None`: nothing, or all."""

    @property
    def held(self) -> bool:
        """Whether the target is held."""
        return self.state == "held"

    @property
    def state(self) -> State:
        """What came of the target."""
        if self.number is None:
            return "not measured" if self.lacks is None else "no figure"
        return "held" if self.target.held_by(self.number) else "missed"


@dataclass(frozen=True, slots=True, order=True)
class _Number:
    """What one work came to, over so many rounds."""

    number: float
    where: str
    rounds: int


def targets() -> list[Target]:
    """Return all targets in the order of the file."""
    return msgspec.convert(tomllib.loads(FILE.read_text())["target"], list[Target])


def judge(aims: Iterable[Target], reports: Iterable[Report]) -> list[Verdict]:
    """Return a verdict for every target."""
    cells = {report.name: summary(report) for report in reports}
    return [_verdict(target, cells[target.report]) if target.report in cells else Verdict(target, None) for target in aims]


def _verdict(target: Target, cells: Sequence[Cell]) -> Verdict:
    own = [cell for cell in cells if cell.contestant == target.contestant and _counts(target, cell)]
    lacks = _lacks_size(target, own, cells) or _lacks_rivals(target, own, cells)
    found = list(_numbers(target, own, cells))
    if not lacks and not found:
        lacks = "a figure that it needs is missing"
    fewest = min((one.rounds for one in found), default=0)
    if not lacks and fewest < target.needs_rounds:
        lacks = f"{fewest} round{'s' * (fewest != 1)} where {target.needs_rounds} are needed"
    if lacks:
        return Verdict(target, None, lacks=lacks)
    best, worst = sorted([min(found), max(found)], key=lambda one: one.number, reverse=target.at_least is not None)
    alike = len(found) > 1 and best.number == worst.number  # then none is the worst
    return Verdict(target, worst.number, "" if alike else worst.where, fewest)


def _counts(target: Target, cell: Cell) -> bool:
    named = fnmatchcase(cell.work, target.work) and not fnmatchcase(cell.work, target.but)
    return named and cell.median >= target.over and target.unless not in cell.extra


# --- is there enough to judge by? ------------------------------------------------------------------------------------------


def _lacks_size(target: Target, own: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Say what is smaller than the target speaks of; nothing when all is as large."""
    if target.needs_x:
        pattern = target.needs_x_of or target.work
        reach: dict[str, float] = {}
        for cell in cells:
            if cell.contestant == target.contestant and fnmatchcase(cell.work, pattern):
                reach[cell.work] = max(reach.get(cell.work, 0.0), cell.x or 0.0)
        short = min(reach.values(), default=0.0)
        if short < target.needs_x:
            return f"measured up to {short:,.0f} where {target.needs_x:,.0f} are needed"
    jobs = min((float(cell.extra.get("jobs", 0.0)) for cell in own), default=0.0)
    return f"of {jobs:,.0f} jobs where {target.needs_jobs:,} are needed" if jobs < target.needs_jobs else ""


def _lacks_rivals(target: Target, own: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Name those whom it is to be held against and who have no figure: they might be ahead."""
    rivals = _rivals(target)
    absent = [
        rival for rival in rivals if not any(cell.contestant == rival and _is_beside(target, cell, own) for cell in cells)
    ]
    return f"{', '.join(absent)} {'has' if len(absent) == 1 else 'have'} none" if absent else ""


def _rivals(target: Target) -> list[str]:
    """Return whom a figure is to be held against."""
    match target.against:
        case "reference":
            return [REFERENCE]
        case "best peer" | "any peer":
            return [
                name
                for name, peer in peers().items()
                if (target.against == "any peer" or peer.store == store_of(target.contestant))
                and (peer.works is None or target.work in peer.works)
            ]
        case _:
            return []


def _is_beside(target: Target, cell: Cell, own: Sequence[Cell]) -> bool:
    """Tell whether a cell is of the same work, at the same place, and has the figure."""
    same = any((cell.work, cell.x) == (one.work, one.x) for one in own)
    return same and _value(target, cell) is not None


# --- what it came to -------------------------------------------------------------------------------------------------------


def _numbers(target: Target, own: Sequence[Cell], cells: Sequence[Cell]) -> Iterator[_Number]:
    """Yield a number for each work that the target is about, and where it is from."""
    for work, curve in groupby(own, key=lambda cell: cell.work):
        points = [cell for cell in curve if target.at is None or cell.x == target.at]
        place = work if "*" in target.work else ""
        for number, beside, rounds in _ratios(target, points, cells):
            fewest = min(rounds, *(cell.rounds for cell in points))
            yield _Number(number, ", ".join(part for part in (place, beside) if part), fewest)


_Ratio: TypeAlias = tuple[float, str, int]
"""A number, whom it is held against, and of how many rounds that one's is."""


def _ratios(target: Target, points: Sequence[Cell], cells: Sequence[Cell]) -> Iterator[_Ratio]:
    """Yield the number of one work; nothing when a figure is missing."""
    values = [_value(target, cell) for cell in points]
    if not values or None in values:
        return
    known = [value for value in values if value is not None]
    last = points[-1]
    match target.against:
        case None if target.against_work:
            others = [cell for cell in cells if (cell.contestant, cell.work) == (target.contestant, target.against_work)]
            yield from _divided(known[-1], [(_value(target, cell), "", cell.rounds) for cell in others[-1:]])
        case None:
            yield known[-1], "", last.rounds
        case "best peer" | "any peer" | "reference":
            yield from _divided(known[-1], _beside(target, last, cells))
        case "smallest":
            if len(known) > 1:
                yield from _divided(known[-1], [(known[0], "", last.rounds)])
        case "first third":
            if third := len(known) // THIRDS:
                first = statistics.fmean(known[:third])
                yield from _divided(statistics.fmean(known[-third:]), [(first, "", last.rounds)])
        case "its value":
            yield known[-1] - last.median, "", last.rounds
        case extra:
            yield known[-1] / (float(last.extra[extra.removeprefix("extra ")]) or 1e-9), "", last.rounds


def _divided(number: float, others: Sequence[tuple[float | None, str, int]]) -> Iterator[_Ratio]:
    """Yield a number over the hardest of the others, if there is any."""
    for other, whose, rounds in others[:1]:
        if other:
            yield number / other, whose, rounds


def _beside(target: Target, own: Cell, cells: Sequence[Cell]) -> list[_Ratio]:
    """Return whom a figure is held against, the best first."""
    rivals = _rivals(target)
    beside = [cell for cell in cells if cell.contestant in rivals and _is_beside(target, cell, [own])]
    values = [(value, cell.contestant, cell.rounds) for cell in beside if (value := _value(target, cell)) is not None]
    return sorted(values, reverse=target.at_least is not None)


def _value(target: Target, cell: Cell) -> float | None:
    if target.of is None:
        return cell.median
    value = cell.extra.get(target.of)
    return None if value is None else float(value)
