"""huey on SQLite, every commit synced to the disk. See protocol.py for what it is asked.

It takes a job out of the file before it runs it and writes nothing afterwards when the function returns nothing, so a job
that is gone from the file counts as finished. It has no async: the tasks are plain functions, concurrent callers are threads.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import protocol
from huey import SqliteHuey

if TYPE_CHECKING:
    import argparse

WORKERS = {"noop": (1, "thread"), "sleep": (500, "thread"), "burn": (2, "process"), "latency": (1, "thread")}
"""How many, and what they are."""

POLL_SECONDS = 0.005
"""huey learns of new jobs by looking; by default ten times a second, and less often the longer nothing comes."""


def noop(number: int) -> None:
    """Do nothing."""


def sleep(number: int) -> None:  # noqa: ARG001  as above
    """Wait as something on the network would."""
    time.sleep(protocol.SLEEP_SECONDS)


def burn(number: int) -> None:  # noqa: ARG001  as above
    """Compute."""
    protocol.burn()


def latency(begun: float) -> None:
    """Remember how long ago the enqueue began."""
    protocol.started(begun)


def path(asked: argparse.Namespace) -> str:
    """Return the file."""
    return str(asked.url.removeprefix("sqlite:///"))


def declared(asked: argparse.Namespace) -> tuple[SqliteHuey, dict[str, Any]]:
    """Return huey and its tasks."""
    huey = SqliteHuey(filename=path(asked), fsync=True, timeout=30)
    return huey, {one.__name__: huey.task()(one) for one in (noop, sleep, burn, latency)}


def prepare(asked: argparse.Namespace) -> None:
    """Make the tables."""
    declared(asked)
    protocol.say(prepared=True)


def bulk(asked: argparse.Namespace) -> None:
    """Enqueue 1,000 in a call, which stores them one by one."""
    _, tasks = declared(asked)
    begun = time.monotonic()
    for first in range(0, asked.jobs, protocol.BATCH):
        tasks[asked.task].map(range(first, min(first + protocol.BATCH, asked.jobs)))
    protocol.say(jobs=asked.jobs, seconds=time.monotonic() - begun)


def single(asked: argparse.Namespace) -> None:
    """Enqueue by one caller."""
    _, tasks = declared(asked)
    begun = time.monotonic()
    for number in range(asked.jobs):
        tasks[asked.task](number)
    protocol.say(jobs=asked.jobs, seconds=time.monotonic() - begun)


def callers(asked: argparse.Namespace) -> None:
    """Enqueue by so many callers, each of which waits for its own."""
    _, tasks = declared(asked)
    with ThreadPoolExecutor(asked.callers) as threads:
        begun = time.monotonic()
        list(threads.map(tasks[asked.task], range(asked.jobs)))
        protocol.say(jobs=asked.jobs, seconds=time.monotonic() - begun)


def paced(asked: argparse.Namespace) -> None:
    """Enqueue latency jobs at a pace."""
    _, tasks = declared(asked)

    async def enqueue(begun: float) -> None:
        tasks["latency"](begun)

    asyncio.run(protocol.paced(enqueue, asked.jobs, asked.gap))


def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    huey, _ = declared(asked)
    workers, kind = WORKERS[asked.task]
    workers = asked.slots or workers
    consumer = huey.create_consumer(
        workers=workers,
        worker_type=kind,
        periodic=False,
        initial_delay=POLL_SECONDS,
        max_delay=POLL_SECONDS,
        scheduler_interval=60,
    )
    consumer.start()
    protocol.say(ready=True, slots=workers)
    sys.stdin.read()
    consumer.stop(graceful=True)
    protocol.say(latencies=protocol.latencies)


def watch(asked: argparse.Namespace) -> None:
    """Count the jobs that are gone: ids are taken in order, so the first and the last that are left tell how many are."""
    with closing(sqlite3.connect(path(asked), timeout=30)) as connection:

        async def finished() -> int:
            [left] = connection.execute("SELECT ifnull(max(id) - min(id) + 1, 0) FROM task").fetchone()
            return int(asked.jobs - left)

        asyncio.run(protocol.watched(finished, asked.jobs, asked.skip))


if __name__ == "__main__":
    protocol.run((prepare, bulk, single, callers, work, watch, paced))
