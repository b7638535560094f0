"""What is to happen in one run, drawn from its seed: who enqueues what, and what goes wrong when.

A plan is data, so that a run that fails can be made again with less and less in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from lab.sim.ills import OFTEN, WORKERS, Fault, drawn_fault
from lab.sim.orders import Kind, Order, drawn_order

BRIEF: Final = 12.0
"""Seconds for which a run is watched at least when nothing goes wrong any more: whoever is dead is started again."""
LONG: Final = 34.0
"""The same, until a second slot of the schedule was fired."""
KEPT: Final = 12.0
"""Seconds for which jobs that have succeeded are kept, where they are not kept for ever."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    store: str
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    prefetch: int
    slots: int
    calm: float = LONG
    """For how long it is watched at least when nothing goes wrong any more."""
    kept: float | None = None
    """For how long jobs are kept that have succeeded."""

    @staticmethod
    def drawn(seed: int, store: str) -> Plan:
        """Draw the plan of a seed."""
        rng = random.Random(f"plan {seed} {store}")
        # few kinds at a time: what goes wrong only where two of them meet would hardly ever meet among all
        kinds = rng.sample(list(Kind), rng.choice((1, 2, 4, len(Kind))))
        ills = rng.sample(list(OFTEN), rng.choice((2, 4, len(OFTEN))))
        orders = tuple(drawn_order(rng, number, kinds) for number in range(rng.randint(6, 16)))
        return Plan(
            seed,
            store,
            orders,
            faults=tuple(drawn_fault(rng, orders, ills) for _ in range(rng.randint(3, 14))),
            prefetch=rng.choice((0, 0, 3)),
            slots=rng.randint(1, 4),
            calm=rng.choice((BRIEF, BRIEF, BRIEF, LONG)),
            kept=rng.choice((None, None, None, None, KEPT)),
        )

    def without(self, orders: frozenset[Order], faults: frozenset[Fault]) -> Plan:
        """Return the same plan without some of it."""
        return replace(
            self,
            orders=tuple(one for one in self.orders if one not in orders),
            faults=tuple(one for one in self.faults if one not in faults),
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed} on {self.store}: {len(WORKERS)} workers of {self.slots} slots, prefetch {self.prefetch}"]
        if self.kept is not None:
            lines.append(f"  jobs that have succeeded are kept for {self.kept:g} s")
        lines += [f"  {order}" for order in sorted(self.orders, key=lambda one: one.at)]
        lines += [f"  {fault}" for fault in sorted(self.faults, key=lambda one: one.at)]
        return "\n".join(lines)
