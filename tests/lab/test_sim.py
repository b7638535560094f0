"""The simulation: seeds that hold, the same trace for the same seed, and bugs that it must find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.sim.minimise import minimised
from lab.sim.plan import Plan
from lab.sim.run import simulate
from tests.lab.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SEEDS = 1000
"""How many seeds a bug may take to be found."""


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_nothing_is_lost_whatever_happens(store: str, first: int) -> None:
    for seed in range(first, first + 20):
        outcome = simulate(Plan.drawn(seed, store))
        assert not outcome.faults, f"./dev sim --seed {seed} --store {store}"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_same_seed_gives_the_same_trace(store: str) -> None:
    once, again = simulate(Plan.drawn(7, store)), simulate(Plan.drawn(7, store))
    assert once.trace == again.trace
    assert len(once.trace) > 100
    command = [sys.executable, "-m", "lab.sim", "--seed", "7", "--store", store]
    elsewhere = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert elsewhere[0].splitlines()[0] == elsewhere[1].splitlines()[0]
    assert "all is well" in elsewhere[0]


def test_another_seed_gives_another_trace() -> None:
    assert simulate(Plan.drawn(7, "memory")).digest != simulate(Plan.drawn(8, "memory")).digest


QUICK = (
    "a part of the worker",
    "a settlement",
    "a lapse costs nothing",
    "the first of several",
    "an enqueue is answered",
    "the next step",
)


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name.startswith(QUICK)], ids=str)
def test_a_bug_is_found_at_once(mutant: Mutant) -> None:
    assert _found(mutant, 50) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bug_is_found(mutant: Mutant) -> None:
    assert _found(mutant, SEEDS) is not None


def test_a_run_that_fails_is_told_by_its_smallest_plan() -> None:
    mutant = next(one for one in MUTANTS if one.name.startswith("waiters are not told"))
    seed = _found(mutant, 50)
    assert seed is not None
    with mutant.at_large():
        whole = simulate(Plan.drawn(seed, mutant.store))
        smallest = minimised(whole)
        assert smallest.faults
        assert len(smallest.plan.orders) == 1
        assert not smallest.plan.faults
        assert "gather" in str(smallest.plan)
    assert not simulate(smallest.plan).faults, "the bug is gone, and so is what was found"


def _found(mutant: Mutant, seeds: int) -> int | None:
    """Return the first seed that finds a bug."""
    with mutant.at_large():
        for seed in range(seeds):
            if simulate(Plan.drawn(seed, mutant.store)).faults:
                return seed
    return None


def test_the_command_line_says_what_it_takes() -> None:
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    shown = subprocess.run(
        [sys.executable, "-m", "lab.sim", "--help"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "--seeds" in shown.stdout
