"""From exceptions to outcomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest

from holdfast.core.classify import Classification, Verdict, code_of, outcome_of
from holdfast.core.outcome import Error, Failed, Outcome, Rescheduled, Stopped
from holdfast.errors import BadJob, Cancel, Fatal, Reschedule, Retryable


class Coded(Exception):
    def __init__(self, code: object) -> None:
        self.code = code
        super().__init__("coded")


class Unreadable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")


def fatal(outcome: Outcome) -> bool:
    assert isinstance(outcome, Failed)
    return outcome.fatal


def test_an_unknown_error_is_worth_another_attempt() -> None:
    outcome = outcome_of(ValueError("bad"), traceback="Traceback")
    assert outcome == Failed(Error("ValueError", "bad", "Traceback"), fatal=False)


def test_the_default_may_be_to_give_up() -> None:
    assert fatal(outcome_of(ValueError(), Classification(default=Verdict.FATAL)))


def test_fatal_is_fatal_whatever_the_rules_say() -> None:
    rules = Classification(codes={"FATAL": Verdict.RETRYABLE}, hook=lambda _: Verdict.RETRYABLE)
    assert outcome_of(Fatal("never again"), rules) == Failed(Error("FATAL", "never again"), fatal=True)


def test_retryable_is_retried_whatever_the_rules_say() -> None:
    rules = Classification({"BUSY": Verdict.FATAL}, lambda _: Verdict.FATAL, Verdict.FATAL)
    assert outcome_of(Retryable("later", code="BUSY"), rules) == Failed(Error("BUSY", "later"), fatal=False)


def test_the_hook_is_asked_before_the_table_of_codes() -> None:
    rules = Classification({"ValueError": Verdict.FATAL}, lambda _: Verdict.RETRYABLE)
    assert not fatal(outcome_of(ValueError(), rules))


def test_a_hook_without_an_opinion_leaves_it_to_the_table() -> None:
    rules = Classification({"ValueError": Verdict.FATAL}, lambda _: None)
    assert fatal(outcome_of(ValueError(), rules))
    assert not fatal(outcome_of(KeyError(), rules))


def test_the_table_knows_errors_by_their_own_code() -> None:
    rules = Classification({"E404": Verdict.FATAL})
    assert fatal(outcome_of(Coded("E404"), rules))
    assert not fatal(outcome_of(Coded("E503"), rules))


@pytest.mark.parametrize("code", [404, None, "", "gkpj", "not found", "E-404", "4XX", "ÜBER"])
def test_a_code_that_is_no_word_in_upper_case_gives_way_to_the_name_of_the_class(code: object) -> None:
    """Libraries use the name for what says nothing to anybody else: SQLAlchemy for the address of a help page."""
    assert code_of(Coded(code)) == "Coded"


def test_a_code_of_holdfasts_own_errors_is_taken_as_it_stands() -> None:
    assert code_of(Retryable("later", code="busy: try later")) == "busy: try later"
    assert code_of(Fatal(code="")) == "Fatal"


def test_a_cancel_stops_the_job_with_its_reason() -> None:
    assert outcome_of(Cancel("enough")) == Stopped("enough")


def test_a_reschedule_says_when() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert outcome_of(Reschedule(after=timedelta(minutes=1))) == Rescheduled(after=60)
    assert outcome_of(Reschedule(after=5)) == Rescheduled(after=5)
    assert outcome_of(Reschedule(at=at)) == Rescheduled(at=at)


def test_a_reschedule_without_one_clear_time_is_refused() -> None:
    for options in ({}, {"after": 1, "at": datetime(2026, 3, 1, tzinfo=UTC)}, {"at": datetime(2026, 3, 1)}):  # noqa: DTZ001
        with pytest.raises(BadJob, match="Reschedule"):
            Reschedule(**options)


def test_an_error_whose_text_cannot_be_read_is_still_reported() -> None:
    outcome = outcome_of(Unreadable())
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "Unreadable"
    assert "RuntimeError" in outcome.error.message


def test_an_error_is_made_storable() -> None:
    outcome = outcome_of(ValueError("a\0b\ud800"), traceback="t\0")
    assert isinstance(outcome, Failed)
    assert outcome.error == Error("ValueError", "a\N{REPLACEMENT CHARACTER}b?", "t\N{REPLACEMENT CHARACTER}")


def test_an_error_always_has_a_code() -> None:
    assert Error("").code == "ERROR"
