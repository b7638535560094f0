"""What clients want done in one run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

CLIENTS: Final = ("c1", "c2")
BUSY: Final = 20.0
"""Seconds in which jobs are enqueued."""


class Kind(StrEnum):
    """What a client wants done."""

    WORK = "work"
    """A job that takes its time, and fails some times first."""
    LATER = "later"
    """The same, not before some time has passed."""
    CHAIN = "chain"
    """Steps that follow each other."""
    GATHER = "gather"
    """Jobs, and one that waits for all of them."""
    KEYED = "keyed"
    """A job with a unique key that others want too."""
    ORDERED = "ordered"
    """A job of a queue that keeps its order."""
    EFFECT = "effect"
    """A job that ends in a transaction of its own, with an effect."""
    REPORT = "report"
    """A job that tells of its progress, its stages and whatever it meets, and goes on from its checkpoints."""
    CANCEL = "cancel"
    """A job that is canceled after a while."""
    OUTSIDE = "outside"
    """A job that somebody else completes, or fails, while it may run."""
    RETRY = "retry"
    """A job that fails for good, and is brought back."""
    REPLACE = "replace"
    """A job that takes the unique key of one that still waits."""
    LISTEN = "listen"
    """A job that waits for a signal without a slot, and a signal that comes before or after."""
    NAP = "nap"
    """A job that sleeps without a slot."""
    PAUSE = "pause"
    """A queue that is paused for a while, and jobs in it."""
    DELETE = "delete"
    """A chain that is deleted in the midst of whatever it does."""
    RANKED = "ranked"
    """Jobs of several priorities."""
    EXPIRING = "expiring"
    """Jobs that are of no use unless they begin soon."""
    TARRY = "tarry"
    """A job that runs into its time-out some times first."""
    STUBBORN = "stubborn"
    """A job whose handler does not stop when it is asked to."""
    AGAIN = "again"
    """A job that puts itself off."""
    KEYED_CHAIN = "keyed chain"
    """A chain with a unique key that others want too."""
    NEEDED = "needed"
    """Jobs that another one waits for, and somebody who wants to delete one of them."""


@dataclass(frozen=True, slots=True)
class Order:
    """Something a client asks for."""

    number: int
    at: float
    client: str
    kind: Kind
    seconds: float
    """How long its handler takes."""
    failures: int
    """How often it fails first."""
    size: int
    """Of a chain or a group."""
    after: float
    """Seconds until what is done to it, or until it may run."""

    def __str__(self) -> str:
        return (
            f"{self.at:6.2f} s  {self.client} orders {self.kind} #{self.number}"
            f" (takes {self.seconds:.2f} s, fails {self.failures} times, size {self.size}, after {self.after:.1f} s)"
        )


def drawn_order(rng: random.Random, number: int, kinds: Sequence[Kind]) -> Order:
    """Draw something that a client asks for."""
    seconds = rng.choice((0.0, 0.01, rng.uniform(0.0, 2.0), rng.uniform(4.0, 14.0)))
    # anywhen, or in the very moment in which it ends
    after = rng.choice((rng.uniform(0.0, 6.0), max(0.0, seconds + rng.uniform(-0.03, 0.05))))
    return Order(
        number=number,
        at=round(rng.uniform(0.0, BUSY), 3),
        client=rng.choice(CLIENTS),
        kind=rng.choice(kinds),
        seconds=round(seconds, 3),
        failures=rng.choice((0, 0, 0, 1, 1, 2, 5)),
        size=rng.randint(2, 4),
        after=round(after, 3),
    )
