"""How many workers there should be: the policy by itself. A thousand simulated days of it are in `test_scaling_traces`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.scaling import Decision, Memory, Obstacle, Sample, Scaling, begin, decide, occupied
from holdfast.errors import BadSetting

SCALING = Scaling()


def seen(**fields: object) -> Sample:
    """Return two workers of ten slots that are all taken, and change it."""
    base = Sample(now=100.0, ready=0, running=20, workers=2, slots=10, service=1.0)
    return replace(base, **fields)  # type: ignore[arg-type]


def decided(sample: Sample, memory: Memory | None = None, scaling: Scaling = SCALING) -> Decision:
    return decide(scaling, sample, memory or begin(scaling).memory)


def test_what_is_fetched_ahead_takes_no_slot_and_waits() -> None:
    assert occupied([0, 3, 4, 104], 4) == (11, 100)
    assert occupied([], 4) == (0, 0)


def test_it_begins_with_the_default_count() -> None:
    assert begin(SCALING).count == 2
    assert begin(Scaling(default_count=3, max_count=3)).memory == Memory(count=3)


def test_nothing_that_waits_changes_nothing() -> None:
    assert decided(seen(ready=0, running=0)).count == 2


def test_a_backlog_that_takes_longer_than_half_of_the_target_brings_more_at_once() -> None:
    assert decided(seen(ready=49)).count == 2
    assert decided(seen(ready=51)).count == 4


def test_it_at_most_doubles() -> None:
    assert decided(seen(ready=1_000_000)).count == 4
    assert decided(seen(ready=1_000_000, workers=4, running=40), Memory(count=4)).count == 8


def test_a_job_that_has_waited_for_too_long_brings_one_more() -> None:
    assert decided(seen(ready=1, oldest=2.4)).count == 2
    assert decided(seen(ready=1, oldest=2.6)).count == 3


def test_a_long_job_is_worth_one_slot_and_not_more() -> None:
    assert decided(seen(ready=3, service=3600.0, oldest=1.0)).count == 3


def test_before_anything_was_measured_every_waiting_job_is_worth_a_slot() -> None:
    assert decided(seen(ready=11, service=None)).count == 4
    assert decided(seen(ready=9, service=None)).count == 2


def test_free_slots_are_filled_before_more_come() -> None:
    assert decided(seen(ready=8, running=12, oldest=60.0)).count == 2


def test_where_slots_stay_free_more_of_them_would_not_help() -> None:
    assert decided(seen(ready=10_000, running=9, oldest=600.0)).count == 2


def test_nobody_else_comes_while_the_last_ones_start() -> None:
    assert decided(seen(ready=10_000, workers=1, running=10)).count == 2


def test_a_worker_that_does_not_come_up_is_waited_for_only_for_a_while() -> None:
    stuck = seen(ready=10_000, workers=1, running=10, not_up=("m.2",))
    memory = decided(stuck).memory
    assert decided(replace(stuck, now=129.9), memory).count == 2
    raised = decided(replace(stuck, now=130.0), memory)
    assert raised.count == 4
    assert raised.reason.endswith("the target is 5s; m.2 does not come up")
    others = replace(stuck, now=133.0, workers=2, running=20, not_up=("m.2", "m.4"))
    waits = decided(others, raised.memory)
    assert waits.count == 4, "one of those that have just been started is waited for"
    assert decided(replace(others, now=134.0, workers=3, running=30), waits.memory).count == 8
    assert decided(replace(others, now=160.0, not_up=()), waits.memory).reason.endswith("; 2 do not come up")


def test_a_worker_that_comes_up_late_is_counted_again() -> None:
    memory = Memory(count=4, lacking_since=10.0, given_up=2)
    memory = decided(seen(workers=4, running=40), memory).memory
    assert (memory.lacking_since, memory.given_up) == (None, 0)
    assert decided(seen(ready=10_000, workers=3, running=30), memory).count == 4


def test_after_more_came_there_is_a_rest() -> None:
    memory = Memory(count=2, raised_at=99.0)
    assert decided(seen(ready=10_000), memory).count == 2
    assert decided(seen(ready=10_000, now=101.0), memory).count == 4


def test_where_workers_take_long_to_start_they_are_started_so_much_earlier() -> None:
    assert decided(seen(ready=1, oldest=1.1, start=0.5)).count == 2
    assert decided(seen(ready=1, oldest=1.1, start=3.0)).count == 3
    assert decided(seen(ready=30, start=0.5)).count == 2
    assert decided(seen(ready=30, start=3.0)).count == 4
    assert decided(seen(ready=15, start=600.0)).count == 2, "a job may wait for a second, however long a start takes"


def test_in_less_time_it_takes_more_of_them() -> None:
    scaling, memory = Scaling(max_count=64), Memory(count=16)
    late = seen(ready=200, oldest=3.0, workers=16, running=160)
    wanted = [decided(replace(late, start=start), memory, scaling).count for start in (None, 0.5, 1.0, 2.0, 3.0, 600.0)]
    assert wanted == [20, 24, 26, 32, 32, 32], "those that start late have the less time; at most twice as many"


def test_what_comes_while_workers_start_counts_too() -> None:
    before = Memory(count=16, seen=(99.0, 100))
    scaling, sees = Scaling(max_count=64), seen(ready=200, oldest=3.0, workers=16, running=160, start=1.0)
    assert decided(sees, before, scaling).count == 31
    assert decided(sees, replace(before, seen=(99.0, 200)), scaling).count == 26
    assert decided(sees, replace(before, seen=(99.0, 2000)), scaling).count == 26, "fewer wait than before"
    assert decided(sees, replace(before, seen=(100.0, 0)), scaling).count == 26, "no time has passed"
    assert decided(sees, before, scaling).memory.seen == (100.0, 200)


def test_it_never_exceeds_the_most_and_counts_those_that_drain() -> None:
    full = seen(ready=10_000, workers=5, running=50)
    assert decided(full, Memory(count=5)).count == 8
    assert decided(replace(full, draining=2), Memory(count=5)).count == 6
    assert decided(replace(full, draining=3), Memory(count=5)).count == 5
    assert decided(replace(full, draining=8), Memory(count=5)).count == 5


def test_those_that_rest_may_come_back_and_leave_room_for_it() -> None:
    full = seen(ready=10_000, workers=5, running=50)
    assert decided(replace(full, resting=(1, 1, 1)), Memory(count=5)).count == 8
    assert decided(replace(full, resting=(1,), draining=2), Memory(count=5)).count == 6


def test_who_comes_back_brings_only_the_slots_that_are_free_in_it() -> None:
    short = seen(ready=12, oldest=3.0, service=10.0)
    assert decided(short).count == 4
    assert decided(replace(short, ready=9)).count == 3
    assert decided(replace(short, ready=9, resting=(2, 2))).count == 4, "one has eight slots"
    assert decided(replace(short, ready=9, resting=(1, 2))).count == 3
    assert decided(replace(short, ready=9, resting=(10, 10))).count == 3, "one that is full brings none: another is started"


def test_one_goes_after_a_calm_while_and_no_sooner() -> None:
    calm = seen(workers=4, running=0)
    first = decided(calm, Memory(count=4))
    assert (first.count, first.memory.low_since) == (4, 100.0)
    assert decided(replace(calm, now=129.9), first.memory).count == 4
    assert decided(replace(calm, now=130.0), first.memory).count == 3


def test_a_single_busy_moment_begins_the_calm_anew() -> None:
    calm = seen(workers=4, running=0)
    memory = decided(calm, Memory(count=4)).memory
    memory = decided(replace(calm, now=120.0, running=40), memory).memory
    assert memory.low_since is None
    assert decided(replace(calm, now=131.0), memory).count == 4


def test_of_many_that_are_too_many_a_quarter_goes() -> None:
    idle = seen(workers=20, running=0, now=200.0)
    scaling = Scaling(default_count=4, max_count=20)
    assert decided(idle, Memory(count=20, low_since=100.0), scaling).count == 16


def test_after_some_went_there_is_a_rest() -> None:
    calm = seen(workers=4, running=0)
    memory = Memory(count=4, low_since=10.0, lowered_at=96.0)
    assert decided(calm, memory).count == 4
    assert decided(replace(calm, now=101.0), memory).count == 3


def test_none_goes_soon_after_one_came() -> None:
    memory = Memory(count=4, low_since=10.0, raised_at=75.0)
    assert decided(seen(workers=4, running=0), memory).count == 4
    assert decided(seen(workers=4, running=0, now=105.0), memory).count == 3


def test_none_goes_whose_work_the_others_could_not_do() -> None:
    memory = Memory(count=4, low_since=10.0)
    assert decided(seen(workers=4, running=22), memory).count == 4
    assert decided(seen(workers=4, running=21), memory).count == 3


def test_jobs_that_wait_beside_free_slots_keep_no_workers() -> None:
    held = seen(ready=10_000, oldest=600.0, workers=8, running=12, now=200.0)
    memory = Memory(count=8, low_since=100.0)
    assert decided(held, memory).count == 6
    assert decided(replace(held, running=40), memory).count == 8, "as many slots are taken as to have more workers come"


@pytest.mark.parametrize("limit", range(1, 81))
def test_where_limits_hold_jobs_back_it_comes_to_rest(limit: int) -> None:
    decision, last = begin(SCALING), 0
    for now in range(600):
        count = decision.count
        sees = seen(now=float(now), ready=100_000, oldest=now + 1.0, workers=count, running=min(limit, 10 * count))
        decision = decide(SCALING, sees, decision.memory)
        last = now if decision.count != count else last
    assert last < 200
    assert decision.count >= min(8, limit / 10), "all that may run does"
    assert decision.count <= max(2, limit / 4 + 1)


@pytest.mark.parametrize("ready", [1, 5, 12, 19])
def test_a_few_that_are_held_back_do_not_have_workers_come_and_go(ready: int) -> None:
    decision, numbers = begin(SCALING), []
    for now in range(600):
        count = decision.count
        sees = seen(now=float(now), ready=ready, oldest=now + 1.0, workers=count, running=min(21, 10 * count))
        decision = decide(SCALING, sees, decision.memory)
        numbers.append(decision.count)
    assert len(set(numbers[300:])) == 1


def test_every_change_says_why() -> None:
    up = decided(seen(ready=1200, oldest=3.0, service=0.5)).reason
    assert up == (
        "up from 2 to 4: 1,200 wait, the oldest for 3s, 20 of 20 slots are taken; at 0.5s each the last would wait for 30s, "
        "the target is 5s"
    )
    down = decided(seen(workers=4, running=3), Memory(count=4, low_since=40.0)).reason
    assert down == "down from 4 to 3: 0 wait, 3 of 40 slots are taken; 2 would have done for 1m"
    assert decided(seen()).reason == "stays at 2: 0 wait, 20 of 20 slots are taken"
    assert decided(seen(held=1200)).reason == "stays at 2: 0 wait, limits hold back 1,200 more, 20 of 20 slots are taken"
    assert "not measured yet" in decided(seen(ready=1200, service=None)).reason


@pytest.mark.parametrize(
    ("sample", "memory", "obstacle", "said"),
    [
        (seen(), None, None, "slots are taken"),
        (seen(ready=10_000, workers=1, running=10), None, None, "slots are taken"),
        (seen(ready=0, held=1200), None, Obstacle.LIMITS, "limits hold back 1,200 more, 20 of 20 slots are taken"),
        (seen(ready=10_000, workers=8, running=80), Memory(count=8), Obstacle.MOST, "; 8 are the most"),
        (
            seen(ready=10_000, workers=5, running=50, draining=3),
            Memory(count=5),
            Obstacle.MOST,
            "; 8 are the most, 3 of them end what they run",
        ),
        (seen(ready=3, running=9, oldest=60.0), None, Obstacle.FREE, "; slots stay free, more would not help"),
        (seen(ready=3, running=9, oldest=1.0), None, None, "slots are taken"),
        (
            seen(workers=1, running=10, not_up=("m.2",)),
            Memory(count=2, lacking_since=60.0),
            Obstacle.NOT_UP,
            "; m.2 does not come up",
        ),
        (seen(too_heavy="m.2 takes too much"), None, Obstacle.MEMORY, "; m.2 takes too much"),
        (
            seen(workers=1, running=10, crashing="worker m.4 crashed with code 1, 3 times in a row"),
            Memory(count=2, lacking_since=60.0),
            Obstacle.CRASHES,
            "; worker m.4 crashed with code 1, 3 times in a row",
        ),
        (seen(crashing="worker m.4 crashed with code 1"), None, None, "slots are taken"),
    ],
)
def test_what_keeps_the_number_from_rising_is_told(
    sample: Sample, memory: Memory | None, obstacle: Obstacle | None, said: str
) -> None:
    decision = decided(sample, memory)
    assert decision.reason.startswith("stays at ")
    assert decision.reason.endswith(said)
    assert decision.obstacle == obstacle


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"default_count": 0}, "default_count must be 1 or more"),
        ({"default_count": 9}, "max_count is 8 and default_count 9"),
        ({"waiting_target": 0.0}, "waiting_target must be more than 0"),
        ({"down_after": -1.0}, "down_after must be more than 0"),
    ],
)
def test_what_could_not_work_is_refused(fields: dict[str, float], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        Scaling(**fields)  # type: ignore[arg-type]


counts = st.integers(0, 10_000)
moments = st.none() | st.floats(0, 1000)


@given(
    count=st.integers(2, 8),
    raised_at=moments,
    lowered_at=moments,
    low_since=moments,
    ready=counts,
    running=counts,
    workers=st.integers(0, 8),
    resting=st.lists(counts, max_size=8).map(lambda held: tuple(sorted(held))),
    draining=st.integers(0, 8),
    slots=st.integers(1, 100),
    service=st.none() | st.floats(0, 1e6),
    oldest=st.none() | st.floats(0, 1e6),
    start=st.none() | st.floats(0, 1e6),
)
def test_whatever_it_sees_the_number_stays_within_its_bounds(count: int, **fields: object) -> None:
    memory = Memory(count=count, **{name: fields.pop(name) for name in ("raised_at", "lowered_at", "low_since")})  # type: ignore[arg-type]
    decision = decide(SCALING, Sample(now=1000.0, **fields), memory)  # type: ignore[arg-type]
    assert SCALING.default_count <= decision.count <= SCALING.max_count
    assert decision.memory.count == decision.count
    assert decision.count <= 2 * count
    assert decide(SCALING, Sample(now=1000.0, **fields), memory) == decision  # type: ignore[arg-type]
