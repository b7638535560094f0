"""A worker process that dies or is held at a named point: `python -m tests.faults.points MODULE OPTIONS`.

The option `point` says where; `after` how many seconds it lives on from there. With the option `hold` it does not die: whoever
has reached the point notes that, and waits for the gate of that name while the rest of the worker goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from holdfast import connect
from holdfast.store.postgres.transacting import PostgresTransaction
from holdfast.store.sqlite.transaction import SqliteTransaction
from tests.faults.tracing import URL, note, opened
from tests.faults.work import die_with_parent, work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Moment(Enum):
    """When it happens: before an operation begins, as it begins, or when it is done and nobody has heard of it."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Point:
    """A point in the life of a worker, by an operation of its store or of a handler's transaction."""

    operation: str
    moment: Moment
    counts: Callable[[Any, Any], bool] = lambda _asked, _answer: True
    """Whether what was asked and answered makes it the point."""
    of_transaction: bool = False


POINTS: Final = {
    "claimed": Point("claim", Moment.AFTER, counts=lambda _asked, answer: bool(answer)),
    "done": Point("settle", Moment.BEFORE),
    "settling": Point("settle", Moment.DURING),
    "continued": Point("settle", Moment.AFTER, counts=lambda asked, _answer: any(one.then is not None for one in asked)),
    "written": Point("execute", Moment.AFTER, of_transaction=True),
    "committing": Point("commit", Moment.DURING, of_transaction=True),
    "committed": Point("commit", Moment.AFTER, of_transaction=True),
    "before reaping": Point("reap", Moment.BEFORE),
    "reaping": Point("_settle", Moment.BEFORE),
    "reaped": Point("reap", Moment.AFTER, counts=lambda _asked, answer: bool(answer)),
    "firing": Point("fire", Moment.BEFORE),
}
"""By name. `reaping` is between a look at the leases and the write that ends the lapsed, and there is none in a file."""


def main() -> None:
    module, options, parent = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    die_with_parent(parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    arm(POINTS[options.pop("point")], after=options.pop("after", 0.0), gate=options.pop("hold", None))
    asyncio.run(work(module, options))


def arm(point: Point, *, after: float, gate: str | None) -> None:
    """Have whoever comes to the point first die there, or wait."""
    armed = True

    async def reached() -> bool:
        """Return whether it was held here."""
        nonlocal armed
        if not armed:
            return False
        armed = False
        if gate is not None:
            note("held", gate=gate)
            await opened(gate)
        elif after:
            # its default is to end the process where it stands, as SIGKILL does, and it can be set to a part of a millisecond
            signal.setitimer(signal.ITIMER_REAL, after)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
        return gate is not None

    file = os.environ[URL].startswith("sqlite")
    transactions = SqliteTransaction if file else PostgresTransaction
    owner = transactions if point.of_transaction else type(connect(os.environ[URL]))
    setattr(owner, point.operation, replaced(getattr(owner, point.operation), point, reached))


def replaced(
    real: Callable[..., Awaitable[Any]], point: Point, reached: Callable[[], Awaitable[bool]]
) -> Callable[..., Awaitable[Any]]:
    @wraps(real)
    async def operation(owner: object, *args: Any, **options: Any) -> Any:
        asked = args[0] if args else None
        if point.operation == "settle":
            note("settling", jobs=[str(one.lease.job_id) for one in args[0]])
        held = False
        if point.moment is not Moment.AFTER and point.counts(asked, None):
            held = await reached()
        answer = await real(owner, *args, **options)
        if point.moment is Moment.AFTER and point.counts(asked, answer):
            held = await reached()
        if held:
            note("went on")
        return answer

    return operation


if __name__ == "__main__":
    main()
