"""Whether leases that lapsed at a cost had a reason to: a fault that takes a worker away, and none that must be free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.soak.tasks import LEASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lab.soak.blows import Blow, Stall

NOTED_LATE: Final = 10.0
"""Seconds that may pass before it is noted what befell one worker: the end of one that has ended by itself is found later."""
NOTED: Final = 1.5
"""The same for what befell everybody."""
LONG: Final = LEASE / 3
"""Seconds without a turn that may cost a lease: as long as a heartbeat waits for the next."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """A lease that lapsed, and cost its job an attempt."""

    worker: str
    begun: float
    ended: float

    def __str__(self) -> str:
        return f"lease of {self.worker}, taken at {self.begun:.3f}, ended at {self.ended:.3f}"


@dataclass(frozen=True, slots=True)
class Reasons:
    """What may have cost a lease."""

    blows: tuple[Blow, ...]
    stalled: bool
    """Whether the machine was so busy that its worker, or the store, had no turn for too long."""

    @property
    def none(self) -> bool:
        """Whether nothing befell the worker, and it had its turns."""
        return not self.blows and not self.stalled

    @property
    def only_busy(self) -> bool:
        """Whether it was the machine, and no fault that may cost anything."""
        return self.stalled and all(blow.free for blow in self.blows)

    @property
    def only_free(self) -> bool:
        """Whether there was a fault, and none that may cost anything."""
        return bool(self.blows) and not self.stalled and all(blow.free for blow in self.blows)


def reasons(lapse: Lapse, blows: Iterable[Blow], stalls: Sequence[Stall]) -> Reasons:
    """Return what befell the worker, or everybody, while it held a lease that lapsed."""
    return Reasons(
        tuple(blow for blow in blows if blow.struck(lapse.worker) and _at_that_time(lapse, blow)),
        any(
            stall.seconds >= LONG
            and stall.life in ("", lapse.worker)
            and _meets(lapse, stall.until - stall.seconds, stall.until)
            for stall in stalls
        ),
    )


def _at_that_time(lapse: Lapse, blow: Blow) -> bool:
    slack = NOTED_LATE if blow.victim else NOTED
    return _meets(lapse, blow.at - slack, blow.until + slack)


def _meets(lapse: Lapse, begin: float, end: float) -> bool:
    return lapse.begun <= end and begin <= lapse.ended
