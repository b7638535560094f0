"""Holdfast on SQLite. See protocol.py for what it is asked."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import protocol

if TYPE_CHECKING:
    import argparse


async def watch(asked: argparse.Namespace) -> None:
    """Wait until all jobs are archived; the archive has when each of them ended, in microseconds."""
    path = asked.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        while True:
            begun = time.monotonic()
            [count] = connection.execute("SELECT count(*) FROM holdfast_archive").fetchone()
            if count >= asked.jobs:
                break
            await asyncio.sleep(protocol.rest(time.monotonic() - begun))
        [since] = connection.execute(
            "SELECT finished_at FROM holdfast_archive ORDER BY finished_at LIMIT 1 OFFSET ?", (max(0, asked.skip - 1),)
        ).fetchone()
        jobs, last = connection.execute(
            "SELECT count(*), max(finished_at) FROM holdfast_archive WHERE finished_at > ?", (since,)
        ).fetchone()
    protocol.say(jobs=jobs, seconds=(last - since) / 1e6, how="finished_at")


if __name__ == "__main__":
    asked = protocol.arguments()
    os.environ["HOLDFAST_CONTEST_URL"] = asked.url
    import holdfast_common

    holdfast_common.run(asked, watch)
