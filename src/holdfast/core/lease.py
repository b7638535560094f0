"""The right to run one job until `expires_at`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.core.job import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a holder shows with every write: the job, and the secret of its claim."""

    job_id: UUID
    token: UUID


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A job handed to a worker, with its lease."""

    job_id: UUID
    token: UUID
    attempt: int
    failures: int
    task: str
    queue: str
    priority: int
    args: str
    policy: Policy
    lease_seconds: float
    created_at: datetime
    claimed_at: datetime
    expires_at: datetime
    chain_id: UUID | None = None
    trace: str | None = None
    overdue: bool = False
    """It waited past its `start_by`: to be ended unrun as canceled with the code `EXPIRED`."""
    blockers: int = 0
    """How many chains it waited for: their results are there for it (`Store.blockers`)."""
    ready_at: datetime | None = None
    """Since when it was ready; `None`: since it was created."""
    limited: bool = False
    """It counts for a limit: when its lease ends there is room for another, which somebody may be waiting for."""

    @property
    def waited(self) -> float:
        """Seconds from when it was ready until it was claimed."""
        return (self.claimed_at - (self.ready_at or self.created_at)).total_seconds()

    @property
    def lease(self) -> Lease:
        """What its writes must show."""
        return Lease(self.job_id, self.token)


class Taken(list[Claimed]):
    """What a claim brought. A list, and in how many seconds it is worth asking again where a limit held jobs back."""

    again: float | None = None
    weights: Mapping[str, float] | None = None
    """What people have set for queues that were asked for, whatever programs say; `None`: the claim has not looked."""

    def held_back(self, seconds: float) -> None:
        """Note that a job waits only because of a limit, which may let it go after so long."""
        self.again = seconds if self.again is None else min(self.again, seconds)


class Hold(StrEnum):
    """What became of a lease its holder tried to extend."""

    HELD = "held"
    """Extended."""
    SETTLING = "settling"
    """Still current, but another statement has it in hand this moment: ask again."""
    TAKEN = "taken"
    """Another worker holds the job now."""
    RETURNED = "returned"
    """Reaped or given back: the job waits again."""
    ENDED = "ended"
    """The job is terminal."""
    GONE = "gone"
    """The job was deleted."""


class Extended(msgspec.Struct, frozen=True):
    """The answer to one extension."""

    hold: Hold
    expires_at: datetime | None = None
    cancel_requested: bool = False
