"""Why an attempt is asked to stop."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from holdfast.core.lease import Hold


class AbortReason(StrEnum):
    """Why the handler of a job is asked to stop."""

    TAKEN = "taken"
    """Another worker holds the job now."""
    ALREADY_COMPLETED = "already_completed"
    """The job was ended from outside."""
    NOT_FOUND = "not_found"
    """The job was deleted."""
    ERROR = "error"
    """The worker itself failed, or was cut short while it stopped."""
    EXPIRED = "expired"
    """The lease could not be extended in time, or was reaped."""
    CANCELED = "canceled"
    """Somebody asked for the job to be canceled."""
    TIMEOUT = "timeout"
    """The attempt ran longer than its time-out."""
    SHUTDOWN = "shutdown"
    """The worker shuts down and can wait no longer."""


LOST: Final = frozenset({AbortReason.TAKEN, AbortReason.ALREADY_COMPLETED, AbortReason.NOT_FOUND})
"""The lease is gone: there is nothing left to settle."""

_REASONS: Final = {
    Hold.TAKEN: AbortReason.TAKEN,
    Hold.RETURNED: AbortReason.EXPIRED,
    Hold.ENDED: AbortReason.ALREADY_COMPLETED,
    Hold.GONE: AbortReason.NOT_FOUND,
}


def reason_of(hold: Hold) -> AbortReason | None:
    """Return why the holder of a lease should stop, going by the answer to its extension; `None`: it should not."""
    return _REASONS.get(hold)
