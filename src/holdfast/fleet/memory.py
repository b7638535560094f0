"""How much memory a worker takes."""

from __future__ import annotations

from typing import Final

import psutil

MEGABYTE: Final = 1_000_000


def memory_of(process_id: int) -> int:
    """Return the bytes that a process and the children of its slots hold in memory; 0 when it has ended."""
    try:
        process = psutil.Process(process_id)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_own(member) for member in family)


def _own(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended meanwhile
        return 0
