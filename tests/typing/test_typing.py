"""A type checker accepts the calls that work and refuses those that do not, before anything runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = Path(__file__).parent / "calls.py.txt"
SOURCE = Path(__file__).parents[2] / "src"
MARK = re.compile(r"  # error: (?P<code>[a-z-]+)$")
FOUND = re.compile(r"^.*?:(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[a-z-]+)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, str]]:
    """What mypy --strict says first about each line of the calls: code and text."""
    folder = tmp_path_factory.mktemp("typing")
    calls = folder / "calls.py"
    calls.write_text(CALLS.read_text())
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {SOURCE}\nfollow_imports = silent\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "--no-error-summary", "calls.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    first: dict[int, tuple[str, str]] = {}
    for found in FOUND.finditer(done.stdout):
        first.setdefault(int(found["line"]), (found["code"], found["text"]))
    return first


def test_wrong_calls_are_refused_and_right_ones_are_not(refusals: dict[int, tuple[str, str]]) -> None:
    lines = CALLS.read_text().splitlines()
    expected = {number: mark["code"] for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    assert len(expected) > 30  # the marks are found at all
    assert {number: code for number, (code, _) in refusals.items()} == expected, "\n".join(
        f"{number}: {lines[number - 1].strip()}\n    {text}" for number, (_, text) in sorted(refusals.items())
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('await plain.enqueue("1", "a")', 'has incompatible type "str"; expected "int"'),
        ("await plain.enqueue(1)", 'Missing positional argument "name"'),
        ('plain.call(1, nam="a")', 'did you mean "name"?'),
        ("plain.options(dealy=1)", 'did you mean "delay"?'),
        ("await job_first.enqueue()", 'Missing positional argument "user_id"'),
        ('await job_first.enqueue(user_id="1")', 'Argument "user_id" to "enqueue"'),
        ('await job_first.enqueue(1, nam="a")', 'did you mean "name"?'),
        ("await optional_job.enqueue(1)", 'Missing positional argument "name"'),
        ("await optional_job.enqueue(1, name=2)", 'has incompatible type "int"; expected "str"'),
        ("await with_job.enqueue()", 'actual type "ArgsMissing"'),
        ('await with_job.enqueue("1", "a")', 'No overload variant of "enqueue"'),
        (
            'job.continue_with(plain, "1", "a")',
            'Argument 2 to "continue_with" of "Job" has incompatible type "str"; expected "int"',
        ),
        ("job.continue_with(plain, 1)", 'Missing positional argument "name" in call to "continue_with"'),
        ('job.continue_with(with_job, "1", "a")', 'has incompatible type "str"; expected "int"'),
        ("return job.continue_with(blocking, 1)", 'got "float", expected "str"'),
    ],
)
def test_a_refusal_names_the_argument_at_fault(refusals: dict[int, tuple[str, str]], call: str, words: str) -> None:
    line = next(number for number, text in enumerate(CALLS.read_text().splitlines(), 1) if text.strip().startswith(f"{call}  "))
    assert words in refusals[line][1]
