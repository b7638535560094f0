"""The circuit breaker around all use of Redis, with a clock, chance, a log and counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.core.breaker import Breaker, Phase
from holdfast.notify.channel import LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.breaker import Limits
    from holdfast.core.environment import Environment


class Gate:
    """Lets calls through while Redis answers. One event loop; its figures are read from any thread."""

    def __init__(self, environment: Environment, limits: Limits, *, instead: str, changed: Callable[[], None]) -> None:
        self._environment = environment
        self._breaker = Breaker(limits)
        self._instead = instead
        self._tell = changed
        self._changed = asyncio.Event()
        self.transitions: Counter[Phase] = Counter()
        """How often each phase was entered."""
        self._since = environment.monotonic()

    @property
    def lasts(self) -> float:
        """For how many seconds it has been in its phase."""
        return self._environment.monotonic() - self._since

    @property
    def phase(self) -> Phase:
        """What it lets through now."""
        return self._breaker.phase

    @property
    def due(self) -> bool:
        """Whether a try would be let through now. Unlike `permit`, asking changes nothing."""
        return self.phase is Phase.CLOSED or self._environment.monotonic() >= self._breaker.until

    def permit(self) -> int | None:
        """Return a permit for one try; `None`: do not try."""
        breaker, permit = self._breaker.ask(self._environment.monotonic())
        self._become(breaker, None)
        return permit

    async def allowed(self) -> int:
        """Wait for a permit, for as long as it takes."""
        while (permit := self.permit()) is None:
            rest = self._breaker.until - self._environment.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rest)):
                    await self._changed.wait()
        return permit

    def succeeded(self, permit: int) -> None:
        """Note that what was permitted went well."""
        self._become(self._breaker.succeeded(permit), None)

    def failed(self, permit: int, error: BaseException) -> None:
        """Note that what was permitted failed."""
        now, chance = self._environment.monotonic(), self._environment.random()
        self._become(self._breaker.failed(permit, now, chance), error)

    def _become(self, breaker: Breaker, error: BaseException | None) -> None:
        before, self._breaker = self._breaker.phase, breaker
        if breaker.phase is before:
            return
        self.transitions[breaker.phase] += 1
        self._since = self._environment.monotonic()
        if before is Phase.CLOSED:
            why = str(error) or type(error).__name__
            LOG.warning("Redis does not answer (%s): the breaker is open, %s until it does", why, self._instead)
        elif breaker.phase is Phase.CLOSED:
            LOG.warning("Redis answers again: the breaker is closed")
        else:
            LOG.debug("the breaker of Redis is %s", breaker.phase)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._tell()
