"""From a run that fails to the smallest one that fails in the same way, and its story."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lab.sim.run import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.sim.plan import Plan
    from lab.sim.run import Outcome

MOST_RUNS: Final = 300
_VARIABLE: Final = re.compile(r"\b[0-9a-f]{6}\b|/[0-9a-f]{4}\b|\b[wc]\d\b|-?\d+(\.\d+)?")
"""What two faults of one kind do not have in common: jobs, leases, nodes and figures."""
_JOB: Final = re.compile(r"\b[0-9a-f]{6}\b")
"""The name of a job in a trace."""


def minimised(outcome: Outcome) -> Outcome:
    """Leave out whatever the failure does not need: halves first, then one by one. One of another kind does not count."""
    best = outcome
    kind = kind_of(outcome.faults[0])
    runs = 0
    progress = True
    while progress and runs < MOST_RUNS:
        progress = False
        for smaller in _smaller(best.plan):
            runs += 1
            tried = simulate(smaller)
            if any(kind_of(fault) == kind for fault in tried.faults):
                best, progress = tried, True
                break
            if runs >= MOST_RUNS:
                break
    return best


def kind_of(fault: str) -> str:
    """Return what a fault has in common with others of its kind."""
    return _VARIABLE.sub("#", fault)


def story(outcome: Outcome, smallest: Outcome | None) -> str:
    """Tell of a run that fails, by the smallest plan that fails in the same way where there is one: for a person to follow."""
    seed, store = outcome.plan.seed, outcome.plan.store
    told = outcome if smallest is None else smallest
    what = "The plan" if smallest is None else "The smallest plan that fails in the same way"
    parts = [
        f"seed {seed} on {store} fails. All that happens: ./dev sim --seed {seed} --store {store} --trace",
        f"{what}:\n{told.plan}",
        "What happens:\n" + "\n".join(_telling(told)),
        "What is wrong:\n" + "\n".join(f"  {fault}" for fault in told.faults),
    ]
    return "\n\n".join(parts)


def _telling(outcome: Outcome) -> list[str]:
    """Return the lines that matter: what befalls processes, and what is done to the jobs that something is wrong with."""
    jobs = {job for fault in outcome.faults for job in _JOB.findall(fault)}
    if not jobs:
        return list(outcome.gist)
    for line in (*outcome.gist, *reversed(outcome.gist)):  # and to those that they wait for, or that follow them
        found = set(_related(line))
        if jobs & found:
            jobs |= found
    return [line for line in outcome.gist if " -> " not in line or jobs.intersection(_JOB.findall(line))]


def _related(line: str) -> Iterable[str]:
    return _JOB.findall(line) if " after (" in line or " then " in line else ()


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
