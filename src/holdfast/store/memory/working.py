"""What workers do: claim jobs and hold them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.fairness import Head, Share, order
from holdfast.core.lease import Claimed, Extended, Hold, Lease, Taken
from holdfast.core.needs import suits
from holdfast.core.settle import Write
from holdfast.core.states import TERMINAL, Event, State
from holdfast.errors import UnknownWorker
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.limiting import Rooms
from holdfast.store.memory.records import Attempt
from holdfast.store.port import Part, PartState, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.memory.records import Lane, Record
    from holdfast.store.port import Checkpoint, ClaimRequest, Progress

FINISHED_PARTS: Final = frozenset({PartState.COMPLETED, PartState.FAILED, PartState.SKIPPED})


class Working(Handle):
    """What the port says about claiming and holding."""

    # claiming

    async def claim(self, request: ClaimRequest) -> Taken:
        """Take ready jobs and receive leases."""
        if request.worker not in self.data.workers:
            raise UnknownWorker(f"worker {request.worker} is not registered with this store: register it before it claims")
        if request.limit <= 0 or self.data.workers[request.worker].disabled_at is not None:
            return Taken()
        now, turn, taken = self.environment.now(), self.turn, Taken()
        self.turn += 1
        rooms = Rooms(self.data, now)
        taken.weights = rooms.weights(request.queues)
        ordered = order(self._heads(request), turn, first=request.first, retries_first=request.retries_first)
        shares = self.shares.spread(ordered, request.limit, turn, retries_first=request.retries_first)
        for head, quota in (*shares, *(Share(head, request.limit) for head, _ in shares if head.weight is not None)):
            lane, most = self.data.lanes[head.lane], min(request.limit, len(taken) + quota)
            before = len(taken)
            while len(taken) < most and (record := self._claimable(lane, request)) is not None:
                if (limited := self._admit(record, rooms, taken)) is None:
                    break
                taken.append(self._claim_one(record, request.worker, now, limited=limited))
            self.shares.took(head.lane, len(taken) - before, request.limit)
        rooms.keep()
        return taken

    def _admit(self, record: Record, rooms: Rooms, taken: Taken) -> bool | None:
        """Count a job for its limits, and tell whether it has any; `None`: one of them holds it back."""
        over, cost = rooms.over(record.job), record.job.policy.cost
        waits = [room.again(cost) for room in over if not room.admits(cost)]
        if waits:
            taken.held_back(max(waits))
            return None
        for room in over:
            room.take(cost)
        return bool(over)

    def _heads(self, request: ClaimRequest) -> list[Head]:
        found = []
        for number, lane in self.data.lanes.items():
            if lane.queue in self.data.pauses:
                continue
            if request.queues is not None and lane.queue not in request.queues:
                continue
            record = self._claimable(lane, request)
            if record is not None and record.ready_at is not None and self._suits(lane, record.ready_at, request):
                head = Head(number, lane.priority, record.ready_at, lane.queue, lane.retries, self._weight(lane))
                found.append((record.place, head))
        # jobs of one enqueue are ready at the same moment: among those the place decides, for `order` keeps ties as they are
        return [head for _, head in sorted(found, key=lambda pair: pair[0][1])]

    def _weight(self, lane: Lane) -> float | None:
        if (key := lane.needs.limit) is None:
            return None
        known = self.data.limits.get(key.name)
        chosen = None if known is None or known.override is None else known.override.weight
        return key.weight if chosen is None else chosen

    def _suits(self, lane: Lane, ready_at: datetime, request: ClaimRequest) -> bool:
        waited = (self.environment.now() - ready_at).total_seconds()
        return suits(lane.needs, request.capabilities, request.idle, waited)

    def _claimable(self, lane: Lane, request: ClaimRequest) -> Record | None:
        """Return the head of a lane if this worker knows its task.

        A `fifo` lane holds several tasks and nothing may pass its head, so looking at the head alone is right there too.
        """
        record = self.data.head(lane)
        return record if record is not None and record.job.task in request.tasks else None

    def _claim_one(self, record: Record, worker: UUID, now: datetime, *, limited: bool) -> Claimed:
        job = record.job
        expires_at = now + timedelta(seconds=job.lease)
        lease = Attempt(worker, self.environment.token(), claimed_at=now, expires_at=expires_at, heartbeat_at=now)
        write, ready_at = Write(Event.CLAIM, record.failures), record.ready_at
        self.data.move(record, write, now, actor=self.worker_name(worker) or "", claim=lease)
        return Claimed(
            job_id=job.id,
            token=lease.token,
            attempt=record.attempt,
            failures=record.failures,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            args=job.args,
            policy=job.policy,
            lease_seconds=job.lease,
            created_at=record.created_at,
            claimed_at=now,
            expires_at=expires_at,
            chain_id=record.chain_id,
            trace=job.trace,
            overdue=record.overdue(now),
            blockers=len(record.blockers),
            ready_at=None if ready_at == record.created_at else ready_at,
            limited=limited,
        )

    # holding

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease this worker holds."""
        running = self.data.by_state[State.RUNNING]
        leases = [(job_id, record.lease) for job_id, record in sorted(running.items())]
        return [Lease(job_id, lease.token) for job_id, lease in leases if lease is not None and lease.worker == worker]

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases by their own length from now."""
        now = self.environment.now()
        return [self._extend_one(lease, now) for lease in leases]

    def _extend_one(self, lease: Lease, now: datetime) -> Extended:
        if (held := self.data.held(lease)) is not None:
            record, attempt = held
            self._touch(record, attempt, Event.EXTEND, now)
            return Extended(Hold.HELD, attempt.expires_at, attempt.cancel_requested)
        lost = self.data.jobs.get(lease.job_id)
        if lost is None:
            return Extended(Hold.GONE)
        if lost.state is State.RUNNING:
            return Extended(Hold.TAKEN)
        return Extended(Hold.ENDED if lost.state in TERMINAL else Hold.RETURNED)

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress and extend the leases."""
        now, answers = self.environment.now(), []
        for update in updates:
            answers.append(answer := self._write(update.lease, Event.PROGRESS, now))
            if answer.accepted:
                record = self.data.jobs[update.lease.job_id]
                record.progress, record.step, record.message = update.percent, update.step, update.message
        return answers

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts of jobs and extend the leases."""
        now, answers = self.environment.now(), []
        for one in checkpoints:
            answers.append(answer := self._write(one.lease, Event.CHECKPOINT, now))
            if answer.accepted:
                parts = self.data.jobs[one.lease.job_id].parts
                parts[one.part.name] = _dated(one.part, parts.get(one.part.name), now)
        return answers

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job in the order they were first written."""
        record = self.data.jobs.get(job_id)
        return [] if record is None else list(record.parts.values())

    def _write(self, lease: Lease, event: Event, now: datetime) -> Settled:
        """Let the holder of a lease do what leaves the job running; that extends the lease."""
        if (held := self.data.held(lease)) is None:
            return Settled.STALE
        record, attempt = held
        late = attempt.lapsed(now)
        self._touch(record, attempt, event, now)
        return Settled.LATE if late else Settled.APPLIED

    def _touch(self, record: Record, attempt: Attempt, event: Event, now: datetime) -> None:
        if self.data.move(record, Write(event, record.failures), now):
            attempt.heartbeat_at = now
            attempt.expires_at = now + timedelta(seconds=record.job.lease)

    # shutting down

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault."""
        now, answers = self.environment.now(), []
        for lease in leases:
            if (held := self.data.held(lease)) is None:
                answers.append(Settled.STALE)
                continue
            _, attempt = held
            attempt.free = True
            answers.append(Settled.LATE if attempt.lapsed(now) else Settled.APPLIED)
        return answers


def _dated(part: Part, before: Part | None, now: datetime) -> Part:
    """Return a part with its times: what the caller gave for them does not count."""
    started_at = None if before is None else before.started_at
    if started_at is None and part.state is not PartState.PENDING:
        started_at = now
    completed_at = now if part.state in FINISHED_PARTS else None
    if before is not None and before.state is part.state:
        completed_at = before.completed_at  # written again, not completed again
    return msgspec.structs.replace(part, started_at=started_at, completed_at=completed_at)
