"""How soon a job starts in each mode: measured once for real, in small, and shown as it was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import dispatch, dispatch_page, scaling
from benchmarks.results import Machine, Report, load
from tests.support.redis import KINDS, RedisServer

if TYPE_CHECKING:
    from collections.abc import Sequence

MACHINE = Machine(2, 2**30, "Some CPU", "Linux 6", "3.11", {"postgres": "18.1", "redis": "6.2.14", "other": "1"})


def reported(*medians: Sequence[float]) -> Report:
    """Return a report with these p50 in three modes, for every round."""
    readings = [
        dispatch.reading(mode, number, [value] * 4)
        for number, values in enumerate(medians)
        for mode, value in zip(dispatch.MODES, values, strict=True)
    ]
    return Report("dispatch", MACHINE, "./dev bench dispatch", "2026-01-31", readings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_tells_its_version(kind: str) -> None:
    with RedisServer(kind) as server:
        assert dispatch._version(server).count(".") == 2
        with pytest.raises(ValueError, match="PONG"):
            server.tell("PING")


def test_a_short_run_measures_every_mode_and_says_on_what(tmp_path: Path) -> None:
    path = tmp_path / "dispatch.json"
    assert dispatch.main(["--jobs", "3", "--rounds", "1", "--json", str(path)]) == 0
    report = load(path)
    assert [one.work for one in report.readings] == [f"dispatch {mode}" for mode in dispatch.MODES]
    assert all(one.value > 0 for one in report.readings)
    assert report.machine.versions["redis"].startswith("6.2")


def test_the_guide_and_the_page_on_scaling_show_every_mode() -> None:
    report = reported((2.0, 3.0, 4.0), (2.5, 3.5, 4.5), (1.0, 9.0, 4.4))
    part = dispatch_page.part(report)
    assert "| `database` | 4 | 2.00 (1.00 to 2.50) | 2.00 | 2.00 |" in part
    assert "| `redis` | 4 | 3.50 (3.00 to 9.00) |" in part
    assert "| `hybrid` | 4 | 4.40 (4.00 to 4.50) |" in part
    assert "2026-01-31" in part
    assert "postgres 18.1, redis 6.2.14" in part
    assert scaling._dispatch(report).startswith("p50 2.00 ms with `database`, 3.50 ms with `redis`, 4.40 ms with `hybrid`")


def test_what_was_not_measured_is_said_to_be_so() -> None:
    assert dispatch_page.part(None).startswith("Not measured yet")
    assert scaling._dispatch(None).startswith("not measured yet")


def test_the_guide_is_what_the_results_give() -> None:
    assert dispatch_page.page() == Path(dispatch_page.PAGE).read_text(encoding="utf-8"), "write it anew: ./dev docs"
