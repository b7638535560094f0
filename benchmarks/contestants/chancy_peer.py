"""The peer chancy on psycopg. See protocol.py for what it is asked."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import peer_common
import protocol
from chancy import Chancy, Queue, Worker, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence

CONCURRENCY = {"noop": 1000, "sleep": 500, "burn": 2, "latency": 10}
PROCESS_JOBS = 1_000_000
"""After which it replaces one of its processes; its default of 100 means one every second."""
OUTGOING_SECONDS = 0.05
"""How long it collects what it settles; its default of a second leaves the last jobs waiting."""


def compute(*, number: float) -> None:  # noqa: ARG001  every task takes it
    """Compute, in one of its worker processes."""
    protocol.burn()


FUNCTIONS = {**peer_common.TASKS, "burn": compute}
TASKS = {name: job(queue=name)(function).job for name, function in FUNCTIONS.items()}


class Client:
    """Enqueues."""

    def __init__(self, chancy: Chancy) -> None:
        self._chancy = chancy

    async def enqueue(self, task: str, argument: float) -> None:
        """Enqueue one job."""
        await self._chancy.push(TASKS[task].with_kwargs(number=argument))

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> None:
        """Enqueue jobs in one transaction; chancy inserts them one by one."""
        pushed = self._chancy.push_many([TASKS[task].with_kwargs(number=argument) for argument in arguments])
        async for _ in pushed:
            pass


@asynccontextmanager
async def connected(url: str, connections: int) -> AsyncIterator[Chancy]:
    """Connect, with what recovers and prunes jobs and without what makes statistics and workflows."""
    chancy = Chancy(
        url,
        plugins=[Leadership(), Pruner(), Recovery()],
        no_default_plugins=True,
        min_connection_pool_size=connections,
        max_connection_pool_size=connections,
        log=logging.getLogger("quiet"),
    )
    async with chancy:
        await chancy.pool.wait()
        yield chancy


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[Client]:
    """Connect."""
    async with connected(url, connections) as chancy:
        yield Client(chancy)


async def prepare(url: str) -> None:
    """Make its tables, and the queue that every worker has, without the processes that it would start for it."""
    async with connected(url, 1) as chancy:
        await chancy.migrate()
        await chancy.declare(Queue("default", executor=Chancy.Executor.Async))


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    concurrency = asked.slots or CONCURRENCY[asked.task]
    executor = Chancy.Executor.Process if asked.task == "burn" else Chancy.Executor.Async
    async with connected(asked.url, 4) as chancy:
        queue = Queue(
            asked.task,
            concurrency=concurrency,
            executor=executor,
            executor_options={"maximum_jobs_per_worker": PROCESS_JOBS} if asked.task == "burn" else {},
            eager_polling=True,
            polling_interval=1,
        )
        await chancy.declare(queue, upsert=True)
        worker = Worker(chancy, register_signal_handlers=False)
        worker.send_outgoing_interval = OUTGOING_SECONDS
        async with worker:
            await peer_common.stopped(slots=concurrency)
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Count: what it stores as `completed_at` is when the handler ended, some time before that is stored."""
    async with connected(asked.url, 1) as chancy, chancy.pool.connection() as connection:
        await connection.set_autocommit(True)

        async def finished() -> int:
            answer = await connection.execute("SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'")
            row = await answer.fetchone()
            return row[0] if row else 0

        await protocol.watched(finished, asked.jobs, asked.skip)


def main() -> None:
    """Do what is asked."""
    peer_common.run(peer_common.Peer(prepare, client, work, watch, caller_connections=20))


if __name__ == "__main__":
    main()
