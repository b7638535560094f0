"""Judges what was measured by what is aimed at: targets.toml holds the targets and explains their fields."""

from __future__ import annotations

import statistics
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from benchmarks.results import REFERENCE, is_peer, store_of, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.results import Cell, Report

FILE = Path(__file__).with_name("targets.toml")
THIRDS = 3


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
    """The worst that was found; nothing when a figure that it needs is missing, which is not a target held."""
    where: str = ""
    """Which work the number is of, where several count, and who it is held against."""

    @property
    def held(self) -> bool:
        """Whether the target is held."""
        return self.number is not None and self.target.held_by(self.number)


def targets() -> list[Target]:
    """Return all targets in the order of the file."""
    return msgspec.convert(tomllib.loads(FILE.read_text())["target"], list[Target])


def judge(aims: Iterable[Target], reports: Iterable[Report]) -> list[Verdict]:
    """Return a verdict for every target whose report exists; what was not measured at all is left out."""
    cells = {report.name: summary(report) for report in reports}
    return [_verdict(target, cells[target.report]) for target in aims if target.report in cells]


def _verdict(target: Target, cells: Sequence[Cell]) -> Verdict:
    found = list(_numbers(target, cells))
    if not found:
        return Verdict(target, None)
    number, where = (max if target.at_most is not None else min)(found)
    return Verdict(target, number, where)


def _numbers(target: Target, cells: Sequence[Cell]) -> Iterator[tuple[float, str]]:
    """Yield a number for each work that the target is about, and where it is from."""
    own = [cell for cell in cells if cell.contestant == target.contestant and _counts(target, cell)]
    for work, curve in groupby(own, key=lambda cell: cell.work):
        points = [cell for cell in curve if target.at is None or cell.x == target.at]
        place = work if "*" in target.work else ""
        for number, beside in _ratios(target, points, cells):
            yield number, ", ".join(part for part in (place, beside) if part)


def _counts(target: Target, cell: Cell) -> bool:
    return fnmatchcase(cell.work, target.work) and cell.median >= target.over and target.unless not in cell.extra


def _ratios(target: Target, points: Sequence[Cell], cells: Sequence[Cell]) -> Iterator[tuple[float, str]]:
    """Yield the number of one work, and whom it is held against; nothing when a figure is missing."""
    values = [_value(target, cell) for cell in points]
    if not values or None in values:
        return
    known = [value for value in values if value is not None]
    match target.against:
        case None if target.against_work:
            others = [cell for cell in cells if (cell.contestant, cell.work) == (target.contestant, target.against_work)]
            yield from _divided(known[-1], [(other, "") for cell in others[-1:] if (other := _value(target, cell)) is not None])
        case None:
            yield known[-1], ""
        case "best peer" | "any peer" | "reference":
            yield from _divided(known[-1], _rivals(target, points[-1], cells))
        case "smallest":
            if len(known) > 1:
                yield from _divided(known[-1], [(known[0], "")])
        case "first third":
            if third := len(known) // THIRDS:
                yield from _divided(statistics.fmean(known[-third:]), [(statistics.fmean(known[:third]), "")])
        case extra:
            yield known[-1] / (float(points[-1].extra[extra.removeprefix("extra ")]) or 1e-9), ""


def _divided(number: float, others: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yield a number over the hardest of the others, if there is any."""
    for other, whose in others[:1]:
        if other:
            yield number / other, whose


def _rivals(target: Target, own: Cell, cells: Sequence[Cell]) -> list[tuple[float, str]]:
    """Return whom a figure is held against, the best first."""
    rivals = [cell for cell in cells if (cell.work, cell.x) == (own.work, own.x) and _is_rival(target, own, cell)]
    values = [(value, cell.contestant) for cell in rivals if (value := _value(target, cell)) is not None]
    return sorted(values, reverse=target.at_least is not None)


def _is_rival(target: Target, own: Cell, cell: Cell) -> bool:
    if target.against == "reference":
        return cell.contestant == REFERENCE
    return is_peer(cell.contestant) and (target.against == "any peer" or store_of(cell.contestant) == store_of(own.contestant))


def _value(target: Target, cell: Cell) -> float | None:
    if target.of is None:
        return cell.median
    value = cell.extra.get(target.of)
    return None if value is None else float(value)
