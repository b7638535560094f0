"""Settlement: what is written for each outcome, and for a lapsed lease."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob
from holdfast.core.outcome import (
    CANCELED,
    EXPIRED,
    LEASE_EXPIRED,
    MESSAGE_LIMIT,
    PROCESS_DIED,
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
)
from holdfast.core.retry import Retry
from holdfast.core.settle import Write, expire, overdue, settle
from holdfast.core.states import HOLDER_EVENTS, TERMINAL, Event, State
from holdfast.errors import CENTURY, BadJob

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOOM = Error("BOOM", "it broke", "Traceback: line 1")
RETRY = Retry(max_attempts=3, jitter=0)
AT_ONCE = Retry(max_attempts=3, initial=0)
NEXT = NewJob(id=uuid7(), task="next")


def middle() -> float:
    """A chance that gives no jitter."""
    return 0.5


def settled(outcome: Outcome, retry: Retry = RETRY, failures: int = 0) -> Write:
    return settle(outcome, retry, failures, NOW, middle)


# -- outcomes --------------------------------------------------------------------------------------------------------------


def test_a_result_succeeds_and_leaves_the_failures_as_they_were() -> None:
    write = settled(Succeeded('"sent"'), failures=2)
    assert write == Write(Event.SUCCEED, 2, result='"sent"')
    assert write.state is State.SUCCEEDED


def test_a_step_that_continues_succeeds_without_a_result_of_its_own() -> None:
    write = settled(Continued(NEXT), failures=2)
    assert write == Write(Event.CONTINUE, 2)
    assert write.state is State.SUCCEEDED


def test_a_job_that_sleeps_waits_until_its_time_at_no_cost() -> None:
    until = NOW + timedelta(hours=1)
    write = settled(Suspended(until, "paid:42"), failures=2)
    assert write == Write(Event.SUSPEND, 2, run_at=until)
    assert write.state is State.SCHEDULED


def test_a_job_that_waits_for_a_signal_alone_waits_as_long_as_it_takes() -> None:
    assert settled(Suspended(signal="paid:42")) == Write(Event.SUSPEND, 0, delay=CENTURY)


@pytest.mark.parametrize(
    ("fields", "path"),
    [({}, "suspended"), ({"signal": ""}, "suspended.signal"), ({"signal": "x" * 201}, "suspended.signal")],
)
def test_a_job_is_not_suspended_for_nothing(fields: dict[str, str], path: str) -> None:
    with pytest.raises(BadJob) as refused:
        Suspended(**fields)  # type: ignore[arg-type]
    assert refused.value.path == path


def test_a_failure_within_the_budget_is_retried_after_its_rest() -> None:
    write = settled(Failed(BOOM), failures=1)
    assert write == Write(Event.RETRY_LATER, 2, delay=20, error=BOOM)
    assert write.state is State.SCHEDULED


def test_a_failure_without_a_rest_is_retried_at_once_at_the_back() -> None:
    write = settled(Failed(BOOM), AT_ONCE)
    assert write == Write(Event.RETRY, 1, error=BOOM)
    assert write.state is State.READY
    assert not write.front


def test_the_last_failure_ends_the_job_and_keeps_the_last_code() -> None:
    write = settled(Failed(BOOM), failures=2)
    assert write.event is Event.FAIL
    assert write.state is State.FAILED
    assert write.failures == 3
    assert write.error is not None
    assert write.error.code == RETRIES_EXHAUSTED
    assert "3 of 3" in write.error.message
    assert "BOOM: it broke" in write.error.message
    assert write.error.traceback == BOOM.traceback


def test_the_error_of_an_exhausted_job_is_cut_to_size_again() -> None:
    write = settled(Failed(Error("BOOM", "x" * MESSAGE_LIMIT)), Retry(max_attempts=1))
    assert write.error is not None
    assert len(write.error.message) <= MESSAGE_LIMIT
    assert "BOOM" in write.error.message


def test_a_fatal_failure_ends_the_job_at_once_with_its_own_code() -> None:
    assert settled(Failed(BOOM, fatal=True)) == Write(Event.FAIL, 1, error=BOOM)


def test_a_fatal_failure_ends_a_job_with_an_endless_budget() -> None:
    assert settled(Failed(BOOM, fatal=True), Retry(max_attempts=None), 99).state is State.FAILED


def test_an_endless_budget_is_retried_for_ever() -> None:
    assert settled(Failed(BOOM), Retry(max_attempts=None, jitter=0), 10_000) == Write(
        Event.RETRY_LATER, 10_001, delay=300, error=BOOM
    )


def test_rescheduling_after_some_time_costs_no_failure() -> None:
    write = settled(Rescheduled(after=30), failures=1)
    assert write == Write(Event.RESCHEDULE_LATER, 1, delay=30)
    assert write.state is State.SCHEDULED


def test_rescheduling_to_a_future_time_keeps_that_time() -> None:
    at = NOW + timedelta(hours=1)
    assert settled(Rescheduled(at=at)) == Write(Event.RESCHEDULE_LATER, 0, run_at=at)


@pytest.mark.parametrize(
    "outcome", [Rescheduled(), Rescheduled(at=NOW), Rescheduled(at=NOW - timedelta(days=1)), Rescheduled(-1)]
)
def test_rescheduling_to_no_or_a_past_time_is_ready_at_once(outcome: Rescheduled) -> None:
    write = settled(outcome)
    assert write == Write(Event.RESCHEDULE, 0)
    assert write.state is State.READY


def test_an_absolute_time_wins_over_a_relative_one() -> None:
    assert settled(Rescheduled(after=30, at=NOW - timedelta(days=1))).event is Event.RESCHEDULE


def test_stopping_cancels_the_job_with_the_reason() -> None:
    write = settled(Stopped("no longer wanted"), failures=1)
    assert write == Write(Event.STOP, 1, error=Error(CANCELED, "no longer wanted"))
    assert write.state is State.CANCELED


def test_a_released_job_goes_back_to_its_place_at_no_cost() -> None:
    write = settled(Released("shutdown"), failures=2)
    assert (write.event, write.failures, write.front, write.state) == (Event.RELEASE, 2, True, State.READY)
    assert write.error is not None
    assert write.error.message == "shutdown"


def test_a_job_stopped_at_shutdown_goes_back_to_its_place_at_no_cost() -> None:
    write = settled(Released("shutdown", aborted=True), failures=2)
    assert (write.event, write.failures, write.front, write.state) == (Event.ABORT, 2, True, State.READY)
    assert write.error == Error("ABORTED", "shutdown")


def test_stopping_keeps_the_code_it_is_given() -> None:
    write = settled(Stopped("too late", EXPIRED), failures=1)
    assert write == Write(Event.STOP, 1, error=Error(EXPIRED, "too late"))


@pytest.mark.parametrize("code", [PROCESS_DIED, LEASE_EXPIRED])
def test_a_budget_that_ends_with_a_crash_says_that_the_job_is_dangerous(code: str) -> None:
    write = settled(Failed(Error(code, "killed")), failures=2)
    assert write.error is not None
    assert write.error.code == RETRIES_EXHAUSTED
    assert write.error.message.startswith("quarantined")
    assert "killed" in write.error.message


def test_a_budget_that_ends_with_an_answer_is_no_quarantine() -> None:
    write = settled(Failed(BOOM), failures=2)
    assert write.error is not None
    assert "quarantined" not in write.error.message


outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeeded),
    st.just(Continued(NEXT)),
    st.builds(Suspended, st.none() | st.datetimes(timezones=st.just(UTC)), st.sampled_from(["paid:42", "s"])),
    st.builds(Failed, st.builds(Error, st.text(), st.text()), fatal=st.booleans()),
    st.builds(Rescheduled, st.floats(0, 1e6), st.none() | st.datetimes(timezones=st.just(UTC))),
    st.builds(Stopped, st.text(), st.sampled_from([CANCELED, EXPIRED])),
    st.builds(Released, st.text(), st.booleans()),
)
budgets = st.builds(Retry, max_attempts=st.none() | st.integers(1, 5), initial=st.sampled_from([0.0, 10.0]))


@given(outcomes, budgets, st.integers(0, 5), st.floats(0, 1, exclude_max=True))
def test_every_outcome_is_an_event_of_the_holder_that_ends_the_attempt(
    outcome: Outcome, retry: Retry, failures: int, chance: float
) -> None:
    write = settle(outcome, retry, failures, NOW, lambda: chance)
    assert write.event in HOLDER_EVENTS
    assert write.state is not State.RUNNING
    assert write.failures == failures + isinstance(outcome, Failed)
    assert (write.delay > 0 or write.run_at is not None) == (write.state is State.SCHEDULED)
    assert (write.error is not None) >= (write.state in {State.FAILED, State.CANCELED})


@given(budgets, st.lists(st.floats(0, 1, exclude_max=True), min_size=10, max_size=10))
def test_failing_again_and_again_ends_exactly_when_the_budget_is_spent(retry: Retry, chances: list[float]) -> None:
    failures = attempts = 0
    for chance in chances:
        write = settle(Failed(BOOM), retry, failures, NOW, lambda chance=chance: chance)  # type: ignore[misc]
        failures, attempts = write.failures, attempts + 1
        if write.state in TERMINAL:
            break
    assert attempts == min(len(chances), retry.max_attempts or len(chances))


def test_an_event_that_removes_the_job_settles_nothing() -> None:
    with pytest.raises(ValueError, match="does not settle"):
        _ = Write(Event.DELETE, 0).state


# -- lapsed leases ---------------------------------------------------------------------------------------------------------


def test_a_lapse_is_a_failure_like_any_other() -> None:
    write = expire(RETRY, 1, middle)
    assert (write.event, write.failures, write.delay) == (Event.EXPIRE_LATER, 2, 20)
    assert write.state is State.SCHEDULED
    assert write.error is not None
    assert write.error.code == LEASE_EXPIRED


def test_the_first_lapse_costs_a_failure_but_no_rest() -> None:
    write = expire(RETRY, 0, middle)
    assert (write.event, write.failures, write.delay, write.front) == (Event.EXPIRE, 1, 0, True)
    assert write.state is State.READY


def test_a_lapse_without_a_rest_is_ready_at_once() -> None:
    write = expire(AT_ONCE, 1, middle)
    assert (write.event, write.failures, write.state, write.front) == (Event.EXPIRE, 2, State.READY, False)


def test_the_last_lapse_fails_the_job_and_says_what_it_was() -> None:
    write = expire(RETRY, 2, middle)
    assert (write.event, write.failures, write.state) == (Event.EXPIRE_FAIL, 3, State.FAILED)
    assert write.error is not None
    assert write.error.code == RETRIES_EXHAUSTED
    assert LEASE_EXPIRED in write.error.message


def test_a_free_lapse_costs_nothing_and_keeps_the_place() -> None:
    write = expire(RETRY, 2, middle, free=True)
    assert (write.event, write.failures, write.state, write.front) == (Event.EXPIRE, 2, State.READY, True)


@pytest.mark.parametrize("free", [False, True])
def test_a_lapsed_job_that_was_asked_to_stop_is_canceled(free: bool) -> None:  # noqa: FBT001
    write = expire(RETRY, 1, middle, cancel_requested=True, free=free)
    assert (write.event, write.failures, write.state) == (Event.EXPIRE_CANCEL, 1, State.CANCELED)
    assert write.error is not None
    assert write.error.code == CANCELED


def test_no_lapse_is_an_event_of_the_holder() -> None:
    for cancel_requested in (False, True):
        for free in (False, True):
            for failures in (0, 2):
                write = expire(RETRY, failures, middle, cancel_requested=cancel_requested, free=free)
                assert write.event not in HOLDER_EVENTS


@pytest.mark.parametrize(
    ("outcome", "lives_on"),
    [
        (Succeeded(), False),
        (Failed(BOOM, fatal=True), False),
        (Stopped(), False),
        (Continued(NEXT), True),
        (Failed(BOOM), True),
        (Released(), True),
        (Rescheduled(), True),
        (Suspended(signal="s"), True),
    ],
)
def test_a_job_lives_on_unless_it_has_ended_and_its_chain_with_it(outcome: Outcome, *, lives_on: bool) -> None:
    assert settle(outcome, RETRY, 0, NOW, lambda: 0.5).lives_on is lives_on


# -- jobs that were to have started ----------------------------------------------------------------------------------------


def test_a_job_that_waits_too_long_is_canceled_and_says_how_long_it_could() -> None:
    write = overdue(2, 90.0)
    assert (write.event, write.failures) == (Event.OVERDUE, 2)
    assert write.error is not None
    assert write.error.code == EXPIRED
    assert "90 s" in write.error.message
