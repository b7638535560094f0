"""Settlement: from what an attempt gave, and the policy it ran under, to what is to be written.

One path for the worker that settles its attempt and for the reaper that settles a lapsed one.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from holdfast.core.numbers import check_number
from holdfast.core.outcome import (
    CANCELED,
    CRASHES,
    EXPIRED,
    LEASE_EXPIRED,
    RETRIES_EXHAUSTED,
    Continued,
    Error,
    Failed,
    Outcome,
    Released,
    Rescheduled,
    Stopped,
    Succeeded,
    Suspended,
    checked_result,
)
from holdfast.core.states import TERMINAL, TRANSITIONS, Event, State
from holdfast.errors import CENTURY, BadJob

MOST_FAILURES: Final = 2**31
_NEED_AN_ERROR: Final = frozenset({Event.FAIL, Event.STOP, Event.EXPIRE_FAIL, Event.EXPIRE_CANCEL})

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.retry import Retry


class Write(msgspec.Struct, frozen=True, gc=False):
    """What settling a lease writes. The state it leads to is the table's, never chosen here.

    `delay` counts from the store's now; `run_at` is absolute and wins. `failures` is the new count. `front` puts the
    job back where it was in its lane, ahead of all that came later. The next step of a chain, and the signal that a
    suspended job waits for, go with the settlement.
    """

    event: Event
    failures: int
    delay: float = 0.0
    run_at: datetime | None = None
    result: str | None = None
    error: Error | None = None
    front: bool = False

    def __post_init__(self) -> None:
        """Refuse what no store could keep: one bad row must not fail the batch it is settled with."""
        if self.result is not None:
            checked_result(self.result)
        if type(self.failures) is not int or not 0 <= self.failures < MOST_FAILURES:
            raise BadJob(f"must be a whole number from 0, not {self.failures}", path="write.failures")
        if self.delay:
            check_number(self.delay, "write.delay", least=0.0, most=2 * CENTURY)
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise BadJob("must have a time zone", path="write.run_at")
        if self.error is None and self.event in _NEED_AN_ERROR:
            raise BadJob(f"{self.event} needs an error that says why", path="write.error")

    @property
    def state(self) -> State:
        """Where the job stands afterwards."""
        state = TRANSITIONS[State.RUNNING, self.event]
        if state is None:
            raise ValueError(f"{self.event} does not settle a job")
        return state

    @property
    def lives_on(self) -> bool:
        """Whether the job, or its chain, goes on afterwards: a cancel that was asked for wins over that."""
        return self.event is Event.CONTINUE or self.state not in TERMINAL


def settle(outcome: Outcome, retry: Retry, failures: int, now: datetime, rng: Callable[[], float]) -> Write:
    """Return what to write for the outcome of an attempt.

    `failures` is the count before this attempt, `now` the store's time as the worker knows it: it only decides whether
    an absolute time already lies in the past. Pure: the same arguments give the same answer.
    """
    match outcome:
        case Succeeded(result):
            if result == "null" and failures == 0:  # nearly always
                return _DONE
            return Write(Event.SUCCEED, failures, result=result)
        case Continued():
            return Write(Event.CONTINUE, failures)
        case Suspended(None):
            return Write(Event.SUSPEND, failures, delay=CENTURY)
        case Suspended(until):
            return Write(Event.SUSPEND, failures, run_at=until)
        case Failed(error, fatal=True):
            return Write(Event.FAIL, failures + 1, error=error)
        case Failed(error):
            return _after_failure(error, retry, failures + 1, rng, (Event.FAIL, Event.RETRY, Event.RETRY_LATER))
        case Rescheduled(after, at, error):
            if at is not None and at > now:
                return Write(Event.RESCHEDULE_LATER, failures, run_at=at, error=error)
            if at is None and after > 0:
                return Write(Event.RESCHEDULE_LATER, failures, delay=after, error=error)
            return Write(Event.RESCHEDULE, failures, error=error)
        case Stopped(reason, code):
            return Write(Event.STOP, failures, error=Error(code, reason))
        case Released(reason, aborted):
            event, code = (Event.ABORT, "ABORTED") if aborted else (Event.RELEASE, "RELEASED")
            return Write(event, failures, error=Error(code, reason), front=True)
    assert_never(outcome)


_DONE: Final = Write(Event.SUCCEED, 0, result="null")


def expire(
    retry: Retry, failures: int, rng: Callable[[], float], *, cancel_requested: bool = False, free: bool = False
) -> Write:
    """Return what the reaper writes for a lapsed lease.

    A lapse is a failure like any other, except that a job asked to stop ends as canceled, and one whose worker was
    shutting down (`free`) goes back at no cost.
    """
    if cancel_requested:
        return Write(Event.EXPIRE_CANCEL, failures, error=Error(CANCELED, "asked to stop; its worker did not answer"))
    if free:
        return Write(Event.EXPIRE, failures, error=Error(LEASE_EXPIRED, "its worker was shutting down"), front=True)
    error = Error(LEASE_EXPIRED, "the lease lapsed: its worker died, froze or was cut off")
    if failures == 0 and not retry.exhausted(1):
        # rarely its own fault, and it has waited for a whole lease already: it goes on where it was, at once
        return Write(Event.EXPIRE, 1, error=error, front=True)
    return _after_failure(error, retry, failures + 1, rng, (Event.EXPIRE_FAIL, Event.EXPIRE, Event.EXPIRE_LATER))


def revoke(failures: int, *, cancel: str | None = None) -> Write:
    """Return what is written for a lease that is taken back from its worker: free of cost, and in front.

    `cancel` says why the job was asked to stop, where it was: it has no worker left to do so, and ends as canceled.
    """
    if cancel is not None:
        return Write(Event.STOP, failures, error=Error(CANCELED, cancel))
    return Write(Event.RELEASE, failures, error=Error("RELEASED", "its worker was revoked"), front=True)


def overdue(failures: int, seconds: float) -> Write:
    """Return what housekeeping writes for a job that still waits although it was to start within `seconds`."""
    return Write(Event.OVERDUE, failures, error=Error(EXPIRED, f"it was to start within {seconds:g} s and still waits"))


def _after_failure(
    error: Error, retry: Retry, failures: int, rng: Callable[[], float], events: tuple[Event, Event, Event]
) -> Write:
    end, again, later = events
    if retry.exhausted(failures):
        last = f"{failures} of {retry.max_attempts} attempts failed; the last one with {error.code}: {error.message}"
        if error.code in CRASHES:
            last = f"quarantined, for it takes down what runs it: {last}"
        return Write(end, failures, error=Error(RETRIES_EXHAUSTED, last, error.traceback))
    delay = retry.delay(failures, rng)
    return Write(later if delay > 0 else again, failures, delay=delay, error=error)
