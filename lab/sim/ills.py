"""What goes wrong in one run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from lab.sim.orders import CLIENTS, Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from lab.sim.orders import Order

WORKERS: Final = ("w1", "w2", "w3")
STORMY: Final = 45.0
"""Seconds after which nothing goes wrong any more."""


class Ill(StrEnum):
    """What goes wrong."""

    KILL = "kill"
    """A process is killed between two callbacks, and started again later."""
    CRASH = "crash"
    """The same, before a certain callback: a sweep goes through all of them."""
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
    DIE_ASKING = "die asking"
    """A process is killed before a request of it has reached the store, and started again later."""
    DIE_ANSWERED = "die answered"
    """A process is killed after a request of it was carried out, before it hears of that, and started again later."""


TOLD: Final = {
    Ill.KILL: "is killed, and started again after {:.1f} s",
    Ill.CRASH: "is killed, and started again after {:.1f} s",
    Ill.FREEZE: "stands still for {:.1f} s",
    Ill.STOP: "is asked to stop, and started again {:.1f} s after it should have stopped",
    Ill.REFUSE: "does not reach the store",
    Ill.LOSE: "is carried out, and its answer is lost",
    Ill.SLOW: "takes {:.1f} s until it is carried out",
    Ill.LATE: "is carried out, and answered {:.1f} s later",
    Ill.CUT: "cannot reach the store for {:.1f} s",
    Ill.OUTAGE: "nobody can reach the store for {:.1f} s",
    Ill.DEAF: "no hint arrives for {:.1f} s",
    Ill.CLOCK: "the store's clock is set by {:+.1f} s",
    Ill.SKEW: "its clock is set by {:+.1f} s",
    Ill.STALL: "is on its way while who sent it stands still for {:.1f} s",
    Ill.DOUBLE: "is carried out twice",
    Ill.DIE_ASKING: "is not sent: who wants to is killed, and started again after {:.1f} s",
    Ill.DIE_ANSWERED: "is carried out, and who sent it is killed, and started again after {:.1f} s",
}
"""Each in words, with for how long or by how much."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong once."""

    ill: Ill
    node: str
    """Where; empty: everywhere."""
    at: float
    """When: seconds, or the number of a request of a node, or of a callback."""
    seconds: float
    """For how long, or by how much."""
    request: str = ""
    """Which requests are counted; empty: all."""

    @property
    def told(self) -> str:
        """What befalls whom, in words."""
        return TOLD[self.ill].format(self.seconds)

    def __str__(self) -> str:
        if self.ill in COUNTED:
            return f"{self.request or 'request'} {self.at:.0f} of {self.node} {self.told}"
        if self.ill is Ill.CRASH:
            return f"{self.node} {self.told}: before its callback {self.at:.0f}"
        return f"{self.at:6.2f} s  {f'{self.node} ' if self.node else ''}{self.told}"


COUNTED: Final = frozenset({Ill.REFUSE, Ill.LOSE, Ill.SLOW, Ill.LATE, Ill.STALL, Ill.DOUBLE, Ill.DIE_ASKING, Ill.DIE_ANSWERED})
"""Those that befall a request, by its number."""

OFTEN: Final = {
    Ill.KILL: 6,
    Ill.FREEZE: 6,
    Ill.STOP: 3,
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
    Ill.DIE_ASKING: 3,
    Ill.DIE_ANSWERED: 4,
}
"""How often each goes wrong, as against the others."""

WRITES: Final = ("settle", "settle", "settle", "claim", "extend", "reap", "fire", "promote", "flag_free")
"""What workers do, whatever they run."""
WRITES_OF: Final = {
    Kind.EFFECT: ("commit", "commit", "commit"),
    Kind.REPORT: ("progress", "checkpoint", "checkpoint", "mark", "log", "parts"),
    Kind.NAP: ("checkpoint", "parts"),
}
"""What else they do for some jobs."""
ASKED: Final = ("enqueue", "enqueue")
"""What clients ask for."""
ASKED_OF: Final = {
    Kind.CANCEL: ("cancel",),
    Kind.OUTSIDE: ("complete", "fail"),
    Kind.RETRY: ("reopen",),
    Kind.LISTEN: ("emit",),
    Kind.PAUSE: ("pause", "resume"),
    Kind.DELETE: ("delete_chains",),
    Kind.NEEDED: ("delete_chains",),
}
"""What else they ask for, of some jobs."""


def drawn_fault(rng: random.Random, orders: Sequence[Order], ills: Sequence[Ill]) -> Fault:
    """Draw something that goes wrong."""
    ill = rng.choices(ills, weights=[OFTEN[one] for one in ills])[0]
    if ill in COUNTED:
        return _befalls_a_request(rng, orders, ill)
    node = rng.choice(WORKERS if ill is Ill.STOP else (*WORKERS, *WORKERS, *CLIENTS))
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


def _befalls_a_request(rng: random.Random, orders: Sequence[Order], ill: Ill) -> Fault:
    node = rng.choice(WORKERS + CLIENTS)
    seconds = rng.uniform(4.0, 18.0) if ill is Ill.STALL else rng.uniform(0.5, 12.0)
    if rng.random() < 0.5:
        return Fault(ill, node, rng.randint(1, 120 if node in WORKERS else 20), round(seconds, 3))
    some, others = (WRITES, WRITES_OF) if node in WORKERS else (ASKED, ASKED_OF)
    kinds = sorted({order.kind for order in orders})
    request = rng.choice((*some, *(name for kind in kinds for name in others.get(kind, ()))))
    return Fault(ill, node, rng.randint(1, 9), round(seconds, 3), request)
