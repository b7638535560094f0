"""Settlements: gathered while one batch is being written, written as the next, repeated until answered."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.core.outcome import Error, Failed
from holdfast.core.settle import settle
from holdfast.core.states import Event, State
from holdfast.errors import HoldfastError, SchemaError, StoreUnavailable
from holdfast.notify.port import Hint
from holdfast.runtime import counters as count
from holdfast.runtime.service import wait_for_event
from holdfast.store.port import Settled, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.outcome import Outcome
    from holdfast.core.settle import Write
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.base import Base

logger = logging.getLogger("holdfast.worker")

BATCH: Final = 500
_RETRIES: Final = frozenset({Event.RETRY, Event.RETRY_LATER})


class Settler:
    """Writes what attempts gave. An attempt is held until its settlement is confirmed: `confirmed` is told then.

    A settlement whose answer was lost is sent again: the token makes that safe.
    """

    def __init__(self, base: Base, confirmed: Callable[[Sequence[Attempt]], None]) -> None:
        self._store = base.store
        self._environment = base.environment
        self._backoff = base.outage.backoff()
        self._counters = base.counters
        self._notifier = base.notifier
        self._confirmed = confirmed
        self._waiting: list[tuple[Attempt, Settlement]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._given_up = False
        self._writing: asyncio.Future[list[Settled]] | None = None

    def submit(self, attempt: Attempt, outcome: Outcome) -> Write:
        """Have the outcome of an attempt written; returns what that will be, at once."""
        claimed = attempt.claimed
        # the store's time as far as this worker knows: when it was claimed there, and how long ago that was here
        now = claimed.claimed_at + timedelta(seconds=self._environment.monotonic() - attempt.claimed_at)
        retry, rng = claimed.policy.retry, self._environment.random
        try:
            write = settle(outcome, retry, claimed.failures, now, rng)
        except HoldfastError as error:  # what it gave cannot be written: that is its outcome then
            write = settle(Failed(Error("BAD_OUTCOME", str(error)), fatal=True), retry, claimed.failures, now, rng)
        attempt.finished = attempt.submitted = True
        self._waiting.append((attempt, Settlement(attempt.lease, write)))
        self._idle.clear()
        self._wake.set()
        return write

    async def run(self) -> None:
        """Write until stopped and nothing is left."""
        while self._waiting or not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                # attempts that end in this very turn of the event loop go with this batch
                await asyncio.sleep(0)
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                self._account(batch, await self._write([settlement for _, settlement in batch]))
                self._confirmed([attempt for attempt, _ in batch])
            self._idle.set()

    async def stop(self, timeout: float) -> None:
        """Have it end when everything is written; what is not in time is given up, and its leases lapse."""
        self.finish()
        if not await wait_for_event(self._idle, timeout):
            self.give_up()
            await wait_for_event(self._idle, timeout)

    def finish(self) -> None:
        """Have it end when everything is written."""
        self._stopping = True
        self._wake.set()

    def give_up(self) -> None:
        """Have it end without waiting for a store that does not answer."""
        self._given_up = True
        if self._writing is not None:
            self._writing.cancel()
        self.finish()

    async def _write(self, settlements: Sequence[Settlement]) -> Sequence[Settled | None]:
        """Write settlements until the store answers; `None` for those that were given up."""
        while True:
            self._writing = asyncio.ensure_future(self._store.settle(settlements))
            try:
                answers = await self._writing
            except asyncio.CancelledError:
                if not self._given_up:
                    raise
                logger.warning("whether %d outcome(s) were written is unknown: the store does not answer", len(settlements))
                return [None] * len(settlements)
            except (StoreUnavailable, SchemaError) as error:  # a schema may be gone for a moment too, while it is restored
                rest = self._backoff.failed(error)
                if self._given_up:
                    logger.warning("%d outcome(s) could not be written: the leases will lapse", len(settlements))
                    return [None] * len(settlements)
                await asyncio.sleep(rest)
            except Exception:
                if len(settlements) > 1:  # one that cannot be written must not take its neighbours with it
                    return [answer for one in settlements for answer in await self._write([one])]
                logger.exception("job %s: its outcome cannot be written; its lease will lapse", settlements[0].lease.job_id)
                return [None]
            else:
                self._backoff.succeeded()
                return answers

    def _account(self, batch: Sequence[tuple[Attempt, Settlement]], answers: Sequence[Settled | None]) -> None:
        queues: set[str] = set()
        later = False
        for (attempt, settlement), answer in zip(batch, answers, strict=True):
            write, claimed = settlement.write, attempt.claimed
            if answer is None:
                continue
            if answer is Settled.STALE:
                self._counters.add(count.STALE, label="settle")
                logger.warning(
                    "%s: the lease was lost, so its outcome (%s) is refused",
                    attempt,
                    write.event,
                    extra=attempt.context,
                )
                continue
            self._counters.add(count.SETTLED, label=write.event)
            if write.event in _RETRIES and write.error is not None:
                self._counters.add(count.RETRIES, label=write.error.code)
            if write.state is State.READY:
                queues.add(claimed.queue)
            elif write.state is State.SCHEDULED:
                later = True
        if queues or later:
            self._notifier.hint(Hint(frozenset(queues), later))
