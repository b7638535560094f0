"""What settling an attempt writes, and what the end of it hints at."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.core.outcome import BAD_CONTINUATION, KEY_TAKEN, Continued, Error, Failed, Rescheduled, Succeeded, Suspended
from holdfast.core.settle import settle
from holdfast.core.states import Event, State
from holdfast.notify.port import Hint
from holdfast.runtime import counters as count
from holdfast.store.port import Settled, Settlement
from holdfast.tasks.continuing import key_taken

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.environment import Environment
    from holdfast.core.outcome import Outcome
    from holdfast.errors import HoldfastError
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.counters import Counters

_RETRIES: Final = frozenset({Event.RETRY, Event.RETRY_LATER})


def store_time(attempt: Attempt, environment: Environment) -> datetime:
    """Return the store's time as far as this worker knows: when it was claimed there, and how long ago that was here."""
    return attempt.claimed.claimed_at + timedelta(seconds=environment.monotonic() - attempt.claimed_at)


def settlement_of(attempt: Attempt, outcome: Outcome, environment: Environment) -> Settlement:
    """Return what an outcome writes. Raises what refuses it: a next step that is none, a time that no store keeps."""
    claimed = attempt.claimed
    if type(outcome) is Succeeded:  # nearly always
        write = settle(outcome, claimed.policy.retry, claimed.failures, claimed.claimed_at, environment.random)
        return Settlement(attempt.lease, write)
    # when it was claimed is as good as now where no time is asked for, and costs nothing
    now = store_time(attempt, environment) if isinstance(outcome, Rescheduled) else claimed.claimed_at
    write = settle(outcome, claimed.policy.retry, claimed.failures, now, environment.random)
    if isinstance(outcome, Continued):
        return Settlement(attempt.lease, write, then=outcome.then)
    if isinstance(outcome, Suspended):
        return Settlement(attempt.lease, write, signal=outcome.signal)
    return Settlement(attempt.lease, write)


def refused_outcome(outcome: Outcome, error: HoldfastError) -> Failed:
    """Return what an attempt gave whose outcome cannot be written."""
    code = BAD_CONTINUATION if isinstance(outcome, Continued) else "BAD_OUTCOME"
    return Failed(Error(code, str(error)), fatal=True)


def refused_continuation(settlement: Settlement, error: HoldfastError) -> Failed:
    """Return what an attempt gave whose next step the store cannot create."""
    task = "" if settlement.then is None else f" {settlement.then.task!r}"
    return Failed(Error(BAD_CONTINUATION, f"it cannot continue with{task}: {error}"), fatal=True)


def continuation_without_key(settlement: Settlement) -> Failed:
    """Return what an attempt gave whose next step another job keeps from being created: it may be gone by the next attempt."""
    return Failed(Error(KEY_TAKEN, "" if settlement.then is None else key_taken(settlement.then)))


def account(attempt: Attempt, settlement: Settlement, answer: Settled, counters: Counters) -> Hint | None:
    """Count a settlement that stands, and return what others should be told of it; `None`: nothing."""
    write = settlement.write
    counters.add(count.SETTLED, label=write.event)
    if answer is Settled.FREED or answer is Settled.CANCELED:
        return _FREED
    if write.event is Event.SUCCEED:
        return None
    if write.event in _RETRIES and write.error is not None:
        counters.add(count.RETRIES, label=write.error.code)
    if (then := settlement.then) is not None:
        if then.after:  # they may have ended, or were passed over while they were locked for a moment
            return _FREED
        return Hint(frozenset() if then.delay else frozenset({then.queue}), bool(then.delay) or then.run_at is not None)
    if settlement.signal is not None:  # it may have been emitted already, and then the job is ready
        return Hint(frozenset({attempt.claimed.queue}), later=True)
    if write.state is State.READY:
        return Hint(frozenset({attempt.claimed.queue}))
    return _LATER if write.state is State.SCHEDULED else None


_FREED: Final = Hint(later=True, anything=True)
"""Jobs that waited for it were let go; nobody says in which queues they are."""
_LATER: Final = Hint(later=True)
