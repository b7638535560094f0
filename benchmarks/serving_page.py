"""Writes into docs/guides/remote-workers.md what one server carries, from benchmarks/results/serving.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.parts import with_part
from benchmarks.results import FOLDER, load, summary
from benchmarks.serving import BEAT, SLOTS, WORK

if TYPE_CHECKING:
    from benchmarks.results import Report

PAGE: Final = Path(__file__).parents[1] / "docs" / "guides" / "remote-workers.md"


def page() -> str:
    """Return the guide with the part as the results have it."""
    report = load("serving") if (FOLDER / "serving.json").exists() else None
    return with_part(PAGE, "serving", part(report))


def part(report: Report | None) -> str:
    """Return the table with what it was measured on; without results, that there are none yet."""
    if report is None:
        return "Not measured yet on a quiet machine: `./dev bench serving` does that, and `./dev docs` fills this in."
    machine, cells = report.machine, {cell.work.removeprefix("serving: "): cell for cell in summary(report)}

    def median(work: str) -> float:
        return cells[work].median

    workers, pages = (f"{float(cells['jobs, paced'].extra[name]):.0f}" for name in ("workers", "pages"))
    half, most, slowest = (median(f"beat answered, paced, {of}") for of in ("p50", "p99", "longest"))
    early, late = (median(f"memory, {when}") for when in ("early", "late"))
    memory, lines = cells["memory that these clients cost"], cells["database connections that they cost"]
    rows = {
        f"{workers} workers with {SLOTS} slots, jobs of {WORK:g} s, a beat every {BEAT:g} s": (
            f"{median('jobs, paced'):.0f} jobs and {median('beats, paced'):.0f} beats a second"
        ),
        "beats answered meanwhile": f"half within {half:.0f} ms, 99 of 100 within {most:.0f} ms, all in {slowest:.0f} ms",
        "the server's memory meanwhile": f"{early:.0f} MB early on, {late:.0f} MB at the end",
        f"{workers} workers that claim as fast as they can": f"{median('claims, alone'):.0f} jobs a second",
        f"the same beside {pages} open dashboards whose browsers read nothing": (
            f"{median('claims, beside clients that read nothing'):.0f} jobs a second; "
            f"without them {median('claims alone to those beside clients'):.2f} times as many"
        ),
        "what all these dashboards cost the server": (
            f"{memory.high:.0f} MB in the dearest of {memory.rounds} turns, database connections: {lines.high:.0f}"
        ),
        "requests refused, jobs tried again": f"{median('requests refused'):.0f}, {median('jobs that were tried again'):.0f}",
    }
    where = (
        f"Measured on {report.made} with `{report.command}`: {machine.cores} cores of {machine.processor}, shared by one "
        f"server, its PostgreSQL {machine.versions['postgres']} and all the workers. Workers are simulated; HTTP is real, with "
        "a key and two connections for each."
    )
    return "\n".join([where, "", "| | |", "|---|---|", *(f"| {what} | {found} |" for what, found in rows.items())])
