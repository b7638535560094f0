"""What follows from readings: medians, ranges, and ratios to the best peer and to the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.environments import peers
from benchmarks.results import STORES, Better, Cell, Failure, Machine, Reading, Report, best_peer, load, save, summary
from benchmarks.roster import names
from benchmarks.tables import table

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = Machine(cores=2, memory_bytes=2**34, processor="some", kernel="Linux 6", python="3.11.0")


def report(*readings: Reading, failures: tuple[Failure, ...] = ()) -> Report:
    return Report("some", MACHINE, "./dev bench", "2026-01-31", list(readings), list(failures))


def read(contestant: str, work: str, *values: float, better: Better = "higher", **extra: float | str) -> list[Reading]:
    return [Reading(contestant, work, number, value, "jobs/s", better, extra) for number, value in enumerate(values, 1)]


def cell(made: Report, contestant: str, work: str) -> Cell:
    [found] = [one for one in summary(made) if (one.contestant, one.work) == (contestant, work)]
    return found


def test_a_cell_has_the_median_and_the_range_of_its_rounds() -> None:
    found = cell(report(*read("pgqueuer", "drain1", 9.0, 7.0, 20.0)), "pgqueuer", "drain1")
    assert (found.median, found.low, found.high, found.rounds) == (9.0, 7.0, 20.0, 3)


def test_the_ratio_is_to_the_best_peer_and_not_to_holdfast_or_the_reference() -> None:
    made = report(
        *read("holdfast_postgres", "drain1", 30.0),
        *read("pgbench", "drain1", 60.0),
        *read("pgqueuer", "drain1", 10.0),
        *read("oban", "drain1", 2.0),
    )
    holdfast = cell(made, "holdfast_postgres", "drain1")
    assert (holdfast.to_best_peer, holdfast.to_reference) == (3.0, 0.5)
    assert cell(made, "oban", "drain1").to_best_peer == 0.2
    assert cell(made, "pgqueuer", "drain1").to_best_peer == 1.0


def test_the_best_peer_has_the_lowest_value_where_lower_is_better() -> None:
    made = report(
        *read("holdfast_postgres", "latency", 2.0, better="lower"),
        *read("pgqueuer", "latency", 4.0, better="lower"),
        *read("absurd", "latency", 100.0, better="lower"),
    )
    assert cell(made, "holdfast_postgres", "latency").to_best_peer == 0.5
    assert [one.contestant for one in summary(made)] == ["holdfast_postgres", "pgqueuer", "absurd"]


def test_contestants_are_compared_on_the_same_store_only() -> None:
    made = report(
        *read("holdfast_sqlite", "drain1", 20.0),
        *read("huey", "drain1", 4.0),
        *read("saq", "drain1", 50.0),
        *read("pgqueuer", "drain1", 10.0),
        *read("pgbench", "drain1", 60.0),
    )
    assert cell(made, "holdfast_sqlite", "drain1").to_best_peer == 5.0
    assert cell(made, "holdfast_sqlite", "drain1").to_reference is None
    assert cell(made, "saq", "drain1").to_best_peer == 1.0


def test_there_is_no_ratio_without_a_peer() -> None:
    made = report(*read("holdfast_postgres", "drain1", 20.0))
    assert best_peer(summary(made), "drain1", "postgres") is None
    assert cell(made, "holdfast_postgres", "drain1").to_best_peer is None


def test_points_of_a_curve_stay_apart_and_in_order() -> None:
    made = report(*read("holdfast_postgres", "claim", 2.0, x=1_000_000), *read("holdfast_postgres", "claim", 1.0, 3.0, x=1000))
    assert [(one.x, one.median) for one in summary(made)] == [(1000, 2.0), (1_000_000, 2.0)]


def test_of_extra_numbers_the_median_and_of_words_the_last_is_kept() -> None:
    first, second = (
        read("oban", "latency", 1.0, p99=10.0, how="counted"),
        read("oban", "latency", 1.0, p99=30.0, how="finished_at"),
    )
    assert cell(report(*first, *second), "oban", "latency").extra == {"p99": 20.0, "how": "finished_at"}


def test_a_saved_report_is_loaded_as_it_was(tmp_path: Path) -> None:
    made = report(*read("oban", "drain1", 1.0, p99=10.0), failures=(Failure("awa", "drain1", "no wheel"),))
    assert load(save(made, tmp_path / "made" / "some.json")) == made
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["some.json"]


def test_the_table_shows_of_how_many_rounds_a_figure_is() -> None:
    [row] = [line for line in table(report(*read("oban", "drain1", 30_000.0, 30_000.0))).splitlines() if "oban" in line]
    assert row.split() == ["oban", "30,000", "30,000", "30,000", "2", "1.00"]


@pytest.mark.parametrize("expected", ["pgqueuer", "1.00", "3.00", "awa has no figure for drain1: no wheel"])
def test_the_table_shows_ratios_and_who_failed(expected: str) -> None:
    made = report(
        *read("holdfast_postgres", "drain1", 30_000.0),
        *read("pgqueuer", "drain1", 10_000.0),
        failures=(Failure("awa", "drain1", "no wheel"),),
    )
    assert expected in table(made)


def test_every_contestant_has_the_store_that_it_is_compared_on() -> None:
    known = {name: peer.store for name, peer in peers().items()}
    assert {name: STORES.get(name) for name in known} == known
    assert set(STORES) == set(names())
