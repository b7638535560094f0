"""A small disk that can be filled to the last byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

BLOCK = 2**16


class SmallDisk:
    """A tmpfs of its own; nothing is left of it at the end."""

    def __init__(self, megabytes: int) -> None:
        self._megabytes = megabytes
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        """Where it is mounted."""
        self._filling = self.path / "filling"

    def __enter__(self) -> Self:
        self.path.chmod(0o755)
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=0755", "tmpfs", str(self.path))
        except BaseException:
            self.path.rmdir()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", "--lazy", str(self.path))
        self.path.rmdir()

    @property
    def free(self) -> int:
        """Bytes that can be written."""
        return shutil.disk_usage(self.path).free

    def fill(self) -> None:
        """Leave no room; may be repeated."""
        with self._filling.open("ab", buffering=0) as file:
            for size in (BLOCK, 1):
                try:
                    while True:
                        os.write(file.fileno(), b"x" * size)
                except OSError:
                    continue

    def make_room(self) -> None:
        """Give back what `fill` has taken."""
        self._filling.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
