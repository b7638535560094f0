"""One attempt at a job inside a worker, from its claim until its settlement is confirmed."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any, Final

import msgspec

from holdfast.core.abort import LOST, AbortReason
from holdfast.core.lease import Claimed, Lease
from holdfast.core.outcome import TIMEOUT, Error, Failed, Outcome, Released, Stopped
from holdfast.runtime.entry import Entry
from holdfast.tasks.abort import Abort
from holdfast.tasks.context import Job

STOP_GRACE: Final = 5.0
"""Seconds a handler has to stop once it was asked to, before its job is settled without it."""
_STOPPING: Final = frozenset({AbortReason.CANCELED, AbortReason.SHUTDOWN, AbortReason.TIMEOUT})
"""Why a handler may be stopping whose lease is still ours."""


class Commit(Enum):
    """How far a transaction of the handler's own is that ends the attempt, or proves its lease."""

    NONE = "none"
    """None is being committed, and none has ended the attempt."""
    UNDER_WAY = "under way"
    """From before its last statement until the answer to COMMIT is known: nobody else may settle the attempt meanwhile."""
    DONE = "done"
    """The attempt is settled, with everything the handler wrote. What it does afterwards changes nothing."""
    UNKNOWN = "unknown"
    """Whether it was committed could not be learnt: the attempt is left alone, settled already or to be reaped."""


class Attempt(msgspec.Struct, eq=False, gc=False):
    """A claimed job. Changed on the worker's event loop; the heartbeat thread reads it, extends it and sets `abort`.

    Buffered (claimed, no slot yet) -> running -> finished (its outcome is decided) -> confirmed (no longer held). An
    attempt whose lease is lost is dropped at once, even while its handler still runs. One that a transaction of its handler
    has settled stays held, finished, until the handler has ended; there is nothing left to extend or to confirm.

    The garbage collector does not know it: who sets `job` or `runner`, which lead back here, takes them away again.
    """

    claimed: Claimed
    entry: Entry
    lease: Lease
    claimed_at: float
    """When the claim was sent, by the monotonic clock: the lease cannot have begun before."""
    held_from: float
    held_until: float
    """Until when the lease is surely ours, by the monotonic clock."""
    abort: Abort
    next_try: float = 0.0
    """Before then no extension is asked for."""
    lost: bool = False
    """The store said that the lease is gone."""
    started_at: float | None = None
    deadline: float | None = None
    """When its execution time-out strikes; it is not extended beyond."""
    commit: Commit = Commit.NONE
    """Changed on the worker's event loop alone. The heartbeat reads it before it acts on what it hears of the lease."""
    failed: bool = False
    """A transaction of its handler has failed it: that it raises the reason afterwards is no news."""
    runner: asyncio.Task[Any] | None = None
    job: Job | None = None
    finished: bool = False
    """Its outcome is decided: it is no longer to be stopped, but its lease is to be kept."""
    submitted: bool = False
    """Its outcome is with the settler, or its lease is lost: nothing is left to be done with it here."""
    detached: bool = False
    """Settled although its handler still runs: what that gives is of no interest any more."""
    reported: bool = False
    """It has sent reports, which must be written before it is settled."""

    @classmethod
    def of(cls, claimed: Claimed, entry: Entry, asked_at: float) -> Attempt:
        """Return the attempt at a job that a request has claimed which was sent at this time."""
        return cls(claimed, entry, claimed.lease, asked_at, asked_at, asked_at + claimed.lease_seconds, Abort())

    @property
    def context(self) -> dict[str, object]:
        """What log records about it carry, for `logging`'s `extra`."""
        return {"job_id": str(self.claimed.job_id), "task": self.claimed.task, "attempt": self.claimed.attempt}

    def __str__(self) -> str:
        return f"job {self.claimed.job_id} ({self.claimed.task}), attempt {self.claimed.attempt}"

    def start(self, now: float) -> None:
        """Note that its handler begins."""
        self.started_at = now
        if (timeout := self.claimed.policy.timeout) is not None:
            self.deadline = now + timeout

    @property
    def extend_at(self) -> float:
        """When to extend the lease: after a third of its length, and not again at once when that was not to be had."""
        return max(self.held_from + self.claimed.lease_seconds / 3, self.next_try)

    def extendable(self, now: float) -> bool:
        """Tell whether the lease is to be kept: while it runs in time, while it stops as asked, until it is settled."""
        if self.commit is Commit.DONE or self.commit is Commit.UNKNOWN:
            return False
        if self.finished:
            return not self.lost
        if (reason := self.abort.reason) is not None and reason not in _STOPPING:
            return False
        return self.deadline is None or now < self.deadline + (0.0 if reason is None else STOP_GRACE)

    @property
    def margin(self) -> float:
        """How long before the end of the lease its handler is asked to stop."""
        return min(5.0, self.claimed.lease_seconds / 6)

    def asked(self, asked_at: float) -> None:
        """Note that an extension was asked for at this time: another one is not before long."""
        self.next_try = asked_at + max(0.1, self.claimed.lease_seconds / 6)

    def extended(self, asked_at: float) -> None:
        """Note an extension that was asked for at this time."""
        self.held_from = asked_at
        self.held_until = asked_at + self.claimed.lease_seconds

    def outcome_after(self, reason: AbortReason) -> Outcome | None:
        """Return what an attempt that was stopped for this reason gives; `None`: the lease is lost, nothing can be written."""
        if reason in LOST:
            return None
        if reason is AbortReason.TIMEOUT:
            return Failed(Error(TIMEOUT, f"it ran longer than its time-out of {self.claimed.policy.timeout:g} s"))
        if reason is AbortReason.CANCELED:
            return Stopped("canceled while it ran")
        if reason is AbortReason.SHUTDOWN:
            return Released("its worker shut down before it was done", aborted=True)
        return Released("its lease could not be extended in time")
