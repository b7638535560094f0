"""The page on scaling rests on figures that were measured: when they are measured anew, it has to follow."""

from __future__ import annotations

import re
import statistics

import pytest

from benchmarks import scaling
from benchmarks.limits import CROWDED, work_of
from benchmarks.machine import this_machine
from benchmarks.results import FOLDER, Reading, Report, load

PAGE = scaling.PAGE.read_text()

RATES = [
    ("holdfast_postgres", "bulk"),
    ("holdfast_postgres", "callers50"),
    ("holdfast_postgres", "drain1"),
    ("holdfast_sqlite", "callers50"),
    ("holdfast_sqlite", "drain1"),
    ("holdfast_sqlite", "drain2"),
]
COSTS = [f"{what} {many}: wal_bytes" for what in ("enqueue", "claim", "settle") for many in ("100", "one")]


def median(report: str, contestant: str, work: str) -> float:
    readings = load(FOLDER / f"{report}.json").readings
    return statistics.median(one.value for one in readings if (one.contestant, one.work) == (contestant, work))


def test_the_page_is_what_the_results_give() -> None:
    assert scaling.page() == PAGE, "write it anew: ./dev bench page"


@pytest.mark.parametrize(("contestant", "work"), RATES, ids=" ".join)
def test_the_rates_on_the_page_are_the_published_ones(contestant: str, work: str) -> None:
    assert f"{median('peers', contestant, work):,.0f}" in PAGE


@pytest.mark.parametrize("work", COSTS)
def test_the_bytes_on_the_page_are_the_published_ones(work: str) -> None:
    assert f"{median('cost', 'holdfast_postgres', work):.0f}" in PAGE


def of_limits(free_overlap: float, limited: float = 1300.0) -> Report:
    """Return a report of runs with jobs of 50 ms, of which so many of a key ran at once without limits."""
    rates = {"free": 1900.0, "turns": 1700.0, "limited": limited}
    overlaps = {"free": free_overlap, "turns": 8.0, "limited": 2.0}
    readings = [
        Reading(contestant, work_of(kind, 50.0), 0, rate, "jobs/s", "higher", {"overlap": overlaps[kind]})
        for contestant in scaling.STORES
        for kind, rate in rates.items()
    ]
    return Report("limits", this_machine({}, {}), "./dev bench limits", "2026-01-01", readings)


def test_rates_under_limits_stand_beside_those_of_the_run_without() -> None:
    table, held = scaling._limits(of_limits(30.0))
    assert "| PostgreSQL, jobs of 50 ms | 1,900 | 1,700 | 1,300 | 0.68 |" in table
    assert "| PostgreSQL, jobs of 20 ms | not measured yet | | | |" in table
    assert "PostgreSQL with jobs of 50 ms and longer" in held
    assert "Missed" not in held


def test_that_half_of_the_rate_is_not_kept_is_said() -> None:
    _, held = scaling._limits(of_limits(30.0, limited=900.0))
    assert "**Missed** by PostgreSQL with jobs of 50 ms (0.47) and SQLite with jobs of 50 ms (0.47)." in held


@pytest.mark.parametrize("report", [None, of_limits(CROWDED - 1.0)], ids=["none", "nothing held back"])
def test_a_run_in_which_there_was_nothing_to_hold_back_counts_as_none(report: Report | None) -> None:
    table, held = scaling._limits(report)
    assert table.count("not measured yet") == 6
    assert not re.search(r"\d,\d{3}", table)
    assert "not measured" in held


@pytest.mark.parametrize("name", scaling.USED)
def test_each_report_stands_beside_its_machine_or_is_said_to_be_missing(name: str) -> None:
    """Figures of two machines must not be compared unawares."""
    line = next(line for line in PAGE.splitlines() if line.startswith("- ") and re.search(rf"`(\./dev bench )?{name}`", line))
    if (FOLDER / f"{name}.json").exists():
        assert load(name).machine.processor in line
    else:
        assert "not measured yet" in line


def test_no_figure_of_a_report_is_typed_into_the_template() -> None:
    """What is measured has to come through a name, or it stays when it is measured anew."""
    typed = set(re.findall(r"\d[\d,]*\.?\d*", re.sub(r"\{[^}]*\}", "", scaling.TEMPLATE.read_text())))
    figures = scaling._measured({name: load(name) for name in ("peers", "cost", "leases", "memory")})
    for name, value in figures.items():
        if value > 100 and name != "leases":
            assert f"{value:,.0f}" not in typed, name
