"""The peer awa, whose engine is in Rust. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import awa
import peer_common
import protocol

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence

SLOTS = {"noop": 500, "sleep": 500, "burn": 20, "latency": 10}
"""Of `burn` one runs at a time, on the loop: the others are taken ahead of it."""
CLAIMERS = {"noop": 2, "sleep": 2, "burn": 1, "latency": 1}
"""Loops that claim; several of them find a single job later than one does."""
CLAIM_BATCH = 500
CONNECTIONS = 10
POLL_MILLISECONDS = 50
"""How often it looks besides being notified; its default is 200."""

FINISHED = """
SELECT (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
     + (SELECT count(*) FROM awa.done_entries WHERE state = 'completed')
     + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)
"""
"""What awa itself adds up for its counts, without the view of all finished jobs, which takes seconds."""


@dataclass
class Number:
    """The args of every task."""

    number: float


async def noop(job: awa.Job[Number]) -> None:
    """Do nothing."""


async def sleep(job: awa.Job[Number]) -> None:  # noqa: ARG001  what awa gives
    """Wait as something on the network would."""
    await asyncio.sleep(protocol.SLEEP_SECONDS)


async def burn(job: awa.Job[Number]) -> None:  # noqa: ARG001  as above
    """Compute: awa has no worker processes but the ones that are started, and a thread would only cost more."""
    protocol.burn()


async def latency(job: awa.Job[Number]) -> None:
    """Remember how long ago the enqueue began."""
    protocol.started(job.args.number)


TASKS = {"noop": noop, "sleep": sleep, "burn": burn, "latency": latency}


class Client:
    """Enqueues."""

    def __init__(self, client: awa.AsyncClient) -> None:
        self._client = client

    async def enqueue(self, task: str, argument: float) -> None:
        """Enqueue one job."""
        await self._client.insert(Number(argument), kind=task, queue=task)

    async def enqueue_many(self, task: str, arguments: Sequence[float]) -> None:
        """Enqueue jobs by one COPY."""
        await self._client.enqueue_many_copy([Number(argument) for argument in arguments], kind=task, queue=task)


@asynccontextmanager
async def client(url: str, connections: int) -> AsyncIterator[Client]:
    """Connect; the first connection is open."""
    opened = awa.AsyncClient(url, connections)
    await opened.health_check()
    yield Client(opened)
    await opened.close()


async def start(url: str, task: str, slots: int) -> awa.AsyncClient:
    """Start a worker."""
    started = awa.AsyncClient(url, CONNECTIONS)
    started.task(Number, kind=task, queue=task)(TASKS[task])
    queue: dict[str, Any] = {"name": task, "max_workers": slots, "claimers": CLAIMERS[task], "claim_batch_size": CLAIM_BATCH}
    await started.start([queue], poll_interval_ms=POLL_MILLISECONDS)
    return started


async def prepare(url: str) -> None:
    """Make its tables, and have a worker switch to the faster of its two storages, as the first worker does anyway."""
    opened = awa.AsyncClient(url, 2)
    await opened.migrate()
    worker = await start(url, "noop", 1)
    while json.loads(await opened.storage_status())["active_engine"] != "queue_storage":  # noqa: ASYNC110  another's state
        await asyncio.sleep(0.05)
    await worker.shutdown()
    await opened.close()


async def work(asked: argparse.Namespace) -> None:
    """Work until told to stop."""
    slots = asked.slots or SLOTS[asked.task]
    worker = await start(asked.url, asked.task, slots)
    await peer_common.stopped(slots=slots)
    await worker.shutdown()
    protocol.say(latencies=protocol.latencies)


async def watch(asked: argparse.Namespace) -> None:
    """Count: finished jobs are kept in batches, and those of an old slot only as a sum."""
    connection = await asyncpg.connect(asked.url)

    async def finished() -> int:
        return int(await connection.fetchval(FINISHED))

    await protocol.watched(finished, asked.jobs, asked.skip)
    await connection.close()


def main() -> None:
    """Do what is asked."""
    peer_common.run(peer_common.Peer(prepare, client, work, watch, caller_connections=5))


if __name__ == "__main__":
    main()
