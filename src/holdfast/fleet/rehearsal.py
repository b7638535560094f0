"""What a manager would decide, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.scaling import Sample, begin, decide
from holdfast.fleet.observing import Observer
from holdfast.fleet.repeating import Repeating
from holdfast.fleet.telling import Telling

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.scaling import Decision
    from holdfast.fleet.options import ManagerOptions
    from holdfast.runtime.world import World
    from holdfast.store.port import Store


class Rehearsal:
    """What a manager would decide, told and not done: it starts nothing and writes nothing.

    `store` is one that makes no schema where there is none.
    """

    def __init__(self, world: World, store: Store, options: ManagerOptions, tell: Callable[[str], None]) -> None:
        self._options = options
        self._environment = world.environment
        self._store = store
        self._observer = Observer(store, world.tasks, options.queues)
        self._tell = tell
        self._decision = begin(options.scaling)
        self._telling = Telling(self._decision)
        self._has_looked = False

    async def run(self) -> None:
        """Tell the first decision and every one that is news, until it is cancelled; an outage does not end it."""
        try:
            await self._store.open()
            self._tell(f"rehearses until it is interrupted, and starts nothing: {self._options.plan}")
            self._tell(self._decision.reason)
            repeating = Repeating(lambda: self._decision.count, self._tell, self._tell)
            await repeating.again_and_again(self._look_and_decide, self._options.interval)
        finally:
            await self._store.close()

    async def _look_and_decide(self) -> None:
        self._decision = decide(self._options.scaling, await self._sample(self._decision), self._decision.memory)
        is_news = self._telling.is_news(self._decision, self._environment.monotonic())
        if is_news or not self._has_looked:  # what it sees first is told in any case: often nothing is news for long
            self._has_looked = True
            self._tell(self._decision.reason)

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
            held=backlog.throttled,
        )
