"""What a manager would decide, without doing it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.core.scaling import Sample, begin, decide
from holdfast.fleet.observing import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.scaling import Decision
    from holdfast.fleet.options import ManagerOptions
    from holdfast.runtime.world import World


class Rehearsal:
    """What a manager would decide, told and not done: it starts nothing and writes nothing."""

    def __init__(self, world: World, options: ManagerOptions, tell: Callable[[str], None]) -> None:
        self._options = options
        self._environment = world.environment
        self._store = world.make_store()
        self._observer = Observer(self._store, world.tasks, options.queues)
        self._tell = tell

    async def run(self) -> None:
        """Tell the first decision and every one that would change the number, until it is cancelled."""
        decision = begin(self._options.scaling)
        try:
            await self._store.open()
            self._tell(decision.reason)
            while True:
                before, decision = decision, decide(self._options.scaling, await self._sample(decision), decision.memory)
                if decision.count != before.count:
                    self._tell(decision.reason)
                await asyncio.sleep(self._options.interval)
        finally:
            await self._store.close()

    async def _sample(self, decision: Decision) -> Sample:
        """Return what would be seen if there were as many workers as decided: they would hold what fits into their slots."""
        backlog, now = await self._observer.backlog(), self._environment.monotonic()
        all_jobs, capacity = backlog.ready + backlog.running, decision.count * self._options.slots
        held = min(all_jobs, capacity)
        return Sample(
            now=now,
            ready=min(backlog.ready, all_jobs - held),
            running=held,
            workers=decision.count,
            slots=self._options.slots,
            service=await self._observer.service(now),
            oldest=backlog.oldest,
        )
