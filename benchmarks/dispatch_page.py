"""Writes into docs/guides/redis.md how soon a job starts in each mode, from benchmarks/results/dispatch.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.dispatch import MODES
from benchmarks.parts import with_part
from benchmarks.results import FOLDER, load, summary

if TYPE_CHECKING:
    from benchmarks.results import Report

PAGE: Final = Path(__file__).parents[1] / "docs" / "guides" / "redis.md"
CONTESTANT: Final = "holdfast_postgres"


def page() -> str:
    """Return the guide with the part as the results have it."""
    report = load("dispatch") if (FOLDER / "dispatch.json").exists() else None
    return with_part(PAGE, "dispatch", part(report))


def part(report: Report | None) -> str:
    """Return the table with what it was measured on; without results, that there are none yet."""
    if report is None:
        return "Not measured yet on a quiet machine: `./dev bench dispatch` does that, and `./dev docs` fills this in."
    machine, cells = report.machine, {cell.work: cell for cell in summary(report) if cell.contestant == CONTESTANT}
    told = ", ".join(f"{name} {version}" for name, version in machine.versions.items() if name in ("postgres", "redis"))
    where = (
        f"Measured on {report.made} with `{report.command}`: {machine.cores} cores of {machine.processor}, shared by the "
        f"servers ({told}), producer and worker. Each figure is the median of the rounds, and compares within the table only."
    )
    lines = [
        where,
        "",
        "| mode | jobs in a round | p50, ms (lowest and highest round) | p90, ms | p99, ms |",
        "|---|---|---|---|---|",
    ]
    for mode in MODES:
        cell = cells[f"dispatch {mode}"]
        jobs, p90, p99 = (float(cell.extra[name]) for name in ("jobs", "p90", "p99"))
        lines.append(
            f"| `{mode}` | {jobs:.0f} | {cell.median:.2f} ({cell.low:.2f} to {cell.high:.2f}) | {p90:.2f} | {p99:.2f} |"
        )
    return "\n".join(lines)


def briefly(report: Report | None) -> str:
    """Return the same in half a sentence."""
    if report is None:
        return "not measured yet: `./dev bench dispatch`"
    cells = {cell.work: cell for cell in summary(report) if cell.contestant == CONTESTANT}
    return "p50 " + ", ".join(f"{cells[f'dispatch {mode}'].median:.2f} ms with `{mode}`" for mode in MODES)
