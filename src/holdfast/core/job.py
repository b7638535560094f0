"""A job as it is asked for: everything about it that never changes afterwards."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

from holdfast.core.limits import LimitKey, check_cost
from holdfast.core.needs import SOFT, limit_text, needs_text
from holdfast.core.numbers import check_seconds
from holdfast.core.retry import Retry
from holdfast.core.text import checked_name, flaw
from holdfast.errors import BadJob

DEFAULT_QUEUE: Final = "default"
DEFAULT_PRIORITY: Final = 5
HIGHEST_PRIORITY: Final = 9
DEFAULT_LEASE: Final = 60.0
DEFAULT_TIMEOUT: Final = 1800.0
SHORTEST_LEASE: Final = 0.001
DEFAULT_PREFER_FOR: Final = 60.0
FUTURE_YEARS: Final = 9000


class OnConflict(StrEnum):
    """What an enqueue does when its unique key is taken."""

    SKIP = "skip"
    """Keep the job that is there."""
    REPLACE = "replace"
    """Cancel a waiting holder and take its key, due no later than it was. A running holder stays."""
    DEBOUNCE = "debounce"
    """Cancel a waiting holder and take its key, due when the new job says. A running holder stays."""


class BlockerPolicy(StrEnum):
    """What becomes of a blocked job when a chain it waits for fails or is canceled."""

    FAIL = "fail"
    CANCEL = "cancel"
    RUN = "run"


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """A unique key. At most one job holds (`scope`, `key`) at a time.

    Without `window` the key is held while the job is live; with it, for that many seconds from the enqueue, also when the
    job has ended (but not when it is deleted or pruned). `scope` is the task's name unless something wider is wanted.
    """

    key: str
    scope: str
    window: float | None = None
    on_conflict: OnConflict = OnConflict.SKIP


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """What is decided about every attempt when the job is enqueued, so that any worker may act on it."""

    retry: Retry = Retry()
    timeout: float | None = DEFAULT_TIMEOUT
    on_blocker_failure: BlockerPolicy = BlockerPolicy.FAIL
    cost: float = 1.0
    """How much of a limit's rate one attempt takes."""

    def __post_init__(self) -> None:
        """Refuse a time-out or a cost that is none."""
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout", least=SHORTEST_LEASE)
        if self.cost != 1.0:
            check_cost(self.cost)


DEFAULT_POLICY: Final = Policy()


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued. Checked when it is made, so that every store refuses the same things.

    `id` is made by the client (UUIDv7): repeating an enqueue whose outcome is unknown is safe. `args` is JSON text from
    the codec. `delay` counts from the store's now; `run_at` is absolute, and a past one means now. `after` names the
    chains (by their first job) that must end first. A job that still waits `expires_in` seconds after its enqueue is
    ended as canceled. Jobs with the same `limit` key share its limits, and wait in a lane of their own; not in a `fifo`
    queue, where nothing passes another. `chain_id` is `None`, or its own id: then it is the first step of a chain. Which chain
    a later step belongs to is written by the store, when the step before it continues.
    """

    id: UUID
    task: str
    queue: str = DEFAULT_QUEUE
    args: str = "{}"
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    run_at: datetime | None = None
    lease: float = DEFAULT_LEASE
    policy: Policy = DEFAULT_POLICY
    unique: Unique | None = None
    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    prefer_for: float = DEFAULT_PREFER_FOR
    fifo: bool = False
    chain_id: UUID | None = None
    after: tuple[UUID, ...] = ()
    tags: tuple[str, ...] = ()
    trace: str | None = None
    expires_in: float | None = None
    limit: LimitKey | None = None

    def __post_init__(self) -> None:
        """Refuse what no store could keep, naming the field."""
        if self.id.version != 7:  # noqa: PLR2004  ids are ordered by time: lists and pruning rely on it
            raise BadJob(f"must be a UUIDv7, {self.id} is of version {self.id.version}", path="id")
        if (self.queue, self.task) not in _GOOD_NAMES:
            checked_name(self.queue, "queue")
            checked_name(self.task, "task")
            if len(_GOOD_NAMES) < 10_000:  # noqa: PLR2004  a bound, so that hostile names cannot fill the memory
                _GOOD_NAMES.add((self.queue, self.task))
        if type(self.priority) is not int or not 0 <= self.priority <= HIGHEST_PRIORITY:
            raise BadJob(f"must be a whole number from 0 to {HIGHEST_PRIORITY}, not {self.priority}", path="priority")
        if (reason := flaw(self.args)) is not None:
            raise BadJob(reason, path="args")
        if self.delay:
            check_seconds(self.delay, "delay", least=0.0)
        if self.lease != DEFAULT_LEASE:
            check_seconds(self.lease, "lease", least=SHORTEST_LEASE)
        if self.run_at is not None:
            self._check_run_at(self.run_at)
        if self.unique is not None:
            _check_unique(self.unique)
        if self.expires_in is not None:
            check_seconds(self.expires_in, "expires_in", least=SHORTEST_LEASE)
        for field in ("requires", "prefers", "tags"):
            for index, name in enumerate(getattr(self, field)):
                checked_name(name, f"{field}[{index}]")
        if self.requires or self.prefers:
            self._check_needs()
        if self.limit is not None:
            self._check_limit(self.limit)
        if self.after:
            self._check_after()
        if self.chain_id not in (None, self.id):
            raise BadJob("a chain is known by its first job: give the job's own id, or none", path="chain_id")
        if self.trace is not None and (reason := flaw(self.trace)) is not None:
            raise BadJob(reason, path="trace")

    def like(self, job_id: UUID, args: str) -> NewJob:
        """Return another job like this one, with an id and args that are not checked: the caller has made both himself.

        Making one of its fields again checks them all again, which is most of what a call in a batch would cost.
        """
        job: NewJob = self.__copy__()  # type: ignore[attr-defined]  # msgspec's own; its stubs lack it
        force_setattr(job, "id", job_id)
        force_setattr(job, "args", args)
        return job

    def _check_after(self) -> None:
        for index, blocker in enumerate(self.after):
            if blocker == self.id:
                raise BadJob(f"a job cannot wait for itself, {blocker}", path=f"after[{index}]")
        if len(set(self.after)) != len(self.after):
            index, twice = next((index, one) for index, one in enumerate(self.after) if one in self.after[:index])
            raise BadJob(f"a job waits for each chain once, and {twice} is named twice", path=f"after[{index}]")

    def _check_run_at(self, run_at: datetime) -> None:
        if not isinstance(run_at, datetime):
            raise BadJob(f"must be a datetime, not {type(run_at).__name__}", path="run_at")
        if self.delay:
            raise BadJob("give delay or run_at, not both", path="run_at")
        if run_at.tzinfo is None:
            raise BadJob("must have a time zone: use datetime.now(UTC) or .astimezone()", path="run_at")
        if run_at.year > FUTURE_YEARS:
            raise BadJob(f"the year {run_at.year} is too far away", path="run_at")

    def _check_needs(self) -> None:
        for field in ("requires", "prefers"):
            if any(SOFT in name for name in getattr(self, field)):
                raise BadJob("a capability has no record separator in its name", path=field)
        if both := set(self.requires) & set(self.prefers):
            raise BadJob(f"what is required need not be preferred: {min(both)}", path="prefers")
        check_seconds(self.prefer_for, "prefer_for", least=0.0)

    def _check_limit(self, limit: LimitKey) -> None:
        if self.fifo:
            reason = f"queue {self.queue!r} keeps one order for all (fifo), and a key would have to be passed: limit the queue"
            raise BadJob(reason, path="limit", task=self.task)
        if SOFT in limit.scope or SOFT in limit.key:
            raise BadJob("has a record separator in its name", path="limit.scope" if SOFT in limit.scope else "limit.key")

    @property
    def needs(self) -> tuple[str, ...]:
        """What it requires and prefers, as it is kept and ordered by."""
        return needs_text(self.requires, self.prefers, self.prefer_for) if self.prefers else self.requires

    @property
    def lane(self) -> int:
        """The lane that orders and counts this job."""
        return lane_id(self.queue, self.task, self.priority, self.needs)

    @property
    def entry(self) -> int:
        """The lane it is claimed from: its own, the one its `fifo` queue shares among tasks, or that of its limit's key."""
        if self.fifo:
            return lane_id(self.queue, "", self.priority, self.needs)
        if self.limit is None:
            return self.lane
        return lane_id(self.queue, self.task, self.priority, self.entry_needs) | OF_KEY

    @property
    def entry_needs(self) -> tuple[str, ...]:
        """What the lane that it is claimed from is told apart by: what it needs, and the key of its limit."""
        return self.needs if self.limit is None else (*self.needs, limit_text(self.limit))

    @property
    def retry_entry(self) -> int:
        """The lane it is claimed from once it has failed."""
        return line_of(self.lane, self.entry, failures=1)


@lru_cache(maxsize=10_000)
def lane_id(queue: str, task: str, priority: int, needs: tuple[str, ...]) -> int:
    """Return the number of a lane, a multiple of 4 below 2**63, the same on every client without asking anyone.

    A number handed out by the database would make the first enqueue of a lane wait for every open transaction that
    also uses it first. The negative of a lane is its front: where released jobs go. The odd number above it is where
    its retries wait, so that a share of the claims can be kept for them. That of a limit's key has `OF_KEY` set.
    """
    parts = (queue, task, str(priority), *sorted(needs))
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 3 << 2) or 4


OF_KEY: Final = 2
"""The bit by which the lane of a limit's key is told from one that a `fifo` queue shares among tasks."""
RETRIES: Final = 1
"""The bit by which the retries of a lane are told from the lane."""


def line_of(lane: int, entry: int, failures: int) -> int:
    """Return where a job lines up: where it is claimed from, or with the retries beside that once it has failed.

    A `fifo` queue keeps one order for all.
    """
    return entry | RETRIES if failures and (entry == lane or entry & OF_KEY) else entry


_GOOD_NAMES: set[tuple[str, str]] = set()
"""(queue, task) pairs already checked: a producer enqueues millions of jobs with a handful of them."""


def _check_unique(unique: Unique) -> None:
    checked_name(unique.key, "unique.key")
    checked_name(unique.scope, "unique.scope")
    if unique.window is not None:
        check_seconds(unique.window, "unique.window", least=SHORTEST_LEASE)


_encoder = msgspec.json.Encoder()
_policy_decoder = msgspec.json.Decoder(Policy)


@lru_cache(maxsize=1000)
def policy_text(policy: Policy) -> str | None:
    """Return the stored form of a policy; the default one takes no room."""
    if policy == DEFAULT_POLICY:
        return None
    usual = policy.cost == DEFAULT_POLICY.cost
    return _encoder.encode((policy.retry, policy.timeout, policy.on_blocker_failure) if usual else policy).decode()


@lru_cache(maxsize=1000)
def policy_of(text: str | None) -> Policy:
    """Return the policy that `policy_text` wrote."""
    return DEFAULT_POLICY if text is None else _policy_decoder.decode(text)
