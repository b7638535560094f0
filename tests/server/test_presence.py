"""What a server concludes from leases that lapsed: nothing, when nobody could reach it."""

from __future__ import annotations

import logging

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.runtime.outage import HOPELESS, LONGEST_REST
from holdfast.server.presence import APART, PULSE, Presence
from holdfast.system import SystemEnvironment


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
def presence(watch: Watch) -> Presence:
    return Presence(watch)


def moves(watch: Watch, presence: Presence, seconds: float) -> None:
    """Let time pass in which the event loop moves."""
    for _ in range(round(seconds / PULSE)):
        watch.seconds += PULSE
        presence.pulse()


def stands_still(watch: Watch, seconds: float) -> None:
    """Let time pass in which nothing moves."""
    watch.seconds += seconds


def test_a_server_that_has_just_started_spares_every_lease_for_its_length_and_the_longest_rest_of_a_worker(
    watch: Watch, presence: Presence
) -> None:
    assert presence.undisturbed() == 0.0
    moves(watch, presence, LONGEST_REST)
    assert presence.undisturbed() == 0.0
    moves(watch, presence, 30.0)
    assert presence.undisturbed() == 30.0


def test_a_standstill_is_the_end_of_an_outage_even_where_the_reaper_is_the_first_to_move(
    watch: Watch, presence: Presence, caplog: pytest.LogCaptureFixture
) -> None:
    presence.pulse()
    moves(watch, presence, 100.0)
    stands_still(watch, 14.0)
    with caplog.at_level(logging.WARNING, "holdfast.server"):
        assert presence.undisturbed() == 0.0
    assert "stood still for 14.0 s" in caplog.text
    moves(watch, presence, LONGEST_REST + 10.0)
    assert presence.undisturbed() == 10.0


def test_a_moment_of_standing_still_is_none(watch: Watch, presence: Presence) -> None:
    presence.pulse()
    moves(watch, presence, 100.0)
    stands_still(watch, 1.0)
    assert presence.undisturbed() == 101.0 - LONGEST_REST


def test_an_outage_of_the_store_counts_as_it_does_for_workers(watch: Watch, presence: Presence) -> None:
    presence.pulse()
    moves(watch, presence, 100.0)
    presence.failed(StoreUnavailable("db", 0.0, "connection refused"))
    moves(watch, presence, 5.0)
    assert presence.undisturbed() == 0.0


def test_a_server_that_stands_still_again_and_again_reaps_in_the_end(watch: Watch, presence: Presence) -> None:
    presence.pulse()
    for _ in range(round(HOPELESS / (APART / 2)) + 1):
        stands_still(watch, APART / 2)
        presence.pulse()
    assert presence.undisturbed() is None
    moves(watch, presence, 2 * APART)
    stands_still(watch, 10.0)
    assert presence.undisturbed() == 0.0
