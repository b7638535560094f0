"""Loops beside a server: begun and ended together, and looked after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.core.health import BOUND, Check, moves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.runtime.service import Service


class Loops:
    """Services that run as tasks of this event loop."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._services = {service.name: service for service in services}
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start them."""
        for name, service in self._services.items():
            self._running[name] = asyncio.create_task(service.run(), name=f"holdfast-{name}")

    async def stop(self) -> None:
        """Have every loop end after what it is doing."""
        for service in self._services.values():
            service.stop()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def wake(self, name: str) -> None:
        """Have one of them tick now."""
        self._services[name].wake()

    def checks(self, now: float) -> list[Check]:
        """Tell of each whether it runs and moves, at this time (monotonic)."""
        return [self._check(service, now) for service in self._services.values()]

    def _check(self, service: Service, now: float) -> Check:
        if service.name not in self._running or self._running[service.name].done():
            return Check(service.name, ok=False, detail="it does not run")
        return moves(service.pulse, now, BOUND)
