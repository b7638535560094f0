"""How a parallel run spreads the tests over its processes: who goes together, who goes first, and who goes beside whom.

xdist has a mark for the first, of which pytest 9.2 takes no notice (pytest-xdist issue 1386): every process would fill the same
tables. The process that deals out the tests knows nothing of them but their ids, so here they are named by the beginnings of
these. The order is for the time alone: every test passes in any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import pytest

TOGETHER = ("tests/test_examples.py::test_an_example_ends_well",)
"""Each of these in one process, one after the other: they share programs that run."""

APART = (
    "tests/cli/test_processes.py",
    "tests/demo/",
    "tests/faults/",
    "tests/fleet/",
    "tests/fleet_redis/",
    "tests/lab/",
    "tests/store/test_conformance",
    "tests/test_examples.py",
    "tests/test_house.py",
    "tests/testing/",
)
"""Each test of these goes to whoever is free: they take long, or share little. So something is left for the end."""

SHARING = ("tests/faults/test_hostile.py", "tests/faults/test_quick.py", "tests/faults/test_standby.py")
"""Those of them that share tables which are dear to fill, or a server."""

FIRST = (
    "tests/lab/test_soak.py::test_a_short_soak",
    "tests/faults/test_exactly_once.py",
    "tests/faults/test_outage.py",
    "tests/faults/test_periodic.py::test_ten_workers",
    "tests/faults/test_deploy.py::test_a_deploy_costs_nothing",
    "tests/faults/test_endless.py",
    "tests/runtime/test_idle.py",
    "tests/lab/test_sim.py::test_nothing_is_lost_wherever",
    "tests/lab/test_sim.py::test_the_same_seed",
    "tests/store/test_conformance_postgres.py::TestPostgresProcesses",
    "tests/store/test_conformance_postgres.py::TestPostgresStore::test_random_walks",
    "tests/store/test_conformance_postgres_older.py::TestOlderPostgresProcesses",
    "tests/store/test_conformance_postgres_older.py::TestOlderPostgresStore::test_random_walks",
    "tests/store/test_conformance_sqlite.py::TestSqliteStore::test_random_walks",
)
"""The longest: begun before all others, so that nobody is left waiting for one of them at the end."""

WAITING = "tests/faults/"
"""Tests that wait most of their time."""

COMPUTING = "tests/lab/"
"""Tests that wait for nothing, and share nothing that would be set up again each time one of them is run in between."""


class Spread(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """Deals out files, the largest first, then what is apart, test by test.

    The tests of a file share what is made once for it: a database with its schema, a server, a browser. Dealt out one by one
    every process made its own.
    """

    def _split_scope(self, nodeid: str) -> str:
        if (start := next(filter(nodeid.startswith, TOGETHER), None)) is not None:
            return start
        one_by_one = nodeid.startswith(APART) and not nodeid.startswith(SHARING)
        return nodeid if one_by_one else nodeid.partition("::")[0]


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the longest first, then those that wait and those that compute in turn, so that no core rests, then the others."""

    def of(start: str | tuple[str, ...]) -> list[pytest.Item]:
        return [item for item in items if item.nodeid.startswith(start)]

    place = {item: n / len(kind) for kind in (of(WAITING), of(COMPUTING)) for n, item in enumerate(kind)}
    place |= dict.fromkeys(of(FIRST), -1.0)
    return sorted(items, key=lambda item: place.get(item, 1.0))
