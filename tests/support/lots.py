"""Whose turn it is among equals: whoever was first, or drawn by a seed."""

from __future__ import annotations

import random

from holdfast.system import SystemEnvironment


def still() -> float:
    """Draw no lot."""
    return 0.0


class Steady(SystemEnvironment):
    """A world in which nothing is left to the lot: among equals whoever was first is first."""

    def lot(self) -> float:
        return still()


class Drawing(SystemEnvironment):
    """A world in which lots are drawn, the same in every run."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def lot(self) -> float:
        return self._chance.random()
