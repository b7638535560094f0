"""Faults of the way to the server: a proxy, a pooler, a network."""

# ruff: noqa: D103  all take the same, though some leave nothing to chance; the table says what each is

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lab.soak import tasks
from lab.soak.faults.handlers import run_by_somebody, runs
from lab.soak.faults.kind import LEASE, STANDSTILL, Missed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from lab.soak.fleet import Fleet
    from lab.soak.places import Place
    from lab.soak.proxy import Way
    from tests.faults.machine.network import Namespace

PLACED: Final = '"number"'
"""A text that the args of every job have: an enqueue and the answer to a claim are known by it."""
RETURNED: Final = "attempt "
"""A text that every result has: a settlement is known by it."""


async def cut(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers + fleet.producers) as place:
        if not fleet.ground.ways[place.name].cut():
            raise Missed
        await fleet.strike("cut all connections of a process", place.life)


async def fall_silent(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers) as place:
        way = fleet.ground.ways[place.name]
        if not way.fall_silent():
            raise Missed
        try:
            async with fleet.lasting("connections fall silent", place.life, grace=STANDSTILL):
                await asyncio.sleep(2 * LEASE)
        finally:
            way.speak_again()


async def delay(fleet: Fleet, rng: random.Random) -> None:
    with fleet.victim(rng, fleet.workers + fleet.producers) as place:
        way = fleet.ground.ways[place.name]
        way.delay = rng.uniform(0.02, 0.3)
        try:
            async with fleet.lasting("everything takes longer", place.life):
                await asyncio.sleep(rng.uniform(1.0, 2.0) * LEASE)
        finally:
            way.delay = 0.0


async def cut_off(fleet: Fleet, rng: random.Random) -> None:
    """Take away the network of a machine: packets vanish, or there is no way out."""
    with _remote(fleet, rng) as (place, network):
        begin, end = rng.choice([(network.cut, network.mend), (network.down, network.up)])
        try:
            await asyncio.to_thread(begin)
            async with fleet.lasting("a machine is cut off from the network", place.life, grace=STANDSTILL):
                await asyncio.sleep(rng.uniform(1.0, 2.5) * LEASE)
        finally:
            await asyncio.to_thread(end)


async def lose_packets(fleet: Fleet, rng: random.Random) -> None:
    with _remote(fleet, rng) as (place, network):
        network.worsen(loss=0.2, delay=0.02)
        try:
            async with fleet.lasting("every fifth packet is lost", place.life, grace=STANDSTILL):
                await asyncio.sleep(rng.uniform(1.0, 3.0) * LEASE)
        finally:
            network.worsen(loss=0.0, delay=0.0)


@contextmanager
def _remote(fleet: Fleet, rng: random.Random) -> Iterator[tuple[Place, Namespace]]:
    """Choose the worker that has a network of its own."""
    if fleet.ground.network is None:
        raise Missed
    with fleet.victim(rng, [fleet.remote]) as place:
        yield place, fleet.ground.network


async def deliver_late(fleet: Fleet, rng: random.Random) -> None:
    """Hold what a worker sends at the end of a job, kill the worker, and deliver when the next attempt is at work."""
    call = tasks.relay.options(priority=9).call(rng.randrange(10**9))
    life = await run_by_somebody(fleet, call)
    with fleet.victim(rng, [place for place in fleet.workers if place.life == life]) as place:
        way = fleet.ground.ways[place.name]
        if not await way.hold(call.job.id.bytes, RETURNED.encode(), within=2 * LEASE):
            raise Missed
        await place.kill()
        await fleet.strike("outcomes come after their worker's death", life)
    try:
        await runs(fleet, call, 2, within=10 * LEASE)  # another process is at that place by now
    finally:
        way.deliver()


async def lose_commit(fleet: Fleet, rng: random.Random) -> None:
    await _lose(
        fleet, rng, fleet.workers + fleet.producers, "lose the answer to a commit", lambda way: way.cut_the_answer_to("COMMIT")
    )


async def lose_settlement(fleet: Fleet, rng: random.Random) -> None:
    await _lose(fleet, rng, fleet.workers, "lose the answer to outcomes", lambda way: way.cut_the_answer_to(RETURNED))


async def lose_claim(fleet: Fleet, rng: random.Random) -> None:
    await _lose(fleet, rng, fleet.workers, "lose the answer to a claim", lambda way: way.cut_the_answer_with(PLACED))


async def lose_enqueue(fleet: Fleet, rng: random.Random) -> None:
    await _lose(fleet, rng, fleet.producers, "lose the answer to an enqueue", lambda way: way.cut_the_answer_to(PLACED))


async def _lose(fleet: Fleet, rng: random.Random, places: list[Place], name: str, tell: Callable[[Way], None]) -> None:
    with fleet.victim(rng, places) as place:
        way = fleet.ground.ways[place.name]
        before, deadline = way.cuts, time.monotonic() + 2 * LEASE
        tell(way)
        while way.cuts == before:
            if time.monotonic() > deadline:
                way.lose_nothing()
                raise Missed
            await asyncio.sleep(0.02)
        await fleet.strike(name, place.life)


async def restart_pooler(fleet: Fleet, rng: random.Random) -> None:
    pooler = fleet.ground.pooler
    if pooler is None:
        raise Missed
    with fleet.victim(rng, [fleet.pooled]) as place:
        await asyncio.to_thread(pooler.restart)
        await fleet.strike("the pooler hangs up on its worker", place.life)
