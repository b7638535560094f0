"""How long workers take to come up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.fleet.starting import LATELY, StartTimes

if TYPE_CHECKING:
    from holdfast.fleet.crew import Member


@dataclass
class Process:
    """As much of a member as is asked for."""

    process_id: int
    started_at: float


def crew(**started: float) -> list[Member]:
    return [cast("Member", Process(int(name.removeprefix("p")), at)) for name, at in started.items()]


def test_before_the_first_start_nothing_is_known() -> None:
    starts = StartTimes()
    starts.note(crew(p1=0.0), up=(), now=1.0)
    assert starts.seconds is None


def test_each_start_counts_once_up_to_the_look_that_saw_it() -> None:
    starts = StartTimes()
    starts.note(crew(p1=0.0, p2=0.0), up={1}, now=2.0)
    assert starts.seconds == 2.0
    starts.note(crew(p1=0.0, p2=0.0), up={1, 2}, now=4.0)
    starts.note(crew(p1=0.0, p2=0.0), up={1, 2}, now=60.0)
    assert starts.seconds == 3.0


def test_a_process_id_that_comes_again_is_another_worker() -> None:
    starts = StartTimes()
    starts.note(crew(p1=0.0), up={1}, now=2.0)
    starts.note([], up=(), now=3.0)
    starts.note(crew(p1=10.0), up={1}, now=14.0)
    assert starts.seconds == 3.0


def test_only_the_latest_starts_count() -> None:
    starts = StartTimes()
    for number in range(3 * LATELY):
        took = 9.0 if number < 2 * LATELY else 1.0
        starts.note(crew(**{f"p{number}": 0.0}), up={number}, now=took)
    assert starts.seconds == pytest.approx(1.0)
