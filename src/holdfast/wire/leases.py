"""Leases on the wire: claiming, holding, reporting, settling."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec

from holdfast.core.figures import BUCKETS, Figure
from holdfast.core.job import BlockerPolicy, NewJob, Policy
from holdfast.core.lease import Claimed, Extended, Hold, Lease, Taken
from holdfast.core.numbers import check_number
from holdfast.core.settle import Write
from holdfast.core.states import HOLDER_EVENTS, STAGE_EVENTS, TRANSITIONS, Event, State
from holdfast.core.text import checked_name
from holdfast.errors import CENTURY, BadJob
from holdfast.store.port import Checkpoint, LogLine, PartState, Progress, Settled, Settlement, StageMark
from holdfast.wire.jobs import Failure, JobSpec, LeaseRef, PartInfo, RetryRules, error_of
from holdfast.wire.values import (
    NOTHING,
    Json,
    checked_time,
    ms,
    ms_or_none,
    seconds,
    seconds_or_none,
    sent,
    sent_or_unset,
    shown,
    text_of,
    text_or_empty,
    text_or_none,
)

MOST_AT_ONCE: Final = 1000
"""Jobs that one claim may take, and leases that one request may name."""
MOST_FIGURES: Final = 10_000

SettleEvent = Literal[
    "succeeded",
    "continued",
    "suspended",
    "failed",
    "canceled",
    "retried",
    "retried:later",
    "rescheduled",
    "rescheduled:later",
    "released",
    "aborted:shutdown",
]
"""How a holder may end an attempt. What the reaper writes is not among it."""
StageEvent = Literal["stage:entered", "stage:left", "stage:failed"]
SETTLE_EVENTS: Final = frozenset(
    event for event in HOLDER_EVENTS if TRANSITIONS[State.RUNNING, event] is not State.RUNNING and event not in STAGE_EVENTS
)
"""The same as `SettleEvent`, as the table says it."""


class ClaimBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker asks for. Without `queues`: of every queue that its key may work on."""

    tasks: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10_000)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_AT_ONCE)] = 1
    queues: Annotated[list[str], msgspec.Meta(max_length=10_000)] | None = None
    capabilities: Annotated[list[str], msgspec.Meta(max_length=1_000)] | None = None
    """What it has for this claim: of what it was registered with, which is meant where nothing is said."""
    idle: Annotated[list[str], msgspec.Meta(max_length=1_000)] | None = None
    """What others have that could do more, as a heartbeat told it; where nothing is said, the server sees to that."""
    wait_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """How long to wait for a job where there is none; the server has a limit of its own."""
    look: bool = True
    hurry: bool = False
    first: str | None = None
    retries_first: bool = False


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job handed to a worker, with its lease."""

    job_id: UUID
    token: UUID
    attempt: int
    failures: int
    task: str
    queue: str
    priority: int
    args: msgspec.Raw
    lease_ms: float
    timeout_ms: float | None
    retry: RetryRules
    created_at: datetime
    claimed_at: datetime
    expires_at: datetime
    on_blocker_failure: BlockerPolicy = BlockerPolicy.FAIL
    chain_id: UUID | None = None
    trace: str | None = None
    overdue: bool = False
    """It waited past its time: to be ended unrun."""
    blockers: int = 0
    """How many chains it waited for."""
    ready_at: datetime | None = None
    """Since when it was ready; null: since it was created."""
    limited: bool = False
    """It counts for a limit."""
    cost: float = 1.0

    @classmethod
    def of(cls, claimed: Claimed) -> ClaimedJob:
        """Return a claimed job for the wire."""
        return cls(
            args=shown(claimed.args),
            lease_ms=ms(claimed.lease_seconds),
            timeout_ms=ms_or_none(claimed.policy.timeout),
            retry=RetryRules.of(claimed.policy.retry),
            on_blocker_failure=claimed.policy.on_blocker_failure,
            cost=claimed.policy.cost,
            **{name: getattr(claimed, name) for name in _SAME},
        )

    def claimed(self) -> Claimed:
        """Return the claimed job."""
        return Claimed(
            args=text_of(self.args, "args"),
            lease_seconds=seconds(self.lease_ms),
            policy=Policy(self.retry.retry(), seconds_or_none(self.timeout_ms), self.on_blocker_failure, self.cost),
            **{name: getattr(self, name) for name in _SAME},
        )


_SAME: Final = tuple(name for name in Claimed.__struct_fields__ if name not in {"args", "lease_seconds", "policy"})


class ClaimAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The jobs that were claimed, in the order to run them."""

    jobs: list[ClaimedJob]
    again_ms: float | None = None
    """In how long it is worth asking again, where a limit alone holds jobs back."""
    weights: dict[str, float] = {}
    """What people have set for the turns of queues, against others of the same worker."""

    @classmethod
    def of(cls, taken: Taken) -> ClaimAnswer:
        """Return the answer to a claim for the wire."""
        return cls([ClaimedJob.of(one) for one in taken], ms_or_none(taken.again), dict(taken.weights or {}))

    def taken(self) -> Taken:
        """Return what the claim brought."""
        taken = Taken(one.claimed() for one in self.jobs)
        taken.again = seconds_or_none(self.again_ms)
        taken.weights = self.weights
        return taken


class LeasesAnswer(msgspec.Struct, frozen=True):
    """Leases that a worker holds."""

    leases: list[LeaseRef]


Leases = Annotated[list[LeaseRef], msgspec.Meta(max_length=MOST_AT_ONCE)]


class LeasesRequest(msgspec.Struct, frozen=True):
    """Leases, at most a thousand."""

    leases: Leases


class LeaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a lease that its holder extended: `held` until `expires_at`, or lost and why."""

    job_id: UUID
    hold: Hold
    expires_at: datetime | None = None
    cancel_requested: bool = False

    @classmethod
    def of(cls, lease: Lease, extended: Extended) -> LeaseState:
        """Return an extension for the wire."""
        return cls(
            job_id=lease.job_id,
            hold=extended.hold,
            expires_at=extended.expires_at,
            cancel_requested=extended.cancel_requested,
        )

    def extended(self) -> Extended:
        """Return the extension."""
        return Extended(self.hold, self.expires_at, self.cancel_requested)


class ExtendAnswer(msgspec.Struct, frozen=True):
    """What became of each lease, in the order of the request."""

    leases: list[LeaseState]


class Answers(msgspec.Struct, frozen=True):
    """What became of each write, in the order of the request."""

    answers: list[Settled]


# --- reports --------------------------------------------------------------------------------------------------------------


class ProgressItem(LeaseRef, frozen=True, omit_defaults=True):
    """How far a job is, 0-100, and what it does."""

    percent: float
    step: str = ""
    message: str = ""

    def progress(self) -> Progress:
        """Return the report."""
        return Progress(lease_of(self), self.percent, self.step, self.message)


class ProgressRequest(msgspec.Struct, frozen=True):
    """Progress of several jobs."""

    items: Annotated[list[ProgressItem], msgspec.Meta(max_length=MOST_AT_ONCE)]


class CheckpointItem(LeaseRef, frozen=True):
    """A part of a job that is to be stored."""

    part: PartInfo

    def checkpoint(self) -> Checkpoint:
        """Return the report."""
        return Checkpoint(lease_of(self), self.part.part())


class CheckpointRequest(msgspec.Struct, frozen=True):
    """Parts of several jobs."""

    items: Annotated[list[CheckpointItem], msgspec.Meta(max_length=MOST_AT_ONCE)]


class LogItem(LeaseRef, frozen=True, kw_only=True, omit_defaults=True):
    """A line for the log of a job, written `age_ms` ago."""

    message: str
    level: str = "info"
    logger: str = ""
    fields: Json = NOTHING
    age_ms: float = 0.0
    id: UUID | None = None
    """A name of its writer's own making: sent again by it, a line is there once."""

    @classmethod
    def of(cls, line: LogLine) -> LogItem:
        """Return a line for the wire."""
        return cls(
            job_id=line.lease.job_id,
            token=line.lease.token,
            message=line.message,
            level=line.level,
            logger=line.logger,
            fields=sent(line.fields, "log.fields"),
            age_ms=ms(line.age),
            id=line.id,
        )

    def line(self) -> LogLine:
        """Return the report."""
        return LogLine(
            lease=lease_of(self),
            message=self.message,
            level=self.level,
            logger=self.logger,
            fields=text_or_empty(self.fields, "fields"),
            age=seconds(self.age_ms),
            id=self.id,
        )


class LogRequest(msgspec.Struct, frozen=True):
    """Lines for the logs of several jobs."""

    items: Annotated[list[LogItem], msgspec.Meta(max_length=MOST_AT_ONCE)]


class MarkItem(LeaseRef, frozen=True, kw_only=True, omit_defaults=True):
    """A stage that a job entered or left `age_ms` ago."""

    name: str
    event: StageEvent
    age_ms: float = 0.0

    @classmethod
    def of(cls, mark: StageMark) -> MarkItem:
        """Return a stage for the wire."""
        return cls(
            job_id=mark.lease.job_id,
            token=mark.lease.token,
            name=mark.name,
            event=mark.event.value,  # type: ignore[arg-type]  # one of a stage, as it was checked
            age_ms=ms(mark.age),
        )

    def mark(self) -> StageMark:
        """Return the report."""
        return StageMark(lease=lease_of(self), name=self.name, event=Event(self.event), age=seconds(self.age_ms))


class MarkRequest(msgspec.Struct, frozen=True):
    """Stages of several jobs."""

    items: Annotated[list[MarkItem], msgspec.Meta(max_length=MOST_AT_ONCE)]


# --- settling -------------------------------------------------------------------------------------------------------------


class SettleItem(LeaseRef, frozen=True, kw_only=True, omit_defaults=True):
    """How an attempt ended, decided by the worker that ran it."""

    event: SettleEvent
    failures: int
    delay_ms: float = 0.0
    run_at: datetime | None = None
    result: Json = NOTHING
    error: Failure | None = None
    front: bool = False
    then: JobSpec | None = None
    signal: str | None = None

    @classmethod
    def of(cls, settlement: Settlement) -> SettleItem:
        """Return a settlement for the wire."""
        write = settlement.write
        if write.event not in SETTLE_EVENTS:
            raise BadJob(f"{write.event} is not how a holder ends an attempt", path="write.event")
        return cls(
            job_id=settlement.lease.job_id,
            token=settlement.lease.token,
            event=write.event.value,  # type: ignore[arg-type]  # one of them, as was just looked
            failures=write.failures,
            delay_ms=ms(write.delay),
            run_at=write.run_at,
            result=sent_or_unset(write.result, "result"),
            error=Failure.of(write.error),
            front=write.front,
            then=None if settlement.then is None else JobSpec.of(settlement.then),
            signal=settlement.signal,
        )

    def settlement(self) -> Settlement:
        """Return the settlement."""
        write = Write(
            Event(self.event),
            self.failures,
            delay=seconds(self.delay_ms),
            run_at=checked_time(self.run_at, "run_at"),
            result=text_or_none(self.result, "result"),
            error=error_of(self.error),
            front=self.front,
        )
        return Settlement(lease_of(self), write, self._then(), self.signal)

    def _then(self) -> NewJob | None:
        if self.then is None:
            return None
        if self.then.id is None:
            raise BadJob("the next step needs an id: the settlement may have to be repeated", path="then.id")
        job_id = self.then.id
        return self.then.job(lambda: job_id)


class SettleRequest(msgspec.Struct, frozen=True):
    """The ends of several attempts. One transaction."""

    items: Annotated[list[SettleItem], msgspec.Meta(max_length=MOST_AT_ONCE)]


# --- one job at a time, for any language ------------------------------------------------------------------------------------


class TokenBody(msgspec.Struct, frozen=True):
    """The secret of the claim, which every write of the holder shows."""

    token: UUID


class ProgressBody(TokenBody, frozen=True, kw_only=True, omit_defaults=True):
    """How far the job is, 0-100, and what it does."""

    percent: float
    step: str = ""
    message: str = ""


class CheckpointBody(TokenBody, frozen=True, kw_only=True, omit_defaults=True):
    """A named part of the job's work, kept for its next attempt."""

    name: str
    state: PartState = PartState.COMPLETED
    done: float = 0.0
    total: float | None = None
    data: Json = NOTHING
    error: str | None = None


class LogBody(TokenBody, frozen=True, kw_only=True, omit_defaults=True):
    """A line for the job's log."""

    message: str
    level: str = "info"
    fields: Json = NOTHING
    id: UUID | None = None
    """A name of your own making: sent again by it, a line is there once."""


class CompleteBody(TokenBody, frozen=True, kw_only=True, omit_defaults=True):
    """The job is done; `result` is whatever JSON it gave."""

    result: Json = NOTHING


class FailBody(TokenBody, frozen=True, kw_only=True, omit_defaults=True):
    """The attempt failed. The job's retry policy says whether and when there is another, unless it is not retryable."""

    code: Annotated[str, msgspec.Meta(min_length=1)] = "ERROR"
    message: str = ""
    traceback: str = ""
    retryable: bool = True


class ReleaseBody(TokenBody, frozen=True, kw_only=True, omit_defaults=True):
    """The job is given back, at no cost to its budget. Where a cancel was requested, it ends as canceled."""

    reason: str = ""


class Written(msgspec.Struct, frozen=True):
    """A report was written."""

    answer: Settled


class SettledJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt was ended; `state` is where the job stands now."""

    state: State
    repeated: bool
    """An earlier request with the same token had ended it."""
    late: bool
    """The lease had lapsed, and nobody had taken it yet."""
    retry_in_ms: float | None = None
    """How long it rests until its next attempt."""


class SettledAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the holder of this token has ended the attempt, and how."""

    settled: bool
    event: Event | None = None


# --- figures --------------------------------------------------------------------------------------------------------------


class FigureItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How attempts of one task in one queue ended in one way, as they are added up."""

    queue: str
    task: str
    event: Event
    count: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    code: str = ""
    waited_ms: float = 0.0
    ran_ms: float = 0.0
    waits: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=2**53)]], msgspec.Meta(min_length=BUCKETS, max_length=BUCKETS)]
    runs: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=2**53)]], msgspec.Meta(min_length=BUCKETS, max_length=BUCKETS)]

    @classmethod
    def of(cls, figure: Figure) -> FigureItem:
        """Return a figure for the wire."""
        return cls(
            queue=figure.queue,
            task=figure.task,
            event=figure.event,
            count=figure.count,
            code=figure.code,
            waited_ms=ms(figure.waited),
            ran_ms=ms(figure.ran),
            waits=list(figure.waits),
            runs=list(figure.runs),
        )

    def figure(self) -> Figure:
        """Return the figure."""
        if self.code:
            checked_name(self.code, "figure.code")
        for field in ("waited_ms", "ran_ms"):
            check_number(getattr(self, field), f"figure.{field}", least=0.0, most=CENTURY * 1000.0 * MOST_FIGURES)
        return Figure(
            queue=checked_name(self.queue, "figure.queue"),
            task=checked_name(self.task, "figure.task"),
            event=self.event,
            count=self.count,
            code=self.code,
            waited=seconds(self.waited_ms),
            ran=seconds(self.ran_ms),
            waits=tuple(self.waits),
            runs=tuple(self.runs),
        )


class FiguresRequest(msgspec.Struct, frozen=True):
    """Figures to be added to those that are there."""

    figures: Annotated[list[FigureItem], msgspec.Meta(max_length=MOST_FIGURES)]


def lease_of(item: LeaseRef) -> Lease:
    """Return the lease that an item names."""
    return Lease(item.job_id, item.token)


def ref_of(lease: Lease) -> LeaseRef:
    """Return a lease for the wire."""
    return LeaseRef(lease.job_id, lease.token)
