"""Housekeeping beside the server: what every worker does for the fleet, for fleets whose workers are all remote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.runtime.base import Base
from holdfast.runtime.figures import Figures, Measurer
from holdfast.runtime.housekeeping import Promoter, Pruner, Reaper, Sweeper
from holdfast.runtime.scheduler import Scheduler
from holdfast.runtime.service import Service
from holdfast.server.loops import Loops
from holdfast.server.presence import Presence, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.notify.port import Hint, Notifier
    from holdfast.runtime.counters import Counters
    from holdfast.runtime.service import Keeper
    from holdfast.store.port import Retention, Store
    from holdfast.tasks.task import Task


class Keeping:
    """Promoter, reaper, sweeper, pruner; and the scheduler, where the tasks are known. One event loop.

    The measurer goes in any case: what workers in other languages came to is added up here, and nowhere else. Without
    `house` it is all there is.
    """

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        environment: WorkerEnvironment,
        retention: Retention,
        *,
        counters: Counters,
        tasks: Sequence[Task[..., Any]] = (),
        house: bool = True,
    ) -> None:
        self._notifier = notifier
        self._house = house
        self.figures = Figures()
        """What attempts came to that no worker adds up, until that is written."""
        presence = Presence(environment)
        base = Base(store, notifier, environment, presence, counters, figures=self.figures)
        self._measurer = Measurer(base)
        keepers: dict[str, Keeper] = {}
        if house:
            keepers = {
                "presence": Watch(presence),
                "promoter": Promoter(base),
                "reaper": Reaper(base, frozenset()),
                "sweeper": Sweeper(base),
                "pruner": Pruner(base, retention),
            }
        keepers["measurer"] = self._measurer
        if house and tasks:
            keepers["scheduler"] = Scheduler(base, list(tasks))
        self.loops = Loops(Service(name, keeper, base) for name, keeper in keepers.items())

    async def start(self) -> None:
        """Start the loops."""
        if self._house:
            await self._notifier.listen(self._hinted)
        self.loops.start()

    async def stop(self) -> None:
        """Have every loop end after what it is doing."""
        await self.loops.stop()
        await self._measurer.finish()

    def _hinted(self, hint: Hint) -> None:
        if hint.anything or hint.later:
            self.loops.wake("promoter")
        if hint.waiters:
            self.loops.wake("sweeper")
