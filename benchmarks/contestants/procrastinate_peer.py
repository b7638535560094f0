"""The peer procrastinate on psycopg. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import peer_common
import protocol
from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from psycopg import AsyncConnection

WORKERS = {"noop": 4, "sleep": 4, "burn": 1, "latency": 1}
"""In a process. Each claims one job after the other, so that several of them claim faster than one."""
CONCURRENCY = {"noop": 5, "sleep": 125, "burn": 20, "latency": 10}
"""Of each worker. Of `burn` one runs at a time, on the loop: the others are taken ahead of it."""
POOL = {"noop": 16, "sleep": 16, "burn": 3, "latency": 4}

logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns of an app in the main module
app = App(connector=PsycopgConnector())


TASKS = {name: app.task(name=name, queue=name)(function) for name, function in peer_common.TASKS.items()}


class Client:
    """Enqueues."""

    async def enqueue(self, task: str, argument: float) -> None:
        """Enqueue one job."""
        await TASKS[task].defer_async(number=argument)

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> None:
        """Enqueue jobs by one statement."""
        await TASKS[task].batch_defer_async(*({"number": argument} for argument in arguments))


async def _commit_by_itself(connection: AsyncConnection) -> None:
    await connection.set_autocommit(True)


@asynccontextmanager
async def connected(url: str, connections: int) -> AsyncIterator[AsyncConnectionPool[AsyncConnection]]:
    """Open the app on a pool of our own: its own would check a connection and begin a transaction for every statement."""
    pool = AsyncConnectionPool(url, min_size=connections, max_size=connections, configure=_commit_by_itself, open=False)
    async with pool, app.open_async(pool):
        await pool.wait()
        yield pool


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[Client]:
    """Connect."""
    async with connected(url, connections):
        yield Client()


async def prepare(url: str) -> None:
    """Make its tables."""
    async with connected(url, 1):
        await app.schema_manager.apply_schema_async()


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    workers = min(WORKERS[asked.task], asked.slots or WORKERS[asked.task])
    concurrency = asked.slots // workers or CONCURRENCY[asked.task]
    async with connected(asked.url, POOL[asked.task]), asyncio.TaskGroup() as group:
        running = [
            group.create_task(app.run_worker_async(queues=[asked.task], concurrency=concurrency, install_signal_handlers=False))
            for _ in range(workers)
        ]
        await peer_common.stopped(slots=workers * concurrency)
        for worker in running:
            worker.cancel()
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Wait until no job is to do; its events have when each succeeded."""
    async with connected(asked.url, 1) as pool, pool.connection() as connection:

        async def pending() -> bool:
            answer = await connection.execute(
                "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
            )
            row = await answer.fetchone()
            return row is None or bool(row[0])

        async def ends() -> list[datetime]:
            answer = await connection.execute("SELECT at FROM procrastinate_events WHERE type = 'succeeded'")
            return [row[0] for row in await answer.fetchall()]

        await peer_common.watched(asked, pending, ends)


def main() -> None:
    """Do what is asked."""
    peer_common.run(peer_common.Peer(prepare, client, work, watch))


if __name__ == "__main__":
    main()
