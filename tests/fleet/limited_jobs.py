"""Jobs that say when they ran, for tests that look at who ran at the same time."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast import Holdfast, Limit

app = Holdfast(os.environ["FLEET_URL"])


@app.task(name="limited", limit=Limit(2, key="key:{key}"))
async def limited(key: int, seconds: float) -> tuple[float, float]:
    return await _run(seconds)


app.queue("narrow", limit=Limit(3))


@app.task(name="few", limit=Limit(3))
async def few(key: int, seconds: float) -> tuple[float, float]:
    return await _run(seconds)


@app.task(name="other")
async def other(key: int, seconds: float) -> tuple[float, float]:
    return await _run(seconds)


@app.task(name="free")
async def free(key: int, seconds: float) -> tuple[float, float]:
    return await _run(seconds)


async def _run(seconds: float) -> tuple[float, float]:
    begun = time.monotonic()  # the same clock in every process of a machine
    await asyncio.sleep(seconds)
    return begun, time.monotonic()
