"""How many replicas of a worker a backlog asks for, where something else starts and stops them."""

from __future__ import annotations

import math


def replicas(ready: int, running: int, *, slots: int, target: float) -> int:
    """Return how many workers with so many slots are wanted when each slot may have `target` jobs waiting or running.

    Never fewer than those that what runs now fills: a target above one saves workers, it does not interrupt them.
    """
    return max(math.ceil((ready + running) / (slots * target)), math.ceil(running / slots))
