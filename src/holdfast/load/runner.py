"""A whole load: workers where they are asked for, jobs at a pace, a look every so often, and the report at the end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.core.states import TERMINAL, State
from holdfast.load.driver import Driven, drive
from holdfast.load.kinds import build_app
from holdfast.load.report import Report, Seen, report
from holdfast.store.port import WorkerState

if TYPE_CHECKING:
    from holdfast.load.arrivals import Pace
    from holdfast.load.catalog import Catalog
    from holdfast.store.port import Stats, Store

LOOK_EVERY: Final = 0.5
SHUTDOWN: Final = 0.5
"""Seconds that jobs get to end when the load does; others take up what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do."""

    catalog: Catalog
    pace: Pace
    seed: int
    tag: str
    url: str
    workers: int
    concurrency: int
    all_of_them: bool
    """Enqueue every job, however long it takes; else the time is what counts."""
    drain: float
    """The most seconds to wait for the jobs to end when all are enqueued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How it stands, for those who watch."""

    elapsed: float
    planned: int
    enqueued: int
    rate: float
    """Jobs enqueued per second since the look before."""
    waiting: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    throughput: float
    """Jobs that ended per second since the look before."""
    oldest: float | None
    """Seconds that the oldest waiting job has waited."""
    workers: int

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return self.succeeded + self.failed + self.canceled


class Audience(Protocol):
    """Whoever watches."""

    def see(self, look: Look) -> None:
        """Take in how it stands."""
        ...


async def run(plan: Plan, store: Store, stop: asyncio.Event, audience: Audience) -> tuple[Report, Seen]:
    """Run a load until all jobs have ended, `drain` is over or `stop` is set; then tell what it came to.

    The report is made while the workers still run: what they would give back at the end is counted as unfinished.
    """
    app = build_app(plan.catalog, plan.url)
    driven = Driven()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app)
        for number in range(plan.workers):
            worker = app.worker(concurrency=plan.concurrency, name=f"load-{number + 1}", shutdown_timeout=SHUTDOWN)
            await stack.enter_async_context(worker)
        watched = _Watched(plan, store, driven, await store.stats(), Seen(await store.now()))
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watched.watch(audience), name="holdfast-load-watch")
                await drive(
                    *(app, plan.catalog, plan.pace, driven, stop), seed=plan.seed, tag=plan.tag, all_of_them=plan.all_of_them
                )
                await _drained(watched, plan.drain, stop)
                watching.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # whichever was first ended the other
        await watched.look(audience)
        watched.seen.interrupted = stop.is_set()
        return await report(store, driven, plan.pace, watched.seen, seed=plan.seed, tag=plan.tag), watched.seen


async def _drained(watched: _Watched, most: float, stop: asyncio.Event) -> None:
    """Wait until no job of the load is live."""
    with suppress(TimeoutError):
        async with asyncio.timeout(most):
            while not stop.is_set() and not await watched.all_ended():
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), watched.patience)


@dataclass(slots=True)
class _Watched:
    """Looks at the store now and then. Counts are those since the beginning: earlier loads may have left jobs behind."""

    plan: Plan
    store: Store
    driven: Driven
    before: Stats
    seen: Seen
    patience: float = 0.05
    _last: tuple[float, int, int] = (0.0, 0, 0)
    _begun: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    _ended: int = 0

    async def watch(self, audience: Audience) -> None:
        """Look again and again."""
        while True:
            await self.look(audience)
            await asyncio.sleep(LOOK_EVERY)

    async def look(self, audience: Audience) -> None:
        """Look once, and tell."""
        stats = await self.store.stats()
        views = await self.store.workers()
        workers = sum(view.state is not WorkerState.OFFLINE and not view.manages for view in views)
        elapsed = asyncio.get_running_loop().time() - self._begun
        self.seen.most_workers = max(self.seen.most_workers, workers)
        self.seen.workers.append((elapsed, workers))
        succeeded, failed, canceled = (self._count(stats, state) for state in (State.SUCCEEDED, State.FAILED, State.CANCELED))
        enqueued, ended = len(self.driven.ids), succeeded + failed + canceled
        at, enqueued_then, ended_then = self._last
        span = max(elapsed - at, 1e-6)
        self._last = (elapsed, enqueued, ended)
        audience.see(
            Look(
                elapsed=elapsed,
                planned=self.plan.pace.total,
                enqueued=enqueued,
                rate=(enqueued - enqueued_then) / span,
                waiting=self._live(stats, State.READY, State.SCHEDULED),
                running=self._live(stats, State.RUNNING),
                succeeded=succeeded,
                failed=failed,
                canceled=canceled,
                throughput=max(0, ended - ended_then) / span,
                oldest=max((stats.oldest_waiting.get(queue, 0.0) for queue in self._queues()), default=None),
                workers=workers,
            )
        )

    async def all_ended(self) -> bool:
        """Tell whether every job of the load has ended, asking for each only once, in the order of their enqueue."""
        ids = self.driven.ids
        while self._ended < len(ids):
            part = ids[self._ended : self._ended + 500]
            views = await self.store.get(part)
            done = next((at for at, view in enumerate(views) if view is not None and view.state not in TERMINAL), len(part))
            self._ended += done
            if done < len(part):
                return False
        return True

    def _queues(self) -> set[str]:
        return {kind.queue for kind in self.plan.catalog.kinds.values()}

    def _count(self, stats: Stats, state: State) -> int:
        """Return how many have come to this state since the beginning."""
        return max(0, self._live(stats, state) - self._live(self.before, state))

    def _live(self, stats: Stats, *states: State) -> int:
        return sum(stats.count(*states, task=kind.task) for kind in self.plan.catalog.kinds.values())
