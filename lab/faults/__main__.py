"""Bring about every fault that Holdfast must survive, and see that it does: the tests of the catalogue, also those for root."""

from __future__ import annotations

import argparse
import math
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lab.faults.catalogue import ROWS, chosen
from lab.page import ROOT, proofs

COMMANDS: Final = {"iproute2": "ip", "pgbouncer": "pgbouncer", "faketime": "faketime", "mount": "mount"}
"""A program of each Debian package."""
EPILOG: Final = """\
Each row of the catalogue is a fault, brought about for real: processes are killed and frozen, servers restarted and promoted,
connections cut, disks filled, clocks set. Without --only all rows run; some need root and Debian packages, which are installed
where that is allowed. Every run prints its seed, which makes the same choices again.

  ./dev faults --list              the rows
  ./dev faults --only 5,11         two of them
  ./dev faults --minutes 60        again and again for an hour, with another seed each time
  ./dev faults --only 11 --seed 7  the choices of a run that failed
  ./dev faults --only 11 -- -x     what follows -- goes to pytest
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was asked for."""

    only: str = "all"
    seed: int | None = None
    machine: bool = True
    """Whether tests are run that need root or a Debian package."""
    rest: tuple[str, ...] = ()
    """What goes to pytest."""

    def __str__(self) -> str:
        """Return the command that asks for it."""
        words = ["./dev", "faults"]
        words += ["--only", self.only] if self.only != "all" else []
        words += ["--seed", str(self.seed)] if self.seed is not None else []
        words += [] if self.machine else ["--no-machine"]
        return shlex.join([*words, "--", *self.rest] if self.rest else words)


def main() -> int:
    """Run what was asked for; returns the exit code."""
    # not left to argparse, which takes a word that it does not know, and all options after it, for what goes to pytest
    own, _, rest = _partition(sys.argv[1:])
    given = _parser().parse_args(own)
    asked = Asked(given.only, given.seed, machine=not given.no_machine, rest=tuple(rest))
    if given.list:
        for key in chosen(asked.only):
            row = ROWS[key]
            print("\n      ".join(filter(None, [f"{key:>4}  {row.fault}", row.holds, row.remark])))
        return 0
    if asked.machine and (missing := install(asked)) is not None:
        print(f"./dev faults: {missing}", file=sys.stderr)
        return 2
    return repeat(asked, given.minutes)


def _partition(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev faults",
        usage="%(prog)s [--only ROWS] [--minutes M] [--seed S] [--no-machine] [--list] [-- ARGS]",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", type=_rows, default="all", metavar="ROWS", help="only these rows, as 5,11")
    parser.add_argument("--minutes", type=_minutes, default=0.0, metavar="M", help="repeat for so long (default: once)")
    parser.add_argument("--seed", type=int, metavar="S", help="the seed of the first round (default: by chance)")
    parser.add_argument("--no-machine", action="store_true", help="leave out the tests that need root or a Debian package")
    parser.add_argument("--list", action="store_true", help="show the rows and what must hold, and run nothing")
    return parser


def _rows(text: str) -> str:
    try:
        chosen(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of minutes")
    return minutes


def install(asked: Asked) -> str | None:
    """Install what rows need and is not there; returns what stands in the way, with the line that mends it."""
    rows = chosen(asked.only)
    packages = sorted({package for key in rows for package in ROWS[key].packages if shutil.which(COMMANDS[package]) is None})
    needing = ", ".join(key for key in rows if ROWS[key].packages)
    leave_out = f"or leave those tests out: {replace(asked, machine=False)}"
    if needing and os.geteuid() != 0:
        return f"rows {needing} have tests that need root\nFix: sudo {asked}\n{leave_out}"
    if not packages:
        return None
    line = f"apt-get install --yes --no-install-recommends {' '.join(packages)}"
    print(f"./dev faults: {line}", flush=True)
    if shutil.which("apt-get") is not None:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "--quiet"], line.split()):
            if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                break
        else:
            return None
    return f"{' and '.join(packages)} not found\nFix: {line}\n{leave_out}"


def repeat(asked: Asked, minutes: float) -> int:
    """Run the rows until the time is over, at least once."""
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while True:
        rounds += 1
        chance = asked.seed if asked.seed is not None and rounds == 1 else random.randrange(2**32)
        print(f"./dev faults: round {rounds}, seed {chance}", flush=True)
        environment = os.environ | {"FAULTS_SEED": str(chance)}
        code = subprocess.run(command(asked, chance), cwd=ROOT, env=environment, check=False).returncode
        if code != 0:
            again = replace(asked, seed=chance)
            print(f"./dev faults: round {rounds} failed; again: {again}", file=sys.stderr)
            return code
        if time.monotonic() > until:
            print(f"./dev faults: {rounds} round{'s' if rounds > 1 else ''}, all held")
            return 0


def command(asked: Asked, chance: int) -> list[str]:
    """Return what runs the rows once. `--rows` runs the slow tests of its rows too."""
    pytest = [sys.executable, "-m", "pytest", "--rows", asked.only, f"--hypothesis-seed={chance}"]
    options = ["--numprocesses", "2", "--dist", "loadgroup", "-q", *([] if asked.machine else ["-m", "not machine"])]
    named = any(Path(ROOT, word.partition("::")[0]).exists() for word in asked.rest)
    # only the files that prove these rows: to collect all tests takes longer than to run those of many a row
    files = [] if named else sorted({str(path.relative_to(ROOT)) for key in chosen(asked.only) for path in proofs()[key]})
    return [*pytest, *options, *asked.rest, *files]


if __name__ == "__main__":
    sys.exit(main())
