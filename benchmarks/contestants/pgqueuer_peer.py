"""The peer pgqueuer on asyncpg. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import peer_common
import protocol
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from pgqueuer.models import Job

MANAGERS = 2
"""Queue managers in a process: one can run its jobs while the other one waits for PostgreSQL."""
CONNECTIONS = {"noop": 3, "sleep": 3, "burn": 3, "latency": 1}
"""Of each manager. One is for listening, so that the next jobs can be claimed while the last ones are settled. An idle manager
is quicker on a single one."""
BATCH_SIZE = 1000
"""How many are claimed at once, and settled at once."""
SLOTS = {"noop": 0, "sleep": 0, "burn": 20, "latency": 0}
"""Jobs that a process takes at once; 0: as many as it gets, its default. Of `burn` one runs at a time, on the loop, and what is
taken ahead of it is not there for the other process."""


async def noop(job: Job) -> None:
    """Do nothing."""


async def sleep(job: Job) -> None:  # noqa: ARG001  what pgqueuer gives
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


async def burn(job: Job) -> None:  # noqa: ARG001  as above
    """Compute: pgqueuer has no worker processes but the ones that are started, and a thread would only cost more."""
    protocol.burn()


async def latency(job: Job) -> None:
    """Remember how long ago the enqueue began."""
    assert job.payload is not None
    protocol.started(float(job.payload))


TASKS = {"noop": noop, "sleep": sleep, "burn": burn, "latency": latency}


class Client:
    """Enqueues."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def enqueue(self, task: str, argument: float) -> None:
        """Enqueue one job."""
        await self._queries.enqueue(task, str(argument).encode())

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> None:
        """Enqueue jobs by one statement."""
        jobs = len(arguments)
        await self._queries.enqueue([task] * jobs, [str(argument).encode() for argument in arguments], [0] * jobs)


@asynccontextmanager
async def connected(url: str, connections: int) -> AsyncIterator[Queries]:
    """Connect, without a pool where one connection is enough."""
    if connections == 1:
        connection = await asyncpg.connect(url)
        try:
            yield Queries.from_asyncpg_connection(connection)
        finally:
            await connection.close()
    else:
        async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
            yield Queries.from_asyncpg_pool(pool)


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[Client]:
    """Connect."""
    async with connected(url, connections) as queries:
        yield Client(queries)


async def prepare(url: str) -> None:
    """Make its tables."""
    connection = await asyncpg.connect(url)
    await Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    managers: list[QueueManager] = []
    taken = asked.slots or SLOTS[asked.task]
    few = 0 < taken < 4 * MANAGERS  # a manager wants slots for two batches
    slots = 2 if few else taken // MANAGERS
    async with AsyncExitStack() as stack:
        for _ in range(1 if few else MANAGERS):
            manager = QueueManager(await stack.enter_async_context(connected(asked.url, CONNECTIONS[asked.task])))
            manager.entrypoint(asked.task)(TASKS[asked.task])
            managers.append(manager)
        async with asyncio.TaskGroup() as group:
            for manager in managers:
                running = manager.run(
                    batch_size=min(BATCH_SIZE, slots // 2) if slots else BATCH_SIZE,
                    max_concurrent_tasks=slots or None,
                    log_aggregation_interval=timedelta(0),  # statistics, made when they are asked for
                )
                group.create_task(running)
            await peer_common.stopped(managers=len(managers))
            for manager in managers:
                manager.shutdown.set()
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Wait until the queue is empty; the log has when each job was deleted from it."""
    connection = await asyncpg.connect(asked.url)

    async def pending() -> bool:
        return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)"))

    async def ends() -> list[datetime]:
        return [row[0] for row in await connection.fetch("SELECT created FROM pgqueuer_log WHERE status = 'successful'")]

    await peer_common.watched(asked, pending, ends)
    await connection.close()


def main() -> None:
    """Do what is asked."""
    peer_common.run(peer_common.Peer(prepare, client, work, watch))


if __name__ == "__main__":
    main()
