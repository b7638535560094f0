"""Tests that prove a row of the catalogue of faults: how they are chosen, and the table of what they gave.

@pytest.mark.row(5)            this test proves row 5
@pytest.mark.machine           it needs root or a Debian package: it runs in `./dev faults` alone
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from lab.faults.catalogue import ROWS, chosen

if TYPE_CHECKING:
    import pytest

PROPERTY = "rows"
"""Under this name a report of a test carries the rows that it proves, with blanks between them."""


def rows_of(item: pytest.Item) -> list[str]:
    """Return the rows that a test proves."""
    return [str(row) for marker in item.iter_markers("row") for row in marker.args]


def select(items: list[pytest.Item], text: str | None) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to be run and the others: those of some rows, or all that need nothing of the machine."""
    for item in items:
        if rows := rows_of(item):
            item.user_properties.append((PROPERTY, " ".join(rows)))
    wanted = None if text is None else set(chosen(text))

    def is_wanted(item: pytest.Item) -> bool:
        if wanted is None:
            return item.get_closest_marker("machine") is None
        return not wanted.isdisjoint(rows_of(item))

    return [item for item in items if is_wanted(item)], [item for item in items if not is_wanted(item)]


def table(reports: list[pytest.TestReport], text: str) -> list[str]:
    """Return a line for each row: what was tested, and how it went."""
    passed, failed = Counter[str](), Counter[str]()
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        for row in str(dict(report.user_properties).get(PROPERTY, "")).split():
            seconds[row] += report.duration
            if report.failed:
                failed[row] += 1
            elif report.when == "call":
                passed[row] += report.passed
    lines = [f"{'row':>4}  {'passed':>6}  {'failed':>6}  {'time':>7}  fault"]
    for row in chosen(text):
        verdict = "" if passed[row] or failed[row] else "  (no test was run)"
        lines.append(f"{row:>4}  {passed[row]:>6}  {failed[row]:>6}  {seconds[row]:>6.1f}s  {ROWS[row].fault}{verdict}")
    return lines
