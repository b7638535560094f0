"""The long forms: what they are, what is written down of a run, and that the commit beside it is one."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lab import long
from lab.faults.catalogue import ROWS
from lab.long import FORMS, ROOT, Differs, Form, commit, counted, keep, ran, results
from lab.page import long_forms

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = FORMS["limits"]


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    subprocess.run(["git", "-C", folder, *author, *words], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit, whose tests are a program that tells of two that passed and one that failed."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "dev").write_text(
        "#!/bin/sh\n"
        'for word; do case "$word" in --junitxml=*) file="${word#--junitxml=}" ;; esac; done\n'
        'echo \'<testsuites><testsuite tests="4" failures="1" errors="0" skipped="1"/></testsuites>\' >"$file"\n'
        "[ ! -e breaks ] || echo changed >>dev\n"
        "exit 1\n"
    )
    (tmp_path / "dev").chmod(0o755)
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "begin")
    return tmp_path


def test_the_forms_name_rows_and_every_one_stands_on_the_page() -> None:
    assert {row for form in FORMS.values() for row in form.rows} <= set(ROWS)
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert all(f"`{form.command}`" in page for form in FORMS.values())
    assert (ROOT / LIMITS.command.split()[-1]).exists()


def test_what_was_written_down_held() -> None:
    kept = results()
    assert set(kept) <= {form.command for form in FORMS.values()}
    assert all(run["passed"] and not run["failed"] for run in kept.values())


def test_a_form_that_has_not_run_yet_is_said_to_have_not(tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    file.write_text("[]")
    assert long_forms(file).count("not run yet") == len(FORMS)
    keep(
        LIMITS,
        {"made": "2026-01-31", "commit": "abc1234", "command": LIMITS.command, "passed": 7, "failed": 0, "seconds": 61},
        file,
    )
    assert f"| 2026-01-31 | abc1234 | `{LIMITS.command}` | 36 | {LIMITS.what} | 7 | 0 | 1 min 1 s |" in long_forms(file)
    assert long_forms(file).count("not run yet") == len(FORMS) - 1


def test_a_run_names_the_commit_that_ran_and_counts_its_tests(clone: Path) -> None:
    told = ran(Form("./dev test --slow tests", ("36",), "all"), clone)
    assert (told["passed"], told["failed"], told["commit"]) == (2, 1, commit(clone))


def test_nothing_is_run_where_files_differ_from_the_commit_but_for_what_is_written_after_a_run(clone: Path) -> None:
    (clone / "lab" / "results").mkdir(parents=True)
    (clone / "lab" / "results" / "long.json").write_text("[]")
    assert commit(clone)
    (clone / "new.py").write_text("")
    with pytest.raises(Differs, match=r"no commit has what is here.*\n.*new\.py"):
        ran(LIMITS, clone)


def test_nothing_is_written_where_files_changed_meanwhile(clone: Path) -> None:
    (clone / "breaks").touch()
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "changes itself")
    with pytest.raises(Differs, match="no commit has what is here"):
        ran(LIMITS, clone)


def test_where_there_is_no_git_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(Differs, match="git does not tell"):
        commit(tmp_path)


def test_a_run_that_broke_down_has_failed(clone: Path) -> None:
    (clone / "dev").write_text("#!/bin/sh\nexit 3\n")
    git(clone, "commit", "--quiet", "--all", "--message", "breaks down")
    told = ran(LIMITS, clone)
    assert (told["passed"], told["failed"]) == (0, 1)


def test_tests_are_counted_as_pytest_tells_of_them() -> None:
    assert counted('<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/></testsuites>') == (3, 3)


def test_what_a_form_gives_to_pytest_comes_behind_the_rows() -> None:
    assert FORMS["hosts"].words == ["./dev", "faults", "--only", "14", "--"]
    assert long.FORMS["redis"].words[-1] == "tests/fleet_redis"
