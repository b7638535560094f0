"""In which order a claimer looks into its lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

AGING_TURN: Final = 10
"""Every tenth claim begins with the lane whose head waited longest, so that low priorities are never starved."""


class Head(NamedTuple):
    """The oldest waiting job of a lane, as last seen."""

    lane: int
    priority: int
    ready_at: datetime


def order(heads: Iterable[Head], turn: int) -> list[Head]:
    """Return the lanes in the order to claim from them; `turn` counts the claims.

    Higher priorities first; equal ones by their oldest waiting job, so that tasks interleave nearly first-in first-out.
    """
    ordered = sorted(heads, key=lambda head: (-head.priority, head.ready_at))
    if turn % AGING_TURN == AGING_TURN - 1 and ordered:
        oldest = min(range(len(ordered)), key=lambda index: ordered[index].ready_at)
        ordered.insert(0, ordered.pop(oldest))
    return ordered
