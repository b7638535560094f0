"""What a store answers to a write."""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec


class Enqueue(StrEnum):
    """What became of a job that was to be enqueued."""

    CREATED = "created"
    REPEATED = "repeated"
    """A job with this id was there already: an enqueue repeated after an unknown outcome."""
    EXISTING = "existing"
    """Its unique key is taken; the answer names the job that holds it."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer to one job of an enqueue: `job_id` is the job that now stands for it."""

    status: Enqueue
    job_id: UUID


class Settled(StrEnum):
    """What became of a settlement, or of any other fenced write."""

    APPLIED = "applied"
    LATE = "late"
    """Applied although `expires_at` had passed: nobody had reaped the lease."""
    FREED = "freed"
    """Applied, and jobs that waited for its chain may run now. One answer of a batch says so for all."""
    CANCELED = "canceled"
    """A cancel had been asked for: the job was ended as canceled instead of going on as the settlement said.

    Jobs that waited for its chain may run now: `FREED` does not take the place of this answer.
    """
    REPEATED = "repeated"
    """Applied by an earlier call with the same token."""
    STALE = "stale"
    """Refused: the token is not current. Nothing changed."""
    KEY_TAKEN = "key_taken"
    """Refused: another job holds the unique key of the next step. Nothing changed, the lease is still held."""

    @property
    def accepted(self) -> bool:
        """Whether the write stands."""
        return self not in _REFUSED


_REFUSED: Final = frozenset({Settled.STALE, Settled.KEY_TAKEN})


class Answer(StrEnum):
    """What became of a client's request about a job."""

    DONE = "done"
    REQUESTED = "requested"
    """The job runs: its worker has been asked to stop."""
    REFUSED = "refused"
    """Not possible in the state the job is in. Nothing changed."""
    NOT_FOUND = "not_found"
    KEY_TAKEN = "key_taken"
    """Reopening it would give its unique key two holders. Nothing changed."""
    NEEDED = "needed"
    """A live job outside waits for it, or will be handed its result. Nothing changed."""
    CHAINED = "chained"
    """It is one of several steps of a chain: that is deleted as a whole, and brought back at its last step. Nothing changed."""


class Signal(msgspec.Struct, frozen=True):
    """The answer to a worker's sign of life."""

    disabled: bool = False
    """A person has disabled it: it is to claim nothing more."""
    drain: bool = False
    """A person wants it to finish what it runs, and to end."""
    idle: tuple[str, ...] = ()
    """What other workers have, and this one has not, that were heard of within a minute and could do more."""


class WorkerKind(StrEnum):
    """Where a worker runs."""

    LOCAL = "local"
    """Beside the database."""
    REMOTE = "remote"
    """Behind the HTTP API."""
