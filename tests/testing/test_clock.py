"""The clock that is moved by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast import BadSetting
from holdfast.testing import FakeClock

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_it_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(START)
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    assert clock.advance(1.5) == START + timedelta(seconds=1.5)
    assert clock.advance(timedelta(hours=1)) == clock.now() == START + timedelta(hours=1, seconds=1.5)
    assert clock.monotonic() == 3601.5


def test_it_moves_to_a_moment_in_any_time_zone() -> None:
    clock = FakeClock(START.astimezone(timezone(timedelta(hours=2))))
    clock.move_to(datetime(2030, 1, 1, 3, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == START + timedelta(hours=1)
    assert clock.now().tzinfo is UTC


def test_it_never_goes_back() -> None:
    clock = FakeClock(START)
    with pytest.raises(BadSetting, match="forward only"):
        clock.advance(-1)
    with pytest.raises(BadSetting, match="has passed"):
        clock.move_to(START - timedelta(seconds=1))
    assert clock.now() == START


def test_a_moment_without_a_time_zone_is_refused() -> None:
    naive = START.replace(tzinfo=None)
    with pytest.raises(BadSetting, match="no time zone"):
        FakeClock(naive)
    with pytest.raises(BadSetting, match="no time zone"):
        FakeClock(START).move_to(naive)


def test_it_begins_now_unless_told_otherwise() -> None:
    before = datetime.now(UTC)
    assert before <= FakeClock().now() <= datetime.now(UTC)


def test_a_ticking_one_goes_on_by_itself_and_can_be_moved() -> None:
    clock = FakeClock(START, ticking=True)
    clock.advance(60)
    seen = clock.monotonic()
    assert seen >= 60
    until = time.monotonic() + 10
    while clock.monotonic() == seen and time.monotonic() < until:
        pass
    assert clock.monotonic() > seen


def test_a_seed_gives_the_same_world_again() -> None:
    worlds = [FakeClock(START, seed=7) for _ in range(2)]
    made = [([world.job_id() for _ in range(3)], world.token(), world.random()) for world in worlds]
    assert made[0] == made[1]
    assert FakeClock(START, seed=8).token() != made[0][1]


def test_ids_are_of_the_time_it_shows_and_keep_their_order() -> None:
    clock = FakeClock(START, seed=7)
    ids = [clock.job_id() for _ in range(5000)]
    clock.advance(0.001)
    ids.append(clock.job_id())
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}
    assert ids[0].int >> 80 == int(START.timestamp() * 1000)
    assert clock.token().version == 4
