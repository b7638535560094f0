"""What attempts came to that workers of other languages have run: they add up nothing themselves."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from holdfast.core.outcome import CANCELED
from holdfast.core.states import Event
from holdfast.store.port import Settled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.lease import Claimed
    from holdfast.runtime.figures import Figures
    from holdfast.store.port import JobView, Settlement

MOST_REMEMBERED: Final = 10_000


class Ledger:
    """Adds attempts to the figures of the server.

    How long a job had waited is told by its claim alone. Where that was made through another server, or too many claims ago,
    the attempt counts without it: no figure is better than a wait of no time.
    """

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self._waits: OrderedDict[UUID, float] = OrderedDict()

    def claimed(self, jobs: Iterable[Claimed]) -> None:
        """Remember how long jobs had waited, by their tokens."""
        for job in jobs:
            self._waits[job.token] = job.waited
        while len(self._waits) > MOST_REMEMBERED:
            self._waits.popitem(last=False)

    def ended(self, view: JobView, settlement: Settlement, answer: Settled, now: datetime) -> None:
        """Add an attempt that was ended by this settlement, once."""
        if answer is Settled.REPEATED or not answer.accepted or view.claimed_at is None:
            return
        waited = self._waits.pop(settlement.lease.token, None)
        write = settlement.write
        event, code = write.event, "" if write.error is None else write.error.code
        if answer is Settled.CANCELED:
            event, code = Event.STOP, CANCELED
        ran = (now - view.claimed_at).total_seconds()
        self.figures.add(view.queue, view.task, event, code, waited=waited, ran=max(0.0, ran))
