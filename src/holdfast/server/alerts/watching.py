"""Finding what is worth telling: looks at the store every few seconds, and enqueues a delivery for each target.

The cooldown of a kind is a unique key with a window, so it holds across servers and restarts. What happens meanwhile is told by
the next alert of that kind.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.server.alerts import detecting
from holdfast.server.alerts.delivering import QUEUE, TASK, delivers
from holdfast.server.alerts.kinds import AlertKind
from holdfast.store.port import Enqueue, JobFilter

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from datetime import datetime

    from holdfast import Task
    from holdfast.server.alerts.delivering import Delivery
    from holdfast.server.alerts.kinds import Alert
    from holdfast.server.alerts.target import Target
    from holdfast.store.port import FailureView, Store, WorkerView

logger = logging.getLogger("holdfast.server")

LOOK: Final = 5.0
"""Seconds between two looks."""
DAY: Final = 86_400.0
MOST: Final = 5_000
"""Failures that a look reads."""
REACH: Final = timedelta(seconds=detecting.PATTERN_SECONDS)
"""How far back the first look goes: what happened while no server ran is told too."""


class Watcher:
    """The loop, for `runtime.service.Service`."""

    interval = LOOK

    def __init__(self, store: Store, targets: Sequence[Target], deliver: Task[[str, Alert, datetime], Delivery]) -> None:
        self._store = store
        self._deliver = deliver
        self._teller = [Teller(target, kind) for target in targets for kind in target.events]

    async def tick(self) -> float | None:
        """Look, and tell."""
        now = await self._store.now()
        seen = Seen(await self._store.failures(since=now - REACH, limit=MOST), await self._store.workers())
        for teller in self._teller:
            await teller.tell(seen, now, self._store, self._deliver)
        return None


class Seen:
    """What one look has shown. Holdfast's own jobs are left out: an alert would follow itself."""

    def __init__(self, failures: Sequence[FailureView], workers: Sequence[WorkerView]) -> None:
        self.failures = [one for one in failures if one.queue != QUEUE]
        # who delivers is no news, and would begin the cooldown in which those that are go untold
        self._workers = [view for view in reversed(workers) if not delivers(view)]

    def happened(self, kind: AlertKind) -> dict[Hashable, tuple[datetime, Any]]:
        """Return what could be told of a kind: by its identity, with its moment."""
        if kind is AlertKind.WORKER_STARTUP:
            return {(view.worker.id, view.registered_at): (view.registered_at, view) for view in self._workers}
        if kind is AlertKind.WORKER_SHUTDOWN:
            return {(view.worker.id, at): (at, view) for view in self._workers if (at := view.offline_at) is not None}
        return {(one.job_id, one.attempt): (one.at, one) for one in self.failures}


class Teller:
    """Tells one target of one kind, of everything once."""

    def __init__(self, target: Target, kind: AlertKind) -> None:
        self._target = target
        self._kind = kind
        self._tag = f"{kind}:{target.name}"
        self._told: set[Hashable] = set()
        self._since: datetime | None = None

    async def tell(self, seen: Seen, now: datetime, store: Store, deliver: Task[[str, Alert, datetime], Delivery]) -> None:
        """Enqueue a delivery where there is something new; what falls into the cooldown is told by the next one."""
        if self._since is None:
            self._since = max(now - REACH, await self._last(store) or now - REACH)
        happened = seen.happened(self._kind)
        self._told &= set(happened)  # what is older cannot come again
        new = {identity: what for identity, (at, what) in happened.items() if at > self._since and identity not in self._told}
        alert = self._alert(list(new.values()), seen) if new else None
        if alert is not None:
            key: dict[str, Any] = {}
            if self._target.cooldown:
                key = {"key": self._tag, "key_window": self._target.cooldown}
            handle = await deliver.options(expires_in=DAY, tags=["alert", self._tag], **key).enqueue(
                self._target.name, alert, now
            )
            if handle.status is Enqueue.EXISTING:
                return
            logger.info("alert %s to %s: %s", self._kind, self._target.name, alert.text)
        self._told |= set(new)

    async def _last(self, store: Store) -> datetime | None:
        """Return when this was told last, by whichever server."""
        page = await store.find(JobFilter(task=TASK, queue=QUEUE, tag=self._tag), limit=1)
        return page.jobs[0].created_at if page.jobs else None

    def _alert(self, new: Sequence[Any], seen: Seen) -> Alert | None:
        match self._kind:
            case AlertKind.STALE_JOB_RECOVERED:
                return detecting.lapses(new)
            case AlertKind.JOB_MAX_RETRIES_EXCEEDED:
                return detecting.exhausted(new)
            case AlertKind.JOB_FAILED_PATTERN:
                return detecting.pattern(seen.failures)
            case AlertKind.WORKER_STARTUP | AlertKind.WORKER_SHUTDOWN:
                return detecting.of_workers(self._kind, [_about(view) for view in new])


def _about(view: WorkerView) -> dict[str, Any]:
    worker = view.worker
    return {"name": worker.name, "id": str(worker.id), "version": worker.version, "kind": worker.kind}
