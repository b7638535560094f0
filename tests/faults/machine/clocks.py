"""Clocks of single processes that show what a test wants, by libfaketime. What never goes back is left as it is.

A process with such a clock must not call `time.sleep`: the library as Debian 12 has it answers with "Invalid argument".
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from datetime import datetime

LIBRARIES = Path("/usr/lib")
SHARED = Path("/dev/shm")  # where the library keeps what it shares among processes
LIBRARY = "*/faketime/libfaketimeMT.so.1"


class Clock:
    """The clock on the wall of some processes: `environment` is what to start them with. Right until it is set."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-clock-"))
        self._file = self._folder / "offset"

    def __enter__(self) -> Self:
        self._folder.chmod(0o755)  # a server reads it as somebody else
        self.set(0.0)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)
        for name, pid in [(path, path.name.rpartition("_")[2]) for path in SHARED.glob("*faketime_s*_*")]:
            if not Path("/proc", pid).exists():  # the library leaves this behind when its process is killed
                name.unlink(missing_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process see this clock, and its children too."""
        library = next(LIBRARIES.glob(LIBRARY), None)
        if library is None:
            raise FileNotFoundError(f"there is no {LIBRARIES}/{LIBRARY}: apt-get install faketime")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # steps of a real clock do not touch it either
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def prefix(self) -> list[str]:
        """The command that starts another one with this clock."""
        return ["env", *[f"{name}={value}" for name, value in self.environment.items()]]

    def set(self, offset: float) -> None:
        """Show the time by so many seconds ahead, or behind, from now on."""
        new = self._folder / "new"
        new.write_text(f"{offset:+.3f}\n")
        new.chmod(0o644)
        new.replace(self._file)  # nobody shall read half of it

    def show(self, moment: datetime) -> None:
        """Show this moment now, and go on from there."""
        self.set(moment.timestamp() - time.time())
