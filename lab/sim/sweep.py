"""The sweep: a process is killed before every single callback of a run in which nothing else goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lab.sim.ills import Fault, Ill
from lab.sim.orders import Kind, Order
from lab.sim.plan import BRIEF, KEPT, Plan
from lab.sim.run import callbacks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

VICTIMS: Final = ("w1", "c1")
"""A worker, and the client that orders everything."""
AWAY: Final = 6.0
"""Seconds until who was killed is started again: longer than a lease."""


def calm_plan(store: str) -> Plan:
    """Return a plan with every kind of order, in which nothing goes wrong."""
    orders = tuple(
        Order(number, at=0.2 * number, client="c1", kind=kind, seconds=0.6, failures=number % 2, size=2 + number % 2, after=0.5)
        for number, kind in enumerate(Kind)
    )
    return Plan(0, store, orders, (), prefetch=3, slots=2, calm=BRIEF, kept=KEPT)


def sweep(store: str, stride: int = 1, first: int = 1) -> Iterator[Plan]:
    """Return the plans: one for each callback of each victim, or for some of them."""
    calm = calm_plan(store)
    for victim in VICTIMS:
        for callback in range(first, callbacks_of(calm, victim) + 1, stride):
            yield replace(calm, faults=(Fault(Ill.CRASH, victim, callback, AWAY),))
