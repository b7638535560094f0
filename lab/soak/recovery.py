"""How long it took until what a fault had taken away was at work again, by the store's own records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.soak.lapses import LONG
from lab.soak.tasks import LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lab.soak.blows import Blow, Stall
    from lab.soak.books import Job

SCAN: Final = 5.5
"""Seconds between two looks of a worker for leases that have lapsed, at most."""
RECONNECTING: Final = 5.0
"""Seconds after which a worker has noticed, at the latest, that the store is back."""
SLACK: Final = 5.0
"""Seconds more that a recovery may take. Other faults, and a machine that stood still, are looked at one by one."""
RETURNING: Final = 3.0
"""Seconds until a worker that was struck is back at work, perhaps as another process."""
LONGEST: Final = LEASE + SCAN + SLACK
ENOUGH: Final = 100
"""Recoveries below which a 99th percentile says no more than the longest."""
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of one kind of fault."""

    injected: int
    survived: int
    measured: int
    """How many took something away: only these could be seen to be survived."""
    seconds: tuple[float, ...]
    """For each of them that was over, sorted."""

    def quantile(self, share: float) -> float | None:
        """Return the time within which so large a share was over, where there are enough of them to tell."""
        if not self.seconds or (0.5 < share < 1.0 and len(self.seconds) < ENOUGH):
            return None
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def recoveries(blows: Sequence[Blow], jobs: Mapping[str, Job]) -> dict[str, Recovery]:
    """Return what became of the faults, by their names: how long until all was begun again, or had ended."""
    counted = {}
    for name in dict.fromkeys(blow.fault for blow in blows):
        some = [blow for blow in blows if blow.fault == name]
        taken = [one for blow in some if (one := _seconds(blow, jobs)) is not None]
        times = sorted(one for one in taken if one != NEVER)
        counted[name] = Recovery(len(some), len(some) - taken.count(NEVER), len(taken), tuple(times))
    return counted


def too_long(
    blows: Sequence[Blow], jobs: Mapping[str, Job], workers: Sequence[str] = (), stalls: Sequence[Stall] = ()
) -> list[str]:
    """Return the faults after which a lease was kept for longer than promised, or a job never was begun again.

    What is promised is that somebody ends the lease. When the job is begun again also depends on how many stand before it.
    `workers` are the places of those who see to it.
    """
    disturbed = [_disturbances(blows, stalls, place) for place in workers]
    return [
        f"{blow.fault} {blow.victim}: {job_id} after {seconds:.1f} s, expected within {latest - _begin(blow):.1f} s"
        for blow in blows
        for latest in [_latest(blow, disturbed)]
        for job_id, attempt in blow.held
        for seconds in [_let_go(_begin(blow), jobs.get(job_id), attempt)]
        if _begin(blow) + seconds > latest
    ]


def _seconds(blow: Blow, jobs: Mapping[str, Job]) -> float | None:
    """Return how long one took; `None`: it took nothing away, infinity: it never was over."""
    if not blow.held:
        return None
    return max(_again(_begin(blow), jobs.get(one), attempt) for one, attempt in blow.held)


def _begin(blow: Blow) -> float:
    """Return from when on it is a matter of the fleet: nothing can recover while the store is away."""
    return blow.at if blow.back is None else blow.back


def _again(at: float, job: Job | None, attempt: int) -> float:
    """Return the seconds until a job was begun again, or had ended."""
    return NEVER if job is None else max(0.0, min(_begun_again(job, attempt), default=NEVER) - at)


def _let_go(at: float, job: Job | None, attempt: int) -> float:
    """Return the seconds until the lease of an attempt was over: settled, given back, or ended by a reaper."""
    if job is None:
        return NEVER
    moments = [*_begun_again(job, attempt), *[over for number, over in job.let_go if number == attempt]]
    return max(0.0, min(moments, default=NEVER) - at)


def _begun_again(job: Job, attempt: int) -> Iterator[float]:
    yield from (begun for number, begun in job.claims if number > attempt)
    if job.ended is not None:
        yield job.ended


def _disturbances(blows: Sequence[Blow], stalls: Sequence[Stall], place: str) -> list[tuple[float, float]]:
    """Return from when to when a worker could not see to anything, in order."""
    struck = [(blow.at, blow.until + RETURNING) for blow in blows if blow.struck_place(place) and not blow.mild]
    held_up = [
        (stall.until - stall.seconds, stall.until)
        for stall in stalls
        if stall.seconds >= LONG and stall.life.rpartition(".")[0] in ("", place)
    ]
    return sorted(struck + held_up)


def _latest(blow: Blow, disturbed: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return the moment at which somebody must have ended the leases that a fault has left behind.

    From when they have lapsed, any worker does so that is left in peace for as long as a look takes. One that is struck in the
    midst of that is excused, and begins anew; so the fault is late only if one that was well did not see to it.
    """
    lapsed = _begin(blow) + LEASE + blow.grace + (0.0 if blow.back is None else RECONNECTING)
    return min((_in_peace(lapsed, one) for one in disturbed), default=lapsed) + SCAN + SLACK


def _in_peace(since: float, disturbed: Sequence[tuple[float, float]]) -> float:
    """Return the first moment from when on nothing befalls a worker for as long as a look may take."""
    for begin, end in disturbed:
        if begin < since + SCAN + SLACK and end > since:
            since = end
    return since
