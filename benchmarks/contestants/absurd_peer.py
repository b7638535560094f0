"""The peer absurd on psycopg. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import absurdctl
import peer_common
import protocol
import psycopg
from absurd_sdk import AsyncAbsurd

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

WORKERS = {"noop": 8, "sleep": 20, "burn": 1, "latency": 1}
"""In a process, a connection each, on which a worker does one thing after the other."""
CONCURRENCY = {"noop": 50, "sleep": 25, "burn": 20, "latency": 10}
"""Of each worker; so many are claimed at once. Of `burn` one runs at a time, on the loop."""
POLL_SECONDS = {"noop": 0.05, "sleep": 0.05, "burn": 0.05, "latency": 0.01}
"""It has no notifications; its default is 0.25."""
QUEUE = "bench"


async def noop(params: Any, context: Any) -> None:
    """Do nothing."""


async def sleep(params: Any, context: Any) -> None:  # noqa: ARG001  what absurd gives
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


async def burn(params: Any, context: Any) -> None:  # noqa: ARG001  as above
    """Compute: absurd has no worker processes but the ones that are started, and a thread would only cost more."""
    protocol.burn()


async def latency(params: Any, context: Any) -> None:  # noqa: ARG001  as above
    """Remember how long ago the enqueue began."""
    protocol.started(params)


TASKS = {"noop": noop, "sleep": sleep, "burn": burn, "latency": latency}


class Client:
    """Enqueues, by connections that take turns: absurd has no pool."""

    def __init__(self, connections: Sequence[psycopg.AsyncConnection]) -> None:
        self._free = asyncio.LifoQueue[psycopg.AsyncConnection]()
        for connection in connections:
            self._free.put_nowait(connection)

    async def enqueue(self, task: str, argument: float) -> None:
        """Enqueue one job."""
        connection = await self._free.get()
        await AsyncAbsurd(connection, queue_name=QUEUE).spawn(task, argument, queue=QUEUE)
        self._free.put_nowait(connection)

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> None:
        """Enqueue jobs one by one in one transaction: absurd has no enqueue of many."""
        connection = await self._free.get()
        absurd = AsyncAbsurd(connection, queue_name=QUEUE)
        async with connection.transaction():
            for argument in arguments:
                await absurd.spawn(task, argument, queue=QUEUE)
        self._free.put_nowait(connection)


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[Client]:
    """Connect."""
    opened = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(connections)]
    yield Client(opened)
    for connection in opened:
        await connection.close()


async def prepare(url: str) -> None:
    """Make its tables, by the schema that its own command line tool carries."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        await AsyncAbsurd(connection, queue_name=QUEUE).create_queue()


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    workers = min(WORKERS[asked.task], asked.slots or WORKERS[asked.task])
    concurrency = asked.slots // workers or CONCURRENCY[asked.task]
    clients = []
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            absurd = AsyncAbsurd(asked.url, queue_name=QUEUE)
            absurd.register_task(asked.task)(TASKS[asked.task])
            clients.append(absurd)
            running = absurd.start_worker(
                worker_id=f"worker-{number}", concurrency=concurrency, poll_interval=POLL_SECONDS[asked.task]
            )
            group.create_task(running)
        await peer_common.stopped(slots=workers * concurrency)
        for absurd in clients:
            absurd.stop_worker()
    for absurd in clients:
        await absurd.close()
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Wait until no run is open; the runs have when each was completed."""
    async with await psycopg.AsyncConnection.connect(asked.url, autocommit=True) as connection:

        async def pending() -> bool:
            answer = await connection.execute(f"SELECT EXISTS (SELECT FROM absurd.r_{QUEUE} WHERE completed_at IS NULL)")
            row = await answer.fetchone()
            return row is None or bool(row[0])

        async def ends() -> list[datetime]:
            answer = await connection.execute(f"SELECT completed_at FROM absurd.r_{QUEUE} WHERE state = 'completed'")
            return [row[0] for row in await answer.fetchall()]

        await peer_common.watched(asked, pending, ends)


def main() -> None:
    """Do what is asked."""
    peer_common.run(peer_common.Peer(prepare, client, work, watch, caller_connections=20))


if __name__ == "__main__":
    main()
