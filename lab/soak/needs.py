"""What some faults need that a machine may not have. They are left out there, and the run says which and why."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.soak.pooler import PROGRAM
from tests.faults.machine.clocks import LIBRARIES, LIBRARY
from tests.faults.machine.disk import SmallDisk
from tests.faults.machine.network import Namespace

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

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
    elif (why := _refused(SmallDisk(1))) is not None:
        missing[DISK] = f"a tmpfs cannot be mounted here: {why}"
    if os.geteuid() != 0 or shutil.which("ip") is None or not TUN.exists():
        missing[NETWORK] = f"only root can make a network namespace, with {TUN} and ip: apt-get install iproute2"
    elif (why := _refused(Namespace(random.Random(0)))) is not None:
        missing[NETWORK] = f"a network namespace cannot be made here: {why}"
    if next(LIBRARIES.glob(LIBRARY), None) is None:
        missing[CLOCK] = f"there is no {LIBRARIES}/{LIBRARY}: apt-get install faketime"
    if not PROGRAM.exists():
        missing[POOLER] = f"there is no {PROGRAM}: apt-get install pgbouncer"
    return missing


def _refused(made: AbstractContextManager[object]) -> str | None:
    """Say why something cannot be made here: root in a container may be root in name alone."""
    try:
        with made:
            return None
    except (OSError, RuntimeError) as error:
        return str(error)
