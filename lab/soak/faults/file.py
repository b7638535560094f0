"""Faults of the file, and of the disk that it lies on."""

# ruff: noqa: ARG001, D103  all take the same, though some leave nothing to chance; the table says what each is

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from lab.soak.faults.kind import LEASE, Missed
from lab.soak.ground import SqliteGround

if TYPE_CHECKING:
    import random

    from lab.soak.fleet import Fleet


def hold_file(ground: SqliteGround, begin: str, seconds: float) -> None:
    """Be inside a transaction for so long."""
    with closing(sqlite3.connect(ground.path, timeout=30, isolation_level=None)) as connection:
        connection.execute(begin)
        connection.execute("SELECT count(*) FROM ledger").fetchall()
        time.sleep(seconds)
        connection.execute("ROLLBACK")


async def long_write(fleet: Fleet, rng: random.Random) -> None:
    if not isinstance(fleet.ground, SqliteGround):
        raise Missed
    async with fleet.lasting("somebody else writes for long"):
        await asyncio.to_thread(hold_file, fleet.ground, "BEGIN IMMEDIATE", rng.uniform(0.5, 1.3) * LEASE)


async def fill_disk(fleet: Fleet, rng: random.Random) -> None:
    """Leave no room for a while, whatever is cleared away meanwhile."""
    disk = fleet.ground.disk
    if disk is None:
        raise Missed
    async with fleet.alone(), fleet.outage("the disk is full"):
        try:
            deadline = time.monotonic() + rng.uniform(1.0, 2.5) * LEASE
            while time.monotonic() < deadline:
                await asyncio.to_thread(disk.fill)
                await asyncio.sleep(0.5)
        finally:
            await asyncio.to_thread(disk.make_room)


async def kill_writer(fleet: Fleet, rng: random.Random) -> None:
    """Kill a process that is inside a write."""
    ground = fleet.ground
    if not isinstance(ground, SqliteGround):
        raise Missed
    deadline = time.monotonic() + LEASE
    while time.monotonic() < deadline:
        pid = ground.writer()
        for place in fleet.workers + fleet.producers:
            if not place.alive or place.troubled or place.process.pid != pid:
                continue
            await place.freeze()
            if ground.writer() == pid:
                place.troubled = True
                try:
                    await place.kill()
                    await fleet.strike("kill a process inside a write", place.life)
                finally:
                    place.troubled = False
                return
            place.thaw()
        await asyncio.sleep(0.001)
    raise Missed
