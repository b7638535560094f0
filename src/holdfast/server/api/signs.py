"""Signs of life that are no heartbeats: whoever claims and reports is alive, however late its heartbeat is."""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.errors import StoreUnavailable
from holdfast.server.keyring import remember

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.core.lease import Lease
    from holdfast.store.port import Store

LATE: Final = 30.0
"""Seconds without a sign of life after which another one is written: who beats in time costs nothing here."""


class Signs:
    """Knows when workers were last heard of, and who holds which lease. Belongs to one event loop."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._heard: OrderedDict[UUID, float] = OrderedDict()
        """When it was last written that a worker lives (monotonic)."""
        self._holders: OrderedDict[UUID, UUID] = OrderedDict()
        """Workers, by the tokens of what they hold."""

    def beaten(self, worker: UUID) -> None:
        """Take note that a sign of life was written."""
        remember(self._heard, worker, self._environment.monotonic())

    def claimed(self, worker: UUID, leases: Iterable[Lease]) -> None:
        """Remember who holds leases."""
        for lease in leases:
            remember(self._holders, lease.token, worker)

    async def heard(self, *workers: UUID) -> None:
        """Write that workers live, where that was not done for a while."""
        now = self._environment.monotonic()
        late = {worker for worker in workers if now - self._heard.get(worker, -math.inf) >= LATE}
        if not late:
            return
        for worker in late:  # before: others that report meanwhile need not write it too
            remember(self._heard, worker, now)
        with suppress(StoreUnavailable):  # for people alone: what was asked for stands
            await self._store.heard(late)

    async def reported(self, leases: Iterable[Lease]) -> None:
        """Take what was written under leases as signs of life. Those that were claimed elsewhere are looked up, once."""
        own = list(leases)
        elsewhere = {lease.job_id: lease for lease in own if lease.token not in self._holders}
        if elsewhere:
            with suppress(StoreUnavailable):
                for view in await self._store.get(list(elsewhere)):
                    if view is not None and view.worker_id is not None:
                        self.claimed(view.worker_id, [elsewhere[view.id]])
        await self.heard(*{holder for lease in own if (holder := self._holders.get(lease.token)) is not None})

    async def ended(self, leases: Iterable[Lease]) -> None:
        """Take the ends of attempts as signs of life, and forget who held their leases."""
        holders = {self._holders.pop(lease.token, None) for lease in leases}
        await self.heard(*(holder for holder in holders if holder is not None))
