"""Enqueuing at a pace, and telling honestly how far it was kept."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.load.behaviour import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from holdfast.app import Holdfast
    from holdfast.load.arrivals import Pace
    from holdfast.load.catalog import Catalog

TICK: Final = 0.02
BATCH: Final = 500


@dataclass(slots=True)
class Driven:
    """What was enqueued so far: ids in order, and how long it took."""

    ids: list[UUID] = field(default_factory=list)
    seconds: float = 0.0
    most_behind: int = 0
    """The most jobs that were due and not yet enqueued, beyond what one tick brings."""
    done: bool = False

    @property
    def rate(self) -> float:
        """Jobs a second that were really enqueued."""
        return len(self.ids) / self.seconds if self.seconds else 0.0


async def drive(
    app: Holdfast,
    catalog: Catalog,
    pace: Pace,
    driven: Driven,
    stop: asyncio.Event,
    *,
    seed: int,
    tag: str,
    all_of_them: bool,
    clock: Callable[[], float] = time.monotonic,
    tick: float = TICK,
) -> None:
    """Enqueue at the pace until its time is over or `stop` is set; `all_of_them`: until every job is enqueued.

    A batch is enqueued when it is due, never before. Where the store cannot keep up the load falls behind, and what it did
    reach is what `driven` says.
    """
    tasks = {kind.name: app.tasks[kind.task].options(tags=(tag,)) for kind in catalog.kinds.values()}
    begun = clock()
    last = False
    while not stop.is_set() and len(driven.ids) < pace.total and not last:
        elapsed = clock() - begun
        last = elapsed >= pace.seconds and not all_of_them
        behind = pace.due(elapsed) - len(driven.ids)
        driven.most_behind = max(driven.most_behind, behind)
        numbers = range(len(driven.ids), len(driven.ids) + min(behind, BATCH))
        if numbers:
            calls = [tasks[kind_of(catalog, number, seed).name].call(item=str(number), seed=seed) for number in numbers]
            handles = await app.enqueue_many(calls)
            driven.ids += [handle.id for handle in handles]
            driven.seconds = clock() - begun
        if behind <= BATCH and not last:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), tick)
    elapsed = clock() - begun
    # where the last burst comes before the end, the calm after it is part of the average too
    driven.seconds = max(elapsed, pace.seconds) if len(driven.ids) == pace.total else elapsed
    driven.done = True
