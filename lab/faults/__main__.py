"""Bring about every fault that Holdfast must survive, and see that it does: the tests of the catalogue, also those for root."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from typing import Final

from lab.faults.catalogue import ROWS, chosen

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
"""


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="./dev faults", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="all", metavar="ROWS", help="only these rows, as 5,11")
    parser.add_argument("--minutes", type=float, default=0.0, help="repeat for so long (default: once)")
    parser.add_argument("--seed", type=int, help="the seed of the first round (default: by chance)")
    parser.add_argument("--no-machine", action="store_true", help="leave out the tests that need root or a Debian package")
    parser.add_argument("--list", action="store_true", help="show the rows and what must hold, and run nothing")
    parser.add_argument("pytest", nargs=argparse.REMAINDER, metavar="-- ARGS", help="what follows -- goes to pytest")
    given = parser.parse_args()
    rest = [one for one in given.pytest if one != "--"] + (["-m", "not machine"] if given.no_machine else [])
    try:
        rows = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        for key in rows:
            print(f"{key:>4}  {ROWS[key].fault}\n      {ROWS[key].holds}")
        return 0
    if not given.no_machine and (missing := install(rows)) is not None:
        print(f"./dev faults: {missing}", file=sys.stderr)
        return 2
    return repeat(given.only, given.minutes, given.seed, rest)


def install(rows: list[str]) -> str | None:
    """Install what rows need and is not there; returns what stands in the way, with the line that mends it."""
    packages = sorted({package for key in rows for package in ROWS[key].packages if shutil.which(COMMANDS[package]) is None})
    needing = ", ".join(key for key in rows if ROWS[key].packages)
    leave_out = "or leave those tests out: ./dev faults --no-machine"
    if needing and os.geteuid() != 0:
        return f"rows {needing} have tests that need root\nFix: sudo ./dev faults, {leave_out}"
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


def repeat(only: str, minutes: float, seed: int | None, rest: list[str]) -> int:
    """Run the rows until the time is over, at least once."""
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while True:
        rounds += 1
        chance = seed if seed is not None and rounds == 1 else random.randrange(2**32)
        print(f"./dev faults: round {rounds}, seed {chance}", flush=True)
        command = [sys.executable, "-m", "pytest", "--rows", only, "--numprocesses", "2", "--dist", "loadgroup", "-q", *rest]
        code = subprocess.run(command, env=os.environ | {"FAULTS_SEED": str(chance)}, check=False).returncode
        if code != 0:
            print(f"./dev faults: round {rounds} failed; again: ./dev faults --only {only} --seed {chance}", file=sys.stderr)
            return code
        if time.monotonic() > until:
            print(f"./dev faults: {rounds} round{'s' if rounds > 1 else ''}, all held")
            return 0


if __name__ == "__main__":
    sys.exit(main())
