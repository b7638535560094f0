"""How many workers there should be: the policy by itself, and a thousand simulated days of it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.scaling import Decision, Memory, Sample, Scaling, begin, decide
from holdfast.errors import BadSetting

SCALING = Scaling()
TRACES = 1000
STEP = 0.5
LENGTH = 180.0
"""Seconds of each trace."""
START = 1.0
"""Seconds that a worker needs to come up."""


def seen(**fields: object) -> Sample:
    """Return two workers of ten slots that are all taken, and change it."""
    base = Sample(now=100.0, ready=0, running=20, workers=2, slots=10, service=1.0)
    return replace(base, **fields)  # type: ignore[arg-type]


def decided(sample: Sample, memory: Memory | None = None, scaling: Scaling = SCALING) -> Decision:
    return decide(scaling, sample, memory or begin(scaling).memory)


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


def test_after_more_came_there_is_a_rest() -> None:
    memory = Memory(count=2, raised_at=99.0)
    assert decided(seen(ready=10_000), memory).count == 2
    assert decided(seen(ready=10_000, now=101.0), memory).count == 4


def test_it_never_exceeds_the_most_and_counts_those_that_drain() -> None:
    full = seen(ready=10_000, workers=5, running=50)
    assert decided(full, Memory(count=5)).count == 8
    assert decided(replace(full, draining=2), Memory(count=5)).count == 6
    assert decided(replace(full, draining=3), Memory(count=5)).count == 5
    assert decided(replace(full, draining=8), Memory(count=5)).count == 5


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


def test_every_change_says_why() -> None:
    up = decided(seen(ready=1200, oldest=3.0, service=0.5)).reason
    assert up == (
        "up from 2 to 4: 1,200 wait, the oldest for 3s, 20 of 20 slots are taken; at 0.5s each the last would wait for 30s, "
        "the target is 5s"
    )
    down = decided(seen(workers=4, running=3), Memory(count=4, low_since=40.0)).reason
    assert down == "down from 4 to 3: 0 wait, 3 of 40 slots are taken; 2 would have done for 1m"
    assert decided(seen()).reason == "stays at 2: 0 wait, 20 of 20 slots are taken"
    assert "not measured yet" in decided(seen(ready=1200, service=None)).reason


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
    draining=st.integers(0, 8),
    slots=st.integers(1, 100),
    service=st.none() | st.floats(0, 1e6),
    oldest=st.none() | st.floats(0, 1e6),
)
def test_whatever_it_sees_the_number_stays_within_its_bounds(count: int, **fields: object) -> None:
    memory = Memory(count=count, **{name: fields.pop(name) for name in ("raised_at", "lowered_at", "low_since")})  # type: ignore[arg-type]
    decision = decide(SCALING, Sample(now=1000.0, **fields), memory)  # type: ignore[arg-type]
    assert SCALING.default_count <= decision.count <= SCALING.max_count
    assert decision.memory.count == decision.count
    assert decision.count <= 2 * count
    assert decide(SCALING, Sample(now=1000.0, **fields), memory) == decision  # type: ignore[arg-type]


# -- a thousand traces -------------------------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """A simulated fleet: workers that take a second to start, jobs that take their time, a decision every second."""

    slots: int
    workers: list[list[float]]
    """When the jobs end that each of them runs."""
    draining: list[list[float]] = field(default_factory=list)
    starting: list[float] = field(default_factory=list)
    queue: deque[tuple[float, float]] = field(default_factory=deque)
    waits: list[float] = field(default_factory=list)

    def step(self, now: float, arrived: list[float]) -> None:
        """Let time pass: jobs end, workers come up, free slots take what waits."""
        self.queue.extend((now, service) for service in arrived)
        for jobs in (*self.workers, *self.draining):
            jobs[:] = [end for end in jobs if end > now]
        self.draining = [jobs for jobs in self.draining if jobs]
        while self.starting and self.starting[0] <= now:
            self.starting.pop(0)
            self.workers.append([])
        for jobs in self.workers:
            while self.queue and len(jobs) < self.slots:
                came, service = self.queue.popleft()
                self.waits.append(now - came)
                jobs.append(now + service)

    def scale(self, now: float, count: int) -> None:
        """Start workers, or let the idlest finish and go."""
        while len(self.workers) + len(self.starting) < count:
            self.starting.append(now + START)
        while len(self.workers) + len(self.starting) > count:
            idlest = min(range(len(self.workers)), key=lambda number: len(self.workers[number]))
            self.draining.append(self.workers.pop(idlest))

    def sample(self, now: float, service: float | None) -> Sample:
        return Sample(
            now=now,
            ready=len(self.queue),
            running=sum(map(len, self.workers)),
            workers=len(self.workers),
            draining=len(self.draining),
            slots=self.slots,
            service=service,
            oldest=now - self.queue[0][0] if self.queue else None,
        )


def traffic(chance: random.Random, slots: int, service: float) -> list[list[float]]:
    """Return the jobs that arrive in each step: calm, waves, spikes and jumps, drawn by chance."""
    capacity = SCALING.max_count * slots / service
    arrivals, rate, left = [], 0.0, 0.0
    for _ in range(int(LENGTH / STEP)):
        left -= STEP
        if left <= 0:
            left = chance.choice([2.0, 5.0, 15.0, 40.0, 90.0])
            rate = chance.choice([0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.5]) * capacity
        expected = rate * STEP * chance.uniform(0.7, 1.3)
        number = int(expected) + (chance.random() < expected % 1)
        arrivals.append([service * chance.uniform(0.5, 1.5) for _ in range(number)])
    return arrivals


def simulated(seed: int) -> tuple[list[tuple[float, int]], Fleet, Fleet]:
    """Return the changes of one trace, its fleet, and one that had the most workers all the time."""
    chance = random.Random(seed)
    slots, service = chance.choice([1, 2, 3]), chance.choice([1.0, 2.0, 4.0])
    fleet, always = (Fleet(slots, [[] for _ in range(count)]) for count in (SCALING.default_count, SCALING.max_count))
    decision, changes = begin(SCALING), []
    for number, arrived in enumerate(traffic(chance, slots, service)):
        now = number * STEP
        fleet.step(now, arrived)
        always.step(now, arrived)
        if now % 1.0 == 0.0:
            before = decision.count
            decision = decide(SCALING, fleet.sample(now, service if now > 10 else None), decision.memory)
            if decision.count != before:
                changes.append((now, decision.count - before))
                fleet.scale(now, decision.count)
    return changes, fleet, always


def within(times: list[float], seconds: float) -> int:
    """Return how many of these moments fall into the fullest stretch of so many seconds."""
    return max((sum(begin <= at < begin + seconds for at in times) for begin in times), default=0)


def test_over_a_thousand_traces_it_does_not_swing_and_keeps_its_target_where_the_most_would() -> None:
    feasible = 0
    for seed in range(TRACES):
        changes, fleet, always = simulated(seed)
        turns = [at for (_, one), (at, other) in pairwise(changes) if (one > 0) != (other > 0)]
        assert within(turns, SCALING.down_after) <= 2, f"seed {seed}"
        assert within([at for at, _ in changes], 60.0) <= 8, f"seed {seed}"
        if max(always.waits, default=0.0) <= SCALING.waiting_target / 4:
            feasible += 1
            assert max(fleet.waits, default=0.0) <= SCALING.waiting_target, f"seed {seed}"
    assert feasible > TRACES / 5, "the traces must show something"
