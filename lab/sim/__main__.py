"""`./dev sim`: run seeds, and tell what is wrong in words that a person can follow."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.sim.run import Outcome

STORES: Final = ("memory", "sqlite")
SHOWN: Final = 5
"""Seeds that fail and are told of."""


def main() -> int:
    """Run what is asked for; returns the exit code."""
    asked = _arguments()
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    stores = STORES if asked.store == "both" else (asked.store,)
    begun = time.monotonic()
    failed = 0
    done = 0
    for outcome in _outcomes([(seed, store) for seed in seeds for store in stores], asked.jobs):
        done += 1
        if asked.trace:
            print("\n".join(outcome.trace))
        if outcome.faults:
            failed += 1
            if failed <= SHOWN:
                print(f"\n{_story(outcome, minimise=not asked.trace)}")
        elif asked.seed is not None:
            print(f"seed {outcome.plan.seed} on {outcome.plan.store}: all is well ({outcome.digest})")
        if done % 500 == 0:
            print(f"{done} runs, {failed} failed", file=sys.stderr)
    took = time.monotonic() - begun
    print(f"{done} runs in {took:.1f} s ({done / took:.0f} a second): {failed} failed")
    return 1 if failed else 0


def _outcomes(runs: Sequence[tuple[int, str]], jobs: int) -> Iterator[Outcome]:
    if jobs == 1 or len(runs) < 2 * jobs:
        yield from map(_one, runs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_one, runs, chunksize=10)


def _one(run: tuple[int, str]) -> Outcome:
    from lab.sim.plan import Plan  # noqa: PLC0415  --help must be quick
    from lab.sim.run import simulate  # noqa: PLC0415  as above

    return simulate(Plan.drawn(*run))


def _story(outcome: Outcome, *, minimise: bool) -> str:
    from lab.sim.minimise import minimised, story  # noqa: PLC0415  only then

    return story(outcome, minimised(outcome) if minimise else outcome)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev sim",
        description="Simulate a fleet on a virtual clock, with everything going wrong that can, and check every promise.",
    )
    parser.add_argument("--seeds", type=_from_one, default=1000, metavar="N", help="how many seeds (default: 1000)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first of them (default: 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="this one alone")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both", help="which store (default: both)")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument(
        "--jobs", type=_from_one, default=os.cpu_count() or 1, metavar="N", help="processes (default: one for each core)"
    )
    return parser.parse_args()


def _from_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
