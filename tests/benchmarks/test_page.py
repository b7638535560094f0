"""The page tells what the results say: what is missed, who failed, and nothing of what was not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from benchmarks import charts, page
from benchmarks.results import Better, Failure, Machine, Reading, Report, save
from benchmarks.targets import Target, Verdict, judge, targets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MACHINE = Machine(2, 2**34, "some processor", "Linux 6", "3.11.0", {"postgres": "18.1"}, {"fsync": "on"})


def read(contestant: str, work: str, *values: float, better: Better = "higher", **extra: float | str) -> list[Reading]:
    return [Reading(contestant, work, number, value, "jobs/s", better, extra) for number, value in enumerate(values, 1)]


def peers(*readings: Reading, failures: tuple[Failure, ...] = ()) -> Report:
    return Report("peers", MACHINE, "./dev bench peers --rounds 3", "2026-01-31", list(readings), list(failures))


def other(name: str, readings: Sequence[Reading]) -> Report:
    return Report(name, MACHINE, f"./dev bench {name}", "2026-01-31", list(readings))


def curve(work: str, *values: float, better: Better = "lower", **extra: float) -> list[Reading]:
    return [
        Reading("holdfast_postgres", work, 1, value, "ms", better, {"x": 10.0**number, **extra})
        for number, value in enumerate(values)
    ]


def drains(own: float, best: float) -> Report:
    return peers(
        *read("holdfast_postgres", "drain1", own), *read("pgqueuer", "drain1", best), *read("huey", "drain1", 10 * own)
    )


def verdict_of(target: Target, *reports: Report) -> Verdict:
    [verdict] = judge([target], reports)
    return verdict


def line_of(text: str, word: str) -> str:
    [found] = [line for line in text.splitlines() if word in line and line.startswith("|")]
    return found


AHEAD = Target("ahead", "peers", "holdfast_postgres", "drain1", against="best peer", at_least=3.0)


def test_a_reading_that_misses_its_target_is_called_missed_with_the_number() -> None:
    written = page.page([drains(own=25.0, best=10.0)])
    assert (
        "**Missed:** drain, one worker process, PostgreSQL: 3 times the best peer (pgqueuer): 2.50 where at least 3" in written
    )
    assert "| at least 3 | 2.50 | **missed** |" in written


def test_a_reading_that_holds_its_target_is_called_held() -> None:
    written = page.page([drains(own=31.0, best=10.0)])
    assert "| at least 3 | 3.10 | held |" in written
    assert "**Missed:**" not in written


def test_a_target_without_its_figure_is_not_held() -> None:
    alone = peers(*read("holdfast_postgres", "drain1", 25.0))
    verdict = verdict_of(AHEAD, alone)
    assert (verdict.number, verdict.held) == (None, False)
    assert line_of(page.page([alone]), "3 times the best peer").endswith("| at least 3 |  | no figure |")


def test_a_ratio_is_that_of_the_medians() -> None:
    made = peers(*read("holdfast_postgres", "drain1", 30.0, 90.0, 20.0), *read("pgqueuer", "drain1", 1.0, 10.0, 12.0))
    assert verdict_of(AHEAD, made).number == 3.0
    row = next(line for line in page.page([made]).splitlines() if line.startswith("| **Holdfast** | postgres"))
    assert "**30.0 [20.0 to 90.0]** | 3.00x |" in row


def test_peers_on_other_stores_do_not_count_unless_any_does() -> None:
    made = drains(own=31.0, best=10.0)
    assert verdict_of(AHEAD, made).where == "pgqueuer"
    assert verdict_of(msgspec.structs.replace(AHEAD, against="any peer"), made).where == "huey"


def test_a_percentile_is_held_against_the_best_peer_at_that_percentile() -> None:
    made = peers(
        *read("holdfast_postgres", "latency", 2.0, better="lower", p99=9.0),
        *read("pgqueuer", "latency", 3.0, better="lower", p99=50.0),
        *read("chancy", "latency", 5.0, better="lower", p99=12.0),
    )
    target = Target("tail", "peers", "holdfast_postgres", "latency", of="p99", against="best peer", at_most=1.0)
    assert verdict_of(target, made) == Verdict(target, 0.75, "chancy")


def test_of_several_curves_the_worst_counts_and_is_named() -> None:
    made = other("growth", [*curve("backlog: claim 100", 2.0, 2.2, 2.4), *curve("tasks: claim 100", 1.0, 1.1, 1.9)])
    target = Target("flat", "growth", "holdfast_postgres", "*: claim *", against="smallest", at_most=1.5)
    verdict = verdict_of(target, made)
    assert (verdict.number, verdict.where, verdict.held) == (1.9, "tasks: claim 100", False)


def test_the_last_third_of_a_curve_is_held_against_its_first() -> None:
    made = other("bloat", curve("bare with a snapshot: drain", 90.0, 110.0, 60.0, 20.0, 75.0, 85.0, better="higher"))
    target = Target("steady", "bloat", "holdfast_postgres", "* with a snapshot: drain", against="first third", at_least=0.8)
    assert verdict_of(target, made).number == 0.8


def test_a_curve_can_be_judged_at_one_place() -> None:
    made = other("leases", curve("leases client", 0.1, 4.0, 7.0))
    target = Target("leases", "leases", "holdfast_postgres", "leases *", at=10.0, at_most=5.0)
    assert verdict_of(target, made).number == 4.0


def test_sizes_that_do_not_matter_are_left_out() -> None:
    made = other(
        "memory",
        [
            *read("holdfast_postgres", "size of ready", 0.1, fresh=0.0),
            *read("holdfast_postgres", "size of ready_pkey", 90.0, fresh=1.0, index=1.0),
            *read("holdfast_postgres", "size of job", 300.0, fresh=240.0),
        ],
    )
    [target] = [one for one in targets() if one.unless]
    assert verdict_of(target, made) == Verdict(target, 1.25, "size of job")


def test_a_target_needs_one_bound() -> None:
    with pytest.raises(ValueError, match="either at_least or at_most"):
        Target("vague", "peers", "holdfast_postgres", "drain1")


def test_every_target_is_about_a_report_that_the_page_knows() -> None:
    assert {target.report for target in targets()} <= set(page._SECTIONS)


def test_what_was_not_measured_is_not_spoken_of() -> None:
    written = page.page([drains(own=31.0, best=10.0)])
    for heading in ("As things grow", "forgotten", "Keeping leases", "A million jobs"):
        assert heading not in written
    assert "No-ops drained by two worker processes" not in written


def test_without_any_result_nothing_is_promised() -> None:
    written = page.page([])
    assert "Nothing has been measured yet" in written
    assert "Targets" not in written


def test_a_peer_that_failed_is_named_with_its_reason() -> None:
    failure = Failure("oban", "install", "Python 3.12 not found\non PATH")
    assert "| oban | install | Python 3.12 not found on PATH |" in page.page([peers(failures=(failure,))])


def test_wal_and_statements_stand_beside_the_best_peers() -> None:
    made = peers(
        *read("holdfast_postgres", "wal", 500.0, better="lower"),
        *read("pgqueuer", "wal", 1200.0, better="lower"),
        *read("chancy", "wal", 2400.0, better="lower"),
    )
    assert "Bytes of WAL: Holdfast 500, the best peer (pgqueuer) 1,200." in page.page([made])


def test_the_page_says_how_to_repeat_it_and_on_what_it_was_measured() -> None:
    written = page.page([drains(own=31.0, best=10.0)])
    assert "./dev bench peers --rounds 3" in written
    assert (
        "2 cores (some processor), 16 GiB of memory, Linux 6, Python 3.11.0, PostgreSQL 18.1; PostgreSQL with `fsync=on`"
        in written
    )


def test_all_charts_of_the_page_are_drawn() -> None:
    growing = curve("backlog: claim 100", 1.0, 2.0, p99=3.0, blocks=40.0)
    draining = [*curve("bare without: drain", 5.0, 6.0, better="higher"), *curve("bare without: blocks of a claim", 5.0, 6.0)]
    remembering = [*curve("memory", 60.0, 61.0), *read("holdfast_postgres", "memory drift", 1.0)]
    found = [
        peers(*read("holdfast_postgres", "latency", 2.0), *read("pgqueuer", "wal", 900.0, better="lower")),
        other("latency", read("holdfast_sqlite", "latency", 5.0)),
        other("growth", growing),
        other("bloat", draining),
        other("leases", curve("leases client", 0.1, 0.2)),
        other("memory", remembering),
    ]
    written, drawn = page.page(found), charts.charts(found)
    assert {line.partition("images/")[2].rstrip(")") for line in written.splitlines() if "](images/" in line} == set(drawn)


def test_a_stale_page_is_told_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(charts, "FOLDER", tmp_path)
    save(drains(own=31.0, best=10.0), tmp_path / "peers.json")
    assert page.main(["--check"]) == 1
    assert "./dev bench page" in capsys.readouterr().err
    assert page.main([]) == 0
    assert page.main(["--check"]) == 0
    save(drains(own=32.0, best=10.0), tmp_path / "peers.json")
    assert page.main(["--check"]) == 1
