"""How it stands with a process: what was looked at, and which loop has not come round for longer than it may."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.breaker import BREAKER, LEVELS, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOUND: Final = 120.0
"""Seconds that one round of a loop may take: longer than the time-outs of all that it asks a store for."""

MOST_PORTS: Final = 65_535
HERE: Final = "127.0.0.1"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str = ""
    degraded: bool = False
    """It does what it is for, and not as well as it could: no reason to end it, nor to send nothing here."""


class Health(msgspec.Struct, frozen=True):
    """How it stands, and by which checks."""

    ok: bool
    checks: list[Check]

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Health:
        """Return what checks come to: well when all of them are."""
        found = list(checks)
        return cls(ok=all(check.ok for check in found), checks=found)


class WorkerHealth(msgspec.Struct, frozen=True):
    """Whether a worker lives, so that nothing is won by ending it, and whether it is ready to run jobs."""

    live: Health
    ready: Health


class Pulse:
    """When a loop last came round (monotonic), and how long it meant to rest then. Written by it, read from any thread."""

    __slots__ = ("at", "name", "rest")

    def __init__(self, name: str) -> None:
        self.name = name
        self.at = 0.0
        self.rest = math.inf
        """Seconds; endless before it has begun, while it waits to be woken, and when it has ended as it should."""

    def came(self, at: float, rest: float = 0.0) -> None:
        """Note a round."""
        # the time first, and readers read the rest first: nobody sees a new rest with an old time, and takes it for stuck
        self.at = at
        self.rest = rest

    def waits(self) -> None:
        """Note that it waits until somebody wakes it."""
        self.rest = math.inf


def redis_check(figures: Mapping[str, int]) -> Check | None:
    """Return how it stands with Redis, by what a notifier tells of itself; `None` where Redis is not used.

    Always well: without Redis the same jobs run, a little later.
    """
    level = figures.get(BREAKER)
    if level is None:
        return None
    phase = next(phase for phase, number in LEVELS.items() if number == level)
    lost = phase is not Phase.CLOSED
    return Check(
        "redis", ok=True, detail=f"the breaker is {phase}: new jobs are found by polling" if lost else "", degraded=lost
    )


def moves(pulse: Pulse, now: float, bound: float) -> Check:
    """Tell whether a loop moves: it may be late by `bound` seconds."""
    rest = pulse.rest
    late = now - pulse.at - rest
    return Check(pulse.name, ok=late <= bound, detail="" if late <= bound else f"should have moved {late:.0f} s ago")


def host_and_port(text: str) -> tuple[str, int]:
    """Return the parts of `[HOST:]PORT`; this machine alone where no host is said. Raises `ValueError`."""
    named, _, port = text.strip().rpartition(":")
    if not re.fullmatch(r"\d{1,5}", port, re.ASCII) or int(port) > MOST_PORTS or (":" in named and not named.startswith("[")):
        raise ValueError(f"must be [HOST:]PORT, with a port from 0 (any that is free) to {MOST_PORTS}, not {text!r}")
    return named.removeprefix("[").removesuffix("]") or HERE, int(port)
