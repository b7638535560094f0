"""What a fault is, and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.soak import tasks
from lab.soak.ground import PostgresGround

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from lab.soak.fleet import Fleet

LEASE: Final = tasks.LEASE
HOUR: Final = 3600.0
STANDSTILL: Final = 10.0
"""Seconds after which PostgreSQL ends a transaction that stands still with a lease in its hand."""


class Missed(Exception):
    """The fault did not come about: there was nobody to strike, or nothing to lose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    rows: str
    """Of the catalogue."""
    weight: int
    """How often it is drawn, compared with others."""
    bring: Callable[[Fleet, random.Random], Awaitable[None]]
    stores: tuple[str, ...] = ("postgres", "sqlite")
    free: bool = False
    """Whether no job may pay for it with an attempt: nobody was at fault, and everybody comes back in time."""
    mild: bool = False
    """Whether it keeps nobody from ending the leases of others: no excuse for a late recovery."""
    needs: str = ""
    """What a machine must have for it."""


def standstill(fleet: Fleet) -> float:
    """Return for how much longer than a lease a victim that stands still may keep what it holds."""
    return STANDSTILL if isinstance(fleet.ground, PostgresGround) else 0.0
