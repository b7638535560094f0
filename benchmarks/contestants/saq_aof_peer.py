"""SAQ on a Redis that syncs every write to its log before it answers: what SAQ does when a job accepted must not be lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import protocol
import saq_peer
import uvloop

if TYPE_CHECKING:
    import argparse


async def prepare(asked: argparse.Namespace) -> None:
    """Have the server append every write to a file and sync it, from now on until it is emptied."""
    async with saq_peer.connected(asked) as queue:
        await queue.redis.config_set("appendfsync", "always")
        await queue.redis.config_set("appendonly", "yes")
        rewriting = True
        while rewriting:  # the log is begun anew
            await asyncio.sleep(0.05)
            rewriting = (await queue.redis.info("persistence"))["aof_rewrite_in_progress"]
        protocol.say(prepared=True)


if __name__ == "__main__":
    protocol.run((prepare, *saq_peer.COMMANDS), uvloop.run)
