"""How long a worker has had its store within reach: what it may conclude from leases that have lapsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.runtime import outage
from holdfast.runtime.outage import Outage
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = StoreUnavailable("db", 0.0, "connection refused")


class Watch(SystemEnvironment):
    """A clock that goes when it is told to."""

    seconds = 1000.0

    def monotonic(self) -> float:
        """Return what it shows."""
        return self.seconds


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def seen(watch: Watch) -> Outage:
    return Outage(watch)


@pytest.fixture
def after(watch: Watch, seen: Outage) -> Callable[[float], Outage]:
    """Let some time pass, and return the outage."""

    def wait(seconds: float) -> Outage:
        watch.seconds += seconds
        return seen

    return wait


def test_without_an_outage_nothing_is_left_alone(after: Callable[[float], Outage]) -> None:
    assert after(5.0).undisturbed() is None


def test_a_failure_that_is_over_in_a_moment_is_none(after: Callable[[float], Outage]) -> None:
    after(0.0).failed(GONE)
    after(0.2).succeeded()
    after(outage.QUIET).succeeded()
    assert after(1.0).undisturbed() is None


def test_while_it_lasts_everything_is_left_alone(after: Callable[[float], Outage]) -> None:
    after(0.0).failed(GONE)
    assert after(outage.LASTING).undisturbed() == 0.0
    after(10.0).failed(GONE)
    assert after(2 * outage.HOPELESS).undisturbed() == 0.0


def test_when_it_is_over_it_counts_from_the_first_answer(after: Callable[[float], Outage]) -> None:
    after(0.0).failed(GONE)
    after(30.0).failed(GONE)
    after(2.0).succeeded()
    assert after(0.5).undisturbed() == 0.5
    after(0.5).succeeded()  # and nothing has failed for a moment: now it is told of as over
    assert after(4.0).undisturbed() == 5.0


def test_a_store_that_fails_again_and_again_is_not_given_up(after: Callable[[float], Outage]) -> None:
    elapsed = 0.0
    while elapsed < outage.HOPELESS:
        after(0.4).failed(GONE)
        after(0.4).succeeded()
        elapsed += 0.8
        if outage.LASTING < elapsed < outage.HOPELESS - 1:
            assert after(0.0).undisturbed() is not None
    assert after(0.4).undisturbed() is None
