"""What limits say, and the room that they leave."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job import NewJob, lane_id
from holdfast.core.limits import (
    AGAIN,
    Bucket,
    LimitKey,
    LimitKind,
    LimitName,
    LimitRule,
    Room,
    check_limit,
    limit_id,
    names_over,
    ruling,
)
from holdfast.core.needs import limit_text, needs_of, required
from holdfast.errors import BadJob

SCOPES = LimitName(LimitKind.KEY, "tenants")
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1e"), min_size=1, max_size=20)
ID = UUID("01900000-0000-7000-8000-000000000000")


@given(scope=names, key=names, weight=st.floats(0.001, 1000))
def test_a_key_survives_being_kept_among_needs(scope: str, key: str, weight: float) -> None:
    weight = float(f"{weight:g}")
    needs = needs_of(("gpu", "big\x1e60", limit_text(LimitKey(scope, key, weight))))
    assert needs.limit == LimitKey(scope, key, weight)
    assert needs.required == {"gpu"}
    assert needs.preferred == {"big": 60.0}
    assert required(("gpu", limit_text(LimitKey(scope, key)))) == ("gpu",)


def test_a_job_with_a_key_waits_in_a_lane_of_the_key_and_is_counted_with_its_task() -> None:
    plain, one, other = (
        NewJob(id=ID, task="t", limit=limit) for limit in (None, LimitKey("tenants", "a"), LimitKey("tenants", "b"))
    )
    assert plain.entry == plain.lane == one.lane == other.lane == lane_id("default", "t", 5, ())
    assert len({plain.entry, one.entry, other.entry}) == 3
    assert len({plain.retry_entry, one.retry_entry, other.retry_entry, one.entry}) == 4


def test_names_are_told_apart() -> None:
    ids = {
        limit_id(name)
        for name in (
            LimitName(LimitKind.QUEUE, "a"),
            LimitName(LimitKind.TASK, "a"),
            LimitName(LimitKind.KEY, "a"),
            LimitName(LimitKind.KEY, "a", ""),
            LimitName(LimitKind.KEY, "a", "b"),
        )
    }
    assert len(ids) == 5
    assert all(0 < number < 2**63 for number in ids)


def test_the_limits_over_a_lane_are_those_of_its_queue_its_task_and_its_key() -> None:
    needs = needs_of((limit_text(LimitKey("tenants", "a")),))
    assert list(names_over("q", "t", needs, fifo=False)) == [
        LimitName(LimitKind.QUEUE, "q"),
        LimitName(LimitKind.TASK, "t"),
        LimitName(LimitKind.KEY, "tenants", "a"),
    ]
    assert list(names_over("q", "", needs_of(()), fifo=True)) == [LimitName(LimitKind.QUEUE, "q")]


def test_what_was_set_for_a_key_goes_before_its_scope_and_people_before_programs() -> None:
    two, three, four = LimitRule(most=2), LimitRule(most=3), LimitRule(most=4)
    assert ruling(None, None, two) == two
    assert ruling(None, three, two) == three
    assert ruling(four, three, two) == four
    assert ruling(LimitRule(weight=2.0), three, two) == three
    assert ruling(None, LimitRule(), two) is None, "people may say that there is no limit"
    assert ruling(None, None, None) is None


def test_a_bucket_fills_up_to_its_size_and_no_clock_that_goes_back_fills_it() -> None:
    rule = LimitRule(rate=2.0, burst=5)
    assert Bucket(0, 10).filled(rule, 11).tokens == 2
    assert Bucket(0, 10).filled(rule, 100).tokens == 5
    assert Bucket(1, 10).filled(rule, 5).tokens == 1


def test_room_counts_down() -> None:
    room = Room(LimitRule(most=2), running=1, bucket=None, now=0)
    assert room.admits(1)
    room.take(1)
    assert not room.admits(1)
    assert room.again(1) == AGAIN


def test_a_room_says_when_there_are_enough_tokens() -> None:
    room = Room(LimitRule(rate=0.5, burst=4), running=0, bucket=Bucket(1, 0), now=0)
    assert room.admits(1)
    assert not room.admits(2)
    assert room.again(2) == pytest.approx(2)
    assert room.again(100) == pytest.approx(6), "what costs more than the bucket holds waits until that is full"


@given(costs=st.lists(st.floats(0.1, 10), min_size=1, max_size=50), rate=st.floats(0.1, 100), burst=st.floats(0.5, 20))
def test_over_any_time_no_more_starts_than_flows_in_and_was_there(costs: list[float], rate: float, burst: float) -> None:
    rule, bucket, now, spent = LimitRule(rate=rate, burst=burst), None, 0.0, 0.0
    dearest = max(costs)
    for cost in costs:
        room = Room(rule, 0, bucket, now)
        if not room.admits(cost):
            now += room.again(cost) + 1e-6
            room = Room(rule, 0, bucket, now)
        assert room.admits(cost), "after the time it said there is enough"
        room.take(cost)
        spent += cost
        bucket = Bucket(room.tokens, now)
        assert spent <= burst + rate * now + dearest + 1e-6


@pytest.mark.parametrize(
    "fields",
    [
        {"most": -1},
        {"most": True},
        {"most": 1.5},
        {"rate": 0},
        {"rate": float("nan")},
        {"burst": 3},
        {"rate": 1, "burst": 0},
        {"weight": 0},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(BadJob):
        LimitRule(**fields)  # type: ignore[arg-type]


def test_only_scopes_have_keys_and_only_queues_and_keys_have_weights() -> None:
    check_limit(SCOPES._replace(key="a"), LimitRule(weight=2.0))
    with pytest.raises(BadJob, match="has no keys"):
        check_limit(LimitName(LimitKind.TASK, "t", "a"), LimitRule(most=1))
    with pytest.raises(BadJob, match="name the key"):
        check_limit(SCOPES, LimitRule(weight=2.0))
    check_limit(LimitName(LimitKind.QUEUE, "mail"), LimitRule(weight=2.0))
    with pytest.raises(BadJob, match="queues and single keys"):
        check_limit(LimitName(LimitKind.TASK, "t"), LimitRule(weight=2.0))
