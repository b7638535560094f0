"""The catalogue of faults: every row has a test, every mark names a row, and the command tells what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.faults import __main__ as command
from lab.faults.catalogue import ROWS, chosen
from lab.page import needs_machine, proofs

ROOT = Path(__file__).parents[2]


def test_every_row_is_proved_and_every_mark_names_a_row() -> None:
    found = proofs()
    assert list(found) == list(ROWS), f"marks name rows that there are not: {sorted(set(found) - set(ROWS))}"
    assert not [key for key, paths in found.items() if not paths], "rows without a test"


def test_a_row_names_a_package_where_its_tests_need_one() -> None:
    for key, paths in proofs().items():
        assert bool(ROWS[key].packages) == any(map(needs_machine, paths)), f"row {key}: {ROWS[key].packages}"


def test_rows_are_chosen_by_their_numbers() -> None:
    assert chosen("5, 11b") == ["5", "11b"]
    assert chosen("all") == list(ROWS)
    with pytest.raises(ValueError, match=r"no row 99; there are 1, 2, 3"):
        chosen("5,99")


def test_the_command_lists_the_rows_and_refuses_others() -> None:
    shown = _run("--only", "5", "--list")
    assert (shown.returncode, shown.stdout.split("\n")[0]) == (0, f"   5  {ROWS['5'].fault}")
    refused = _run("--only", "99")
    assert refused.returncode == 2
    assert "no row 99" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_root_it_says_what_to_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    missing = command.install(["5", "14", "16"])
    assert missing is not None
    assert "rows 14, 16 have tests that need root" in missing
    assert "./dev faults --no-machine" in missing
    assert command.install(["5"]) is None


def test_without_a_package_it_says_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda _: None)  # neither the program nor apt-get
    missing = command.install(["5", "16"])
    assert missing is not None
    assert "Fix: apt-get install --yes --no-install-recommends pgbouncer" in missing


def _run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lab.faults", *args], cwd=ROOT, capture_output=True, text=True, check=False)
