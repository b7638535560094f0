"""The page on scaling rests on figures that were measured: when they are measured anew, it has to follow."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from benchmarks.results import FOLDER, load

PAGE = (Path(__file__).parents[2] / "docs/scaling.md").read_text()

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


@pytest.mark.parametrize(("contestant", "work"), RATES, ids=" ".join)
def test_the_rates_on_the_page_are_the_published_ones(contestant: str, work: str) -> None:
    assert f"{median('peers', contestant, work):,.0f}" in PAGE


@pytest.mark.parametrize("work", COSTS)
def test_the_bytes_on_the_page_are_the_published_ones(work: str) -> None:
    assert f"{median('cost', 'holdfast_postgres', work):.0f}" in PAGE
