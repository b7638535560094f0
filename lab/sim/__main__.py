"""`./dev sim`: run seeds, and tell what is wrong in words that a person can follow."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.sim.plan import Plan
    from lab.sim.run import Outcome

STORES: Final = ("memory", "sqlite")
SHOWN: Final = 5
"""Seeds that fail and are told of."""
TELL_EVERY: Final = 500
"""Runs between two lines about how far it is."""
AT_ONCE: Final = 10
LIFE: Final = 50
"""Batches of runs after which a process makes way for a new one: what a run leaves in memory goes with it."""
INTERRUPTED: Final = 130


@dataclass
class Tally:
    """How far it is."""

    planned: int
    begun: float = field(default_factory=time.monotonic)
    done: int = 0
    failed: int = 0

    def __str__(self) -> str:
        took = time.monotonic() - self.begun
        return f"{self.done} runs in {took:.1f} s ({self.done / max(took, 0.001):.0f} a second): {self.failed} failed"


def main() -> int:
    """Run what is asked for; returns the exit code."""
    asked = _arguments()
    stores = STORES if asked.store == "both" else (asked.store,)
    plans = _swept(stores) if asked.sweep else _drawn(asked, stores)
    tally = Tally(len(plans))
    try:
        for outcome in _outcomes(plans, asked.jobs, traced=asked.trace):
            _tell(outcome, tally, asked)
    except KeyboardInterrupt:
        print(f"\ninterrupted: {tally}")
        return INTERRUPTED
    print(tally)
    return 1 if tally.failed else 0


def _drawn(asked: argparse.Namespace, stores: Sequence[str]) -> list[Plan]:
    from lab.sim.plan import Plan  # noqa: PLC0415  --help must be quick

    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    return [Plan.drawn(seed, store) for seed in seeds for store in stores]


def _swept(stores: Sequence[str]) -> list[Plan]:
    from lab.sim.sweep import sweep  # noqa: PLC0415  as above

    return [plan for store in stores for plan in sweep(store)]


def _tell(outcome: Outcome, tally: Tally, asked: argparse.Namespace) -> None:
    tally.done += 1
    if asked.trace:
        print("\n".join(outcome.trace))
    if outcome.faults:
        tally.failed += 1
        if asked.trace:
            print("\n".join(("What is wrong:", *(f"  {fault}" for fault in outcome.faults))))
        elif tally.failed <= SHOWN:
            print(f"\n{_story(outcome)}\n", flush=True)
    elif asked.seed is not None:
        digest = f" ({outcome.digest})" if asked.trace else ""
        print(f"seed {outcome.plan.seed} on {outcome.plan.store}: all is well{digest}")
    if tally.done % TELL_EVERY == 0:
        print(f"{tally.done} of {tally.planned} runs, {tally.failed} failed", file=sys.stderr)


def _outcomes(plans: Sequence[Plan], jobs: int, *, traced: bool) -> Iterator[Outcome]:
    from lab.sim.run import simulate  # noqa: PLC0415  as above

    if jobs == 1 or len(plans) < 2 * jobs:
        for plan in plans:
            yield simulate(plan, traced=traced)
        return
    with ProcessPoolExecutor(jobs, max_tasks_per_child=LIFE) as pool:
        try:
            yield from pool.map(simulate, plans, chunksize=AT_ONCE)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _story(outcome: Outcome) -> str:
    from lab.sim.minimise import minimised, story  # noqa: PLC0415  only then

    return story(outcome, minimised(outcome))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev sim",
        description="Simulate a fleet on a virtual clock, with everything going wrong that can, and check every promise.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=_from_one, default=1000, metavar="N", help="how many seeds (default: 1000)")
    which.add_argument("--seed", type=_whole, metavar="S", help="this one alone")
    which.add_argument(
        "--sweep", action="store_true", help="kill a process before every callback of a run in which all is well"
    )
    parser.add_argument("--first", type=_whole, default=0, metavar="S", help="the first of the seeds (default: 0)")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both", help="which store (default: both)")
    parser.add_argument("--trace", action="store_true", help="print everything that happens; with --seed")
    parser.add_argument(
        "--jobs", type=_from_one, default=os.cpu_count() or 1, metavar="N", help="processes (default: one for each core)"
    )
    asked = parser.parse_args()
    if asked.trace and asked.seed is None:
        parser.error("--trace prints everything that happens in one run: give --seed too")
    return asked


def _from_one(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
