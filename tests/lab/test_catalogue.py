"""The catalogue of faults: every row has a test, every mark names a row, and the command tells what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.faults import __main__ as faults
from lab.faults.__main__ import Asked
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["5", "--no-machine"], "unrecognized arguments: 5"),
        (["--minutes", "nan"], "nan is no number of minutes"),
        (["--minutes", "-1"], "-1 is no number of minutes"),
    ],
)
def test_what_it_does_not_understand_it_refuses(words: list[str], says: str) -> None:
    refused = _run(*words)
    assert refused.returncode == 2
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_list_says_which_row_takes_long() -> None:
    assert "2,000 tests" in _run("--only", "16", "--list").stdout


def test_it_runs_the_files_of_its_rows_with_one_seed_for_every_choice() -> None:
    words = faults.command(Asked("31"), 7)
    assert words[words.index("--rows") + 1] == "31"
    assert "--hypothesis-seed=7" in words
    assert [word for word in words if word.endswith(".py")] == [str(path.relative_to(ROOT)) for path in proofs()["31"]]
    assert "not machine" not in words


def test_it_runs_the_files_that_it_is_given_and_leaves_out_what_it_is_told_to() -> None:
    named = "tests/faults/test_hostile.py::test_nothing"
    words = faults.command(Asked("31", machine=False, rest=("-x", named)), 7)
    assert [word for word in words if ".py" in word] == [named]
    assert words[words.index("-m", 3) + 1] == "not machine"


def test_a_run_that_failed_says_the_whole_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = []

    def failed(_command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        seeds.append(env["FAULTS_SEED"])
        return subprocess.CompletedProcess([], 1)

    monkeypatch.setattr("subprocess.run", failed)
    assert faults.repeat(Asked("5,11b", machine=False, rest=("-k", "a b")), 0.0) == 1
    again = f"again: ./dev faults --only 5,11b --seed {seeds[0]} --no-machine -- -k 'a b'\n"
    assert capsys.readouterr().err.endswith(again)


def test_rows_bring_their_slow_tests_along() -> None:
    slow = "test_an_extension_whose_answer_was_lost"
    words = [*faults.command(Asked("11", rest=("tests/faults/test_unknown.py", "-k", slow)), 7), "--collect-only", "-n", "0"]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert slow in shown.stdout, shown.stdout


def test_without_root_it_says_what_to_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    missing = faults.install(Asked("5,14,16", seed=7))
    assert missing is not None
    assert "rows 14, 16 have tests that need root" in missing
    assert "sudo ./dev faults --only 5,14,16 --seed 7\n" in missing
    assert missing.endswith("./dev faults --only 5,14,16 --seed 7 --no-machine")
    assert faults.install(Asked("5")) is None


def test_without_a_package_it_says_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda _: None)  # neither the program nor apt-get
    missing = faults.install(Asked("5,16"))
    assert missing is not None
    assert "Fix: apt-get install --yes --no-install-recommends pgbouncer" in missing


def _run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lab.faults", *args], cwd=ROOT, capture_output=True, text=True, check=False)
