"""How a parallel run spreads the tests over its processes: what shares something dear stays together, what is long goes first.

xdist has a mark for the first, which pytest 9.2 takes no notice of (pytest-xdist issue 1386): every process would fill the same
tables. The process that deals out the tests knows nothing of them but their ids, so here they are named by the beginnings of
these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

TOGETHER = (
    "tests/store/test_postgres_plans.py",
    "tests/store/test_postgres_bloat.py",
    "tests/faults/test_quick.py",
    "tests/test_examples.py::test_an_example_ends_well",
)
"""Each of these in one process, one after the other: they share tables that are dear to fill, or processes."""

FIRST = ()
"""Begun before all others, so that nobody is left waiting for one of them at the end: those that take five seconds or more."""


class Spread(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Deals out tests one by one, and those that belong together at once, the most first."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """Move the tests that take long to the front; all others stay in order."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
