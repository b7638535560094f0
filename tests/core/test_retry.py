"""The retry policy: rests, jitter, budget, and what it refuses."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.retry import Retry
from holdfast.errors import BadJob, HoldfastError


def middle() -> float:
    """A chance that gives no jitter."""
    return 0.5


seconds = st.floats(0, 1e9)
policies = st.builds(
    Retry,
    max_attempts=st.none() | st.integers(1, 1000),
    initial=seconds,
    factor=st.floats(1, 1e6),
    max=seconds,
    jitter=st.floats(0, 1),
)


def test_rests_double_from_ten_seconds_to_five_minutes() -> None:
    retry = Retry()
    assert [retry.delay(failures, middle) for failures in range(1, 9)] == [10, 20, 40, 80, 160, 300, 300, 300]


def test_jitter_spreads_a_rest_by_a_tenth_to_both_sides() -> None:
    retry = Retry()
    assert retry.delay(1, lambda: 0.0) == pytest.approx(9)
    assert retry.delay(1, lambda: 1.0) == pytest.approx(11)


def test_without_jitter_chance_does_not_matter() -> None:
    retry = Retry(jitter=0)
    assert retry.delay(2, lambda: 0.0) == retry.delay(2, lambda: 0.99) == 20


@given(policies, st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
@example(Retry(), 10_000, 0.999)
@example(Retry(factor=1e6, initial=1e9), 3, 0.0)
def test_a_rest_is_never_negative_nor_longer_than_the_longest_with_jitter(retry: Retry, failures: int, chance: float) -> None:
    rest = retry.delay(failures, lambda: chance)
    assert math.isfinite(rest)
    assert 0 <= rest <= retry.max * (1 + retry.jitter)


@given(policies, st.integers(1, 500))
def test_rests_never_get_shorter(retry: Retry, failures: int) -> None:
    assert retry.delay(failures, middle) <= retry.delay(failures + 1, middle)


@pytest.mark.parametrize("factor", [2.0, 2])
def test_ten_thousand_failures_rest_for_the_longest_time(factor: float) -> None:
    assert Retry(max_attempts=None, factor=factor).delay(10_000, middle) == 300


def test_the_budget_is_spent_by_the_last_allowed_failure() -> None:
    retry = Retry(max_attempts=3)
    assert [retry.exhausted(failures) for failures in (0, 1, 2, 3, 4)] == [False, False, False, True, True]


def test_an_endless_policy_is_never_exhausted() -> None:
    assert not Retry(max_attempts=None).exhausted(10**9)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("initial", -0.1),
        ("initial", math.inf),
        ("initial", math.nan),
        ("max", -1),
        ("max", math.inf),
        ("max", math.nan),
        ("factor", 0.99),
        ("factor", math.inf),
        ("factor", math.nan),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", math.nan),
    ],
)
def test_a_policy_that_could_never_work_is_refused_by_the_name_of_its_field(field: str, value: float) -> None:
    with pytest.raises(BadJob) as refused:
        Retry(**{field: value})  # type: ignore[arg-type]
    assert refused.value.path == f"retry.{field}"
    assert f"retry.{field}" in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, HoldfastError)


def test_a_policy_without_rests_has_none_after_thousands_of_failures() -> None:
    assert Retry(max_attempts=None, initial=0).delay(2_000, middle) == 0


@pytest.mark.parametrize("max_attempts", [2.5, True])
def test_a_budget_that_is_no_whole_number_is_refused(max_attempts: object) -> None:
    with pytest.raises(BadJob):
        Retry(max_attempts=max_attempts)  # type: ignore[arg-type]
