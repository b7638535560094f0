"""Run what takes too long for every run, and write down what came of it, for docs/reliability.md.

    ./dev long --list          what there is, and when it last ran
    ./dev long                 all of it
    ./dev long limits hosts    some of it

Nothing may differ from the commit that is checked out: its name is written beside the figures, and stands for what ran. What
came of it goes to lab/results/long.json, and is told by the page once it is written anew (`./dev docs`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "lab" / "results" / "long.json"
OWN: Final = ("lab/results", "docs/reliability.md")
"""What is written after a run, and changes nothing that ran."""


@dataclass(frozen=True, slots=True)
class Form:
    """Tests that `./dev test` leaves out."""

    command: str
    rows: tuple[str, ...]
    what: str

    @property
    def words(self) -> list[str]:
        """The command, ready for arguments of pytest."""
        words = self.command.split()
        return [*words, "--"] if words[1] == "faults" else words


FORMS: Final = {
    "redis": Form(
        "./dev test --slow tests/fleet_redis",
        ("28", "29"),
        "Redis 6.2 and Valkey 9, each in both modes, flushed, killed, frozen, slowed, evicting, full and replayed under load, "
        "three rounds in an order drawn anew",
    ),
    "hosts": Form(
        "./dev faults --only 14",
        ("14",),
        "workers on three hosts and the database on a fourth, in network namespaces: one is cut off, its handlers stop before "
        "their leases end, and what it writes after healing is refused",
    ),
    "limits": Form(
        "./dev test --slow tests/fleet/test_limits.py",
        ("36",),
        "50 keys with at most two jobs each, 20,000 jobs of 50 ms, four processes, SQLite and PostgreSQL: never three at once, "
        "no key starved, at least half of the jobs a second of the run without limits",
    ),
    "api": Form(
        "./dev test --slow tests/server/test_fuzz.py",
        (),
        "schemathesis, sixty requests made up for every endpoint of the server, with a key and without: no 5xx, and no answer "
        "that the document does not have",
    ),
    "films": Form(
        "./dev test --slow tests/media/tasks/test_killed.py tests/media/engine/test_corpus.py",
        ("1",),
        "ten kills of workers in one film, again and again, frame by frame; and every bad input of docs/media/inputs.md",
    ),
}


class Differs(Exception):
    """What is there is not what a commit has, so no commit can be named."""


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="./dev long", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FORMS))
    parser.add_argument("--list", action="store_true", help="show what there is, and run nothing")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in FORMS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(FORMS)}")
    if given.list:
        kept = results()
        for name, form in FORMS.items():
            print(f"{name:8} {form.command}: {kept[form.command]['made'] if form.command in kept else 'not run yet'}")
        return 0
    try:
        for name in given.names or FORMS:
            keep(FORMS[name], ran(FORMS[name]))
    except Differs as error:
        print(f"./dev long: {error}", file=sys.stderr)
        return 2
    print(f"written: {RESULTS.relative_to(ROOT)}. Write the page anew: ./dev docs")
    return 0 if all(one["failed"] == 0 for one in results().values()) else 1


def ran(form: Form, root: Path = ROOT) -> dict[str, Any]:
    """Run tests, and return what came of them. Raises `Differs` before they run, and when something changed meanwhile."""
    named = commit(root)
    print(f"./dev long: {form.command} at {named}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.xml"
        code = subprocess.run([*form.words, f"--junitxml={told}"], cwd=root, check=False).returncode
        passed, failed = counted(told.read_text()) if told.exists() else (0, 0)
    took = round(time.monotonic() - begun)
    if commit(root) != named:
        raise Differs(f"something else was checked out while {form.command} ran: nothing is written")
    made = dt.datetime.now(tz=dt.UTC).date().isoformat()
    failed = max(failed, int(code != 0))  # also where the run itself broke down
    return {"made": made, "commit": named, "command": form.command, "passed": passed, "failed": failed, "seconds": took}


def commit(root: Path = ROOT) -> str:
    """Return the commit that is checked out, and nothing but it. Raises `Differs`."""
    changed = _git(root, "status", "--porcelain", "--", ".", *(f":!{path}" for path in OWN))
    if changed:
        raise Differs(f"no commit has what is here. Commit it, or put it aside, first:\n{changed}")
    return _git(root, "rev-parse", "--short", "HEAD")


def counted(told: str) -> tuple[int, int]:
    """Return how many tests passed and failed, as pytest tells it."""
    suites = list(ET.fromstring(told).iter("testsuite"))

    def total(*names: str) -> int:
        return sum(int(suite.get(name, "0")) for suite in suites for name in names)

    failed = total("failures", "errors")
    return total("tests") - failed - total("skipped"), failed


def results(file: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return what came of each command that ran."""
    return {run["command"]: run for run in json.loads(file.read_text())}


def keep(form: Form, result: dict[str, Any], file: Path = RESULTS) -> None:
    """Put what came of a run into the place of what was there before."""
    kept = results(file) | {form.command: result}
    ordered = [kept[one.command] for one in FORMS.values() if one.command in kept]
    file.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def _git(root: Path, *words: str) -> str:
    try:
        answer = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Differs(f"git does not tell which commit this is: {error}") from error
    return answer.stdout.rstrip()


if __name__ == "__main__":
    sys.exit(main())
