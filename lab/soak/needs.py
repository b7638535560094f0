"""What some faults need that a machine may not have. They are left out there, and the run says which and why."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from lab.soak.pooler import PROGRAM
from tests.faults.machine.clocks import LIBRARIES, LIBRARY

DISK: Final = "a disk of its own"
CLOCK: Final = "a clock of its own"
POOLER: Final = "PgBouncer"
NETWORK: Final = "a network of its own"
TUN: Final = Path("/dev/net/tun")


def lacking() -> dict[str, str]:
    """Return what is not there, each with what would change that."""
    missing = {}
    if os.geteuid() != 0 or shutil.which("mount") is None:
        missing[DISK] = "only root can mount a tmpfs"
    if os.geteuid() != 0 or shutil.which("ip") is None or not TUN.exists():
        missing[NETWORK] = f"only root can make a network namespace, with {TUN} and ip: apt-get install iproute2"
    if next(LIBRARIES.glob(LIBRARY), None) is None:
        missing[CLOCK] = f"there is no {LIBRARIES}/{LIBRARY}: apt-get install faketime"
    if not PROGRAM.exists():
        missing[POOLER] = f"there is no {PROGRAM}: apt-get install pgbouncer"
    return missing
