"""What ./dev bench pages and ./dev bench serving keep of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import pages, serving
from benchmarks.commands import report_of, this_run
from benchmarks.machine import this_machine
from benchmarks.results import load, save, summary

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_answer_of_a_page_is_told_apart_from_the_others(tmp_path: Path) -> None:
    readings = pages.readings({"/jobs": [0.5, 0.01, 0.02, 0.03]}, jobs=7)
    save(report_of("pages", this_run("pages", []), this_machine(), readings), tmp_path / "pages.json")

    cells = {cell.work: cell for cell in summary(load(tmp_path / "pages.json"))}

    assert (cells["first /jobs"].median, cells["page /jobs"].median, cells["page /jobs"].high) == (500.0, 20.0, 30.0)
    assert cells["page /jobs"].extra == {"jobs": 7}


def test_what_a_server_carries_is_kept_round_by_round(tmp_path: Path) -> None:
    found = serving.Found(workers=3, pages=5)
    for number, rate in enumerate((100.0, 300.0, 200.0)):
        found.add("claims, alone", rate, "claims/s", "higher", number)
    save(report_of("serving", this_run("serving", []), this_machine(), found.readings), tmp_path / "serving.json")

    (cell,) = summary(load(tmp_path / "serving.json"))

    assert (cell.work, cell.rounds, cell.median, cell.better) == ("serving: claims, alone", 3, 200.0, "higher")
    assert cell.extra == {"workers": 3, "pages": 5}
