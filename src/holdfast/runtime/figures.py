"""What a worker's attempts came to, added up in memory and written now and then: what charts and metrics are made of."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from holdfast.core.figures import BOUNDS, BUCKETS, Figure, bucket
from holdfast.core.outcome import CANCELED
from holdfast.core.states import Event
from holdfast.errors import HoldfastError
from holdfast.store.port import Settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.lease import Claimed
    from holdfast.core.outcome import Error
    from holdfast.core.settle import Write
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.base import Base
    from holdfast.store.port import Reaped

logger = logging.getLogger("holdfast.worker")

EVERY: Final = 10.0
LAST_WORDS: Final = 2.0
"""Seconds that the last figures of a worker may take to be written."""


class _Sum:
    """Attempts of one task in one queue that ended in one way."""

    __slots__ = ("count", "ran", "runs", "waited", "waits")

    def __init__(self) -> None:
        self.count = 0
        self.waited = self.ran = 0.0
        self.waits = [0] * BUCKETS
        self.runs = [0] * BUCKETS

    def add(self, waited: float | None, ran: float) -> None:
        """Add an attempt; `None`: nobody knows how long it waited. A clock that was set back makes no time negative."""
        self.count += 1
        self.ran += ran
        self.runs[bucket(ran)] += 1
        if waited is not None:
            waited = max(0.0, waited)
            self.waited += waited
            self.waits[bucket(waited)] += 1


class Figures:
    """The figures that are not written yet. All on the worker's event loop.

    An attempt has waited since it was ready, for the first time or again, as its claim tells; it ran from when its claim was
    asked for until its end was confirmed. What is reaped counts with whoever reaps it, without times: nobody knows when its
    handler ended. What was taken back from a worker, or ended from outside, is no end of its own and counts nowhere.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, Event, str], _Sum] = {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def succeeded(self, attempts: Iterable[Attempt], now: float) -> None:
        """Add attempts that simply succeeded, and were confirmed at this time (monotonic): nearly all there are."""
        of: Claimed | None = None
        total = _NONE
        # written out: this is done for every job, and each call less is one in a hundred of what a job costs
        for attempt in attempts:
            claimed = attempt.claimed
            if of is None or claimed.task != of.task or claimed.queue != of.queue:  # most batches are of one task
                of, total = claimed, self._sum(claimed.queue, claimed.task, _SUCCEED, "")
            waited = (claimed.claimed_at - (claimed.ready_at or claimed.created_at)).total_seconds()
            ran = now - attempt.claimed_at
            if waited < 0.0:  # noqa: PLR1730  as above
                waited = 0.0
            total.count += 1
            total.waited += waited
            total.ran += ran
            total.waits[bisect_left(BOUNDS, waited)] += 1
            total.runs[bisect_left(BOUNDS, ran)] += 1

    def ended(self, attempt: Attempt, write: Write, answer: Settled, now: float) -> None:
        """Add an attempt whose end stands, as confirmed at this time."""
        event, code = (Event.STOP, CANCELED) if answer is Settled.CANCELED else (write.event, _code(write.error))
        claimed = attempt.claimed
        self._sum(claimed.queue, claimed.task, event, code).add(claimed.waited, now - attempt.claimed_at)

    def add(self, queue: str, task: str, event: Event, code: str, *, waited: float | None, ran: float) -> None:
        """Add an attempt that somebody else has run; `None`: how long it had waited is not known."""
        self._sum(queue, task, event, code).add(waited, ran)

    def reaped(self, leases: Iterable[Reaped]) -> None:
        """Add attempts whose leases this worker has reaped."""
        for one in leases:
            self._sum(one.queue, one.task, one.write.event, _code(one.write.error)).count += 1

    def _sum(self, queue: str, task: str, event: Event, code: str) -> _Sum:
        place = (queue, task, event, code)
        found = self._sums.get(place)
        if found is None:
            found = self._sums[place] = _Sum()
        return found

    def take(self) -> list[Figure]:
        """Return all of it, and begin anew."""
        sums, self._sums = self._sums, {}
        return [
            Figure(
                queue=queue,
                task=task,
                event=event,
                code=code,
                count=one.count,
                waited=one.waited,
                ran=one.ran,
                waits=tuple(one.waits),
                runs=tuple(one.runs),
            )
            for (queue, task, event, code), one in sums.items()
        ]


_NONE: Final = _Sum()
_SUCCEED: Final = Event.SUCCEED


class Measurer:
    """Writes the figures every ten seconds, and the last ones at the stop.

    What was sent and not answered for is not sent again: it would count twice. While the store is known to be away nothing
    is sent, and the figures wait.
    """

    interval = EVERY

    def __init__(self, base: Base) -> None:
        self._store = base.store
        self._outage = base.outage
        self._figures = base.figures

    async def tick(self) -> float | None:
        """Write what there is."""
        if self._figures and not self._outage.going_on:
            await self._store.measure(self._figures.take())
        return None

    async def finish(self) -> None:
        """Write the last figures. They are not worth more than a moment."""
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self.tick()
        except (HoldfastError, TimeoutError) as error:
            logger.warning("the last figures could not be written: %s", str(error) or "the store does not answer")


def _code(error: Error | None) -> str:
    return "" if error is None else error.code
