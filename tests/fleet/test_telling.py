"""Which decisions are told: every change, and what keeps the number as it is when that changes."""

from __future__ import annotations

import pytest

from holdfast.core.scaling import Decision, Memory, Obstacle
from holdfast.fleet.telling import RARELY, Telling

MINUTE = 60


def of(count: int, obstacle: Obstacle | None = None) -> Decision:
    return Decision(count, "because", Memory(count=count), obstacle)


def told(decisions: list[Decision]) -> list[int]:
    """Return at which of these decisions, one a second, there was something to tell."""
    telling = Telling(of(2))
    return [now for now, decision in enumerate(decisions) if telling.is_news(decision, float(now))]


def test_every_change_of_the_number_is_told() -> None:
    assert told([of(2), of(4), of(4), of(2), of(2)]) == [1, 3]


def test_what_keeps_the_number_is_told_once_and_when_it_is_gone() -> None:
    lasts = [of(2, Obstacle.LIMITS)] * 300
    assert told([of(2), *lasts, of(2), of(2)]) == [1, 301]


def test_what_keeps_the_number_is_told_again_after_a_change() -> None:
    full = [of(8, Obstacle.MOST)] * 100
    assert told([of(8), *full, of(6), of(8), *full]) == [0, 1, 101, 102, 103]
    assert told([of(8), *full[:9], of(6), of(8), *full]) == [0, 1, 10, 11, 61], "though not at once"


@pytest.mark.parametrize("every", [1, 2, 7, 59])
def test_what_comes_and_goes_is_told_rarely(every: int) -> None:
    swings = [of(2, Obstacle.LIMITS if second // every % 2 else None) for second in range(60 * MINUTE)]
    assert 2 < len(told(swings)) <= 2 * 60 * MINUTE / RARELY


def test_each_obstacle_is_told_by_itself() -> None:
    assert told([of(2, Obstacle.NOT_UP), of(2, Obstacle.NOT_UP), of(2, Obstacle.LIMITS)]) == [0, 2]
