"""Reading work: one entry of the streams at a time, answered for by a claim before the next is asked for.

So a worker that is busy, or stuck, takes nothing that an idle one could have.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.notify.channel import Backoff
from holdfast.notify.port import NOTHING_HANDED, Handed, Hint
from holdfast.notify.redis import counts as count
from holdfast.notify.redis.line import FAILURES, Line
from holdfast.notify.redis.streams import IDLE, Lost, joined

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from holdfast.core.environment import Environment
    from holdfast.notify.port import Listener, Serving
    from holdfast.notify.redis.gate import Gate
    from holdfast.notify.redis.streams import Entry, Streams

RECLAIM_EVERY: Final = IDLE
STRIKE_OFF_EVERY: Final = 60.0


class Reader:
    """Reads for one listener that claims. `pass_on` has everyone hear a hint; `state` hears whether it reads."""

    def __init__(
        self,
        gate: Gate,
        streams: Streams,
        listener: Listener,
        serving: Serving,
        environment: Environment,
        *,
        counts: Counter[str],
        pass_on: Callable[[Hint], None],
        state: Callable[[BaseException | None], None],
    ) -> None:
        self._gate = gate
        self._streams = streams
        self._listener = listener
        self._serving = serving
        self._environment = environment
        self._counts = counts
        self._pass_on = pass_on
        self._state = state
        self._handed = NOTHING_HANDED
        self._answered = asyncio.Event()
        self._reclaim_at = 0.0
        self._strike_off_at = environment.monotonic() + STRIKE_OFF_EVERY * environment.random()

    def heed(self) -> Handed:
        """Return what an answer is owed for."""
        return self._handed

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Take an answer; an old one, to what is no longer in hand, changes nothing."""
        if handed is not self._handed or not handed:
            return
        self._handed = NOTHING_HANDED
        if more:
            self._pass_on(handed.hint)
        self._answered.set()

    async def keep(self, url: str, timeout: float) -> None:
        """Read for ever, over one connection after the other."""
        rest = Backoff(self._environment)
        while True:
            permit = await self._gate.allowed()
            try:
                async with await Line.open(url, timeout) as line:
                    await self._streams.join(line, timeout)
                    self._gate.succeeded(permit)
                    self._state(None)
                    rest.reset()
                    while True:
                        permit = await self._gate.allowed()
                        await self._round(line, timeout)
                        self._gate.succeeded(permit)
            except FAILURES as error:
                self._gate.failed(permit, error)
                self._state(error)
            await asyncio.sleep(rest.next())

    async def _round(self, line: Line, timeout: float) -> None:
        try:
            if entries := await self._streams.read(line, timeout):
                await self._dispatch(line, entries, timeout)
            now = self._environment.monotonic()
            if now >= self._reclaim_at:
                self._reclaim_at = now + RECLAIM_EVERY * (0.75 + self._environment.random() / 2)
                if entries := await self._streams.reclaim(line, timeout):
                    self._counts[count.RECLAIMED] += len(entries)
                    await self._dispatch(line, entries, timeout)
            if now >= self._strike_off_at:
                self._strike_off_at = now + STRIKE_OFF_EVERY * (0.75 + self._environment.random() / 2)
                await self._streams.strike_off_the_dead(line, timeout)
        except Lost:
            self._counts[count.HEALED] += 1
            await self._streams.join(line, timeout)
            self._listener(Hint(anything=True))  # what was in it is lost: look

    async def _dispatch(self, line: Line, entries: list[Entry], timeout: float) -> None:
        """Give what entries say to the listener, wait until it was claimed for, and acknowledge it."""
        self._counts[count.RECEIVED] += len(entries)
        said = joined(entries)
        served = said.queues if self._serving.queues is None else said.queues & self._serving.queues
        if foreign := said.queues - served:
            self._pass_on(Hint(foreign, priority=said.priority, ready=said.ready))
        if served or said.anything:
            self._answered.clear()
            self._handed = Handed(
                tuple(entry.id for entry in entries),
                Hint(served, anything=said.anything, priority=said.priority, ready=said.ready),
            )
            self._listener(self._handed.hint)
            await self._answered.wait()
        await self._streams.acknowledge(line, entries, timeout)
