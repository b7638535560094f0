"""Which decisions are news: each change of the number, and what keeps the number as it is, when that becomes another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.core.scaling import Decision, Obstacle

RARELY: Final = 60.0
"""Seconds between two lines about the same that keeps the number as it is: it may come and go with every look."""


class Telling:
    """Remembers what was told, beginning with the first decision."""

    def __init__(self, first: Decision) -> None:
        self._count = first.count
        self._obstacle: Obstacle | None = None
        self._told_at: dict[Obstacle | None, float] = {}

    def is_news(self, decision: Decision, now: float) -> bool:
        """Tell whether a decision is to be told, and take it that it is."""
        if decision.count != self._count:
            self._count, self._obstacle = decision.count, None
            return True
        told_at = self._told_at.get(decision.obstacle)
        if decision.obstacle == self._obstacle or (told_at is not None and now - told_at < RARELY):
            return False
        self._obstacle = decision.obstacle
        self._told_at[decision.obstacle] = now
        return True
