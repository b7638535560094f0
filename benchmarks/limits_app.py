"""What the workers of `benchmarks.limits` run: jobs that say when they ran."""

from __future__ import annotations

import asyncio
import time

from holdfast import Holdfast, Limit

app = Holdfast()


@app.task(name="free")
async def free(key: int, seconds: float) -> tuple[float, float]:  # noqa: ARG001  as the others
    """Run with any number of others."""
    return await run(seconds)


@app.task(name="turns", limit=Limit(key="{key}", scope="turns"))
async def turns(key: int, seconds: float) -> tuple[float, float]:  # noqa: ARG001  what limits go by
    """Run in turn with other keys."""
    return await run(seconds)


@app.task(name="limited", limit=Limit(2, key="{key}", scope="limited"))
async def limited(key: int, seconds: float) -> tuple[float, float]:  # noqa: ARG001  what limits go by
    """Run with one other of its key."""
    return await run(seconds)


async def run(seconds: float) -> tuple[float, float]:
    """Return from when to when it ran, by the clock that all processes of a machine share."""
    begun = time.monotonic()
    await asyncio.sleep(seconds)
    return begun, time.monotonic()
