"""What is enqueued, and how each job must end: the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.outcome import RETRIES_EXHAUSTED
from holdfast.core.states import State
from holdfast.demo import tasks

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.tasks.task import Call

FEWEST: Final = 40
"""With fewer jobs there may be nothing left to do when a worker is to be killed."""
PARTS: Final = 8

SHARES: Final = {"render": 0.15, "slow": 0.15, "flaky": 0.12, "report": 0.08, "fatal": 0.05, "doomed": 0.03, "crunch": 0.03}
"""How much of the plan each task has; `quick` has the rest."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One job and its intended end. `result` is JSON text, `code` that of its error."""

    call: Call[Any]
    state: State = State.SUCCEEDED
    result: str | None = None
    code: str | None = None

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.call.job.id

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.call.job.task


def make_plan(jobs: int, seed: int) -> list[Planned]:
    """Return so many jobs in a mixed order. All but their ids depend on the seed alone."""
    rng = random.Random(seed)  # noqa: S311  a plan, not a secret
    names = [name for name, share in SHARES.items() for _ in range(max(1, round(share * jobs)))]
    names += ["quick"] * (jobs - len(names))
    rng.shuffle(names)
    return [_planned(name, rng) for name in names]


def _planned(name: str, rng: random.Random) -> Planned:
    number = rng.randrange(1000)
    match name:
        case "quick":
            return _succeeds(tasks.quick.call(number), number * number)
        case "slow":
            steps = 6 + number % 7
            return _succeeds(tasks.slow.call(steps), f"{steps} steps")
        case "flaky":
            return _succeeds(tasks.flaky.call(number), number)
        case "report":
            pages = 2 + number % 3
            return _succeeds(tasks.report.call(pages), f"{pages} pages")
        case "crunch":
            return _succeeds(tasks.crunch.call(number + 1000), tasks.primes(number + 1000))
        case "render":
            picture = sum(tasks.pixels(number, part) for part in range(1, PARTS + 1))
            return _succeeds(tasks.render.call(number, PARTS), picture)
        case "fatal":
            return Planned(tasks.fatal.call(number), State.FAILED, code=tasks.DECLINED)
        case "doomed":
            return Planned(tasks.doomed.call(number), State.FAILED, code=RETRIES_EXHAUSTED)
    raise ValueError(f"the plan knows no task {name!r}")


def _succeeds(call: Call[Any], result: object) -> Planned:
    return Planned(call, result=msgspec.json.encode(result).decode())
