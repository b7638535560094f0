"""Patterns: how many jobs are due when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.load.arrivals import Pace, Pattern


def per_second(pattern: Pattern, *, rate: float = 100.0, seconds: float = 60.0) -> list[int]:
    pace = Pace(pattern=pattern, rate=rate, seconds=seconds)
    return [pace.due(second + 1) - pace.due(second) for second in range(int(seconds))]


@given(
    pattern=some.sampled_from(Pattern),
    rate=some.floats(0.1, 10_000),
    seconds=some.floats(0.1, 1000),
    times=some.lists(some.floats(0, 1100), min_size=2),
)
def test_what_is_due_never_falls_and_is_the_average_in_the_end(
    pattern: Pattern, rate: float, seconds: float, times: list[float]
) -> None:
    pace = Pace(pattern=pattern, rate=rate, seconds=seconds)
    due = [pace.due(time) for time in sorted(times)]
    assert due == sorted(due)
    assert pace.due(0.0) == 0
    assert pace.due(seconds) == pace.total == round(rate * seconds)


def test_steady_is_the_same_every_second() -> None:
    assert per_second(Pattern.STEADY) == [100] * 60


def test_bursts_come_every_ten_seconds_and_nothing_between() -> None:
    assert per_second(Pattern.BURST) == [1000, *[0] * 9] * 6


def test_a_wave_goes_up_and_down_once_a_minute() -> None:
    wave = per_second(Pattern.WAVE)
    assert wave[0] < 5
    assert max(wave) == pytest.approx(200, abs=2)
    assert wave.index(max(wave)) in range(28, 32)
    assert wave[-1] < 5
    assert per_second(Pattern.WAVE, seconds=120.0)[60] < 5


def test_a_spike_is_eleven_times_the_calm_around_it() -> None:
    spike = per_second(Pattern.SPIKE)
    assert spike[:27] == [50] * 27
    assert spike[27:33] == [550] * 6
    assert spike[33:] == [50] * 27


def test_short_times_have_one_whole_period() -> None:
    assert per_second(Pattern.BURST, seconds=5.0) == [500, 0, 0, 0, 0]
