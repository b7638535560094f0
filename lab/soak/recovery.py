"""How long it took until what a fault had taken away was at work again, by the store's own records."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.soak.tasks import LEASE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lab.soak.books import Job

SCAN: Final = 5.0
"""Seconds between two looks for leases that have lapsed."""
SLACK: Final = 60.0
"""Seconds more that a recovery may take, on a busy machine and with other faults on top."""
LONGEST: Final = LEASE + SCAN + SLACK


@dataclass(slots=True)
class Blow:
    """A fault that was injected."""

    fault: str
    victim: str
    at: float
    held: tuple[tuple[str, int], ...] = ()
    """What the victim held at that moment, each with its attempt."""
    back: float | None = None
    """When the store could be reached again, where it was away."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of one kind of fault."""

    injected: int
    survived: int
    seconds: tuple[float, ...]
    """For each that took something away, sorted."""

    def quantile(self, share: float) -> float | None:
        """Return the time within which so large a share was over."""
        if not self.seconds:
            return None
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def recoveries(blows: Sequence[Blow], jobs: Mapping[str, Job]) -> dict[str, Recovery]:
    """Return what became of the faults, by their names."""
    ends = sorted(job.ended for job in jobs.values() if job.ended is not None)
    counted = {}
    for name in dict.fromkeys(blow.fault for blow in blows):
        some = [blow for blow in blows if blow.fault == name]
        taken = [_seconds(blow, jobs, ends) for blow in some]
        times = sorted(one for one in taken if one is not None and one != float("inf"))
        counted[name] = Recovery(len(some), len(some) - taken.count(float("inf")), tuple(times))
    return counted


def too_long(blows: Sequence[Blow], jobs: Mapping[str, Job]) -> list[str]:
    """Return the faults whose recovery took longer than any should, also those that never were over."""
    ends = sorted(job.ended for job in jobs.values() if job.ended is not None)
    timed = [(blow, _seconds(blow, jobs, ends)) for blow in blows]
    return [
        f"{blow.fault} {blow.victim}: {seconds:.1f} s" for blow, seconds in timed if seconds is not None and seconds > LONGEST
    ]


def _seconds(blow: Blow, jobs: Mapping[str, Job], ends: Sequence[float]) -> float | None:
    """Return how long one took; `None`: it took nothing away, infinity: it never was over."""
    if blow.back is not None:
        after = bisect_right(ends, blow.back)
        return ends[after] - blow.back if after < len(ends) else None
    if not blow.held:
        return None
    return max(_again(blow.at, jobs.get(one), attempt) for one, attempt in blow.held)


def _again(at: float, job: Job | None, attempt: int) -> float:
    """Return the seconds until a job was begun again, or had ended."""
    if job is None:
        return float("inf")
    moments = [begun for number, begun in job.claims if number > attempt]
    if job.ended is not None:
        moments.append(job.ended)
    return max(0.0, min(moments) - at) if moments else float("inf")
