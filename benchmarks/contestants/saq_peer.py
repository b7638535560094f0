"""SAQ on Redis. See protocol.py for what it is asked.

It has no enqueue of many: its own `map` awaits single calls side by side, and so does `bulk` here.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import protocol
import uvloop
from saq import Worker
from saq.queue.redis import RedisQueue

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

SLOTS = {"noop": 50, "sleep": 500, "burn": 20, "latency": 10}
"""Of `burn` one runs at a time, on the loop: the others are taken ahead of it."""
CALLS = 50
"""Calls under way at once; by default 20."""


async def noop(context: dict[str, Any], *, number: int) -> None:
    """Do nothing."""


async def sleep(context: dict[str, Any], *, number: int) -> None:  # noqa: ARG001  what SAQ gives
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


async def burn(context: dict[str, Any], *, number: int) -> None:  # noqa: ARG001  as above
    """Compute: SAQ has no worker processes but the ones that are started, and a thread would only cost more."""
    protocol.burn()


async def latency(context: dict[str, Any], *, begun: float) -> None:  # noqa: ARG001  as above
    """Remember how long ago the enqueue began."""
    protocol.started(begun)


TASKS: list[Any] = [noop, sleep, burn, latency]


@asynccontextmanager
async def connected(asked: argparse.Namespace, calls: int = CALLS) -> AsyncIterator[RedisQueue]:
    """Give a queue whose first connection is open: opening it is not what is measured."""
    queue = RedisQueue.from_url(asked.url, max_concurrent_ops=calls)
    await queue.connect()
    await queue.redis.ping()
    try:
        yield queue
    finally:
        await queue.disconnect()


async def prepare(asked: argparse.Namespace) -> None:
    """Nothing has to be made."""
    async with connected(asked):
        protocol.say(prepared=True)


async def bulk(asked: argparse.Namespace) -> None:
    """Enqueue side by side, 1,000 in a call."""

    async def enqueue() -> None:
        for first in range(0, asked.jobs, protocol.BATCH):
            numbers = range(first, min(first + protocol.BATCH, asked.jobs))
            await asyncio.gather(*(queue.enqueue(asked.task, number=number) for number in numbers))

    async with connected(asked) as queue:
        await protocol.timed(enqueue(), asked.jobs)


async def callers(asked: argparse.Namespace) -> None:
    """Enqueue by so many callers, each of which awaits its own."""

    async def caller(first: int) -> None:
        for number in range(first, asked.jobs, asked.callers):
            await queue.enqueue(asked.task, number=number)

    async def enqueue() -> None:
        await asyncio.gather(*(caller(first) for first in range(asked.callers)))

    async with connected(asked) as queue:
        await protocol.timed(enqueue(), asked.jobs)


async def single(asked: argparse.Namespace) -> None:
    """Enqueue by one caller."""
    asked.callers = 1
    await callers(asked)


async def paced(asked: argparse.Namespace) -> None:
    """Enqueue latency jobs at a pace."""

    async def enqueue(begun: float) -> None:
        await queue.enqueue("latency", begun=begun)

    async with connected(asked) as queue:
        await protocol.paced(enqueue, asked.jobs, asked.gap)


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    slots = asked.slots or SLOTS[asked.task]
    async with connected(asked, slots) as queue:
        worker = Worker(queue, TASKS, concurrency=slots, shutdown_grace_period_s=1)
        running = asyncio.create_task(worker.start())
        protocol.say(ready=True, slots=slots)
        await protocol.input_ended().wait()
        worker.event.set()
        await running
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Wait until no job is incomplete; the jobs themselves, kept for ten minutes, say in milliseconds when each ended."""
    async with connected(asked) as queue:
        waiting = True
        while waiting:
            begun = time.monotonic()
            waiting = await queue.redis.dbsize() < asked.jobs or await queue.count("incomplete") > 0
            await asyncio.sleep(protocol.rest(time.monotonic() - begun))
        ends = sorted([job.completed async for job in queue.iter_jobs(batch_size=1000)])
    counted = ends[max(0, asked.skip - 1) :]
    protocol.say(jobs=len(ends) - asked.skip, seconds=(counted[-1] - counted[0]) / 1000, how="finished_at")


COMMANDS = (bulk, single, callers, work, watch, paced)

if __name__ == "__main__":
    protocol.run((prepare, *COMMANDS), uvloop.run)
