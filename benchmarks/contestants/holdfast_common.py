"""Holdfast as a contestant, on either store: its tasks, and what it is asked to do. By its public API alone.

Children that run `burn` import this module too, so the app stands at the top of it; they find the URL where their worker did.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import protocol
import uvloop
from holdfast_slots import SLOTS

from holdfast import Holdfast

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine
    from typing import Any

URL_VARIABLE = "HOLDFAST_CONTEST_URL"

app = Holdfast(os.environ[URL_VARIABLE])


@app.task(name="noop")
async def noop(number: int) -> None:
    """Do nothing."""


@app.task(name="sleep")
async def sleep(number: int) -> None:  # noqa: ARG001  as above
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


@app.task(name="burn", executor="process")
def burn(number: int) -> None:  # noqa: ARG001  as above
    """Compute."""
    protocol.burn()


@app.task(name="latency")
async def latency(begun: float) -> None:
    """Remember how long ago the enqueue began."""
    protocol.started(begun)


TASKS = {"noop": noop, "sleep": sleep, "burn": burn}


async def _prepare() -> None:
    await app.stats()  # the first use makes the tables
    protocol.say(prepared=True)


async def _bulk(asked: argparse.Namespace) -> None:
    task = TASKS[asked.task]
    await app.stats()  # connected, as peers are: that is not what is measured

    async def enqueue() -> None:
        for start in range(0, asked.jobs, protocol.BATCH):
            await app.enqueue_many([task.call(number) for number in range(start, min(asked.jobs, start + protocol.BATCH))])

    await protocol.timed(enqueue(), asked.jobs)


async def _callers(asked: argparse.Namespace, callers: int) -> None:
    task = TASKS[asked.task]
    await app.stats()  # as above

    async def caller(first: int) -> None:
        for number in range(first, asked.jobs, callers):
            await task.enqueue(number)

    async def enqueue() -> None:
        async with asyncio.TaskGroup() as group:
            for first in range(callers):
                group.create_task(caller(first))

    await protocol.timed(enqueue(), asked.jobs)


async def _work(asked: argparse.Namespace) -> None:
    slots, prefetch = SLOTS[asked.task]
    slots = asked.slots or slots
    ended = protocol.input_ended()
    async with app.worker(concurrency=slots, prefetch=prefetch):
        protocol.say(ready=True, slots=slots)
        await ended.wait()
    protocol.say(latencies=protocol.latencies)


async def _paced(asked: argparse.Namespace) -> None:
    await app.stats()

    async def enqueue(begun: float) -> None:
        await latency.enqueue(begun)

    await protocol.paced(enqueue, asked.jobs, asked.gap)


def run(asked: argparse.Namespace, watch: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]) -> None:
    """Do what is asked; `watch` is the store's own."""
    commands: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "prepare": _prepare,
        "bulk": lambda: _bulk(asked),
        "single": lambda: _callers(asked, 1),
        "callers": lambda: _callers(asked, asked.callers),
        "work": lambda: _work(asked),
        "watch": lambda: watch(asked),
        "paced": lambda: _paced(asked),
    }

    async def main() -> None:
        async with app:
            await commands[asked.command]()

    uvloop.run(main())
