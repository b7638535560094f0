"""Who the workers are: whose each is, what each has, and what others have that could do more.

By its id alone nobody may claim, beat or end in the name of a worker, or learn the tokens of what it holds; and a claim has no
capabilities but those that its worker was registered with.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.needs import HEARD_WITHIN
from holdfast.server.api.table import Refused
from holdfast.store.port import Role
from holdfast.wire.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.server.principal import Principal
    from holdfast.store.port import Store, Worker, WorkerView

MOST: Final = 10_000
"""Workers that are remembered."""
REST: Final = 0.5
"""Seconds between two looks for workers that are not known here, however many are asked for."""
FRESH: Final = 2.0
"""Seconds that what others could do is believed: one look at all workers answers for every claim meanwhile."""
KNOWN_FOR: Final = 30.0
"""Seconds after which what a worker has is looked up again: it may have registered anew with another server."""


class Registered(msgspec.Struct, frozen=True):
    """What is remembered of a worker, and since when (monotonic)."""

    owner: str
    capabilities: frozenset[str]
    at: float


class Owners:
    """Remembers who the workers are. Belongs to one event loop."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._known: OrderedDict[UUID, Registered] = OrderedDict()
        self._idle: tuple[tuple[UUID, frozenset[str]], ...] = ()
        """Those that could do more, with what they have."""
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._wanted: set[UUID] = set()
        """Those that are asked for and not known here: one look is for them all."""
        self._looked_for_at = -math.inf

    def registered(self, worker: Worker) -> None:
        """Remember a worker."""
        self._known[worker.id] = Registered(worker.owner, frozenset(worker.capabilities), self._environment.monotonic())
        self._known.move_to_end(worker.id)
        while len(self._known) > MOST:
            self._known.popitem(last=False)

    async def check(self, principal: Principal, worker: UUID) -> None:
        """Refuse who speaks for a worker of another key. One that nobody has registered is everybody's; an admin may all."""
        if principal.role is Role.ADMIN:
            return
        known = self._known.get(worker)
        if known is None:
            known = await self._look_for(worker)
        if known is not None and known.owner != principal.name:
            raise Refused(
                403,
                Problem(
                    error="forbidden",
                    message=f"the worker {worker} was registered with another key than {principal.name!r}",
                    fix="register a worker of your own, without an id or with a fresh one; or use the key that it came with",
                ),
            )

    async def capabilities(self, worker: UUID) -> frozenset[str]:
        """Return what a worker was registered with."""
        known = self._known.get(worker)
        if known is None or self._environment.monotonic() - known.at >= KNOWN_FOR:
            known = await self._look_for(worker, newer=True)
        return frozenset() if known is None else known.capabilities

    async def idle_besides(self, worker: UUID, own: frozenset[str]) -> frozenset[str]:
        """Return what other workers have that could do more, and this one has not."""
        async with self._looking:
            if self._environment.monotonic() - self._looked_at >= FRESH:
                await self._look()
        return frozenset().union(*(has for other, has in self._idle if other != worker)) - own

    async def _look_for(self, worker: UUID, *, newer: bool = False) -> Registered | None:
        """Ask the store: it may have come to another server, or before this one was started."""
        known = self._known.get(worker)
        self._wanted.add(worker)
        try:
            async with self._looking:
                if (now := self._known.get(worker)) is None or (newer and now is known):
                    await asyncio.sleep(max(0.0, self._looked_for_at + REST - self._environment.monotonic()))
                    await self._look_up({worker, *self._wanted})
                return self._known.get(worker)
        finally:
            self._wanted.discard(worker)

    async def _look_up(self, workers: set[UUID]) -> None:
        for view in await self._store.workers(limit=len(workers), ids=workers):
            self.registered(view.worker)
        self._looked_for_at = self._environment.monotonic()

    async def _look(self) -> None:
        views = await self._store.workers(limit=MOST)
        for view in reversed(views):
            self.registered(view.worker)
        self._idle = await self._could_do_more([view for view in views if view.worker.capabilities])
        self._looked_at = self._environment.monotonic()

    async def _could_do_more(self, views: Sequence[WorkerView]) -> tuple[tuple[UUID, frozenset[str]], ...]:
        """Return those of these workers that are alive, may claim, and hold less than they could."""
        if not views:  # in most fleets nobody has anything
            return ()
        since = await self._store.now() - timedelta(seconds=HEARD_WITHIN)
        return tuple(
            (view.worker.id, frozenset(view.worker.capabilities))
            for view in views
            if view.running < view.worker.slots
            and view.offline_at is view.disabled_at is None
            and not view.drains
            and (view.heartbeat_at or view.registered_at) > since
        )
