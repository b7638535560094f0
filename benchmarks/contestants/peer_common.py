"""What the peers on PostgreSQL have in common as contestants: how each command is made of a few of their own operations."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import protocol
import uvloop

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

CALLER_CONNECTIONS = 10
"""Connections for fifty callers, on two cores: 5 and 20 did about as well, 50 worse for most that notify."""


async def noop(*, number: float) -> None:
    """Do nothing."""


async def sleep(*, number: float) -> None:  # noqa: ARG001  every task takes it
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


async def burn(*, number: float) -> None:  # noqa: ARG001  as above
    """Compute on the loop, for peers without processes of their own: a thread would only cost more."""
    protocol.burn()


async def latency(*, number: float) -> None:
    """Remember how long ago the enqueue began."""
    protocol.started(number)


TASKS = {"noop": noop, "sleep": sleep, "burn": burn, "latency": latency}
"""For peers that call a task by keyword."""


class Client(Protocol):
    """How a peer enqueues. The argument of a job is a number."""

    async def enqueue(self, task: str, argument: float) -> object:
        """Return when the job is stored."""
        ...

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> object:
        """Return when all are stored."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's own operations."""

    prepare: Callable[[str], Coroutine[Any, Any, None]]
    """Make its tables, given the URL."""
    client: Callable[[str, int], AbstractAsyncContextManager[Client]]
    """Connect to the URL with so many connections, all of them open."""
    work: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]
    watch: Callable[[argparse.Namespace], Coroutine[Any, Any, None]]
    caller_connections: int = CALLER_CONNECTIONS


async def stopped(**facts: object) -> None:
    """Say that the worker is ready, and wait until it is told to stop."""
    ended = protocol.input_ended()
    protocol.say(ready=True, **facts)
    await ended.wait()


async def watched(
    asked: argparse.Namespace, pending: Callable[[], Awaitable[bool]], ends: Callable[[], Awaitable[Sequence[datetime]]]
) -> None:
    """Look every now and then whether jobs are pending, and at the end read from the store when each was finished."""
    moments: Sequence[datetime] = ()
    while len(moments) < asked.jobs:
        begun = time.monotonic()
        if not await pending():
            moments = sorted(await ends())
        await asyncio.sleep(protocol.rest(time.monotonic() - begun))
    span = moments[asked.jobs - 1] - moments[max(asked.skip - 1, 0)]
    protocol.say(jobs=asked.jobs - asked.skip, seconds=span.total_seconds(), how="finished_at")


async def _prepare(peer: Peer, asked: argparse.Namespace) -> None:
    await peer.prepare(asked.url)
    protocol.say(prepared=True)


async def _bulk(peer: Peer, asked: argparse.Namespace) -> None:
    async with peer.client(asked.url, 1) as client:

        async def enqueue() -> None:
            for first in range(0, asked.jobs, protocol.BATCH):
                await client.enqueue_many(asked.task, range(first, min(asked.jobs, first + protocol.BATCH)))

        await protocol.timed(enqueue(), asked.jobs)


async def _callers(peer: Peer, asked: argparse.Namespace, callers: int) -> None:
    async with peer.client(asked.url, min(callers, peer.caller_connections)) as client:

        async def caller(first: int) -> None:
            for number in range(first, asked.jobs, callers):
                await client.enqueue(asked.task, number)

        async def enqueue() -> None:
            await asyncio.gather(*(caller(first) for first in range(callers)))

        await protocol.timed(enqueue(), asked.jobs)


async def _paced(peer: Peer, asked: argparse.Namespace) -> None:
    async with peer.client(asked.url, 1) as client:

        async def enqueue(begun: float) -> None:
            await client.enqueue("latency", begun)

        await protocol.paced(enqueue, asked.jobs, asked.gap)


def run(peer: Peer) -> None:
    """Do what is asked on the command line."""
    logging.disable(logging.WARNING)
    asked = protocol.arguments()
    commands: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "prepare": lambda: _prepare(peer, asked),
        "bulk": lambda: _bulk(peer, asked),
        "single": lambda: _callers(peer, asked, 1),
        "callers": lambda: _callers(peer, asked, asked.callers),
        "work": lambda: peer.work(asked),
        "watch": lambda: peer.watch(asked),
        "paced": lambda: _paced(peer, asked),
    }
    uvloop.run(commands[asked.command]())
