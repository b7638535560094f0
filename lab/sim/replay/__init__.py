"""The replay: goes through what was done to the store, and says what should not have been possible.

It knows the promises and nothing of the code that keeps them: who holds a lease follows from the answers to claims, settlements
and reaps in the order in which the store gave them; what has ended stays so; what is left at the end agrees with that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.sim.replay.holding import Holding
from lab.sim.replay.steering import Steering

if TYPE_CHECKING:
    from lab.sim.history import History


class Replay(Holding, Steering):
    """What was done, gone through in order."""

    def __init__(self, history: History) -> None:
        super().__init__()
        for done in history.in_order():
            handle = getattr(self, f"see_{done.name}", None)
            if handle is not None:
                handle(done)
