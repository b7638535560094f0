"""Charts are well-formed, say in words what they draw, and draw it to scale."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from benchmarks import charts
from benchmarks.results import Better, Machine, Reading, Report, save
from benchmarks.svg import Bar, bars
from holdfast.charts import WIDTH, Line, lines

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = Machine(2, 2**34, "some", "Linux 6", "3.11.0")


def report(name: str, *readings: Reading) -> Report:
    return Report(name, MACHINE, "./dev bench", "2026-01-31", list(readings))


def read(contestant: str, work: str, *values: float, better: Better = "higher", **extra: float) -> list[Reading]:
    return [Reading(contestant, work, number, value, "jobs/s", better, dict(extra)) for number, value in enumerate(values, 1)]


def bar(label: str, value: float, *, group: str = "", high: float | None = None) -> Bar:
    return Bar(label, group, value, value, high or value, "peer", f"{value:g}")


def widths(chart: str) -> list[float]:
    shapes = ET.fromstring(chart).findall(f"{SVG}rect")
    return [float(shape.get("width", "0")) for shape in shapes if shape.get("class") != "paper"]


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(chart).iter(f"{SVG}text")]


def described(chart: str) -> str:
    return ET.fromstring(chart).findtext(f"{SVG}desc") or ""


def drains() -> Report:
    return report(
        "peers",
        *read("huey", "drain1", 3.0),
        *read("pgqueuer", "drain1", 9.0, 8.0, 10.0),
        *read("holdfast_postgres", "drain1", 30.0),
        *read("saq", "drain1", 50.0),
    )


def curve(work: str, *values: float, start: float = 1000.0) -> list[Reading]:
    return [
        Reading("holdfast_postgres", work, 1, value, "ms", "lower", {"x": start * 10**number, "p99": value, "blocks": value})
        for number, value in enumerate(values)
    ]


def everything() -> list[Report]:
    return [
        drains(),
        report("growth", *curve("backlog: claim 100", 1.0, 1.1, 1.2), *curve("queues: claim 100", 1.0, 1.1, start=1.0)),
        report("bloat", *curve("bare with a snapshot: drain", 5.0, 6.0), *curve("bare without: blocks of a claim", 5.0, 6.0)),
        report("leases", *curve("leases client", 0.0, 0.2), *curve("leases server", 0.1, 0.3)),
        report("memory", *curve("memory", 60.0, 61.0)),
    ]


def test_every_chart_is_xml_with_a_title_and_a_description() -> None:
    drawn = charts.charts(everything())
    assert len(drawn) == 8
    for name, chart in drawn.items():
        root = ET.fromstring(chart)
        assert root.tag == f"{SVG}svg", name
        assert root.findtext(f"{SVG}title"), name
        assert described(chart), name
        assert "prefers-color-scheme: dark" in chart, name


def test_names_cannot_break_the_markup() -> None:
    chart = bars("<b>&", 'a "quoted" unit', [bar("a<b", 1.0, group="x & y")])
    assert {"a<b", "x & y", "<b>&"} <= set(texts(chart))


def test_bars_are_to_scale() -> None:
    drawn = widths(bars("t", "s", [bar("long", 100.0), bar("half", 50.0), bar("tenth", 10.0)]))
    assert drawn == pytest.approx([drawn[0], drawn[0] / 2, drawn[0] / 10], abs=0.1)


def test_a_range_stays_within_the_picture() -> None:
    chart = bars("t", "s", [bar("long", 100.0, high=180.0)])
    assert widths(chart)[0] < WIDTH / 2
    assert "long: 100" in described(chart)


def test_the_worst_does_not_flatten_the_others_and_is_shown_as_cut() -> None:
    rows = [bar("a", 2.0), bar("b", 3.0), bar("c", 4.0), bar("far", 400.0)]
    flat, cut = bars("t", "s", rows), bars("t", "s", rows, cut=True)
    assert widths(cut)[0] > 10 * widths(flat)[0]
    assert 'class="cut"' in cut
    assert 'class="cut"' not in flat
    assert "400" in texts(cut)


def test_contestants_stand_by_store_and_the_best_of_each_first() -> None:
    drawn = texts(charts.charts([drains()])["performance-drain1.svg"])
    order = [drawn.index(name) for name in ("Holdfast", "pgqueuer", "huey", "saq")]
    assert order == sorted(order)


def test_the_title_says_what_and_the_subtitle_the_unit_and_what_is_better() -> None:
    drawn = texts(charts.charts([drains()])["performance-drain1.svg"])
    assert drawn[:2] == [
        "No-ops drained by one worker process",
        "jobs a second, more is better; median and range of 3 rounds",
    ]


def test_equal_factors_are_equal_steps_on_a_logarithmic_axis() -> None:
    points = ((10.0, 1.0), (100.0, 1.0), (1000.0, 1.0))
    chart = lines("t", "s", [Line("flat", points)], x_label="x", logarithmic=True, write=str)
    xs = [float(dot.get("cx", "0")) for dot in ET.fromstring(chart).findall(f"{SVG}circle")]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert {"10", "100", "1k"} <= set(texts(chart))


def test_lines_begin_at_zero() -> None:
    chart = lines(
        "t", "s", [Line("high", ((1.0, 95.0), (2.0, 100.0)))], x_label="x", logarithmic=False, write=lambda y: f"{y:g}"
    )
    assert "0" in texts(chart)
    ys = [float(dot.get("cy", "0")) for dot in ET.fromstring(chart).findall(f"{SVG}circle")]
    assert ys[0] - ys[1] < 20


def test_a_line_of_nothing_but_zeros_is_drawn() -> None:
    chart = lines("t", "s", [Line("none", ((1.0, 0.0), (2.0, 0.0)))], x_label="x", logarithmic=True, write=str)
    assert len(ET.fromstring(chart).findall(f"{SVG}circle")) == 2


def test_what_was_not_measured_is_not_drawn() -> None:
    assert set(charts.charts([drains()])) == {"performance-drain1.svg"}
    assert charts.charts([]) == {}


def test_stale_charts_are_told_and_mended_and_surplus_ones_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(charts, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(charts, "FOLDER", tmp_path)
    save(drains(), tmp_path / "peers.json")
    assert charts.main(["--check"]) == 1
    assert "./dev bench charts" in capsys.readouterr().err
    assert charts.main([]) == 0
    assert charts.main(["--check"]) == 0
    surplus = tmp_path / "images" / "performance-older.svg"
    surplus.write_text("<svg/>")
    assert charts.main(["--check"]) == 1
    assert charts.main([]) == 0
    assert not surplus.exists()
