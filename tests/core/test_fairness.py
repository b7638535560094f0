"""The order in which a claimer looks into its lanes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.fairness import AGING_TURN, Head, Shares, order

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


# --- shares -----------------------------------------------------------------------------------------------------------------


def keyed(lane: int, weight: float = 1.0, second: float = 0, *, priority: int = 5, queue: str = "a") -> Head:
    return Head(lane, priority, START + timedelta(seconds=second), queue, weight=weight)


def drawn(shares: Shares, lanes: list[Head], limit: int, claims: int) -> Counter[int]:
    """Return how many jobs each lane gives over some claims, when none of them is ever empty."""
    given: Counter[int] = Counter()
    for turn in range(claims):
        left = limit
        # who was given less waits longer
        aged = [one._replace(ready_at=START + timedelta(seconds=given[one.lane] / (one.weight or 1))) for one in lanes]
        for one, quota in shares.spread(order(aged, turn), limit, turn):
            jobs = min(left, quota)
            given[one.lane] += jobs
            left -= jobs
            shares.took(one.lane, jobs, limit)
    return given


def test_without_keys_every_lane_may_give_all_that_is_asked_for() -> None:
    lanes = [head(1, 5, 1), head(2, 5, 2)]
    assert Shares().spread(lanes, 7, 0) == [(lanes[0], 7), (lanes[1], 7)]


def test_the_keys_of_a_queue_stand_together_where_the_first_of_them_stands() -> None:
    lanes = [keyed(1, second=1), head(2, 5, 2, "a"), keyed(3, second=3), keyed(4, second=4, queue="b")]
    assert [one.head.lane for one in Shares().spread(lanes, 4, 0)] == [1, 3, 2, 4]


def test_keys_of_a_lower_priority_take_no_turn_with_those_of_a_higher_one() -> None:
    shares = Shares().spread(order([keyed(1, priority=2), keyed(2, priority=8)], 0), 4, 0)
    assert [(one.head.lane, one.quota) for one in shares] == [(2, 4), (1, 4)]


@given(
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    limit=st.integers(1, 30),
)
def test_over_many_claims_each_key_gets_its_share(weights: list[int], limit: int) -> None:
    lanes = [keyed(number, weight, number) for number, weight in enumerate(weights, start=1)]
    claims = 400
    given = drawn(Shares(), lanes, limit, claims)
    total = sum(weights)
    assert given.total() == claims * limit
    for number, weight in enumerate(weights, start=1):
        due = claims * limit * weight / total
        # what the aging turns give the oldest is paid back, but for what is under way
        assert abs(given[number] - due) <= 2 * limit + len(weights), (number, given, due)


def test_a_key_that_had_nothing_saves_nothing_up() -> None:
    shares = Shares()
    drawn(shares, [keyed(1)], 10, 50)
    given = drawn(shares, [keyed(1), keyed(2, second=1)], 10, 4)
    assert given == {1: 20, 2: 20}


def test_a_key_that_was_held_back_makes_up_for_two_claims_and_no_more() -> None:
    shares, lanes = Shares(), [keyed(1), keyed(2, second=1)]
    for turn in range(100):
        shares.spread(order(lanes, turn), 10, turn)
        shares.took(1, 10, 10)  # of lane 2 a limit lets none go
    given = [drawn(shares, lanes, 10, 1)[2] for _ in range(20)]
    assert given[:2] == [10, 10]
    assert sum(given[5:]) == 75
