"""The same kind, input and seed do the same: on every attempt, machine and version of Python."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from holdfast.load.behaviour import Behaviour, Outcome, Step, behave, kind_of
from holdfast.load.catalog import Catalog, Fixed, HeavyTail, Kind, Uniform, parse, read

CATALOG = read(None)
GOLDEN = {
    ("ping", "0"): (0.002, "success"),
    ("mail", "0"): (0.116889, "success"),
    ("mail", "film ü.mov"): (0.102868, "success"),
    ("thumbnail", "0"): (1.211377, "success"),
    ("thumbnail", "film ü.mov"): (0.052023, "success"),
    ("webhook", "0"): (0.912298, "success"),
    ("webhook", "film ü.mov"): (0.006969, "success"),
    ("report", "0"): (2.888945, "success"),
    ("import", "0"): (5.645065, "success"),
    ("transcode", "film ü.mov"): (66.196627, "success"),
    ("backup", "0"): (120.0, "success"),
    ("webhook", "8"): (0.170756, "fail"),
    ("import", "6"): (3.51135, "fail"),
    ("import", "7"): (4.588069, "cancel"),
    ("report", "12"): (1.420196, "cancel"),
    ("mail", "216"): (0.149697, "fail"),
}
MIX = ["mail", "ping", "ping", "webhook", "thumbnail", "mail", "ping", "ping", "mail", "mail", "ping", "mail"]
MANY = 4000
SHOW = """
from holdfast.load.behaviour import behave
from holdfast.load.catalog import read
print([behave(kind, str(number), 3) for kind in read(None).kinds.values() for number in range(20)])
"""


@pytest.mark.parametrize(("name", "item"), GOLDEN)
def test_what_was_drawn_once_is_drawn_for_ever(name: str, item: str) -> None:
    behaviour = behave(CATALOG.kinds[name], item, 7)
    assert (behaviour.seconds, behaviour.outcome) == GOLDEN[name, item]


def test_the_mix_of_a_seed_is_always_the_same() -> None:
    assert [kind_of(CATALOG, number, 7).name for number in range(12)] == MIX


def test_progress_and_messages_are_part_of_it() -> None:
    kind = Kind(name="report", duration=Fixed(1_000_000), fail=1.0, success=0.0, steps=3)
    assert behave(kind, "x", 1) == Behaviour(
        seconds=1.0,
        outcome=Outcome.FAIL,
        message="report x fails, as its catalog says",
        steps=(
            Step(0.333333, 33.33, "report x: 1 of 3"),
            Step(0.333333, 66.67, "report x: 2 of 3"),
            Step(0.333334, 100.0, "report x: 3 of 3"),
        ),
    )


def test_other_processes_draw_the_same_whatever_their_hash_seed() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", SHOW], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    expected = [behave(kind, str(number), 3) for kind in CATALOG.kinds.values() for number in range(20)]
    assert [run.stdout.strip() for run in runs] == [str(expected)] * 2


def test_kind_input_and_seed_each_make_a_difference() -> None:
    kind = Kind(name="a", duration=Uniform(0, 10**9))
    other = Kind(name="b", duration=Uniform(0, 10**9))
    drawn = {behave(kind, "x", 1).seconds, behave(kind, "y", 1).seconds, behave(kind, "x", 2).seconds}
    assert len(drawn | {behave(other, "x", 1).seconds}) == 4


def test_a_kinds_other_fields_do_not_change_what_is_drawn() -> None:
    plain = Kind(name="a", duration=Uniform(0, 10**9))
    changed = Kind(name="a", duration=Uniform(0, 10**9), steps=5, cpu=1.0, queue="other", priority=9, weight=3.0, attempts=9)
    assert behave(plain, "x", 1).seconds == behave(changed, "x", 1).seconds


def test_durations_are_spread_as_the_catalog_says() -> None:
    uniform = sorted(behave(Kind(name="a", duration=Uniform(1000, 3000)), str(n), 1).seconds for n in range(MANY))
    assert 0.001 <= uniform[0] < uniform[-1] < 0.003
    assert uniform[MANY // 2] == pytest.approx(0.002, rel=0.05)
    heavy = HeavyTail(median=100_000, p99=2_000_000, most=3_000_000)
    tail = sorted(behave(Kind(name="a", duration=heavy), str(n), 1).seconds for n in range(MANY))
    assert tail[MANY // 2] == pytest.approx(0.1, rel=0.1)
    assert tail[MANY * 99 // 100] == pytest.approx(2.0, rel=0.25)
    assert tail[-1] == 3.0


def test_outcomes_and_kinds_come_by_their_shares() -> None:
    kind = Kind(name="a", duration=Fixed(0), success=70, fail=20, cancel=10)
    outcomes = Counter(behave(kind, str(number), 1).outcome for number in range(MANY))
    assert outcomes[Outcome.FAIL] / MANY == pytest.approx(0.2, abs=0.03)
    assert outcomes[Outcome.CANCEL] / MANY == pytest.approx(0.1, abs=0.03)
    never = Kind(name="never", duration=Fixed(0), weight=0.0)
    catalog = Catalog(
        {"a": Kind(name="a", duration=Fixed(0), weight=3.0), "never": never, "b": Kind(name="b", duration=Fixed(0))}
    )
    kinds = Counter(kind_of(catalog, number, 1).name for number in range(MANY))
    assert kinds["a"] / MANY == pytest.approx(0.75, abs=0.03)
    assert kinds["never"] == 0


def test_what_has_every_share_is_always_drawn() -> None:
    for field, outcome in (("success", Outcome.SUCCESS), ("fail", Outcome.FAIL), ("cancel", Outcome.CANCEL)):
        catalog = parse(f"[kinds.a]\nduration = 0\noutcomes = {{ {field} = 0.1 }}")
        assert {behave(catalog.kinds["a"], str(number), 1).outcome for number in range(200)} == {outcome}
