"""How many threads an encode gets: the processors of a machine are shared by all that encode on it, in whatever process.

An encoder that has more threads than there are processors for it does the same work for more of their time, and two of them
side by side get in each other's way.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

AS_FFMPEG_LIKES: Final = 0


def meeting_place() -> Path:
    """Return the folder in which all encodes of this user on this machine know of each other."""
    return Path(tempfile.gettempdir()) / f"holdfast-encoding-{os.getuid()}"


@contextmanager
def share_of_cores(folder: Path | None = None) -> Iterator[int]:
    """Give the threads for an encode that begins now: 0, as many as ffmpeg likes, as long as it is the only one.

    Each holds a lock on a file for as long as it lasts, which the system takes from those who die. Where that cannot be done
    there is no sharing: it is for speed alone.
    """
    place = meeting_place() if folder is None else folder
    own = place / uuid4().hex
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(own, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        yield AS_FFMPEG_LIKES
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        others = sum(_is_held(path) for path in place.iterdir() if path != own)
        yield -(-processors() // (others + 1)) if others else AS_FFMPEG_LIKES
    finally:
        own.unlink(missing_ok=True)
        os.close(descriptor)


def _is_held(path: Path) -> bool:
    """Tell whether somebody encodes under this file; what a killed worker has left is removed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
