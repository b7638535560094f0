"""How many replicas a backlog asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.replicas import replicas

NUMBERS = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("ready", "running", "slots", "target", "wanted"),
    [
        (0, 0, 20, 1.0, 0),
        (1, 0, 20, 1.0, 1),
        (20, 0, 20, 1.0, 1),
        (21, 0, 20, 1.0, 2),
        (1, 20, 20, 1.0, 2),
        (200, 0, 20, 10.0, 1),
        (0, 60, 20, 10.0, 3),  # a generous target interrupts nobody
        (10, 0, 20, 0.5, 1),
        (11, 0, 20, 0.5, 2),
    ],
)
def test_replicas_are_as_many_as_the_backlog_fills(ready: int, running: int, slots: int, target: float, wanted: int) -> None:
    assert replicas(ready, running, slots=slots, target=target) == wanted


@given(ready=NUMBERS, running=NUMBERS, slots=st.integers(1, 1000), target=st.floats(0.001, 1e6))
def test_more_work_never_asks_for_fewer_and_what_runs_always_has_a_slot(
    ready: int, running: int, slots: int, target: float
) -> None:
    wanted = replicas(ready, running, slots=slots, target=target)
    assert wanted * slots >= running
    assert (wanted == 0) == (ready + running == 0)
    assert replicas(ready + 1, running, slots=slots, target=target) >= wanted
