"""Two hundred workers and a store that goes away, comes back, and goes away again: simulated, with the real runtime."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import pytest

from holdfast.core.scaling import Scaling
from holdfast.core.states import State
from lab.sim.herd import herd

if TYPE_CHECKING:
    from lab.sim.herd import Asked, Herd

WORKERS = 200
OUTAGE = 10.0
"""Seconds, more than twice a lease; and all of it between two slots of the schedule, at which every worker asks."""


def sent(herd: Herd, begin: float, seconds: float) -> list[Asked]:
    """Return the requests that were sent in a stretch of time."""
    return [asked for asked in herd.weather.asked if begin <= asked.at < begin + seconds]


@pytest.mark.row(38)
def test_two_hundred_workers_do_not_storm_a_store_that_comes_back_and_no_failure_is_counted() -> None:
    with herd(1) as it:
        it.start(WORKERS)
        it.enqueue(3 * WORKERS, 1.5)
        it.run(3.0)
        it.cut(OUTAGE)
        it.run(OUTAGE)
        back = it.world.time
        it.run(60.0, lambda: it.all_ended)

        waiting = sent(it, back - 4.0, 4.0)
        assert len(waiting) < 3 * 4.0 * WORKERS, "in a long outage a worker asks less than three times a second"
        first = {asked.node: asked.at - back for asked in reversed(sent(it, back, 60.0))}
        assert len(first) == WORKERS
        fullest = max(sum(at <= other < at + 0.1 for other in first.values()) for at in first.values())
        assert fullest < WORKERS / 4, "they come back one after the other"
        assert max(first.values()) < 5.0, "and soon"
        loudest = max(len(sent(it, back + number / 10, 0.1)) for number in range(19))
        assert loudest < WORKERS, "no tenth of a second sees a request of each"

        assert {(job.state, job.failures) for job in it.jobs} == {(State.SUCCEEDED, 0)}
        assert len(it.jobs) == 3 * WORKERS
        assert it.world.complaints == []


@pytest.mark.row(38)
def test_while_the_store_comes_and_goes_workers_neither_come_and_go_nor_cost_an_attempt() -> None:
    scaling = Scaling(default_count=20, max_count=WORKERS, down_after=6.0, down_every=1.0)
    with herd(2, slots=1) as it:
        it.scale(scaling)
        it.run(2.0)
        it.enqueue(4 * WORKERS, 1.5)
        for _ in range(4):
            it.run(1.0)
            it.cut(2.0)
            it.run(2.0)
        it.run(60.0, lambda: it.all_ended)
        it.run(60.0, lambda: len(it.members) == scaling.default_count)

        numbers = [number for number, _ in groupby(count for _, count in it.numbers)]
        assert (numbers[0], max(numbers), numbers[-1]) == (20, WORKERS, 20)
        rises = [after > before for before, after in pairwise(numbers)]
        assert sum(one != other for one, other in pairwise(rises)) == 1, f"it rises once and falls once: {numbers}"
        assert {(job.state, job.failures) for job in it.jobs} == {(State.SUCCEEDED, 0)}
        assert it.world.complaints == []
