"""Workers that are asked to stop while they claim, one after the other: `python -m tests.faults.stopping MODULE OPTIONS`.

The option `rounds` says how many; each gets its signals at another moment of its claims, which the option `seed` decides.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from holdfast import connect
from tests.faults.tasks import app
from tests.faults.tracing import URL, note
from tests.faults.work import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

MOMENTS: Final = ("before", "during", "after")
LATEST: Final = 4
"""Claims before the one in which a worker is asked to stop, at most."""


class Asking:
    """Sends the signals of one round after another."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._moment = ""
        self._claims = 0
        self._twice = False

    def begin(self, number: int) -> None:
        """Choose what happens in a round."""
        self._moment, self._claims, self._twice = MOMENTS[number % 3], self._rng.randrange(LATEST), self._rng.random() < 0.5
        note("round", number=number, moment=self._moment, claims=self._claims, twice=self._twice)

    def stopping(self, event: str, _worker: UUID) -> None:
        """Ask a second time once the first was heard."""
        if event == "worker_stopping" and self._twice:
            _ask()

    def claiming(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a claim that is interrupted."""

        @wraps(real)
        async def claim(store: object, request: Any) -> Any:
            moment = "" if self._claims else self._moment
            if moment == "before":
                _ask()
                await asyncio.sleep(0)
            claiming = asyncio.ensure_future(real(store, request))
            if moment == "during":
                await asyncio.sleep(0)
                _ask()
            claimed = await claiming
            if moment == "after":
                _ask()
                await asyncio.sleep(0)
            if moment:
                self._moment = ""
            else:
                self._claims = max(0, self._claims - 1)
            return claimed

        return claim


def _ask() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def serve(rounds: int, seed: int, options: dict[str, Any]) -> None:
    asking = Asking(random.Random(seed))
    owner: Any = type(connect(os.environ[URL]))
    owner.claim = asking.claiming(owner.claim)
    app.on_worker(asking.stopping)
    for number in range(rounds):
        asking.begin(number)
        await app.worker(**options).serve()
        note("served", number=number)


def main() -> None:
    options, parent = json.loads(sys.argv[2]), int(sys.argv[3])
    die_with_parent(parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(serve(options.pop("rounds"), options.pop("seed"), options))


if __name__ == "__main__":
    main()
