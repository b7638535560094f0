"""The circuit breaker: what it lets through, when it opens and how it comes back, over every sequence of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.breaker import Breaker, Limits, Phase

LIMITS = Limits(failures=3, first_rest=0.25, longest_rest=5.0, probe=2.0)
CHANCES = st.floats(0, 1, exclude_max=True)


def opened(now: float = 0.0, chance: float = 0.0) -> Breaker:
    breaker = Breaker(LIMITS)
    for _ in range(LIMITS.failures):
        breaker, permit = breaker.ask(now)
        assert permit is not None
        breaker = breaker.failed(permit, now, chance)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(LIMITS)
    for failure in range(LIMITS.failures):
        assert breaker.phase is Phase.CLOSED, failure
        breaker = breaker.failed(breaker.era, 0.0, 0.0)
    assert breaker.phase is Phase.OPEN


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(LIMITS)
    for _ in range(10):
        breaker = breaker.failed(breaker.era, 0.0, 0.0).failed(breaker.era, 0.0, 0.0).succeeded(breaker.era)
    assert breaker.phase is Phase.CLOSED


def test_a_probe_that_goes_well_closes_it_and_one_that_does_not_opens_it_for_longer() -> None:
    breaker, permit = opened().ask(0.25)
    assert (breaker.phase, permit is not None) == (Phase.HALF_OPEN, True)
    assert permit is not None
    assert breaker.succeeded(permit).phase is Phase.CLOSED
    again = breaker.failed(permit, 0.25, 0.0)
    assert (again.phase, again.until) == (Phase.OPEN, 0.25 + 0.5)


def test_while_it_probes_nothing_else_is_let_through_unless_the_probe_was_lost() -> None:
    breaker, first = opened().ask(1.0)
    breaker, other = breaker.ask(1.0 + LIMITS.probe / 2)
    assert other is None
    breaker, second = breaker.ask(1.0 + LIMITS.probe)
    assert second is not None
    assert second != first
    assert first is not None
    assert breaker.succeeded(first) == breaker, "the one that was lost says nothing any more"


def test_an_answer_to_what_was_asked_before_it_opened_closes_nothing() -> None:
    old = Breaker(LIMITS).era
    breaker = opened()
    assert breaker.succeeded(old) == breaker
    probing, _ = breaker.ask(1.0)
    assert probing.succeeded(old) == probing
    assert probing.failed(old, 1.0, 0.0) == probing


@given(st.lists(CHANCES, min_size=1, max_size=40))
def test_rests_double_up_to_the_longest_and_jitter_takes_at_most_half(chances: list[float]) -> None:
    now, breaker = 0.0, opened(chance=chances[0])
    for number, chance in enumerate(chances):
        whole = min(LIMITS.longest_rest, LIMITS.first_rest * 2**number)
        rest = breaker.until - now
        assert whole / 2 - 1e-9 <= rest <= whole + 1e-9
        now = breaker.until
        breaker, permit = breaker.ask(now)
        assert permit is not None
        following = chances[number + 1] if number + 1 < len(chances) else chance
        breaker = breaker.failed(permit, now, following)


class Machine(RuleBasedStateMachine):
    """Somebody who tries when allowed, hears of it late or never, while time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(LIMITS)
        self.now = 0.0
        self.permits: list[int] = []
        self.in_a_row = 0

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def somebody_asks(self) -> None:
        before = self.breaker
        self.breaker, permit = before.ask(self.now)
        if permit is None:
            assert before.phase is not Phase.CLOSED
            assert self.now < before.until
        else:
            assert before.phase is Phase.CLOSED or self.now >= before.until
            self.permits.append(permit)

    @precondition(lambda self: self.permits)
    @rule(which=st.integers(0, 1000), goes_well=st.booleans(), chance=CHANCES)
    def somebody_hears(self, which: int, goes_well: bool, chance: float) -> None:  # noqa: FBT001  drawn
        permit = self.permits.pop(which % len(self.permits))
        before = self.breaker
        self.breaker = before.succeeded(permit) if goes_well else before.failed(permit, self.now, chance)
        if permit != before.era:
            assert self.breaker == before, "void"
        elif before.phase is Phase.CLOSED:
            self.in_a_row = 0 if goes_well else self.in_a_row + 1
            assert (self.breaker.phase is Phase.OPEN) == (self.in_a_row >= LIMITS.failures)
        elif before.phase is Phase.HALF_OPEN:
            assert self.breaker.phase is (Phase.CLOSED if goes_well else Phase.OPEN)
        if self.breaker.phase is not before.phase:
            self.in_a_row = 0

    @invariant()
    def it_always_comes_back(self) -> None:
        """Whatever happened, within the longest rest or the longest probe somebody may try again, and one success closes it."""
        later = self.now + max(LIMITS.longest_rest, LIMITS.probe)
        breaker, permit = self.breaker.ask(later)
        assert permit is not None
        assert breaker.succeeded(permit).phase is Phase.CLOSED

    @invariant()
    def eras_only_grow(self) -> None:
        assert all(permit <= self.breaker.era for permit in self.permits)


TestMachine = Machine.TestCase
