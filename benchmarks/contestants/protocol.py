"""What every contestant answers: one program each, run in an environment of its own, the standard library and this file alone.

    python contestants/NAME.py prepare --url URL                       make its tables in an empty database
    python contestants/NAME.py bulk    --url URL --jobs N              enqueue N jobs, 1,000 in a call where it can
    python contestants/NAME.py single  --url URL --jobs N              one caller, each job stored before the next
    python contestants/NAME.py callers --url URL --jobs N --callers 50 so many callers at once, each awaits its own
    python contestants/NAME.py work    --url URL --task T [--slots N]  a worker process, until its standard input ends
    python contestants/NAME.py watch   --url URL --jobs N --skip S     when the store shows the S-th and the N-th as finished
    python contestants/NAME.py paced   --url URL --jobs N --gap MS     enqueue latency jobs at a pace (`latency` tasks only)

Each prints one line of JSON and ends; `work` prints {"ready": true} first and what it knows at its end. Times that cross
processes are `time.monotonic()`, which all processes of one machine share.

The tasks are the same for everybody: `noop` takes a number and does nothing; `sleep` awaits 50 ms; `burn` spends 10 ms of
processor time, in worker processes where the contestant has them; `latency` takes the moment at which its enqueue began and
remembers how long ago that was when its handler starts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

SLEEP_SECONDS = 0.05
BURN_SECONDS = 0.01
BUSY_VARIABLE = "CONTEST_BUSY"
"""Names a folder, into which each process writes when it ran `burn` jobs: how busy slots were is seen there."""
BATCH = 1000

latencies: list[float] = []
"""Milliseconds from the call of enqueue to the first line of the handler, as `latency` handlers saw them."""


def started(begun: float) -> None:
    """Remember a latency: called first in the handler of `latency`."""
    latencies.append((time.monotonic() - begun) * 1000)


def burn() -> None:
    """Spend the processor time of a `burn` job, and note from when to when, where somebody asked for that."""
    begun, until = time.monotonic(), time.thread_time() + BURN_SECONDS
    while time.thread_time() < until:
        pass
    if folder := os.environ.get(BUSY_VARIABLE):
        with Path(folder, str(os.getpid())).open("a") as notes:
            notes.write(f"{begun} {time.monotonic()}\n")


def say(**facts: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(facts), flush=True)


def input_ended() -> asyncio.Event:
    """Return an event that is set when standard input ends: that is how a worker process is told to stop."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(event.set)

    threading.Thread(target=wait, daemon=True).start()
    return event


async def timed(work: Coroutine[Any, Any, None], jobs: int) -> None:
    """Run an enqueuing, and say how long it took."""
    begun = time.monotonic()
    await work
    say(jobs=jobs, seconds=time.monotonic() - begun)


async def watched(finished: Callable[[], Coroutine[Any, Any, int]], jobs: int, skip: int) -> None:
    """Ask how many are finished until all are, and say how long it took from the `skip`-th on.

    For stores that do not keep when a job ended. The span begins with the first answer of `skip` or more, so what was
    finished by then does not count.
    """
    first: tuple[float, int] | None = None
    looks = 0
    while True:
        begun = time.monotonic()
        count = await finished()
        now = time.monotonic()
        if first is not None:
            looks += 1
        elif count >= skip:
            first = now, count
        if count >= jobs and first is not None:
            seconds = now - first[0]
            say(jobs=count - first[1], seconds=seconds, how=f"counted every {1000 * seconds / max(1, looks):.0f} ms")
            return
        await asyncio.sleep(rest(now - begun, every=0.05))


def rest(took: float, *, every: float = 0.2) -> float:
    """Return how long a watcher rests after a look that took so long: nobody's looks take more than a thirtieth of the time.

    Most look every now and then whether all is done, and read from the store when each job was; who has to count looks more
    often, for its looks are the figure.
    """
    return max(every, 30 * took)


async def paced(enqueue: Callable[[float], Coroutine[Any, Any, None]], jobs: int, gap: float) -> None:
    """Enqueue latency jobs about `gap` milliseconds apart, never in step with anybody's poll: the `paced` of most.

    `enqueue` gets the moment at which it is called, which is what its job must carry.
    """
    for _ in range(jobs):
        await enqueue(time.monotonic())
        await asyncio.sleep(gap / 1000 * random.uniform(0.5, 1.5))
    say(jobs=jobs)


def run(commands: Iterable[Callable[[argparse.Namespace], Any]], loop: Callable[[Any], object] = asyncio.run) -> None:
    """Do what is asked on the command line by the function of that name; `loop` runs those that are async."""
    logging.disable(logging.WARNING)
    asked = arguments()
    answer = next(command for command in commands if command.__name__ == asked.command)(asked)
    if asyncio.iscoroutine(answer):
        loop(answer)


def arguments() -> argparse.Namespace:
    """Return what a contestant was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "bulk", "single", "callers", "work", "watch", "paced"])
    parser.add_argument("--url", required=True, help="where its store is")
    parser.add_argument("--task", choices=["noop", "sleep", "burn", "latency"], default="noop")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--skip", type=int, default=0, help="finished jobs that do not count")
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--slots", type=int, default=0, help="jobs at once; 0: what is best for no-ops")
    parser.add_argument("--gap", type=float, default=20.0, help="milliseconds between two latency jobs")
    return parser.parse_args()
