"""What was measured: the JSON in benchmarks/results/, and what follows from it.

    report = load("peers")                      # benchmarks/results/peers.json; or load(Path("elsewhere.json"))
    for cell in summary(report):
        cell.contestant, cell.work, cell.median, cell.low, cell.high, cell.to_best_peer, cell.to_reference
    save(report)                                # under its name; or save(report, Path("elsewhere.json"))

Only readings are stored. Medians, ranges and ratios are computed from them here, so that the table, the page and the charts
cannot disagree.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDER = Path(__file__).parent / "results"

REFERENCE = "pgbench"
"""The contestant that is no peer: a frozen script, claim and settle on narrow tables, run by PostgreSQL's own pgbench."""

STORES = {
    "holdfast_postgres": "postgres",
    "holdfast_sqlite": "sqlite",
    "pgbench": "postgres",
    "pgqueuer": "postgres",
    "procrastinate": "postgres",
    "chancy": "postgres",
    "oban": "postgres",
    "absurd": "postgres",
    "awa": "postgres",
    "saq": "redis",
    "saq_aof": "redis",
    "streaq": "redis",
    "huey": "sqlite",
}
"""Which store a contestant keeps its jobs in. Ratios are among contestants on the same store: others promise other things."""

Better: TypeAlias = Literal["higher", "lower"]


class Machine(Struct, frozen=True):
    """What it ran on."""

    cores: int
    memory_bytes: int
    processor: str
    kernel: str
    python: str
    versions: dict[str, str] = {}
    """Servers, libraries and contestants: {"postgres": "18.1", "pgqueuer": "1.6.0", …}."""
    settings: dict[str, str] = {}
    """The settings of PostgreSQL that bear on the figures."""
    file_system: str = ""
    """Of the place where the servers keep their data: on one in memory, syncing costs nothing and the figures mean nothing."""


class Reading(Struct, frozen=True, omit_defaults=True):
    """One figure of one contestant in one round."""

    contestant: str
    work: str
    round: int
    value: float
    unit: str
    better: Better
    extra: dict[str, float | str] = {}
    """What else was seen: percentiles, the share of busy slots; `x` says where a point of a curve stands."""


class Failure(Struct, frozen=True):
    """A contestant that gave no figure, and why."""

    contestant: str
    work: str
    reason: str


class Run(Struct, frozen=True):
    """A command that measured a report, or some of its works."""

    command: str
    made: str
    """The date, as 2026-01-31."""
    commit: str = ""
    """What was measured: a short hash of this project, with "+" where files differed from it; nothing where there is no git."""
    parts: list[str] = []
    """How the names of its works begin, where others were measured by another command: "backlog", "worker"."""


class Report(Struct, frozen=True):
    """All that one command measured, or several that were put together in one file."""

    name: str
    machine: Machine
    command: str
    """Of the last run, as `made` and `commit` are; `runs_of` has all."""
    made: str
    readings: list[Reading] = []
    failures: list[Failure] = []
    seed: int = 0
    """What the order of the contestants was drawn from."""
    commit: str = ""
    runs: list[Run] = []
    """Where several were put together: each with its parts."""


class Cell(Struct, frozen=True):
    """The readings of one contestant at one work (and at one `x`, for curves) over all rounds."""

    contestant: str
    work: str
    unit: str
    better: Better
    rounds: int
    median: float
    low: float
    high: float
    x: float | None
    extra: dict[str, float | str]
    """Of each number the median, of each word the last."""
    to_best_peer: float | None = None
    """This median over the best peer's on the same store, so 1 for that peer itself; nothing where no peer has a figure."""
    to_reference: float | None = None
    """This median over the reference's, for contestants on PostgreSQL; nothing where the reference has no figure."""


def load(source: str | Path) -> Report:
    """Read a report: of benchmarks/results/ by its name, of elsewhere by its path."""
    path = source if isinstance(source, Path) else FOLDER / f"{source}.json"
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(report: Report, path: Path | None = None) -> Path:
    """Write a report, whole or not at all, under its name in benchmarks/results/ or to `path`; returns where it is."""
    path = path or FOLDER / f"{report.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as unfinished:
        unfinished.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    Path(unfinished.name).chmod(0o644)
    Path(unfinished.name).replace(path)
    return path


def runs_of(report: Report) -> list[Run]:
    """Return the commands that measured a report, the last one last."""
    return report.runs or [Run(report.command, report.made, report.commit)]


def put_together(report: Report, parts: Sequence[str], path: Path) -> Report:
    """Return a report of some parts, with what a file holds of the others; without a file the report as it is."""
    if not path.exists():
        return report
    earlier = load(path)
    others = [reading for reading in earlier.readings if _part(reading.work) not in parts]
    if not others:
        return report
    runs = [_without(run, parts, others) for run in runs_of(earlier)]
    latest = Run(report.command, report.made, report.commit, list(parts))
    return msgspec.structs.replace(
        report, readings=others + report.readings, runs=[*(run for run in runs if run.parts), latest]
    )


def store_of(contestant: str) -> str:
    """Return the store of a contestant; for an unknown one its own name, so that it is compared with nobody."""
    return STORES.get(contestant, contestant)


def is_peer(contestant: str) -> bool:
    """Tell whether it is somebody else's queue: neither Holdfast nor the reference."""
    return contestant != REFERENCE and not contestant.startswith("holdfast")


def summary(report: Report) -> list[Cell]:
    """Return a cell for each contestant, work and `x`: works as they were first read, curves by `x`, the best value first."""
    cells = _cells(report.readings)
    return [
        msgspec.structs.replace(
            cell,
            to_best_peer=_ratio(cell, best_peer(cells, cell.work, store_of(cell.contestant), cell.x)),
            to_reference=_ratio(cell, _reference(cells, cell)),
        )
        for cell in cells
    ]


def best_peer(cells: Iterable[Cell], work: str, store: str, x: float | None = None) -> Cell | None:
    """Return the best peer at a work among those on one store, nothing when none has a figure."""
    peers = [
        cell
        for cell in cells
        if cell.work == work and cell.x == x and is_peer(cell.contestant) and store_of(cell.contestant) == store
    ]
    return min(peers, key=_rank, default=None)


def _without(run: Run, parts: Sequence[str], others: Sequence[Reading]) -> Run:
    """Return a run with those of its parts that were not measured anew."""
    measured = run.parts or list(dict.fromkeys(_part(reading.work) for reading in others))
    return msgspec.structs.replace(run, parts=[part for part in measured if part not in parts])


def _part(work: str) -> str:
    """Return the first word of a work's name: "backlog" of "backlog: claim 1", "worker" of "worker without: drain"."""
    return work.partition(" ")[0].rstrip(":")


def _cells(readings: Sequence[Reading]) -> list[Cell]:
    groups: dict[tuple[str, str, float | None], list[Reading]] = {}
    for reading in readings:
        groups.setdefault((reading.work, reading.contestant, _x(reading)), []).append(reading)
    works = list(dict.fromkeys(reading.work for reading in readings))
    cells = [_cell(group, x) for (_, _, x), group in groups.items()]
    return sorted(cells, key=lambda cell: (works.index(cell.work), cell.x is not None, cell.x or 0.0, _rank(cell)))


def _cell(group: list[Reading], x: float | None) -> Cell:
    values = [reading.value for reading in group]
    first = group[0]
    return Cell(
        contestant=first.contestant,
        work=first.work,
        unit=first.unit,
        better=first.better,
        rounds=len(values),
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        x=x,
        extra=_extras(group),
    )


def _extras(group: list[Reading]) -> dict[str, float | str]:
    extras: dict[str, float | str] = {}
    for name in dict.fromkeys(name for reading in group for name in reading.extra):
        found = [reading.extra[name] for reading in group if name in reading.extra]
        numbers = [value for value in found if not isinstance(value, str)]
        extras[name] = statistics.median(numbers) if len(numbers) == len(found) else found[-1]
    return extras


def _x(reading: Reading) -> float | None:
    x = reading.extra.get("x")
    return None if x is None else float(x)


def _rank(cell: Cell) -> float:
    return -cell.median if cell.better == "higher" else cell.median


def _reference(cells: Iterable[Cell], cell: Cell) -> Cell | None:
    if store_of(cell.contestant) != store_of(REFERENCE):
        return None
    return next((one for one in cells if (one.contestant, one.work, one.x) == (REFERENCE, cell.work, cell.x)), None)


def _ratio(cell: Cell, other: Cell | None) -> float | None:
    return None if other is None or not other.median else cell.median / other.median
