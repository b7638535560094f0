"""The simulation: seeds that hold, the same trace for the same seed, and bugs that it must find."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.sim.minimise import minimised, story
from lab.sim.plan import Plan
from lab.sim.run import simulate
from tests.lab.mutants import MUTANTS, Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
SEEDS = {"memory": 850, "sqlite": 150}
"""How many are run each time; `./dev sim` runs any number of others."""
AT_ONCE = 50
MOST = 1000
"""How many seeds a bug may take to be found."""


@pytest.mark.parametrize(
    ("store", "first"), [(store, first) for store, seeds in SEEDS.items() for first in range(0, seeds, AT_ONCE)]
)
def test_nothing_is_lost_whatever_happens(store: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = simulate(Plan.drawn(seed, store))
        if outcome.faults:
            pytest.fail(story(outcome, minimised(outcome)))


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_same_seed_gives_the_same_trace(store: str) -> None:
    once, again = simulate(Plan.drawn(7, store)), simulate(Plan.drawn(7, store))
    assert once.trace == again.trace
    assert len(once.trace) > 100
    elsewhere = {_run("--seed", "7", "--store", store, "--trace", hash_seed=hash_seed) for hash_seed in ("1", "2")}
    assert len(elsewhere) == 1, "what happens depends on the order of a set"
    assert "\n".join(once.trace) in elsewhere.pop()


def test_another_seed_gives_another_trace() -> None:
    assert simulate(Plan.drawn(7, "memory")).digest != simulate(Plan.drawn(8, "memory")).digest


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bug_is_found(mutant: Mutant) -> None:
    assert _found(mutant, chain([mutant.seed], range(MOST))) is not None


def test_a_run_that_fails_is_told_by_its_smallest_plan() -> None:
    mutant = next(one for one in MUTANTS if one.name.startswith("waiters are not told"))
    seed = _found(mutant, range(50))
    assert seed is not None
    with mutant.at_large():
        whole = simulate(Plan.drawn(seed, mutant.store))
        smallest = minimised(whole)
        assert smallest.faults
        assert len(smallest.plan.orders) == 1
        assert not smallest.plan.faults
        told = story(whole, smallest)
    assert f"./dev sim --seed {seed} --store memory --trace" in told
    assert "orders gather" in told
    assert "is stuck: blocked" in told
    assert not simulate(smallest.plan).faults, "the bug is gone, and so is what was found"


def _found(mutant: Mutant, seeds: Iterable[int]) -> int | None:
    """Return the first seed that finds a bug."""
    with mutant.at_large():
        return next((seed for seed in seeds if simulate(Plan.drawn(seed, mutant.store)).faults), None)


def test_the_command_line_says_what_it_takes() -> None:
    assert "--seeds" in _run("--help")


def _run(*args: str, hash_seed: str = "0") -> str:
    command = [sys.executable, "-m", "lab.sim", *args]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    # its last line tells how long it took
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return shown.rpartition("1 runs in")[0] or shown
