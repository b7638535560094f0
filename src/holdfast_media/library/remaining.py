"""How long a version will take yet: by what its chunks took, and by how many are encoded at once. Nothing here asks anybody."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from holdfast_media.library.grid import CellState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast_media.library.grid import Cell, Grid
    from holdfast_media.library.records import Version

TELLING: Final = 5.0
"""Percent of a cell from which on its speed says something."""
MINUTE: Final = 60
MINUTES_OF_AN_HOUR: Final = 60


def remaining(grid: Grid, version: Version, now: datetime) -> float | None:
    """Return in about how many seconds all chunks will be done; `None`: nobody can say, or nobody is at it.

    What a chunk takes is known of those that were encoded, and of those that run by how far they are; of a quality that has
    neither, by its size. Time in which nobody worked does not count, and what was there already says nothing.
    """
    if not grid.rows:
        rows: dict[str, tuple[Cell, ...]] = {"": (grid.audio,)} if grid.audio is not None else {}
    else:
        # made together, the others come about along with the first
        rows = {row.name: row.cells for row in (grid.rows[:1] if grid.together else grid.rows)}
    costs = _costs(rows, version, now)
    open_cells = [(name, cell) for name, cells in rows.items() for cell in cells if not cell.ended]
    at_once = sum(cell.state is CellState.RUNNING for _, cell in open_cells)
    if not at_once or any(name not in costs for name, _ in open_cells):
        return None
    left = [costs[name] * (1 - cell.percent / 100) for name, cell in open_cells]
    return max(sum(left) / at_once, *left)


def in_words(seconds: float) -> str:
    """Return what is left for people: no finer than it can be known."""
    if seconds < MINUTE:
        return "less than a minute left"
    minutes = round(seconds / MINUTE)
    if minutes < MINUTES_OF_AN_HOUR:
        return f"about {minutes} min left"
    hours, minutes = divmod(5 * round(minutes / 5), MINUTES_OF_AN_HOUR)
    return f"about {hours} h {minutes} min left" if minutes else f"about {hours} h left"


def _costs(rows: Mapping[str, Sequence[Cell]], version: Version, now: datetime) -> dict[str, float]:
    """Return how many seconds a chunk of each quality takes."""
    took = {name: [one for cell in cells if (one := _took(cell, now)) is not None] for name, cells in rows.items()}
    costs = {name: sum(some) / len(some) for name, some in took.items() if some}
    renditions = ((version.plan or {}).get("plan") or {}).get("renditions") or []
    # each reads the whole source, whatever it makes of it: so the cost grows with the side of its picture rather than its area
    sizes = {one["name"]: math.sqrt(one["width"] * one["height"]) for one in renditions}
    known = [name for name in costs if name in sizes]
    if known:
        rate = sum(costs[name] for name in known) / sum(sizes[name] for name in known)
        costs |= {name: rate * sizes[name] for name in rows if name not in costs and name in sizes}
    return costs


def _took(cell: Cell, now: datetime) -> float | None:
    """Return how many seconds a cell takes as a whole, where it tells."""
    if cell.claimed_at is None or cell.reused:
        return None
    if cell.state in (CellState.DONE, CellState.REDONE):
        return None if cell.finished_at is None else (cell.finished_at - cell.claimed_at).total_seconds()
    if cell.state is not CellState.RUNNING or cell.percent < TELLING:
        return None
    return max(0.0, (now - cell.claimed_at).total_seconds()) / (cell.percent / 100)
