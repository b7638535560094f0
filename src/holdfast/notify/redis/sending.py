"""Sending hints to Redis: at once, joined when they come fast, and never waited for by whoever sends them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.notify.channel import LOG
from holdfast.notify.joining import Gathered
from holdfast.notify.port import Hint
from holdfast.notify.redis.line import FAILURES, Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.notify.redis.gate import Gate
    from holdfast.notify.redis.line import Command

TOGETHER: Final = 0.005
"""Seconds between two sendings of one handle: what is said in between goes out as one."""
SHOWN_AFTER: Final = 0.1
"""Seconds within which what only people look at is sent: they see four pictures a second."""
MOST_IDS: Final = 1000
"""Ids that a message names; of more it says that anything may have changed."""
FLUSH_SECONDS: Final = 1.0


class Message(Hint, frozen=True, omit_defaults=True):
    """A hint as Pub/Sub carries it, and which process sent it: that one has heard it."""

    by: str = ""


def message(hint: Hint, by: str) -> bytes:
    """Return a hint as it is published."""
    if len(hint.jobs) > MOST_IDS:
        hint = Hint(hint.queues, later=True, anything=True, waiters=hint.waiters, priority=hint.priority)
    return msgspec.json.encode(
        Message(hint.queues, hint.later, hint.jobs, hint.anything, hint.waiters, hint.priority, hint.shown, by=by)
    )


class Sender:
    """Sends what is given to it, in one task that lives while there is something to send.

    `commands` says how; `sent` hears of what went out, and `failed` of what did not.
    """

    def __init__(
        self,
        gate: Gate,
        url: str,
        timeout: float,
        *,
        commands: Callable[[Hint, Hint], list[Command]],
        sent: Callable[[Hint], None],
        failed: Callable[[Hint], None],
    ) -> None:
        self._gate = gate
        self._url = url
        self._timeout = timeout
        self._commands = commands
        self._sent = sent
        self._failed = failed
        self._unsent = Gathered()
        self._onward = Gathered()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hurry = asyncio.Event()
        self._closing = False
        self._line: Line | None = None

    def add(self, hint: Hint, *, onward: bool = False) -> None:
        """Send a hint soon; `onward`: work that one was handed, and all are to hear of. Returns at once, never raises."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody would send it
            self._failed(hint)
            return
        (self._onward if onward else self._unsent).add(hint)
        if hint or self._closing:
            self._begin(loop)
        elif self._task is None and self._timer is None:
            self._timer = loop.call_later(SHOWN_AFTER, self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None:
            self._task = loop.create_task(self._send_all(), name="holdfast-redis-send")

    async def _send_all(self) -> None:
        try:
            while self._unsent or self._onward:
                await self._send(self._unsent.take(), self._onward.take())
                await self._rest()
        finally:
            self._task = None

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(TOGETHER):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _send(self, hint: Hint, onward: Hint) -> None:
        for last in (False, True):
            permit = self._gate.permit()
            if permit is None:
                break
            fresh = self._line is None or self._line.lost
            try:
                await self._call(*self._commands(hint, onward))
            except FAILURES as error:
                if not (fresh or last):  # that a quiet connection has died is found out by using it
                    continue
                self._gate.failed(permit, error)
                LOG.debug("%r was not sent: %r", hint | onward, error)
                break
            self._gate.succeeded(permit)
            self._sent(hint | onward)
            return
        self._failed(hint | onward)

    async def _call(self, *commands: Command) -> None:
        """Send commands, on a connection that is made when there is none; raises one of `FAILURES`."""
        line = self._line
        if line is None or line.lost:
            await self._hang_up()
            line = self._line = await Line.open(self._url, self._timeout)
        await line.call(*commands, timeout=self._timeout)

    async def flush(self) -> None:
        """Send what waits, within a second."""
        self._closing = True
        self._hurry.set()
        if self._unsent or self._onward:
            self._begin(asyncio.get_running_loop())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=FLUSH_SECONDS)

    async def close(self) -> None:
        """Send no more."""
        if self._timer is not None:
            self._timer.cancel()
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._hang_up()

    async def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()
