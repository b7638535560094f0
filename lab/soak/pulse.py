"""Whether the machine keeps up: a thread in every worker, and a question to the store, that know when they were due.

A lease may lapse because a machine is too busy to give its worker a turn. That is no fault of Holdfast, and no injected one:
it is measured here, apart from all that Holdfast itself knows of time.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from lab.soak.blows import Stall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BEAT: Final = 0.2
"""Seconds between two beats."""
LATE: Final = 0.5
"""Seconds without a turn that are worth a word."""
_SAID: Final = re.compile(r"^pulse: no turn for ([\d.]+) s until ([\d.]+)$", re.MULTILINE)


def beat() -> None:
    """Have a thread say when it was late, by the clock that nobody sets and that all processes of a machine share."""
    threading.Thread(target=_beat, name="pulse", daemon=True).start()


def _beat() -> None:
    never = threading.Event()
    last = time.monotonic()
    while True:
        never.wait(BEAT)
        now = time.monotonic()
        if now - last - BEAT >= LATE:
            print(f"pulse: no turn for {now - last - BEAT:.3f} s until {now:.3f}", file=sys.stderr, flush=True)
        last = now


def stalls(life: str, log: str) -> list[Stall]:
    """Return what a worker's log says of its pulse, in the time of the wall."""
    shift = time.time() - time.monotonic()
    return [Stall(life, float(until) + shift, float(seconds)) for seconds, until in _SAID.findall(log)]


async def watch(answered: Callable[[], Awaitable[float | None]], note: Callable[[Stall], None]) -> None:
    """Ask the store for hardly anything, again and again for ever, and note when that took long.

    A store that does not answer at all is away: that is a fault, and noted elsewhere.
    """
    while True:
        await asyncio.sleep(2 * BEAT)
        seconds = await answered()
        if seconds is not None and seconds >= LATE:
            note(Stall("", time.time(), seconds))
