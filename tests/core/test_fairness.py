"""The order in which a claimer looks into its lanes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.fairness import AGING_TURN, Head, order

START = datetime(2026, 3, 1, tzinfo=UTC)


def head(lane: int, priority: int, second: float, queue: str = "", *, retries: bool = False) -> Head:
    return Head(lane, priority, START + timedelta(seconds=second), queue, retries)


queues = st.sampled_from(["a", "b"])
heads = st.lists(
    st.builds(head, st.integers(1, 100), st.integers(0, 9), st.integers(0, 1000), queues, retries=st.booleans()),
    unique_by=lambda one: one.lane,
)
turns = st.integers(0, 1000)
firsts = st.none() | queues


def test_higher_priorities_come_first() -> None:
    lanes = [head(1, 0, 1), head(2, 9, 3), head(3, 5, 2)]
    assert [one.lane for one in order(lanes, 0)] == [2, 3, 1]


def test_equal_priorities_come_by_their_oldest_job() -> None:
    lanes = [head(1, 5, 3), head(2, 5, 1), head(3, 5, 2)]
    assert [one.lane for one in order(lanes, 0)] == [2, 3, 1]


def test_every_tenth_turn_begins_with_the_lane_that_waited_longest() -> None:
    lanes = [head(1, 9, 3), head(2, 5, 2), head(3, 0, 1)]
    firsts = [order(lanes, turn)[0].lane for turn in range(30)]
    assert firsts == ([1] * 9 + [3]) * 3


def test_after_the_aged_lane_the_others_keep_their_order() -> None:
    lanes = [head(1, 9, 3), head(2, 5, 2), head(3, 0, 1)]
    assert [one.lane for one in order(lanes, AGING_TURN - 1)] == [3, 1, 2]


def test_equal_lanes_keep_the_order_they_came_in() -> None:
    lanes = [head(lane, 5, 0) for lane in (3, 1, 2)]
    assert order(lanes, 0) == order(lanes, AGING_TURN - 1) == lanes


def test_no_lanes_have_no_order() -> None:
    assert order([], AGING_TURN - 1) == []


def test_the_queue_whose_turn_it_is_comes_first_in_its_usual_order() -> None:
    lanes = [head(1, 9, 1, "a"), head(2, 0, 2, "b"), head(3, 5, 3, "b"), head(4, 5, 0, "c")]
    assert [one.lane for one in order(lanes, 0, first="b")] == [3, 2, 1, 4]


def test_retries_come_first_when_it_is_their_turn_and_keep_their_order() -> None:
    lanes = [head(1, 9, 1), head(2, 0, 2, retries=True), head(3, 5, 3, retries=True), head(4, 5, 0)]
    assert [one.lane for one in order(lanes, 0, retries_first=True)] == [3, 2, 1, 4]
    assert [one.lane for one in order(lanes, 0)] == [1, 4, 3, 2]


def test_the_queue_whose_turn_it_is_goes_before_the_retries_of_others() -> None:
    lanes = [head(1, 5, 1, "a", retries=True), head(2, 5, 2, "b"), head(3, 5, 3, "b", retries=True)]
    assert [one.lane for one in order(lanes, 0, first="b", retries_first=True)] == [3, 2, 1]


def test_the_lane_that_waited_longest_has_its_turn_whatever_else_comes_first() -> None:
    lanes = [head(1, 9, 3, "a", retries=True), head(2, 0, 1, "b")]
    assert [one.lane for one in order(lanes, AGING_TURN - 1, first="a", retries_first=True)] == [2, 1]


@given(heads, turns, firsts, st.booleans())
def test_no_lane_is_lost_or_doubled(lanes: list[Head], turn: int, first: str | None, retries_first: bool) -> None:  # noqa: FBT001
    assert sorted(order(lanes, turn, first=first, retries_first=retries_first)) == sorted(lanes)


@given(heads.filter(bool), turns)
def test_the_first_lane_is_the_most_urgent_or_the_oldest(lanes: list[Head], turn: int) -> None:
    first = order(lanes, turn)[0]
    if turn % AGING_TURN == AGING_TURN - 1:
        assert first.ready_at == min(one.ready_at for one in lanes)
    else:
        assert first.priority == max(one.priority for one in lanes)
