"""What is published is what this version does."""

from __future__ import annotations

import pytest

from benchmarks.results import Cell, load, summary
from tests.runtime.test_cost_per_job import COUNTED, STORES, dearer


@pytest.mark.parametrize("store", STORES)
def test_published_counts_are_within_what_the_tests_allow(store: str) -> None:
    cells = [cell for cell in summary(load("cost")) if cell.contestant == f"holdfast_{store}"]
    counted = {phase: {what: median(cells, phase, what) for what in counts} for phase, counts in COUNTED[store].items()}
    assert dearer(counted, store) == {}, "count anew: ./dev bench cost --rounds 3"


def median(cells: list[Cell], phase: str, what: str) -> float:
    """Return a count as `cost.readings` has named it."""
    is_worker = phase.startswith("worker")
    work, x = (what.replace("_", ""), float(phase.split()[1])) if is_worker else (f"{phase}: {what}", None)
    [found] = [cell.median for cell in cells if (cell.work, cell.x) == (work, x)]
    return found
