"""Whether what is about to be written fits: asked before the work, so that no hour of it ends in a full disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from holdfast_media.errors import DISK_FULL, MediaError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def check_room(needed: float, reserve: int, places: Iterable[tuple[str, int | None]]) -> None:
    """Raise DISK_FULL when so many bytes, and the reserve, do not fit into one of the places.

    Each has what it is called and how much is free in it; `None`: nobody can say.
    """
    wanted = int(needed) + reserve
    for place, free in places:
        if free is not None and free < wanted:
            raise MediaError(
                DISK_FULL,
                f"{free / 1e6:,.0f} MB are free in the {place} folder, and {wanted / 1e6:,.0f} MB are needed "
                f"({needed / 1e6:,.0f} MB for this, {reserve / 1e6:,.0f} MB in reserve). Make room; it is tried again.",
            )


def free_bytes(folder: Path) -> int:
    """Return how many bytes fit into a folder. By itself, so that tests can have a full disk without filling one."""
    return shutil.disk_usage(folder).free
