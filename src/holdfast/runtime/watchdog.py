"""The watchdog of the event loop: names the handler that blocks it, and in the end gives up on the process.

Runs in the heartbeat's thread, which a blocked event loop does not stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from holdfast.core.outcome import TIMEOUT, Error, Failed, Released
from holdfast.core.settle import settle
from holdfast.errors import HoldfastError
from holdfast.runtime.attempt import Commit
from holdfast.store.port import Settlement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.core.outcome import Outcome
    from holdfast.runtime.attempt import Attempt
    from holdfast.store.port import Store

logger = logging.getLogger("holdfast.worker")

BLOCKED_AFTER: Final = 1.0
"""Seconds without a turn of the event loop after which its blocker is named."""
PROBE: Final = 0.5
EXIT_BLOCKED: Final = 70
_OWN: Final = (f"{os.sep}asyncio{os.sep}", f"{os.sep}holdfast{os.sep}runtime{os.sep}", f"{os.sep}uvloop{os.sep}")


class Watchdog:
    """Sends a probe to the event loop while jobs run, and minds how long it takes to be answered."""

    def __init__(self, worker_id: UUID, environment: Environment, *, grace: float, exit_when_blocked: bool) -> None:
        self._worker_id = worker_id
        self._environment = environment
        self._grace = grace
        self._exit_when_blocked = exit_when_blocked
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._sent: float | None = None
        self._next = 0.0
        self._named = False

    async def check(self, store: Store, attempts: Sequence[Attempt]) -> None:
        """Probe the event loop; name what blocks it; end the process where a blocker has outlived its time-out."""
        now = self._environment.monotonic()
        if self._sent is None:
            if attempts and now >= self._next:
                self._sent, self._next = now, now + PROBE
                try:
                    self._loop.call_soon_threadsafe(self._answered)
                except RuntimeError:  # the loop is closed: the worker has ended
                    self._sent = None
            return
        if now - self._sent < BLOCKED_AFTER:
            return
        blocker = self._blocker(attempts)
        if not self._named:
            self._named = True
            who = "something that is no job"
            if blocker is not None:
                who = f"task {blocker.claimed.task} (job {blocker.claimed.job_id})"
            logger.warning(
                "the event loop has been blocked for %.1f s by %s at %s; what blocks belongs in executor='thread' or 'process'",
                now - self._sent,
                who,
                self._place(),
            )
        if (
            self._exit_when_blocked
            and blocker is not None
            and blocker.deadline is not None
            and now > blocker.deadline + self._grace
        ):
            await self._give_up(store, blocker, attempts)

    def _answered(self) -> None:
        if self._named and self._sent is not None:
            logger.warning("the event loop runs again after %.1f s", self._environment.monotonic() - self._sent)
        self._named = False
        self._sent = None

    def _blocker(self, attempts: Sequence[Attempt]) -> Attempt | None:
        """Return the attempt whose asyncio task has the event loop in hand."""
        current = asyncio.current_task(self._loop)
        return next((one for one in attempts if one.runner is current and current is not None), None)

    def _place(self) -> str:
        """Return the innermost line of code that is neither asyncio's nor our own."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  the documented way to see another thread's stack
        innermost = frame
        while frame is not None:
            if not any(part in frame.f_code.co_filename for part in _OWN):
                return _line(frame)
            frame = frame.f_back
        return "an unknown place" if innermost is None else _line(innermost)

    async def _give_up(self, store: Store, blocker: Attempt, attempts: Sequence[Attempt]) -> None:
        """Settle the blocker as timed out, release its neighbours, and end the process: nothing else frees this loop."""
        logger.critical(
            "task %s (job %s) still blocks the event loop %.1f s after its time-out: its neighbours are given back, and "
            "this process ends",
            blocker.claimed.task,
            blocker.claimed.job_id,
            self._grace,
        )
        late = f"it ran longer than its time-out of {blocker.claimed.policy.timeout:g} s and blocked the event loop"
        try:
            await store.settle(
                [
                    self._settlement(
                        one, Failed(Error(TIMEOUT, late)) if one is blocker else Released("a neighbour blocked the event loop")
                    )
                    for one in attempts
                    if not one.finished and one.commit is Commit.NONE
                ]
            )
            await store.retire(self._worker_id)
        except HoldfastError as error:
            logger.critical("and the store does not answer, so the leases will lapse: %s", error)
        logging.shutdown()
        os._exit(EXIT_BLOCKED)

    def _settlement(self, attempt: Attempt, outcome: Outcome) -> Settlement:
        claimed = attempt.claimed
        write = settle(outcome, claimed.policy.retry, claimed.failures, claimed.claimed_at, self._environment.random)
        return Settlement(attempt.lease, write)


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
