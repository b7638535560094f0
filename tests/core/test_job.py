"""Jobs as they are asked for: what is refused, the lanes they belong to, and the stored form of their policy."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from holdfast.core.job import (
    DEFAULT_POLICY,
    HIGHEST_PRIORITY,
    OF_KEY,
    RETRIES,
    BlockerPolicy,
    NewJob,
    Policy,
    Unique,
    lane_id,
    line_of,
    policy_of,
    policy_text,
)
from holdfast.core.limits import LimitKey
from holdfast.core.retry import Retry
from holdfast.errors import CENTURY, BadJob

ID = uuid7()
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(**fields: Any) -> NewJob:
    return NewJob(**{"id": ID, "task": "mail.welcome", **fields})


# -- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"id": uuid4()}, "id"),
        ({"task": ""}, "task"),
        ({"task": "x" * 201}, "task"),
        ({"task": "a\0"}, "task"),
        ({"task": None}, "task"),
        ({"queue": ""}, "queue"),
        ({"queue": "\ud800"}, "queue"),
        ({"priority": -1}, "priority"),
        ({"priority": HIGHEST_PRIORITY + 1}, "priority"),
        ({"priority": True}, "priority"),
        ({"args": '{"a": "\0"}'}, "args"),
        ({"args": '"\udc00"'}, "args"),
        ({"delay": -1.0}, "delay"),
        ({"delay": math.nan}, "delay"),
        ({"delay": math.inf}, "delay"),
        ({"delay": CENTURY * 1.01}, "delay"),
        ({"delay": True}, "delay"),
        ({"lease": 0.0}, "lease"),
        ({"lease": -60.0}, "lease"),
        ({"lease": math.nan}, "lease"),
        ({"lease": math.inf}, "lease"),
        ({"run_at": NOW, "delay": 1.0}, "run_at"),
        ({"run_at": NOW.replace(tzinfo=None)}, "run_at"),
        ({"run_at": NOW.replace(year=9500)}, "run_at"),
        ({"unique": Unique(key="", scope="s")}, "unique.key"),
        ({"unique": Unique(key="k", scope="")}, "unique.scope"),
        ({"unique": Unique(key="k", scope="s", window=0)}, "unique.window"),
        ({"unique": Unique(key="k", scope="s", window=math.nan)}, "unique.window"),
        ({"requires": ("gpu", "")}, "requires[1]"),
        ({"tags": ("a", "b", "\0")}, "tags[2]"),
        ({"after": (ID,)}, "after[0]"),
        ({"after": (UUID(int=1), UUID(int=2), UUID(int=1), UUID(int=2))}, "after[2]"),
        ({"chain_id": uuid7()}, "chain_id"),
        ({"trace": "\0"}, "trace"),
    ],
)
def test_what_no_store_could_keep_is_refused_by_the_name_of_its_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(BadJob) as refused:
        job(**fields)
    assert refused.value.path == path
    assert path in str(refused.value)


def test_a_job_that_is_waited_for_twice_is_named() -> None:
    with pytest.raises(BadJob, match=f"waits for each chain once, and {UUID(int=1)} is named twice"):
        job(after=(UUID(int=1), UUID(int=2), UUID(int=1)))


def test_a_job_that_waits_for_itself_is_named() -> None:
    with pytest.raises(BadJob, match=f"cannot wait for itself, {ID}"):
        job(after=(UUID(int=1), ID))


def test_a_priority_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(BadJob):
        job(priority=5.5)


@pytest.mark.parametrize("timeout", [-1.0, math.nan, math.inf])
def test_a_time_out_that_is_no_number_of_seconds_is_refused(timeout: float) -> None:
    with pytest.raises(BadJob):
        job(policy=Policy(timeout=timeout))


def test_a_bad_name_is_refused_again_after_good_ones_were_remembered() -> None:
    for _ in range(2):
        job()
        with pytest.raises(BadJob):
            job(task="")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"priority": 0},
        {"priority": HIGHEST_PRIORITY},
        {"delay": 0},
        {"delay": CENTURY},
        {"lease": 0.001},
        {"run_at": NOW - timedelta(days=10_000)},
        {"run_at": NOW.astimezone(timezone(timedelta(hours=14)))},
        {"unique": Unique(key="user:42", scope="mail", window=0.5)},
        {"chain_id": ID},
        {"requires": ("gpu", "ffmpeg"), "tags": ("größe",), "after": (UUID(int=1), UUID(int=2))},
    ],
)
def test_what_lies_within_the_limits_is_accepted(fields: dict[str, Any]) -> None:
    assert job(**fields) == job(**fields)


def test_a_job_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        job().task = "other"  # type: ignore[misc]


# -- lanes -----------------------------------------------------------------------------------------------------------------

names = st.text(min_size=1, max_size=20)
requirements = st.lists(names, max_size=3).map(tuple)


@given(names, names, st.integers(0, 9), requirements)
def test_lane_numbers_are_positive_and_fit_into_64_bits(
    queue: str, task: str, priority: int, requires: tuple[str, ...]
) -> None:
    lane = lane_id(queue, task, priority, requires)
    assert 0 < lane < lane | OF_KEY | RETRIES < 2**63
    assert lane % 4 == 0


def test_a_lane_keeps_its_number_in_every_process_and_version() -> None:
    # written down on purpose: another number would orphan the ready jobs of every store that exists
    assert lane_id("mail", "welcome", 5, ("gpu", "arm")) == 6154384783922825820


def test_the_order_of_requirements_does_not_matter() -> None:
    assert lane_id("q", "t", 5, ("a", "b")) == lane_id("q", "t", 5, ("b", "a"))


def test_everything_that_makes_a_lane_makes_another_number() -> None:
    lanes = [
        ("q", "t", 5, ()),
        ("r", "t", 5, ()),
        ("q", "u", 5, ()),
        ("q", "t", 6, ()),
        ("q", "t", 5, ("gpu",)),
        ("qt", "", 5, ()),
    ]
    assert len({lane_id(*lane) for lane in lanes}) == len(lanes)


def test_jobs_are_claimed_from_their_own_lane() -> None:
    assert job().entry == job().lane == lane_id("default", "mail.welcome", 5, ())


def test_retries_wait_beside_the_lane_of_their_job() -> None:
    assert job().retry_entry == line_of(job().lane, job().entry, 1) == job().entry + 1
    assert line_of(job().lane, job().entry, 0) == job().entry


def test_retries_of_a_key_wait_beside_its_lane() -> None:
    keyed = job(limit=LimitKey("tenants", "a"))
    assert keyed.entry != keyed.lane
    assert keyed.retry_entry == keyed.entry + 1
    assert keyed.retry_entry not in {job().retry_entry, job(limit=LimitKey("tenants", "b")).retry_entry}


def test_retries_of_a_fifo_queue_share_its_one_order() -> None:
    assert job(fifo=True).retry_entry == job(fifo=True).entry


def test_a_fifo_queue_shares_one_entry_among_tasks_but_counts_them_apart() -> None:
    first, second = job(fifo=True), job(task="mail.goodbye", fifo=True)
    assert first.entry == second.entry
    assert first.lane != second.lane
    assert first.entry not in (first.lane, second.lane)


def test_a_fifo_queue_has_one_entry_for_each_priority() -> None:
    assert job(fifo=True, priority=1).entry != job(fifo=True, priority=2).entry


# -- policies --------------------------------------------------------------------------------------------------------------

policies = st.builds(
    Policy,
    retry=st.builds(
        Retry,
        max_attempts=st.none() | st.integers(1, 10**6),
        initial=st.floats(0, 1e9),
        factor=st.floats(1, 1e6),
        max=st.floats(0, 1e9),
        jitter=st.floats(0, 1),
    ),
    timeout=st.none() | st.floats(0.001, 1e9),
    on_blocker_failure=st.sampled_from(BlockerPolicy),
)


@given(policies)
def test_a_policy_is_read_back_as_it_was_written(policy: Policy) -> None:
    assert policy_of(policy_text(policy)) == policy


def test_the_default_policy_takes_no_room() -> None:
    assert policy_text(DEFAULT_POLICY) is None
    assert policy_text(Policy(Retry(), 1800)) is None
    assert policy_of(None) == DEFAULT_POLICY


def test_a_stored_policy_is_a_json_list_that_may_grow_at_its_end() -> None:
    assert policy_text(Policy(Retry(5), None, BlockerPolicy.RUN)) == '[[5,10.0,2.0,300.0,0.1],null,"run"]'
    assert policy_of("[[5]]") == Policy(Retry(5))


def test_a_stored_policy_that_could_never_work_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="from 1"):
        policy_of("[[0]]")
