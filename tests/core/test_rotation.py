"""Keys come on offer in turn, some at a time: each once before any comes twice."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.rotation import AGED, Asked, Rotation
from tests.support.lots import still

START = datetime(2026, 3, 1, tzinfo=UTC)
LANE = 4


def turn(rotation: Rotation, keys: list[int]) -> list[int]:
    """Read the keys that are asked for, out of those that wait, and return what is on offer then."""
    asked = rotation.asks(LANE)
    if asked.most:
        begin = bisect_right(keys, asked.after)
        rotation.found(LANE, keys[begin : begin + asked.most], asked)
    return sorted(rotation.on_offer(LANE))


def test_few_keys_are_all_on_offer_and_stay_there() -> None:
    rotation, keys = Rotation(still, offered=3), [1, 2, 3]
    for _ in range(3):
        assert turn(rotation, keys) == keys
        assert rotation.whole(LANE)
        rotation.took(LANE, 1, 5, 1.0)
        rotation.missed(LANE, 2)


def test_of_many_keys_some_are_on_offer_until_they_have_had_their_turn() -> None:
    rotation, keys = Rotation(still, offered=3), [1, 2, 3, 4, 5]
    assert turn(rotation, keys) == [1, 2, 3]
    assert turn(rotation, keys) == [1, 2, 3]
    rotation.took(LANE, 2, 1, 1.0)
    assert turn(rotation, keys) == [1, 3, 4]
    rotation.missed(LANE, 1)
    rotation.missed(LANE, 3)
    assert turn(rotation, keys) == [4, 5]
    assert turn(rotation, keys) == [1, 4, 5], "the next round begins"


def test_a_key_of_more_weight_gives_more_jobs_before_it_leaves() -> None:
    rotation, keys = Rotation(still, offered=2), [1, 2, 3]
    assert turn(rotation, keys) == [1, 2]
    rotation.took(LANE, 1, 1, 3.0)
    rotation.took(LANE, 1, 1, 3.0)
    assert turn(rotation, keys) == [1, 2]
    rotation.took(LANE, 1, 1, 3.0)
    assert turn(rotation, keys) == [2, 3]


def test_when_few_are_left_all_are_on_offer_again() -> None:
    rotation = Rotation(still, offered=3)
    turn(rotation, [1, 2, 3, 4, 5])
    for key in (1, 2, 3):
        rotation.missed(LANE, key)
    for _ in range(3):
        turn(rotation, [4, 5])
    assert rotation.whole(LANE)
    assert turn(rotation, [4, 5]) == [4, 5]


def test_the_oldest_are_remembered_and_on_offer_in_turns_by_age() -> None:
    rotation, keys = Rotation(still, offered=2, scanned=3), list(range(1, 10))
    turn(rotation, keys)
    assert rotation.scans(LANE) == Asked(0, 3)
    rotation.scanned(LANE, [(3, START)], 3)
    assert rotation.scans(LANE) == Asked(3, 3)
    rotation.scanned(LANE, [(key, START + timedelta(seconds=key - 6)) for key in (4, 5, 6)], 6)
    rotation.scanned(LANE, [(9, START + timedelta(hours=1))], None)
    assert rotation.scans(LANE) == Asked(0, 3), "from the beginning again"
    assert set(rotation.on_offer(LANE, by_age=True)) == {1, 2, 3, 4, 5, 6}
    assert len({3, 4, 5, 6}) == AGED
    assert set(rotation.on_offer(LANE)) == {1, 2}
    rotation.took(LANE, 4, 1, 1.0)
    rotation.missed(LANE, 5)
    assert set(rotation.on_offer(LANE, by_age=True)) == {1, 2, 3, 6}


def test_who_looks_no_further_than_so_far_goes_on_from_there() -> None:
    """Nothing waits in the keys that were passed over."""
    rotation = Rotation(still, offered=2)
    rotation.found(LANE, [], Asked(0, 3), reached=50)
    assert rotation.asks(LANE) == Asked(50, 2)
    assert not rotation.whole(LANE)


def test_it_is_told_when_every_key_was_asked() -> None:
    rotation, keys = Rotation(still, offered=2), list(range(1, 8))
    asked = Counter(turn(rotation, keys))
    begun = rotation.laps([LANE])
    for key in rotation.on_offer(LANE):
        rotation.missed(LANE, key)
    while not rotation.went_round(begun):
        for key in turn(rotation, keys):
            asked[key] += 1
            rotation.missed(LANE, key)
    assert set(asked) == set(keys)
    assert max(asked.values()) <= 2


@given(st.integers(1, 5), st.integers(1, 30))
def test_where_the_longest_on_offer_goes_first_no_key_has_two_turns_before_every_other_has_one(
    offered: int, count: int
) -> None:
    rotation, keys = Rotation(still, offered=offered), list(range(2, 2 * count + 2, 2))
    turns: Counter[int] = Counter(dict.fromkeys(keys, 0))
    line: list[int] = []
    for _ in range(4 * count):
        on_offer = turn(rotation, keys)
        line += [key for key in on_offer if key not in line]
        assert len(on_offer) <= offered
        if line and not rotation.whole(LANE):
            turns[key := line.pop(0)] += 1
            rotation.took(LANE, key, 1, 1.0)
    assert max(turns.values()) - min(turns.values()) <= 1


def test_the_turns_of_many_keys_begin_at_a_number_drawn_by_lot() -> None:
    rotation, keys = Rotation(lambda: 0.5, offered=2), [2**61, 2**62, 2**62 + 2**61, 2**62 + 2**61 + 2]
    asked = rotation.asks(1)
    assert not rotation.found(1, keys[:3], asked), "there are more than may be on offer: others are to be read"
    assert (rotation.on_offer(1), rotation.asks(1)) == ([], Asked(2**62, 2))
    assert rotation.found(1, keys[2:], rotation.asks(1))
    assert rotation.on_offer(1) == keys[2:]


def test_where_all_keys_are_on_offer_no_lot_is_drawn() -> None:
    rotation = Rotation(lambda: 0.5, offered=2)
    assert rotation.found(1, [2**61], rotation.asks(1))
    assert rotation.on_offer(1) == [2**61]
