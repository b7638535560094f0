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
    queue: str = ""
    retries: bool = False
    """The lane holds jobs that have failed before."""


def order(heads: Iterable[Head], turn: int, *, first: str | None = None, retries_first: bool = False) -> list[Head]:
    """Return the lanes in the order to claim from them; `turn` counts the claims.

    Higher priorities first; equal ones by their oldest waiting job, so that tasks interleave nearly first-in first-out.
    A claimer with weights names the queue whose turn it is (`first`), one that keeps a share for retries says so now and
    then (`retries_first`); the rest follows in the usual order, so that no claim goes empty for the sake of fairness.
    """
    if first is None and not retries_first:  # the same for every head; most claims are such, and some have a hundred lanes
        ordered = sorted(heads, key=lambda head: (-head.priority, head.ready_at))
    else:
        ordered = sorted(
            heads,
            key=lambda head: (head.queue != first, retries_first and not head.retries, -head.priority, head.ready_at),
        )
    if turn % AGING_TURN == AGING_TURN - 1 and ordered:
        oldest = min(range(len(ordered)), key=lambda index: ordered[index].ready_at)
        ordered.insert(0, ordered.pop(oldest))
    return ordered
