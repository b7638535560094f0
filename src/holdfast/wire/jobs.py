"""Jobs on the wire: as they are asked for, and as they are shown."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import msgspec

from holdfast.core.job import (
    DEFAULT_LEASE,
    DEFAULT_PREFER_FOR,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT,
    BlockerPolicy,
    NewJob,
    OnConflict,
    Policy,
    Unique,
)
from holdfast.core.limits import LimitKey
from holdfast.core.outcome import Error
from holdfast.core.retry import Retry
from holdfast.core.states import State
from holdfast.store.port import Answer, BlockerView, ChainView, Enqueue, Enqueued, JobView, Part, PartState
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
    shown_or_unset,
    text_of,
    text_or_empty,
    text_or_none,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_IDS: Final = 1000
"""Jobs that one request may name."""
Ids = Annotated[list[UUID], msgspec.Meta(min_length=1, max_length=MOST_IDS)]


class RetryRules(msgspec.Struct, frozen=True):
    """How often a job may fail (`max_attempts`, null: endlessly), and how long it rests in between."""

    max_attempts: int | None = 3
    initial_ms: float = 10_000.0
    factor: float = 2.0
    max_ms: float = 300_000.0
    jitter: float = 0.1

    @classmethod
    def of(cls, retry: Retry) -> RetryRules:
        """Return a retry policy for the wire."""
        return cls(retry.max_attempts, ms(retry.initial), retry.factor, ms(retry.max), retry.jitter)

    def retry(self) -> Retry:
        """Return the retry policy."""
        return Retry(self.max_attempts, seconds(self.initial_ms), self.factor, seconds(self.max_ms), self.jitter)


class UniqueKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A unique key with all that can be said of it. The scope is the task unless another is named."""

    key: str
    scope: str | None = None
    window_ms: float | None = None
    on_conflict: OnConflict = OnConflict.SKIP


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job to be enqueued. With an `id` (UUIDv7) of the client's own, the request may be repeated."""

    task: str
    id: UUID | None = None
    queue: str = DEFAULT_QUEUE
    args: Json = NOTHING
    """`{}` where nothing is said."""
    priority: int = DEFAULT_PRIORITY
    delay_ms: float = 0.0
    run_at: datetime | None = None
    lease_ms: float = DEFAULT_LEASE * 1000
    timeout_ms: float | None = DEFAULT_TIMEOUT * 1000
    retry: RetryRules = RetryRules()
    on_blocker_failure: BlockerPolicy = BlockerPolicy.FAIL
    key: str | UniqueKey | None = None
    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    prefer_for_ms: float = DEFAULT_PREFER_FOR * 1000
    """How long it is left to idle workers that have what it prefers."""
    fifo: bool = False
    chain: bool = False
    """Whether it is the first step of a chain."""
    after: tuple[UUID, ...] = ()
    tags: tuple[str, ...] = ()
    trace: str | None = None
    expires_in_ms: float | None = None
    limit: LimitKey | None = None
    """The key that it shares a limit by, and how much its turn weighs among others."""
    cost: float = 1.0
    """How much of a limit's rate it takes."""

    @classmethod
    def of(cls, job: NewJob) -> JobSpec:
        """Return a job for the wire."""
        unique = job.unique
        return cls(
            task=job.task,
            id=job.id,
            queue=job.queue,
            args=sent(job.args, "args"),
            priority=job.priority,
            delay_ms=ms(job.delay),
            run_at=job.run_at,
            lease_ms=ms(job.lease),
            timeout_ms=ms_or_none(job.policy.timeout),
            retry=RetryRules.of(job.policy.retry),
            on_blocker_failure=job.policy.on_blocker_failure,
            key=None if unique is None else UniqueKey(unique.key, unique.scope, ms_or_none(unique.window), unique.on_conflict),
            requires=job.requires,
            prefers=job.prefers,
            prefer_for_ms=ms(job.prefer_for),
            fifo=job.fifo,
            chain=job.chain_id is not None,
            after=job.after,
            tags=job.tags,
            trace=job.trace,
            expires_in_ms=ms_or_none(job.expires_in),
            limit=job.limit,
            cost=job.policy.cost,
        )

    def job(self, make_id: Callable[[], UUID]) -> NewJob:
        """Return the job; `make_id` gives it an id where the client made none."""
        job_id = make_id() if self.id is None else self.id
        return NewJob(
            id=job_id,
            task=self.task,
            queue=self.queue,
            args=text_or_empty(self.args, "args"),
            priority=self.priority,
            delay=seconds(self.delay_ms),
            run_at=checked_time(self.run_at, "run_at"),
            lease=seconds(self.lease_ms),
            policy=Policy(self.retry.retry(), seconds_or_none(self.timeout_ms), self.on_blocker_failure, self.cost),
            unique=self._unique(),
            requires=self.requires,
            prefers=self.prefers,
            prefer_for=seconds(self.prefer_for_ms),
            fifo=self.fifo,
            chain_id=job_id if self.chain else None,
            after=self.after,
            tags=self.tags,
            trace=self.trace,
            expires_in=seconds_or_none(self.expires_in_ms),
            limit=self.limit,
        )

    def _unique(self) -> Unique | None:
        if self.key is None:
            return None
        given = UniqueKey(self.key) if isinstance(self.key, str) else self.key
        scope = self.task if given.scope is None else given.scope
        return Unique(key=given.key, scope=scope, window=seconds_or_none(given.window_ms), on_conflict=given.on_conflict)


class LeaseRef(msgspec.Struct, frozen=True):
    """A lease: the job, and the secret of its claim."""

    job_id: UUID
    token: UUID


class EnqueueRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs to be enqueued, all or none."""

    jobs: Annotated[list[JobSpec], msgspec.Meta(min_length=1, max_length=10_000)]
    under: LeaseRef | None = None
    """Only while this lease is held: children of a running job."""
    caps: dict[str, Annotated[int, msgspec.Meta(ge=0, le=2**31)]] = {}
    """How many waiting jobs a queue may hold."""


class EnqueuedJob(msgspec.Struct, frozen=True):
    """What became of a job: `job_id` is the one that now stands for it."""

    status: Enqueue
    job_id: UUID

    def enqueued(self) -> Enqueued:
        """Return the answer of the port."""
        return Enqueued(self.status, self.job_id)


class EnqueueAnswer(msgspec.Struct, frozen=True):
    """What became of each job, in the order of the request."""

    jobs: list[EnqueuedJob]


class IdsRequest(msgspec.Struct, frozen=True):
    """Several jobs or chains by their ids."""

    ids: Ids


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt did not succeed."""

    code: str
    message: str = ""
    traceback: str = ""

    @classmethod
    def of(cls, error: Error | None) -> Failure | None:
        """Return an error for the wire."""
        return None if error is None else cls(error.code, error.message, error.traceback)

    def error(self) -> Error:
        """Return the error."""
        return Error(self.code, self.message, self.traceback)


def error_of(failure: Failure | None) -> Error | None:
    """Return the error that the wire tells of, where it does."""
    return None if failure is None else failure.error()


class JobInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it stands."""

    id: UUID
    task: str
    queue: str
    priority: int
    state: State
    shown: str
    """The finer state for people: retrying, paused, throttled, expired, …"""
    args: msgspec.Raw
    attempt: int
    failures: int
    created_at: datetime
    lease_ms: float
    timeout_ms: float | None
    retry: RetryRules
    on_blocker_failure: BlockerPolicy = BlockerPolicy.FAIL
    run_at: datetime | None = None
    ready_at: datetime | None = None
    start_by: datetime | None = None
    key: str | None = None
    scope: str | None = None
    tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    prefers_ms: dict[str, float] = {}
    """What it prefers, and for how long it is left to idle workers that have it."""
    limit: LimitKey | None = None
    """The key that it shares a limit by."""
    cost: float = 1.0
    """How much of a limit's rate it takes."""
    fifo: bool = False
    chain_id: UUID | None = None
    trace: str | None = None
    continued_by: UUID | None = None
    after: tuple[UUID, ...] = ()
    waits_for: tuple[UUID, ...] = ()
    worker_id: UUID | None = None
    worker_name: str | None = None
    claimed_at: datetime | None = None
    expires_at: datetime | None = None
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None
    late: bool = False
    cancel_requested: bool = False
    result: Json = NOTHING
    error: Failure | None = None
    progress: float | None = None
    step: str = ""
    message: str = ""
    paused: bool = False
    lapsed: bool = False
    throttled: bool = False
    """A limit over it is used up."""

    @classmethod
    def of(cls, view: JobView) -> JobInfo:
        """Return a view for the wire."""
        return cls(
            shown=view.shown,
            args=shown(view.args),
            lease_ms=ms(view.lease_seconds),
            timeout_ms=ms_or_none(view.policy.timeout),
            retry=RetryRules.of(view.policy.retry),
            on_blocker_failure=view.policy.on_blocker_failure,
            cost=view.policy.cost,
            prefers_ms={name: ms(bound) for name, bound in view.prefers.items()},
            result=shown_or_unset(view.result),
            error=Failure.of(view.error),
            **{name: getattr(view, name) for name in _SAME},
        )

    def view(self) -> JobView:
        """Return the view of the port."""
        return JobView(
            args=text_of(self.args, "args"),
            lease_seconds=seconds(self.lease_ms),
            policy=Policy(self.retry.retry(), seconds_or_none(self.timeout_ms), self.on_blocker_failure, self.cost),
            prefers={name: seconds(bound) for name, bound in self.prefers_ms.items()},
            result=text_or_none(self.result, "result"),
            error=error_of(self.error),
            **{name: getattr(self, name) for name in _SAME},
        )


_SAME: Final = tuple(
    name for name in JobView.__struct_fields__ if name not in {"args", "lease_seconds", "policy", "prefers", "result", "error"}
)
"""What a view and its form on the wire have in common."""


class ReasonInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One reason: a stable code, a sentence, and what would change it."""

    code: str
    text: str
    fix: str


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running, the decisive reason first."""

    id: UUID
    state: State
    shown: str
    reasons: list[ReasonInfo]


class JobsAnswer(msgspec.Struct, frozen=True):
    """Jobs in the order of the request; null where there is none."""

    jobs: list[JobInfo | None]


class ChainInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chain as it stands."""

    id: UUID
    task: str
    queue: str
    created_at: datetime
    step: UUID
    step_task: str
    state: State
    key: str | None = None
    tags: tuple[str, ...] = ()
    steps: int = 1
    finished_at: datetime | None = None
    result: Json = NOTHING
    error: Failure | None = None

    @classmethod
    def of(cls, view: ChainView) -> ChainInfo:
        """Return a view for the wire."""
        return cls(
            result=shown_or_unset(view.result),
            error=Failure.of(view.error),
            **{name: getattr(view, name) for name in _SAME_OF_CHAINS},
        )

    def view(self) -> ChainView:
        """Return the view of the port."""
        return ChainView(
            result=text_or_none(self.result, "result"),
            error=error_of(self.error),
            **{name: getattr(self, name) for name in _SAME_OF_CHAINS},
        )


_SAME_OF_CHAINS: Final = tuple(name for name in ChainView.__struct_fields__ if name not in {"result", "error"})


class ChainsAnswer(msgspec.Struct, frozen=True):
    """Chains in the order of the request; null where there is none."""

    chains: list[ChainInfo | None]


class BlockerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chain that a job waited for; its state is null where it was deleted or pruned."""

    chain_id: UUID
    state: State | None
    task: str = ""
    step_task: str = ""
    result: Json = NOTHING
    error: Failure | None = None

    @classmethod
    def of(cls, view: BlockerView) -> BlockerInfo:
        """Return a view for the wire."""
        return cls(
            chain_id=view.chain_id,
            state=view.state,
            task=view.task,
            step_task=view.step_task,
            result=shown_or_unset(view.result),
            error=Failure.of(view.error),
        )

    def view(self) -> BlockerView:
        """Return the view of the port."""
        return BlockerView(
            chain_id=self.chain_id,
            state=self.state,
            task=self.task,
            step_task=self.step_task,
            result=text_or_none(self.result, "result"),
            error=error_of(self.error),
        )


class BlockersAnswer(msgspec.Struct, frozen=True):
    """The chains that a job was to wait for, in the order they were named."""

    blockers: list[BlockerInfo]


class PartInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named part of a job's work. The times are kept by the store."""

    name: str
    state: PartState
    done: float = 0.0
    total: float | None = None
    data: Json = NOTHING
    error: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    @classmethod
    def of(cls, part: Part) -> PartInfo:
        """Return a part as it is stored for the wire."""
        return cls(**{name: getattr(part, name) for name in _SAME_OF_PARTS}, data=shown_or_unset(part.data))

    @classmethod
    def to_write(cls, part: Part) -> PartInfo:
        """Return a part to be stored for the wire."""
        return cls(**{name: getattr(part, name) for name in _SAME_OF_PARTS}, data=sent_or_unset(part.data, "part.data"))

    def part(self) -> Part:
        """Return the part."""
        for field in ("started_at", "completed_at"):
            checked_time(getattr(self, field), f"part.{field}")
        return Part(**{name: getattr(self, name) for name in _SAME_OF_PARTS}, data=text_or_none(self.data, "part.data"))


_SAME_OF_PARTS: Final = tuple(name for name in Part.__struct_fields__ if name != "data")


class PartsAnswer(msgspec.Struct, frozen=True):
    """The parts of a job in the order they were first written."""

    parts: list[PartInfo]


class CancelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job is canceled."""

    reason: str = ""


class CancelManyRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs to be canceled, and why."""

    ids: Ids
    reason: str = ""


class CancelAnswer(msgspec.Struct, frozen=True):
    """`done`: canceled; `requested`: it runs, and its worker has been asked to stop."""

    answer: Answer


class CancelManyAnswer(msgspec.Struct, frozen=True):
    """What became of each cancel, in the order of the request."""

    answers: list[Answer]


class SignalsRequest(msgspec.Struct, frozen=True):
    """Signals by their names."""

    names: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_IDS)]


class SignalsAnswer(msgspec.Struct, frozen=True):
    """Those of the signals that were emitted, with what they carry."""

    signals: dict[str, msgspec.Raw]
