"""What is to happen in one run, drawn from its seed: who enqueues what, and what goes wrong when.

A plan is data, so that a run that fails can be made again with less and less in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKERS: Final = ("w1", "w2", "w3")
CLIENTS: Final = ("c1", "c2")
BUSY: Final = 20.0
"""Seconds in which jobs are enqueued."""
STORMY: Final = 45.0
"""Seconds after which nothing goes wrong any more."""


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
    """A job that tells of its progress, and goes on from its checkpoints."""
    CANCEL = "cancel"
    """A job that is canceled after a while."""
    OUTSIDE = "outside"
    """A job that somebody else completes while it may run."""
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


class Ill(StrEnum):
    """What goes wrong."""

    KILL = "kill"
    """A process is killed between two callbacks, and started again later."""
    FREEZE = "freeze"
    """A process stands still."""
    STOP = "stop"
    """A worker is asked to stop, and started again later."""
    REFUSE = "refuse"
    """A request does not reach the store."""
    LOSE = "lose"
    """A request is carried out, and answered with an error."""
    SLOW = "slow"
    """A request takes long until it is carried out."""
    LATE = "late"
    """A request is carried out, and answered long after."""
    CUT = "cut"
    """A process cannot reach the store for a while."""
    OUTAGE = "outage"
    """Nobody can."""
    DEAF = "deaf"
    """No hint arrives for a while."""
    CLOCK = "clock"
    """The store's clock is set."""
    SKEW = "skew"
    """The clock of a process is set; it is not the store's."""
    STALL = "stall"
    """A process stands still while a request of it is on its way, which then arrives."""
    DOUBLE = "double"
    """A request is carried out twice, as something in between that repeats it would have it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong once."""

    ill: Ill
    node: str
    """Where; empty: everywhere."""
    at: float
    """When: seconds, or of the requests of a node the number."""
    seconds: float
    """For how long, or by how much."""
    request: str = ""
    """Which requests are counted; empty: all."""

    def __str__(self) -> str:
        where = self.node or "everywhere"
        if self.ill in COUNTED:
            return f"{self.request or 'request'} {self.at:.0f} of {where}: {self.ill} ({self.seconds:.1f} s)"
        return f"{self.at:6.2f} s  {where}: {self.ill} ({self.seconds:.1f} s)"


COUNTED: Final = frozenset({Ill.REFUSE, Ill.LOSE, Ill.SLOW, Ill.LATE, Ill.STALL, Ill.DOUBLE})
"""Those that befall a request, by its number."""


OFTEN: Final = {
    Ill.KILL: 6,
    Ill.FREEZE: 6,
    Ill.STOP: 2,
    Ill.REFUSE: 4,
    Ill.LOSE: 8,
    Ill.SLOW: 3,
    Ill.LATE: 3,
    Ill.CUT: 3,
    Ill.OUTAGE: 1,
    Ill.DEAF: 1,
    Ill.CLOCK: 1,
    Ill.SKEW: 1,
    Ill.STALL: 6,
    Ill.DOUBLE: 3,
}
"""How often each goes wrong, as against the others."""


WRITES: Final = ("settle", "settle", "claim", "extend", "commit", "progress", "checkpoint", "reap")
"""What workers do that matters most."""
ASKED: Final = ("enqueue", "enqueue", "cancel", "complete", "reopen", "emit", "delete_chains")
"""What clients ask for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    store: str
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    prefetch: int
    slots: int

    @staticmethod
    def drawn(seed: int, store: str) -> Plan:
        """Draw the plan of a seed."""
        rng = random.Random(f"plan {seed} {store}")
        # few kinds at a time: what goes wrong only where two of them meet would hardly ever meet among all
        kinds = rng.sample(list(Kind), rng.choice((1, 2, 4, len(Kind))))
        ills = rng.sample(list(OFTEN), rng.choice((2, 4, len(Ill))))
        orders = tuple(_order(rng, number, kinds) for number in range(rng.randint(6, 16)))
        faults = tuple(_fault(rng, orders, ills) for _ in range(rng.randint(3, 14)))
        return Plan(seed, store, orders, faults, prefetch=rng.choice((0, 0, 3)), slots=rng.randint(1, 4))

    def without(self, orders: frozenset[Order], faults: frozenset[Fault]) -> Plan:
        """Return the same plan without some of it."""
        return replace(
            self,
            orders=tuple(one for one in self.orders if one not in orders),
            faults=tuple(one for one in self.faults if one not in faults),
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed} on {self.store}: {len(WORKERS)} workers of {self.slots} slots, prefetch {self.prefetch}"]
        lines += [f"  {order}" for order in sorted(self.orders, key=lambda one: one.at)]
        lines += [f"  {fault}" for fault in sorted(self.faults, key=lambda one: one.at)]
        return "\n".join(lines)


def _order(rng: random.Random, number: int, kinds: Sequence[Kind]) -> Order:
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


def _fault(rng: random.Random, orders: Sequence[Order], ills: Sequence[Ill]) -> Fault:
    ill = rng.choices(ills, weights=[OFTEN[one] for one in ills])[0]
    node = rng.choice((*WORKERS, *WORKERS, *CLIENTS))
    if ill in COUNTED:
        node = rng.choice(WORKERS + CLIENTS)
        seconds = rng.uniform(4.0, 18.0) if ill is Ill.STALL else rng.uniform(0.5, 12.0)
        if rng.random() < 0.5:
            return Fault(ill, node, rng.randint(1, 120 if node in WORKERS else 20), round(seconds, 3))
        return Fault(ill, node, rng.randint(1, 9), round(seconds, 3), rng.choice(WRITES if node in WORKERS else ASKED))
    if ill is Ill.STOP:
        node = rng.choice(WORKERS)
    if ill in (Ill.OUTAGE, Ill.DEAF, Ill.CLOCK):
        node = ""
    seconds = rng.choice((rng.uniform(0.1, 3.0), rng.uniform(3.0, 18.0)))
    if ill in (Ill.CLOCK, Ill.SKEW):
        seconds = rng.uniform(-20.0, 20.0) if ill is Ill.CLOCK else rng.uniform(-4000.0, 4000.0)
    at = rng.uniform(0.0, STORMY - 20.0)
    if rng.random() < 0.5:  # about when somebody begins or ends something
        order = rng.choice(orders)
        at = min(order.at + rng.choice((0.0, order.seconds)) + rng.uniform(0.0, 0.05), STORMY - 20.0)
    return Fault(ill, node, round(at, 3), round(seconds, 3))
