"""Settlements: gathered while one batch is being written, written as the next, repeated until answered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from holdfast.core.health import Pulse
from holdfast.core.outcome import Failed
from holdfast.core.states import Event
from holdfast.errors import BadJob, HoldfastError, KeyBusy, SchemaError, StoreUnavailable
from holdfast.notify.port import SHOWN, Hint
from holdfast.runtime import counters as count
from holdfast.runtime.service import wait_for_event
from holdfast.runtime.settling import (
    account,
    continuation_without_key,
    refused_continuation,
    refused_outcome,
    settlement_of,
)
from holdfast.runtime.telling import tell
from holdfast.store.port import Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.outcome import Outcome
    from holdfast.core.settle import Write
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.base import Base
    from holdfast.store.port import Settlement

    Answered = Settled | Failed | None
    """What became of a settlement: the store's answer, what to settle in its place, or nothing (it was given up)."""

logger = logging.getLogger("holdfast.worker")

BATCH: Final = 1000
WORTH_ANOTHER: Final = 250
"""So many do not wait for the batch that is being written: while the answer to that is on its way, or the event loop too busy
to read it, the store has something to do."""
AT_ONCE: Final = 2
AGAIN: Final = 0.1
"""Seconds until what was broken off is written again."""


class Settler:
    """Writes what attempts gave. An attempt is held until its settlement is confirmed: `confirmed` is told then.

    A settlement whose answer was lost is sent again: the token makes that safe.
    """

    def __init__(self, base: Base, confirmed: Callable[[Sequence[Attempt]], None]) -> None:
        self.pulse = Pulse("settler")
        self._store = base.store
        self._environment = base.environment
        self._backoff = base.outage.backoff()
        self._counters = base.counters
        self._figures = base.figures
        self._notifier = base.notifier
        self._confirmed = confirmed
        self._waiting: list[tuple[Attempt, Settlement]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._given_up = False
        self._batches: set[asyncio.Task[None]] = set()
        """Those that are being written."""

    def submit(self, attempt: Attempt, outcome: Outcome) -> Write:
        """Have the outcome of an attempt written; returns what that will be, at once."""
        try:
            settlement = settlement_of(attempt, outcome, self._environment)
        except HoldfastError as error:  # what it gave cannot be written: that is its outcome then
            settlement = settlement_of(attempt, refused_outcome(outcome, error), self._environment)
        attempt.finished = attempt.submitted = True
        self._add(attempt, settlement)
        return settlement.write

    def _add(self, attempt: Attempt, settlement: Settlement) -> None:
        self._waiting.append((attempt, settlement))
        waiting = len(self._waiting)
        if waiting == 1:
            self._idle.clear()
            self._wake.set()
        elif waiting == WORTH_ANOTHER:
            self._wake.set()

    async def run(self) -> None:
        """Write until stopped and nothing is left."""
        async with asyncio.TaskGroup() as group:
            while self._waiting or self._batches or not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                while self._may_write():
                    # attempts that end in this very turn of the event loop go with this batch
                    await asyncio.sleep(0)
                    batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                    task = group.create_task(self._settle(batch))
                    self._batches.add(task)
                    task.add_done_callback(self._ended)

    def _may_write(self) -> bool:
        if not self._batches:
            return bool(self._waiting)
        return len(self._batches) < AT_ONCE and len(self._waiting) >= WORTH_ANOTHER

    async def _settle(self, batch: Sequence[tuple[Attempt, Settlement]]) -> None:
        answers = await self._write([settlement for _, settlement in batch])
        self._confirmed(self._account(batch, answers))

    def _ended(self, batch: asyncio.Task[None]) -> None:
        self._batches.discard(batch)
        if not self._waiting and not self._batches:
            self._idle.set()
            self.pulse.waits()
        self._wake.set()

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
        for batch in self._batches:
            batch.cancel()
        self.finish()

    async def _write(self, settlements: Sequence[Settlement]) -> Sequence[Answered]:
        """Write settlements until the store answers; `None` for those that were given up."""
        while not self._is_given_up():
            self.pulse.came(self._environment.monotonic())
            try:
                answers = await self._store.settle(settlements)
            except asyncio.CancelledError:
                if self._is_given_up():
                    logger.warning("whether %d outcome(s) were written is unknown: the store does not answer", len(settlements))
                    return [None] * len(settlements)
                if _this_task_is_cancelled():
                    raise
                await self._rest(AGAIN)  # somebody else cancelled what the store waited for: like an answer that was lost
            except (StoreUnavailable, SchemaError) as error:  # a schema may be gone for a moment too, while it is restored
                await self._rest(self._backoff.failed(error))
            except Exception as error:  # noqa: BLE001  told below, or settled as what it means
                if len(settlements) > 1:  # one that cannot be written must not take its neighbours with it
                    return [answer for one in settlements for answer in await self._write([one])]
                return [_refused(settlements[0], error)]
            else:
                self._backoff.answered()
                return answers
        logger.warning("%d outcome(s) could not be written: the leases will lapse", len(settlements))
        return [None] * len(settlements)

    def _is_given_up(self) -> bool:
        return self._given_up

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if not self._given_up:
                raise

    def _account(self, batch: Sequence[tuple[Attempt, Settlement]], answers: Sequence[Answered]) -> list[Attempt]:
        """Count what was written and hint at it; returns whose settlement is over. The others are settled anew."""
        hint = Hint()
        over = []
        succeeded = []
        now = self._environment.monotonic()
        applied, succeed = Settled.APPLIED, Event.SUCCEED  # an enum takes its time to find a member
        for (attempt, settlement), answer in zip(batch, answers, strict=True):
            if answer is applied and settlement.write.event is succeed:  # nearly always
                over.append(attempt)
                succeeded.append(attempt)
            elif answer is Settled.KEY_TAKEN:
                self._instead(attempt, continuation_without_key(settlement))
            elif isinstance(answer, Failed):
                self._instead(attempt, answer)
            else:
                over.append(attempt)
                if answer is Settled.STALE:
                    self._refused(attempt, settlement)
                elif answer is not None:
                    self._figures.ended(attempt, settlement.write, answer, now)
                    if (news := account(attempt, settlement, answer, self._counters)) is not None:
                        hint |= news
        if succeeded:
            self._counters.add(count.SETTLED, len(succeeded), label=Event.SUCCEED)
            self._figures.succeeded(succeeded, now)
        self._notifier.hint(hint or SHOWN)
        return over

    def _refused(self, attempt: Attempt, settlement: Settlement) -> None:
        self._counters.add(count.STALE, label="settle")
        event = settlement.write.event
        logger.warning("%s: the lease was lost, so its outcome (%s) is refused", attempt, event, extra=attempt.context)

    def _instead(self, attempt: Attempt, outcome: Failed) -> None:
        """Settle an attempt as failed whose next step could not be created. It is still held: nothing was written."""
        settlement = settlement_of(attempt, outcome, self._environment)
        self._add(attempt, settlement)
        tell(attempt, settlement.write, None)


def _refused(settlement: Settlement, error: Exception) -> Failed | None:
    """Return what to settle in the place of what the store refused by itself."""
    if settlement.then is not None and isinstance(error, KeyBusy):
        return continuation_without_key(settlement)
    if settlement.then is not None and isinstance(error, BadJob):
        return refused_continuation(settlement, error)
    logger.error("job %s: its outcome cannot be written; its lease will lapse", settlement.lease.job_id, exc_info=error)
    return None


def _this_task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
