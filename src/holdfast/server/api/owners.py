"""Whose a worker is: by its id alone nobody may claim, beat or end in its name, or learn the tokens of what it holds."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from holdfast.server.api.table import Refused
from holdfast.store.port import Role
from holdfast.wire.problems import Problem

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.server.principal import Principal
    from holdfast.store.port import Store

MOST: Final = 10_000
"""Workers that are remembered."""
REST: Final = 0.5
"""Seconds between two looks at all workers, however many ids are asked for that are not known here."""


class Owners:
    """Remembers the owners of workers. Belongs to one event loop."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._owners: OrderedDict[UUID, str] = OrderedDict()
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf

    def registered(self, worker: UUID, owner: str) -> None:
        """Remember whose a worker is."""
        self._owners[worker] = owner
        self._owners.move_to_end(worker)
        while len(self._owners) > MOST:
            self._owners.popitem(last=False)

    async def check(self, principal: Principal, worker: UUID) -> None:
        """Refuse who speaks for a worker of another key. One that nobody has registered is everybody's; an admin may all."""
        if principal.role is Role.ADMIN:
            return
        owner = self._owners.get(worker)
        if owner is None:
            owner = await self._look(worker)
        if owner is not None and owner != principal.name:
            raise Refused(
                403,
                Problem(
                    error="forbidden",
                    message=f"the worker {worker} was registered with another key than {principal.name!r}",
                    fix="register a worker of your own, without an id or with a fresh one; or use the key that it came with",
                ),
            )

    async def _look(self, worker: UUID) -> str | None:
        """Ask the store: it may have come to another server, or before this one was started."""
        async with self._looking:
            if worker not in self._owners:
                await asyncio.sleep(max(0.0, self._looked_at + REST - self._environment.monotonic()))
                for view in reversed(await self._store.workers(limit=MOST)):
                    self.registered(view.worker.id, view.worker.owner)
                self._looked_at = self._environment.monotonic()
            return self._owners.get(worker)
