"""Holdfast on PostgreSQL. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import asyncpg
import protocol

if TYPE_CHECKING:
    import argparse


async def watch(asked: argparse.Namespace) -> None:
    """Wait until all jobs are archived; the archive has when each of them ended."""
    connection = await asyncpg.connect(asked.url)
    try:
        while True:
            begun = time.monotonic()
            if await connection.fetchval("SELECT count(*) FROM holdfast.archive") >= asked.jobs:
                break
            await asyncio.sleep(protocol.rest(time.monotonic() - begun))
        [(jobs, seconds)] = await connection.fetch(
            "SELECT count(*), extract(epoch FROM max(finished_at) - since)::float FROM holdfast.archive, "
            "(SELECT finished_at AS since FROM holdfast.archive ORDER BY finished_at OFFSET $1 LIMIT 1) "
            "WHERE finished_at > since GROUP BY since",
            max(0, asked.skip - 1),
        )
    finally:
        await connection.close()
    protocol.say(jobs=jobs, seconds=seconds, how="finished_at")


if __name__ == "__main__":
    asked = protocol.arguments()
    os.environ["HOLDFAST_CONTEST_URL"] = asked.url
    import holdfast_common

    holdfast_common.run(asked, watch)
