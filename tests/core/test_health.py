"""Which loop has stood still for longer than it may, and what an address is."""

from __future__ import annotations

import math

import pytest

from holdfast.core.health import Check, Health, Pulse, host_and_port, moves


def a_pulse(at: float, rest: float) -> Pulse:
    pulse = Pulse("loop")
    pulse.came(at, rest)
    return pulse


@pytest.mark.parametrize(
    ("at", "rest", "now", "ok"),
    [
        (100.0, 0.0, 100.0, True),
        (100.0, 0.0, 110.0, True),
        (100.0, 0.0, 110.1, False),
        (100.0, 60.0, 169.0, True),
        (100.0, 60.0, 171.0, False),
        (100.0, math.inf, 1e9, True),
    ],
)
def test_a_loop_may_rest_as_long_as_it_said_and_be_late_by_the_bound(at: float, rest: float, now: float, *, ok: bool) -> None:
    assert moves(a_pulse(at, rest), now, 10.0).ok is ok


def test_a_loop_that_stands_still_is_named_with_how_late_it_is() -> None:
    assert moves(a_pulse(100.0, 5.0), 300.0, 10.0) == Check("loop", ok=False, detail="should have moved 195 s ago")


def test_a_loop_that_has_not_begun_or_waits_to_be_woken_is_not_late() -> None:
    pulse = Pulse("loop")
    assert moves(pulse, 1e9, 0.0).ok
    pulse.came(1.0)
    assert not moves(pulse, 1e9, 0.0).ok
    pulse.waits()
    assert moves(pulse, 1e9, 0.0).ok


def test_it_is_well_when_every_check_is() -> None:
    assert Health.of([]).ok
    assert Health.of([Check("a", ok=True)]).ok
    assert not Health.of([Check("a", ok=True), Check("b", ok=False)]).ok


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("8080", ("127.0.0.1", 8080)),
        (" 0 ", ("127.0.0.1", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        ("pod.local:65535", ("pod.local", 65535)),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize("text", ["", "here", "here:", "65536", "-1", "::1:80", "80.5", "٨٠"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PORT"):
        host_and_port(text)
