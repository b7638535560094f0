"""streaQ on Redis. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import coredis
import protocol
import uvloop
from streaq import Worker

if TYPE_CHECKING:
    import argparse

SLOTS = {"noop": 32, "sleep": 500, "burn": 20, "latency": 16}
"""Of `burn` one runs at a time, on the loop: the others are taken ahead of it."""


async def noop(number: int) -> None:
    """Do nothing."""


async def sleep(number: int) -> None:  # noqa: ARG001  every task takes it
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


async def burn(number: int) -> None:  # noqa: ARG001  as above
    """Compute: streaQ has no worker processes but the ones that are started, and a thread would only cost more."""
    protocol.burn()


async def latency(begun: float) -> None:
    """Remember how long ago the enqueue began."""
    protocol.started(begun)


def declared(asked: argparse.Namespace, slots: int = 1) -> tuple[Worker[Any], dict[str, Any]]:
    """Return a worker, which is also how streaQ enqueues, and its tasks."""
    coredis.Config.optimized = True  # no validation of what streaQ sends to its own server
    settings = {"verify_version": False}
    worker: Worker[Any] = Worker(asked.url, concurrency=slots, handle_signals=False, redis_kwargs=settings)
    return worker, {one.__name__: worker.task(silent=True)(one) for one in (noop, sleep, burn, latency)}


async def prepare(asked: argparse.Namespace) -> None:
    """Register its functions in the server."""
    async with declared(asked)[0]:
        protocol.say(prepared=True)


async def bulk(asked: argparse.Namespace) -> None:
    """Enqueue 1,000 in a call."""
    worker, tasks = declared(asked)

    async def enqueue() -> None:
        for first in range(0, asked.jobs, protocol.BATCH):
            numbers = range(first, min(first + protocol.BATCH, asked.jobs))
            await worker.enqueue_many([tasks[asked.task].enqueue(number) for number in numbers])

    async with worker:
        await protocol.timed(enqueue(), asked.jobs)


async def callers(asked: argparse.Namespace) -> None:
    """Enqueue by so many callers, each of which awaits its own."""
    worker, tasks = declared(asked)

    async def caller(first: int) -> None:
        for number in range(first, asked.jobs, asked.callers):
            await tasks[asked.task].enqueue(number)

    async def enqueue() -> None:
        await asyncio.gather(*(caller(first) for first in range(asked.callers)))

    async with worker:
        await protocol.timed(enqueue(), asked.jobs)


async def single(asked: argparse.Namespace) -> None:
    """Enqueue by one caller."""
    asked.callers = 1
    await callers(asked)


async def paced(asked: argparse.Namespace) -> None:
    """Enqueue latency jobs at a pace."""
    worker, tasks = declared(asked)

    async def enqueue(begun: float) -> None:
        await tasks["latency"].enqueue(begun)

    async with worker:
        await protocol.paced(enqueue, asked.jobs, asked.gap)


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    slots = asked.slots or SLOTS[asked.task]
    worker, _ = declared(asked, slots)
    running = asyncio.create_task(worker.run_async())
    protocol.say(ready=True, slots=slots)
    await protocol.input_ended().wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Count the results, which are kept for five minutes: to read when each ended would cost streaQ more than to count."""
    worker, _ = declared(asked)

    async def finished() -> int:
        return int(await worker.redis.zcard(worker._results_set))  # noqa: SLF001  the set of finished tasks has no public name

    async with worker:
        await protocol.watched(finished, asked.jobs, asked.skip)


if __name__ == "__main__":
    protocol.run((prepare, bulk, single, callers, work, watch, paced), uvloop.run)
