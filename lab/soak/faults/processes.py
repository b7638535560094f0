"""Faults of processes: killed, frozen, asked to stop."""

# ruff: noqa: D103  all take the same, though some leave nothing to chance; the table says what each is

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import psutil

from lab.soak import tasks
from lab.soak.faults.kind import HOUR, LEASE, Missed, standstill
from lab.soak.ground import SqliteGround
from lab.soak.recovery import LONGEST

if TYPE_CHECKING:
    import random

    from lab.soak.fleet import Fleet
    from lab.soak.places import Place

STOPS_WITHIN: Final = 60.0
"""Seconds within which a worker that was asked to stop must have ended, on a busy machine."""
UNREPLACED: Final = 0.6
"""The share of those killed that nobody follows for a while: one that starts reaps first of all, and hides who does not."""
STOPPING: Final = 10.0
"""Seconds that a worker which was asked to stop gives its handlers, and those that do not stop."""


async def kill_worker(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers) as place:
        await place.kill()
        async with fleet.lasting("kill a worker", place.life):
            if rng.random() < UNREPLACED:
                await fleet.pause(LONGEST)


async def kill_several(fleet: Fleet, rng: random.Random) -> None:
    with ExitStack() as stack:
        some = [stack.enter_context(fleet.victim(rng, fleet.workers)) for _ in range(max(1, len(fleet.workers) // 2))]
        for place in some:
            place.send(signal.SIGKILL)
        for place in some:
            await place.ended(30.0)
        await fleet.strike("kill half of the workers", *[place.life for place in some])


async def kill_producer(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.producers) as place:
        await place.kill()
        await fleet.strike("kill a producer", place.life)


async def freeze_worker(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers) as place:
        await _freeze(fleet, place)
        try:
            async with fleet.lasting("freeze a worker", place.life, grace=standstill(fleet)):
                await asyncio.sleep(rng.uniform(1.5, 3.0) * LEASE)
        finally:
            place.thaw()


async def _freeze(fleet: Fleet, place: Place) -> None:
    """Stop a process; not inside a write to a SQLite file, which would stop everybody else too."""
    while place.alive:
        await place.freeze()
        if not isinstance(fleet.ground, SqliteGround) or await asyncio.to_thread(fleet.ground.writable):
            return
        place.thaw()
        await asyncio.sleep(0.05)
    raise Missed


async def stop_worker(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers) as place:
        place.send(signal.SIGTERM)
        async with fleet.lasting("ask a worker to stop", place.life, grace=STOPPING):
            await _stopped(fleet, place)


async def stop_worker_twice(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers) as place:
        place.send(signal.SIGTERM)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        place.send(signal.SIGTERM)
        async with fleet.lasting("ask a worker to stop twice", place.life, grace=STOPPING):
            await _stopped(fleet, place)


async def _stopped(fleet: Fleet, place: Place) -> None:
    if not await place.ended(STOPS_WITHIN):
        fleet.complaints.append(f"{place.life} was asked to stop and had not after {STOPS_WITHIN:g} s")
        await place.kill()


async def kill_child(fleet: Fleet, rng: random.Random) -> None:
    """Kill a process that a worker has started for a handler."""
    await fleet.enqueue(*[tasks.toil.call(rng.randrange(10**9), 1.5) for _ in range(2)])
    deadline = time.monotonic() + 4 * LEASE
    while time.monotonic() < deadline:
        for place in fleet.workers:
            with suppress(psutil.Error):
                children = psutil.Process(place.process.pid).children()
                if children and not place.troubled and place.alive:
                    rng.choice(children).kill()
                    await fleet.strike("kill a child of a worker", place.life, kind="toil")
                    return
        await asyncio.sleep(0.1)
    raise Missed


async def step_clock(fleet: Fleet, rng: random.Random) -> None:
    """Set the clock of a worker that never had the right time."""
    if fleet.clock is None:
        raise Missed
    with fleet.victim(rng, [fleet.misled]) as place:
        fleet.clock.set(rng.uniform(-2 * HOUR, 2 * HOUR))
        await fleet.strike("the clock of a worker steps", place.life)
