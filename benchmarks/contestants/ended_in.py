"""How those are watched whose jobs end in a table of PostgreSQL that has when each did: Holdfast and the reference."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import asyncpg
import protocol

if TYPE_CHECKING:
    import argparse


async def watch(asked: argparse.Namespace, table: str) -> None:
    """Wait until all jobs are in the table, then read from its `finished_at` how long it took from the `skip`-th on."""
    connection = await asyncpg.connect(asked.url)
    try:
        while True:
            begun = time.monotonic()
            if await connection.fetchval(f"SELECT count(*) FROM {table}") >= asked.jobs:
                break
            await asyncio.sleep(protocol.rest(time.monotonic() - begun))
        [(jobs, seconds)] = await connection.fetch(
            f"SELECT count(*), extract(epoch FROM max(finished_at) - since)::float FROM {table}, "
            f"(SELECT finished_at AS since FROM {table} ORDER BY finished_at OFFSET $1 LIMIT 1) "
            "WHERE finished_at > since GROUP BY since",
            max(0, asked.skip - 1),
        )
    finally:
        await connection.close()
    protocol.say(jobs=jobs, seconds=seconds, how="finished_at")
