"""Finding what is worth telling: looks at the store every few seconds, and enqueues a delivery for each target.

The cooldown of a kind is a unique key with a window, so it holds across servers and restarts. What happens meanwhile is told by
the next alert of that kind.

Any number of servers look, and each thing is told by one of them. A delivery keeps the newest thing that was seen for it, and
by then everything older was seen: so whoever is about to tell reads the last delivery first, and takes up where that one ended.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from holdfast.server.alerts import detecting
from holdfast.server.alerts.delivering import QUEUE, TASK, delivers, told_of
from holdfast.server.alerts.kinds import AlertKind
from holdfast.store.port import Enqueue, JobFilter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast import Task
    from holdfast.server.alerts.delivering import Delivery
    from holdfast.server.alerts.kinds import Alert
    from holdfast.server.alerts.target import Target
    from holdfast.store.port import FailureView, Store, WorkerView

logger = logging.getLogger("holdfast.server")

LOOK: Final = 5.0
"""Seconds between two looks."""
LAG: Final = 2.0
"""Seconds before something is told. Of two that write at the same time the later one may be seen first; were it told then, the
other would count as told too. After so long both are seen."""
DAY: Final = 86_400.0
MOST: Final = 5_000
"""Failures that a look reads."""
LATEST: Final = 20
"""Deliveries among which the last one is looked for."""
REACH: Final = timedelta(seconds=detecting.PATTERN_SECONDS)
"""How far back the first look goes: what happened while no server ran is told too."""


class Watcher:
    """The loop, for `runtime.service.Service`."""

    interval = LOOK

    def __init__(self, store: Store, targets: Sequence[Target], deliver: Task[[str, Alert, datetime], Delivery]) -> None:
        self._store = store
        self._deliver = deliver
        self._tellers = [Teller(target, kind) for target in targets for kind in target.events]
        self._reach = max((teller.reach for teller in self._tellers), default=REACH)

    async def tick(self) -> float | None:
        """Look, and tell."""
        now = await self._store.now()
        failures = await self._store.failures(since=now - self._reach, limit=MOST)
        seen = Seen(failures, await self._store.workers(), until=now - timedelta(seconds=LAG))
        for teller in self._tellers:
            await teller.tell(seen, now, self._store, self._deliver)
        return None


class Happened(NamedTuple):
    """Something that could be told."""

    identity: str
    """Of it alone. Not its moment: `rewind` changes that."""
    at: datetime
    what: Any


class Seen:
    """What one look has shown. Holdfast's own jobs are left out: an alert would follow itself."""

    def __init__(self, failures: Sequence[FailureView], workers: Sequence[WorkerView], *, until: datetime) -> None:
        self.failures = [one for one in failures if one.queue != QUEUE and one.at <= until]
        # who delivers is no news, and would begin the cooldown in which those that are go untold
        self._workers = [view for view in workers if not delivers(view)]
        self._until = until

    def happened(self, kind: AlertKind) -> list[Happened]:
        """Return what could be told of a kind, newest first."""
        match kind:
            case AlertKind.WORKER_STARTUP:
                found = [Happened(str(view.worker.id), view.registered_at, view) for view in self._workers]
            case AlertKind.WORKER_SHUTDOWN:
                found = [
                    Happened(str(view.worker.id), at, view) for view in self._workers if (at := view.offline_at) is not None
                ]
            case _:
                found = [Happened(f"{one.job_id}/{one.attempt}", one.at, one) for one in self.failures]
        return sorted((one for one in found if one.at <= self._until), key=lambda one: one.at, reverse=True)


class Teller:
    """Tells one target of one kind, of everything once."""

    def __init__(self, target: Target, kind: AlertKind) -> None:
        self._target = target
        self._kind = kind
        self._tag = f"{kind}:{target.name}"
        self._told: set[str] = set()
        self._since: datetime | None = None
        self._last: UUID | None = None
        """The last delivery that it knows of, its own or another server's."""
        self.reach = REACH + timedelta(seconds=target.cooldown)
        """How far back it must look, to tell what happened in its cooldown."""

    async def tell(self, seen: Seen, now: datetime, store: Store, deliver: Task[[str, Alert, datetime], Delivery]) -> None:
        """Enqueue a delivery where there is something new; what falls into the cooldown is told by the next one."""
        happened = seen.happened(self._kind)
        self._told &= {one.identity for one in happened}  # what is older cannot come again
        if self._since is None:
            # with nothing told before there was no cooldown either
            self._since = now - (self.reach if await self._heard(happened, store) else REACH)
        alert = self._alert(self._news(happened), seen)
        if alert is not None and await self._heard(happened, store):
            alert = self._alert(self._news(happened), seen)
        if alert is not None and not await self._enqueued(alert, now, deliver):
            return  # another server tells at this moment, or there is a cooldown: the next look shows what is left to tell
        self._told |= {one.identity for one in happened}

    def _news(self, happened: Sequence[Happened]) -> list[Happened]:
        return [one for one in happened if self._since and one.at > self._since and one.identity not in self._told]

    async def _heard(self, happened: Sequence[Happened], store: Store) -> bool:
        """Count as told what others have told since; returns whether there was anything."""
        # the store's order is that of ids, which servers make by clocks of their own
        page = await store.find(JobFilter(task=TASK, queue=QUEUE, tag=self._tag), limit=LATEST)
        delivery = max(page.jobs, key=lambda view: view.created_at, default=None)
        if delivery is None or delivery.id == self._last:
            return False
        newest = told_of(delivery).newest
        # What it ended with may be gone by now, or a worker that has stopped once more since.
        ended = min([delivery.created_at, *(one.at for one in happened if one.identity == newest)])
        self._told |= {one.identity for one in happened if one.at <= ended}
        self._last = delivery.id
        return True

    async def _enqueued(self, alert: Alert, now: datetime, deliver: Task[[str, Alert, datetime], Delivery]) -> bool:
        """Enqueue a delivery, unless it is too early or another server was faster; returns whether it was done."""
        if self._target.cooldown >= LOOK:
            key, window = self._tag, self._target.cooldown
        else:
            key, window = f"{self._tag} after {self._last}", DAY  # two that took up at the same delivery: one may go on
        options = deliver.options(expires_in=DAY, tags=["alert", self._tag], key=key, key_window=window)
        handle = await options.enqueue(self._target.name, alert, now)
        if handle.status is Enqueue.EXISTING:
            return False
        self._last = handle.id
        logger.info("alert %s to %s: %s", self._kind, self._target.name, alert.text)
        return True

    def _alert(self, news: Sequence[Happened], seen: Seen) -> Alert | None:
        alert = self._found([one.what for one in news], seen) if news else None
        return alert and msgspec.structs.replace(alert, newest=news[0].identity)

    def _found(self, news: Sequence[Any], seen: Seen) -> Alert | None:
        match self._kind:
            case AlertKind.STALE_JOB_RECOVERED:
                return detecting.lapses(news)
            case AlertKind.JOB_MAX_RETRIES_EXCEEDED:
                return detecting.exhausted(news)
            case AlertKind.JOB_FAILED_PATTERN:
                return detecting.pattern(seen.failures, news)
            case AlertKind.WORKER_STARTUP | AlertKind.WORKER_SHUTDOWN:
                # the one that came first gives the alert its name
                return detecting.of_workers(self._kind, [_about(view) for view in reversed(news)])


def _about(view: WorkerView) -> dict[str, Any]:
    worker = view.worker
    return {"name": worker.name, "id": str(worker.id), "version": worker.version, "kind": worker.kind}
