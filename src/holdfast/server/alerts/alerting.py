"""The part of a server that tells: looks for what is worth it, and delivers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from holdfast.runtime.base import Base
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.outage import Outage
from holdfast.runtime.service import Service
from holdfast.server.alerts.delivering import QUEUE, deliveries
from holdfast.server.alerts.watching import Watcher
from holdfast.server.loops import Loops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Holdfast
    from holdfast.runtime.worker import RunningWorker
    from holdfast.server.alerts.target import Target
    from holdfast.server.context import Context

AT_ONCE: Final = 4
"""Deliveries that run at the same time."""


class Alerting:
    """The loop that looks, and a worker for Holdfast's own queue. `app` is one without tasks, on the same store."""

    def __init__(self, app: Holdfast, context: Context, targets: Sequence[Target], *, reaps: bool) -> None:
        self._app = app
        self._reaps = reaps
        self._stack = AsyncExitStack()
        deliver = deliveries(app, {target.name: target for target in targets}, context.version)
        base = Base(context.store, context.notifier, app.environment, Outage(app.environment), MemoryCounters())
        self.loops = Loops([Service("alerts", Watcher(context.store, targets, deliver), base)])

    async def __aenter__(self) -> RunningWorker:
        """Begin; returns the worker that delivers."""
        await self._stack.enter_async_context(self._app)
        made = self._app.worker(name="alerts", queues=[QUEUE], concurrency=AT_ONCE)
        made.reaps = self._reaps
        worker = await self._stack.enter_async_context(made)
        self._stack.push_async_callback(self.loops.stop)
        self.loops.start()
        return worker

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
