"""Jobs that end when a test lets them: what happens before that does not depend on how fast the machine is."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from holdfast import Holdfast

if Path(os.environ.get("FLEET_LEAVES", "none")).exists() and "worker" in sys.argv:
    os._exit(0)  # before any worker of it is up

app = Holdfast(os.environ["FLEET_URL"])


async def opened(gate: str) -> None:
    """Wait until a file is there."""
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240  another process makes it
        await asyncio.sleep(0.02)


@app.task(name="wait")
async def wait(gate: str) -> int:
    await opened(gate)
    return os.getpid()


@app.task(name="wait.elsewhere", queue="elsewhere")
async def wait_elsewhere(gate: str) -> int:
    await opened(gate)
    return os.getpid()


@app.task(name="hog")
async def hog(megabytes: int, gate: str) -> int:
    """Take so much memory until the gate opens."""
    taken = bytearray(os.urandom(1024)) * 1024 * megabytes
    await opened(gate)
    return len(taken)
