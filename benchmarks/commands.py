"""What the commands of ./dev bench share: how much of a measurement is asked for, where it is written, and how it is judged.

benchmarks/results/ gets whole runs alone, so that a short look never replaces what is published.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shlex
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.machine import commit
from benchmarks.results import FOLDER, Report, Run, save
from benchmarks.targets import judge, targets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.results import Machine, Reading

JSON_HELP = "where the readings go; by default to benchmarks/results/ if nothing is left out or made smaller, else nowhere"


def at_least_one(text: str) -> int:
    """Return the number of an option of which none would measure nothing."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def is_whole(parser: argparse.ArgumentParser, options: argparse.Namespace, *names: str) -> bool:
    """Tell whether no less than usual is asked for: of numbers at least the usual one, of lists everything usual."""
    return all(_as_much(getattr(options, name), parser.get_default(name)) for name in names)


def _as_much(given: Any, usual: Any) -> bool:
    return set(given) >= set(usual) if isinstance(usual, list | tuple) else bool(given >= usual)


def this_run(name: str, arguments: Sequence[str]) -> Run:
    """Return the run that begins now: what it was asked, on which day, of which commit."""
    return Run(shlex.join(["./dev", "bench", name, *arguments]), dt.datetime.now(tz=dt.UTC).date().isoformat(), commit())


def report_of(name: str, run: Run, machine: Machine, readings: list[Reading]) -> Report:
    """Return what a run measured."""
    return Report(name, machine, run.command, run.made, readings, commit=run.commit)


def destination(name: str, given: Path | None, *, whole: bool, option: str = "--json") -> Path | None:
    """Return where a report goes: where it is told to; a whole run to benchmarks/results/; anything less nowhere."""
    if given is None and not whole:
        tell(f"not the whole measurement: it is printed, and benchmarks/results/ stays as it is; {option} FILE keeps it")
    return given or (FOLDER / f"{name}.json" if whole else None)


def keep(report: Report, path: Path | None) -> None:
    """Write a report, and tell where; or that nothing was written."""
    tell("nothing was written" if path is None else f"written: {save(report, path)}")


def none_missed(report: Report) -> bool:
    """Print how the targets stand that a report is about; returns whether none is missed. One without a figure is not."""
    verdicts = judge([target for target in targets() if target.report == report.name], [report])
    print("\ntargets")
    for verdict in verdicts:
        where = f" ({verdict.where})" if verdict.where else ""
        number = verdict.lacks if verdict.number is None else f"{verdict.number:.3g} where {verdict.target.bound} is wanted"
        print(f"  {verdict.state}: {verdict.target.text}{where}: {number}")
    return all(verdict.state != "missed" for verdict in verdicts)


def tell(line: str) -> None:
    """Say what is going on, away from the figures."""
    print(f"bench: {line}", file=sys.stderr, flush=True)
