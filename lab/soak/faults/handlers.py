"""Faults of handlers, which their workers have to bear."""

# ruff: noqa: D103  all take the same, though some leave nothing to chance; the table says what each is

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from lab.soak import tasks
from lab.soak.faults.kind import LEASE, Missed, standstill
from lab.soak.ground import patiently

if TYPE_CHECKING:
    import random

    from holdfast import Call
    from lab.soak.fleet import Fleet


async def poison(fleet: Fleet, rng: random.Random) -> None:
    """Enqueue a job that kills whoever runs it; the supervisor finds the dead, and notes who they were."""
    await fleet.enqueue(tasks.poison.options(priority=9).call(rng.randrange(10**9)))


async def block(fleet: Fleet, rng: random.Random) -> None:
    seconds = rng.uniform(1.0, 1.5 * LEASE)
    call = tasks.block.options(priority=9).call(rng.randrange(10**9), seconds)
    blow = await fleet.strike("a handler blocks the event loop", (await run_by_somebody(fleet, call)))
    blow.over = blow.at + seconds


async def hog(fleet: Fleet, rng: random.Random) -> None:
    seconds = int(1.5 * LEASE)
    call = tasks.hog.options(priority=9).call(rng.randrange(10**9), seconds)
    life = await run_by_somebody(fleet, call)
    blow = await fleet.strike("a handler holds the interpreter", life, grace=standstill(fleet))
    blow.over = blow.at + seconds


async def run_by_somebody(fleet: Fleet, call: Call[str]) -> str:
    """Enqueue a job that harms whoever runs it, and find out who that is."""
    await fleet.enqueue(call)
    return await runs(fleet, call, 1, within=4 * LEASE)


async def runs(fleet: Fleet, call: Call[str], attempt: int, within: float) -> str:
    """Wait until a job is at this attempt; returns who runs it."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        (view,) = await patiently(lambda: fleet.ground.store.get([call.job.id]))
        if view is not None and view.attempt >= attempt:
            return view.worker_name or ""
        await asyncio.sleep(0.02)
    raise Missed
