"""The one shape of every loop of a worker: start, wake, an interval with jitter, stop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.core.health import Pulse
from holdfast.errors import SchemaError, StoreUnavailable

if TYPE_CHECKING:
    from holdfast.runtime.base import Base

logger = logging.getLogger("holdfast.worker")

JITTER: Final = 0.1


class Keeper(Protocol):
    """Work that is done again and again."""

    interval: float
    """Seconds between ticks, unless a tick says otherwise."""

    async def tick(self) -> float | None:
        """Do a piece; returns when to come again (seconds), `None` after the interval."""
        ...


class Service:
    """Calls `tick` again and again: after as many seconds as it answered, at the interval otherwise, or when woken.

    An outage of the store backs off and is told of once. An error of our own is logged with its traceback and does not end
    the loop: the next tick may fare better, and jobs are worth more than purity.
    """

    def __init__(
        self,
        name: str,
        keeper: Keeper,
        base: Base,
    ) -> None:
        self.name = name
        self.interval = keeper.interval
        self.pulse = Pulse(name)
        self._tick = keeper.tick
        self._environment = base.environment
        self._backoff = base.outage.backoff()
        self._wake = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Have it tick now."""
        self._wake.set()

    def stop(self) -> None:
        """Have it end after what it is doing."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Tick until stopped."""
        while not self._stopping:
            self._wake.clear()
            self.pulse.came(self._environment.monotonic())
            delay = await self._once()
            self.pulse.came(self._environment.monotonic(), delay)
            await wait_for_event(self._wake, delay)
        self.pulse.waits()

    async def _once(self) -> float:
        try:
            answer = await self._tick()
        except (StoreUnavailable, SchemaError) as error:
            return self._backoff.failed(error)
        except Exception:
            logger.exception("%s: an error of its own; it goes on", self.name)
            return self._spread(self.interval)
        self._backoff.succeeded()
        return self._spread(self.interval) if answer is None else answer

    def _spread(self, seconds: float) -> float:
        return seconds * (1 + JITTER * (2 * self._environment.random() - 1))


async def wait_for_event(event: asyncio.Event, timeout: float | None) -> bool:
    """Wait until the event is set, or for `timeout` seconds; returns whether it is set."""
    if event.is_set():
        return True
    if timeout is None:
        return await event.wait()
    try:
        async with asyncio.timeout(max(0.0, timeout)):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
