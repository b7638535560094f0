"""Who the workers are, and which of them are alive."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.core.needs import HEARD_WITHIN, idle_besides, running_said
from holdfast.core.settle import revoke
from holdfast.core.states import Event, State
from holdfast.core.text import clean
from holdfast.errors import UnknownWorker
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.records import Registration
from holdfast.store.port import HEARD_EVERY, TEXT_LIMIT, Action, Signal, WorkerView, audit_line, living_first

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from holdfast.store.port import Beat, Worker, WorkerPlace

JOBS_SHOWN: Final = 100


class Registry(Handle):
    """What the port says about workers."""

    async def register(self, worker: Worker) -> None:
        """Make a worker known, or change what it says of itself, which is also a sign of life."""
        now = self.environment.now()
        if (known := self.data.workers.get(worker.id)) is None:
            self.data.workers[worker.id] = Registration(worker, registered_at=now)
        else:
            known.worker, known.heartbeat_at, known.offline_at, known.draining_at = worker, now, None, None
            known.past = False

    async def beat(self, beat: Beat) -> Signal:
        """Note that a worker is alive, and its counters."""
        if (known := self.data.workers.get(beat.worker)) is None:
            raise UnknownWorker(f"worker {beat.worker} is not registered with this store: register it before it beats")
        known.heartbeat_at, known.counters, known.offline_at = self.environment.now(), beat.counters, None
        known.past = False
        return Signal(known.disabled_at is not None, known.draining_at is not None, self._idle_besides(known))

    def _idle_besides(self, known: Registration) -> tuple[str, ...]:
        since = self.environment.now() - timedelta(seconds=HEARD_WITHIN)
        others = [
            (one.worker, running_said(one.counters))
            for one in self.data.workers.values()
            if one is not known
            and one.worker.capabilities
            and (one.heartbeat_at or one.registered_at) > since
            and one.offline_at is one.disabled_at is one.draining_at is None
        ]
        held = self._held() if any(said is None for _, said in others) else {}
        return idle_besides(
            known.worker.capabilities,
            [(one.capabilities, one.slots, len(held.get(one.id, ())) if said is None else said) for one, said in others],
        )

    def _held(self) -> dict[UUID, list[UUID]]:
        """Return the jobs that each worker holds, by its id."""
        held: dict[UUID, list[UUID]] = {}
        for job_id, record in sorted(self.data.by_state[State.RUNNING].items()):
            if record.lease is not None:
                held.setdefault(record.lease.worker, []).append(job_id)
        return held

    async def heard(self, workers: Collection[UUID]) -> None:
        """Note that workers are alive that claimed or reported."""
        now = self.environment.now()
        before = now - timedelta(seconds=HEARD_EVERY)
        for known in filter(None, map(self.data.workers.get, workers)):
            if known.offline_at is not None or (known.heartbeat_at or known.registered_at) <= before:
                known.heartbeat_at, known.offline_at, known.past = now, None, False

    async def retire(self, worker: UUID) -> None:
        """Note that a worker has stopped."""
        known = self.data.workers.get(worker)
        if known is not None and known.offline_at is None:
            known.offline_at = self.environment.now()

    async def mark_offline(self, after: float) -> list[UUID]:
        """Mark workers offline that gave no sign of life for `after` seconds."""
        now = self.environment.now()
        since = now - timedelta(seconds=after)
        silent = [
            known
            for known in self.data.workers.values()
            if known.offline_at is None and (known.heartbeat_at or known.registered_at) <= since
        ]
        for known in silent:
            known.offline_at = now
        return sorted(known.worker.id for known in silent)

    async def disable(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker claim nothing more. Disabling it again changes who, not since when."""
        if (known := self.data.workers.get(worker)) is None:
            return False
        known.disabled_at = known.disabled_at or self.environment.now()
        known.disabled_by = clean(by, TEXT_LIMIT)
        self.audit(audit_line(Action.DISABLE, [worker], by=by))
        return True

    async def enable(self, worker: UUID, *, by: str = "") -> bool:
        """Let a disabled worker claim again, and one that was asked to end go on."""
        if (known := self.data.workers.get(worker)) is None:
            return False
        known.disabled_at, known.disabled_by, known.draining_at = None, "", None
        self.audit(audit_line(Action.ENABLE, [worker], by=by))
        return True

    async def drain(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker finish what it runs and end. Asking again changes nothing."""
        if (known := self.data.workers.get(worker)) is None:
            return False
        known.draining_at = known.draining_at or self.environment.now()
        self.audit(audit_line(Action.DRAIN, [worker], by=by))
        return True

    async def revoke(self, worker: UUID, *, by: str = "") -> list[UUID] | None:
        """Disable a worker and take back every lease it holds."""
        if (known := self.data.workers.get(worker)) is None:
            return None
        now = self.environment.now()
        known.disabled_at, known.disabled_by = known.disabled_at or now, clean(by, TEXT_LIMIT)
        held = [
            (record, lease)
            for _, record in sorted(self.data.by_state[State.RUNNING].items())
            if (lease := record.lease) is not None and lease.worker == worker
        ]
        for record, lease in held:
            write = revoke(record.failures, cancel=lease.cancel_reason if lease.cancel_requested else None)
            self.data.move(record, write, now, actor=by, revoked=True)
        self.data.settle_waiters(now)
        released = [record.job.id for record, lease in held if lease.event is Event.RELEASE]
        self.audit(audit_line(Action.REVOKE_WORKER, [worker], by=by, detail=f"{len(released)} released"))
        return released

    async def workers(
        self, *, limit: int = 1000, ids: Collection[UUID] | None = None, after: WorkerPlace | None = None
    ) -> list[WorkerView]:
        """Return the registered workers, the living first."""
        held = self._held()
        wanted = None if ids is None else set(ids)
        views = [
            _view(known, held.get(worker, []))
            for worker, known in self.data.workers.items()
            if (not known.past if wanted is None else worker in wanted)
        ]
        return living_first(views, after)[: max(0, limit)]


def _view(known: Registration, held: list[UUID]) -> WorkerView:
    return WorkerView(
        worker=known.worker,
        registered_at=known.registered_at,
        heartbeat_at=known.heartbeat_at,
        offline_at=known.offline_at,
        disabled_at=known.disabled_at,
        disabled_by=known.disabled_by,
        draining_at=known.draining_at,
        running=len(held),
        jobs=tuple(held[:JOBS_SHOWN]),
        counters=known.counters,
    )
