"""From a run that fails to the smallest one that fails still, and its story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.sim.run import simulate

if TYPE_CHECKING:
    from lab.sim.plan import Plan
    from lab.sim.run import Outcome

MOST_RUNS: Final = 300


def minimised(outcome: Outcome) -> Outcome:
    """Leave out whatever the failure does not need: halves first, then one by one."""
    best = outcome
    runs = 0
    progress = True
    while progress and runs < MOST_RUNS:
        progress = False
        for smaller in _smaller(best.plan):
            runs += 1
            if (tried := simulate(smaller)).faults:
                best, progress = tried, True
                break
            if runs >= MOST_RUNS:
                break
    return best


def story(outcome: Outcome, smallest: Outcome) -> str:
    """Tell of a run that fails by the smallest plan that fails still, so that a person can follow."""
    seed, store = outcome.plan.seed, outcome.plan.store
    parts = [
        f"seed {seed} on {store} fails. All that happens: ./dev sim --seed {seed} --store {store} --trace",
        f"The smallest plan that fails still:\n{smallest.plan}",
        "What happens:\n" + "\n".join(smallest.trace),
        "What is wrong:\n" + "\n".join(f"  {fault}" for fault in smallest.faults),
    ]
    return "\n\n".join(parts)


def _smaller(plan: Plan) -> list[Plan]:
    """Return plans with less in them, the smallest first."""
    found = []
    for name in ("faults", "orders"):
        parts = getattr(plan, name)
        size = len(parts)
        while size:
            for start in range(0, len(parts), size):
                left_out = frozenset(parts[start : start + size])
                found.append(plan.without(**{"orders": frozenset(), "faults": frozenset(), name: left_out}))
            size //= 2
    return found
