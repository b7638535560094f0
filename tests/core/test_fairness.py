"""The order in which a claimer looks into its lanes."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.fairness import AGING_TURN, Head, Shares, first_turn, order
from tests.support.lots import still

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


def test_a_turn_by_age_is_one_throughout() -> None:
    lanes = [head(1, 9, 3), head(2, 5, 2), head(3, 0, 1)]
    assert [one.lane for one in order(lanes, AGING_TURN - 1)] == [3, 2, 1]


def test_what_a_limit_holds_back_is_asked_last_in_a_turn_by_age() -> None:
    lanes = [head(1, 9, 3), head(2, 5, 2), head(3, 0, 1)._replace(held=True)]
    assert [one.lane for one in order(lanes, AGING_TURN - 1)] == [2, 1, 3]
    assert [one.lane for one in order(lanes, 0)] == [1, 2, 3], "any other turn goes by priority, held back or not"


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
    assert Shares(still).spread(lanes, 7, 0) == [(lanes[0], 7), (lanes[1], 7)]


def test_the_keys_of_a_queue_stand_together_where_the_first_of_them_stands() -> None:
    lanes = [keyed(2, second=1), head(4, 5, 2, "a"), keyed(6, second=3), keyed(8, second=4, queue="b")]
    assert [one.head.lane for one in Shares(still).spread(lanes, 4, 0)] == [2, 6, 4, 8]


def test_keys_of_a_lower_priority_take_no_turn_with_those_of_a_higher_one() -> None:
    shares = Shares(still).spread(order([keyed(2, priority=2), keyed(4, priority=8)], 0), 4, 0)
    assert [(one.head.lane, one.quota) for one in shares] == [(4, 4), (2, 4)]


@given(
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    limit=st.integers(1, 30),
)
def test_over_many_claims_each_key_gets_its_share(weights: list[int], limit: int) -> None:
    lanes = [keyed(2 * number, weight, number) for number, weight in enumerate(weights, start=1)]
    claims = 400
    given = drawn(Shares(still), lanes, limit, claims)
    total = sum(weights)
    assert given.total() == claims * limit
    for number, weight in enumerate(weights, start=1):
        due = claims * limit * weight / total
        # what the aging turns give the oldest is paid back, but for what is under way
        assert abs(given[2 * number] - due) <= 2 * limit + len(weights), (number, given, due)


def test_a_key_that_had_nothing_saves_nothing_up() -> None:
    shares = Shares(still)
    drawn(shares, [keyed(2)], 10, 50)
    given = drawn(shares, [keyed(2), keyed(4, second=1)], 10, 4)
    assert given == {2: 20, 4: 20}


def test_a_key_and_its_retries_have_one_share() -> None:
    lanes = [keyed(2), keyed(3, second=1)._replace(retries=True), keyed(4, second=2)]
    given = drawn(Shares(still), lanes, 10, 100)
    assert given[2] + given[3] == pytest.approx(given[4], abs=30)


def test_retries_of_keys_come_first_when_it_is_their_turn() -> None:
    retried = keyed(3, second=9)._replace(retries=True)
    lanes = [keyed(2, second=1), retried, keyed(4, second=2)]
    for first, lane in ((True, 3), (False, 2)):
        shares = Shares(still).spread(order(lanes, 0, retries_first=first), 4, 0, retries_first=first)
        assert shares[0].head.lane == lane


def test_a_key_that_was_held_back_makes_up_for_two_claims_and_no_more() -> None:
    shares, lanes = Shares(still), [keyed(2), keyed(4, second=1)]
    for turn in range(100):
        shares.spread(order(lanes, turn), 10, turn)
        shares.took(2, 10, 10)  # of lane 4 a limit lets none go
    given = [drawn(shares, lanes, 10, 1)[4] for _ in range(20)]
    assert given[:2] == [10, 10]
    assert sum(given[5:]) == 75


# --- many claimers ----------------------------------------------------------------------------------------------------------


def taken_by(chance: random.Random, lanes: list[Head], claimers: int, claims: int) -> list[int]:
    """Return which key each claim of one job takes, of claimers that begin together and take turns among themselves."""
    accounts = [Shares(chance.random) for _ in range(claimers)]
    taken = []
    for _ in range(claims):
        for shares in accounts:
            first = shares.spread(lanes, 1, 0)[0].head
            shares.took(first.lane, 1, 1)
            taken.append(first.lane)
    return taken


@pytest.mark.parametrize("claims", [1, 2, 3, 7])
def test_claimers_that_make_few_claims_share_by_weight_too(claims: int) -> None:
    lanes = [keyed(2, 3.0), keyed(4, second=1)]
    taken = Counter(taken_by(random.Random(1), lanes, 2000, claims))
    assert 0.65 <= taken[2] / taken.total() <= 0.85
    ends = Counter(taken_by(random.Random(2), lanes, 2000, claims)[-2000:])
    assert ends[4] > 100, "in no claim do all of them leave a key out"


def test_many_claimers_that_begin_together_do_not_go_through_the_keys_in_step() -> None:
    lanes = [keyed(lane, second=lane) for lane in range(2, 102, 2)]
    taken = taken_by(random.Random(3), lanes, 20, 50)
    assert Counter(taken) == dict.fromkeys(range(2, 102, 2), 20), "each of them has given every key its turn"
    waits = [taken.index(lane) for lane in range(2, 102, 2)]
    assert max(waits) <= 400, "of 1,000 claims, of which one in 50 is for each key"


def test_claimers_begin_anywhere_in_the_round_of_turns_by_age() -> None:
    chance = random.Random(4)
    begun = Counter(first_turn(chance.random()) for _ in range(2000))
    assert set(begun) == set(range(AGING_TURN))
    assert min(begun.values()) > 120
    assert first_turn(0.0) == 0
