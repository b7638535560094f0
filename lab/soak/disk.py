"""A disk of its own for the file, which has room for everything until it is told to have none."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Final

from tests.faults.machine.disk import SmallDisk

if TYPE_CHECKING:
    from pathlib import Path

SHARE: Final = 2
"""The part of the memory that the disk may take: it is a tmpfs."""
TRIES: Final = 50


class Disk(SmallDisk):
    """A tmpfs that is as large as what lies on it whenever it is to be full: nothing need be written to fill it."""

    def __init__(self) -> None:
        super().__init__(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 // SHARE)

    def fill(self) -> None:
        """Leave no room; may be repeated."""
        for _ in range(TRIES):
            kilobytes = -(-_used(self.path) // 1024)
            if kilobytes and self._resize(f"{kilobytes}k") is None:
                return
            time.sleep(0.005)  # somebody has written meanwhile

    def make_room(self) -> None:
        """Be as large as ever."""
        if (trouble := self._resize(f"{self._megabytes}m")) is not None:
            raise RuntimeError(trouble)

    def _resize(self, size: str) -> str | None:
        """Change the size; returns why that was refused."""
        command = ["mount", "-o", f"remount,size={size}", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else done.stderr.strip()


def _used(path: Path) -> int:
    about = os.statvfs(path)
    return (about.f_blocks - about.f_bfree) * about.f_frsize
