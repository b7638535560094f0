"""The simulation: seeds that hold, crashes everywhere, the same trace for the same seed, and bugs that it must find."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from holdfast.store.memory import MemoryStore
from lab.sim import __main__ as command_line
from lab.sim.clients import ERRANDS
from lab.sim.ills import TOLD, Ill
from lab.sim.minimise import kind_of, minimised, story
from lab.sim.orders import Kind
from lab.sim.plan import Plan
from lab.sim.run import simulate
from lab.sim.sweep import calm_plan, sweep
from tests.lab.mutants import MUTANTS, Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
SEEDS = {"memory": range(950), "sqlite": range(950, 1000)}
"""Which are run each time; `./dev sim` runs any others."""
AT_ONCE = 25
SWEPT = {"memory": 37, "sqlite": 131}
"""Of how many callbacks one is tried each time; `./dev sim --sweep` tries all of them."""
MOST = 1000
"""How many seeds a bug may take to be found."""
COMPARED = 6
"""How many seeds are run again elsewhere."""
READABLE = 60
"""Lines that a person reads."""


@pytest.mark.parametrize(
    ("store", "first"), [(store, first) for store, seeds in SEEDS.items() for first in range(seeds.start, seeds.stop, AT_ONCE)]
)
def test_nothing_is_lost_whatever_happens(store: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        _holds(Plan.drawn(seed, store))


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_nothing_is_lost_wherever_a_process_is_killed(store: str) -> None:
    _holds(calm_plan(store))
    for plan in sweep(store, SWEPT[store]):
        _holds(plan)


def _holds(plan: Plan) -> None:
    outcome = simulate(plan)
    if outcome.faults:
        pytest.fail(story(outcome, minimised(outcome)))


# the same again


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_same_seed_gives_the_same_trace_whatever_was_run_before_and_in_which_order_sets_are(store: str) -> None:
    here = [simulate(Plan.drawn(seed, store), traced=True).digest for seed in range(COMPARED)]
    assert len(set(here)) == COMPARED, "another seed gives another trace"
    code = f"""
from lab.sim.plan import Plan
from lab.sim.run import simulate
digests = [simulate(Plan.drawn(seed, {store!r}), traced=True).digest for seed in reversed(range({COMPARED}))]
print(" ".join(reversed(digests)))
"""
    for hash_seed in ("1", "2"):
        assert _python("-c", code, hash_seed=hash_seed).split() == here


def test_the_trace_is_complete_and_printed_once() -> None:
    trace = simulate(Plan.drawn(7, "memory"), traced=True).trace
    assert len(trace) > 100
    shown = _python("-m", "lab.sim", "--seed", "7", "--store", "memory", "--trace").splitlines()
    assert tuple(shown[: len(trace)]) == trace
    assert len(shown) == len(trace) + 2, "whether all is well, and how long it took"


def test_every_kind_of_order_is_carried_out_and_every_ill_is_told_of() -> None:
    assert set(ERRANDS) == set(Kind)
    assert set(TOLD) == set(Ill)


# bugs


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bug_is_found(mutant: Mutant) -> None:
    assert _found(mutant, chain([mutant.seed], range(MOST))) is not None


def _found(mutant: Mutant, seeds: Iterable[int]) -> int | None:
    """Return the first seed that finds a bug."""
    with mutant.at_large():
        return next((seed for seed in seeds if simulate(Plan.drawn(seed, mutant.store)).faults), None)


def test_a_run_that_fails_is_told_by_its_smallest_plan_so_that_a_person_can_follow() -> None:
    mutant = next(one for one in MUTANTS if one.name.startswith("waiters are not told"))
    seed = _found(mutant, range(50))
    assert seed is not None
    with mutant.at_large():
        whole = simulate(Plan.drawn(seed, mutant.store))
        smallest = minimised(whole)
        told = story(whole, smallest)
    assert kind_of(smallest.faults[0]) == kind_of(whole.faults[0])
    assert len(smallest.plan.orders) == 1
    assert not smallest.plan.faults
    assert f"./dev sim --seed {seed} --store memory --trace" in told
    assert "orders gather" in told or "orders needed" in told
    assert "is stuck: blocked" in told
    assert told.count("\n") < READABLE
    assert not simulate(smallest.plan).faults, "the bug is gone, and so is what was found"


def test_a_story_is_about_the_bug_that_was_found() -> None:
    one, like, another = (
        "at 3.120 s w1 settle: a write for 422ac5/7155 is accepted although ef7e holds the job",
        "at 30.749 s w3 settle: a write for 0a1b2c/0aa1 is accepted although ef7e holds the job",
        "job 422ac5 (work) is stuck: ready, attempt 1",
    )
    assert kind_of(one) == kind_of(like) != kind_of(another)


async def _too_few(self: MemoryStore, leases: Any) -> Any:
    del self
    return [None for _ in leases[1:]]


async def _unreadable(self: MemoryStore, job_id: Any) -> Any:
    raise ValueError(f"{self} cannot read {job_id}")


@pytest.mark.parametrize(("name", "broken"), [("extend", _too_few), ("events", _unreadable)])
def test_answers_that_make_no_sense_are_a_finding_of_their_seed(name: str, broken: Any) -> None:
    with patch.object(MemoryStore, name, broken):
        outcomes = [simulate(Plan.drawn(seed, "memory")) for seed in range(3)]
    assert any(outcome.faults and outcome.trace for outcome in outcomes)


# the command line


def test_the_command_line_says_what_it_takes() -> None:
    assert "--seeds" in _python("-m", "lab.sim", "--help")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--seeds", "x"), "must be a whole number, not 'x'"),
        (("--seeds", "0"), "must be at least 1, not 0"),
        (("--seeds", "5", "--seed", "3"), "not allowed with"),
        (("--trace",), "give --seed too"),
    ],
)
def test_the_command_line_says_what_it_cannot_do(
    asked: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", *asked])
    with pytest.raises(SystemExit):
        command_line.main()
    assert said in capsys.readouterr().err


def test_who_interrupts_it_is_told_how_far_it_was(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", "--seeds", "3", "--jobs", "1", "--store", "memory"])
    with patch("lab.sim.run.simulate", side_effect=KeyboardInterrupt):
        assert command_line.main() == command_line.INTERRUPTED
    assert "interrupted: 0 runs" in capsys.readouterr().out


def _python(*args: str, hash_seed: str = "0") -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
