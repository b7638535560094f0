"""`./dev soak`: everything at once for as long as you like, and books that must balance."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lab.soak.run import Outcome

STORES: Final = ("postgres", "sqlite")
DESCRIPTION: Final = "Run producers and workers under faults for as long as you like, then see whether the books balance."
EPILOG: Final = """\
Real producers and workers, each a process of its own, share a PostgreSQL server (behind proxies that cut, delay and lose) or
a SQLite file. Jobs of every kind are enqueued at a steady pace: in bulk, in the user's own transaction, in chains, behind
blockers, by the clock, with unique keys, with effects in the job's own transaction. Every few seconds something is killed,
frozen, cut off or taken away. Producers write down what was acknowledged. Then everything is finished, every job is read with
its event log, and the books must balance: nothing lost, nothing doubled, nothing stale. Ctrl-C ends the faults early and
balances the books; once more, or SIGTERM, gives up. Faults that need root or a Debian package which is not there are left out.

The same seed draws the same faults and the same jobs; what they meet depends on the machine.

  ./dev soak --minutes 3                   three minutes on PostgreSQL
  ./dev soak --minutes 3 --store both      and three on SQLite
  ./dev soak --minutes 30 --json soak.json half an hour, with all figures for machines
  ./dev soak --minutes 3 --seed 7          the choices of a run that failed
  ./dev soak --minutes 1 --every 1         a fault every second
  ./dev soak --minutes 1 --only 1,11       only kills and lost answers

Exit code: 0 when all books balance, 1 when one does not, 2 for wrong usage, 130 when it was given up.
"""


def main() -> int:
    """Run what is asked for; returns the exit code."""
    asked = _arguments()
    seed = random.randrange(2**32) if asked.seed is None else asked.seed
    outcomes: list[Outcome] = []
    for store in _stores(asked):
        outcomes.append(_one(asked, store, seed))
        if outcomes[-1].interrupted:
            break
    if asked.json is not None:
        asked.json.write_text(json.dumps([outcome.figures() for outcome in outcomes], indent=2) + "\n")
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _stores(asked: argparse.Namespace) -> tuple[str, ...]:
    return STORES if asked.store == "both" else (asked.store,)


def _one(asked: argparse.Namespace, store: str, seed: int) -> Outcome:
    from lab.soak.run import LeftOut, Settings, soak  # noqa: PLC0415  --help must be quick

    settings = Settings(asked.minutes, store, seed, asked.workers, asked.every, asked.rate, asked.only)
    print(f"soak of {asked.minutes:g} min on {store}, seed {seed}. Again: {settings.command}", flush=True)
    try:
        outcome = asyncio.run(soak(settings))
    except LeftOut:
        sys.exit(2)  # why was said already
    _tell(outcome)
    return outcome


def _tell(outcome: Outcome) -> None:
    from lab.soak import telling  # noqa: PLC0415  as above
    from lab.soak.recovery import ENOUGH  # noqa: PLC0415  as above

    settings = outcome.settings
    print(f"\nfaults, and how long until what they took away was at work again ({outcome.missed} more met nobody);")
    print(f"those that took something away are measured, and p99 needs {ENOUGH} of them")
    print("\n".join(telling.faults_table(outcome.faults)))
    print(f"\nbooks of {outcome.jobs} jobs, {outcome.jobs / outcome.seconds:.0f} a second")
    print("\n".join(telling.books_table(outcome.books)))
    print("\nin figures")
    shown: dict[str, Any] = outcome.notes | {"stale writes refused": sum(outcome.refused.values())}
    print("\n".join(f"  {name:<60} {count:>9}" for name, count in shown.items()))
    if outcome.ok:
        print(f"\nBALANCED: {outcome.jobs} jobs on {settings.store} under {_injected(outcome)} faults, seed {settings.seed}\n")
    else:
        print(f"\nNOT BALANCED: see the lines marked WRONG. Again: {settings.command}\n")


def _injected(outcome: Outcome) -> int:
    return sum(one.injected for one in outcome.faults.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev soak", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=_positive, required=True, metavar="M", help="how long faults go on, on each store")
    parser.add_argument("--store", choices=(*STORES, "both"), default="postgres", help="which store (default: postgres)")
    parser.add_argument("--seed", type=int, metavar="S", help="the seed of faults and jobs (default: by chance)")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (default: 4)")
    parser.add_argument("--every", type=_positive, default=5.0, metavar="SECONDS", help="between two faults (default: 5)")
    parser.add_argument("--rate", type=_positive, default=160.0, metavar="JOBS", help="jobs a second to aim at (default: 160)")
    parser.add_argument(
        "--only", metavar="ROWS", help="only faults of these rows of the catalogue, as 1,11 (./dev faults --list)"
    )
    parser.add_argument("--json", type=_writable, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    if asked.workers < 1:
        parser.error("--workers must be at least 1")
    if asked.only is not None:
        from lab.soak.faults.table import possible  # noqa: PLC0415  --help must be quick

        try:
            for store in _stores(asked):
                possible(store, asked.only)
        except ValueError as error:
            parser.error(str(error))
    return asked


def _writable(text: str) -> Path:
    """Return the path of a file that can be written: it would be a pity to learn that after half an hour."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no file, or in a folder that does not exist")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    return path


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return number


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, asyncio.CancelledError):  # the second: it was given up in order
        sys.exit(130)
