"""The peer oban on psycopg. See protocol.py for what it is asked."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import peer_common
import protocol
from oban import Oban, job, schema
from psycopg_pool import AsyncConnectionPool

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from psycopg import AsyncConnection

INSTANCES = 2
"""In a process: each settles and claims in turns, so that one can while the other one waits for PostgreSQL."""
LIMIT = {"noop": 400, "sleep": 500, "burn": 20, "latency": 10}
"""Of `burn` one runs at a time, on the loop: the others are taken ahead of it."""
DEBOUNCE_SECONDS = 0.005
"""How long it waits for more to settle; its default."""


TASKS = {name: job(queue=name)(function) for name, function in peer_common.TASKS.items()}


class Client:
    """Enqueues."""

    def __init__(self, oban: Oban) -> None:
        self._oban = oban

    async def enqueue(self, task: str, argument: float) -> None:
        """Enqueue one job."""
        await self._oban.enqueue(TASKS[task].new(number=argument))

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> None:
        """Enqueue jobs in one transaction; oban inserts them one by one."""
        await self._oban.enqueue_many([TASKS[task].new(number=argument) for argument in arguments])


@asynccontextmanager
async def pooled(url: str, connections: int) -> AsyncIterator[AsyncConnectionPool[AsyncConnection]]:
    """Open a pool with all its connections."""
    async with AsyncConnectionPool(url, min_size=connections, max_size=connections, open=False) as pool:
        await pool.wait()
        yield pool


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[Client]:
    """Connect without queues."""
    async with pooled(url, connections) as pool:
        yield Client(Oban(pool=pool))


async def prepare(url: str) -> None:
    """Make its tables."""
    async with pooled(url, 1) as pool:
        await schema.install(pool)


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    limit = asked.slots or LIMIT[asked.task]
    instances = min(INSTANCES, limit)
    async with AsyncExitStack() as stack:
        for number in range(instances):
            pool = await stack.enter_async_context(pooled(asked.url, 3))
            name = f"{os.getpid()}.{number}"
            queue = {"limit": limit // instances, "debounce_interval": DEBOUNCE_SECONDS}
            await stack.enter_async_context(Oban(pool=pool, queues={asked.task: queue}, name=name, node=name))
        await peer_common.stopped(slots=limit)
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Wait until no job is incomplete; the jobs have when each was settled."""
    async with pooled(asked.url, 1) as pool, pool.connection() as connection:
        await connection.set_autocommit(True)

        async def pending() -> bool:
            states = "('available', 'executing', 'retryable', 'scheduled')"
            answer = await connection.execute(f"SELECT EXISTS (SELECT FROM oban_jobs WHERE state IN {states})")
            row = await answer.fetchone()
            return row is None or bool(row[0])

        async def ends() -> list[datetime]:
            answer = await connection.execute("SELECT completed_at FROM oban_jobs WHERE state = 'completed'")
            return [row[0] for row in await answer.fetchall()]

        await peer_common.watched(asked, pending, ends)


def main() -> None:
    """Do what is asked."""
    peer_common.run(peer_common.Peer(prepare, client, work, watch))


if __name__ == "__main__":
    main()
