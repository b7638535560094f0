"""Faults of the server, and of whoever else has a session there."""

# ruff: noqa: ARG001, D103  all take the same, though some leave nothing to chance; the table says what each is

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg

from lab.soak.faults.file import hold_file
from lab.soak.faults.kind import LEASE, Missed
from lab.soak.ground import PostgresGround, SqliteGround

if TYPE_CHECKING:
    import random

    from lab.soak.fleet import Fleet


def _server(fleet: Fleet) -> PostgresGround:
    if not isinstance(fleet.ground, PostgresGround):
        raise Missed
    return fleet.ground


async def restart(fleet: Fleet, rng: random.Random) -> None:
    async with fleet.alone(), fleet.outage("crash of the server, up at once"):
        await asyncio.to_thread(_server(fleet).server.restart, immediate=True)


async def away(fleet: Fleet, rng: random.Random) -> None:
    server = _server(fleet).server
    async with fleet.alone(), fleet.outage("the server is away for two leases"):
        await asyncio.to_thread(server.crash)
        await asyncio.sleep(2 * LEASE)
        await asyncio.to_thread(server.come_back)


async def promote(fleet: Fleet, rng: random.Random) -> None:
    """Build a standby that every commit waits for, lose the server for good, and go on with the standby."""
    ground = _server(fleet)
    async with fleet.alone():
        await ground.stand_by()
        await fleet.pause(rng.uniform(0.0, LEASE))
        async with fleet.outage("a standby takes over"):
            await ground.fail_over()


async def _end_sessions(fleet: Fleet, which: str) -> None:
    """End some sessions; raises `Missed` where the server has found none."""
    found = await _server(fleet).query(
        f"SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE {which}) AS sessions"
    )
    if (True,) not in found:
        raise Missed


async def terminate(fleet: Fleet, rng: random.Random) -> None:
    await _end_sessions(
        fleet, f"application_name IN ('holdfast', '') AND datname = 'soak' ORDER BY random() LIMIT {rng.randint(1, 5)}"
    )
    await fleet.strike("end sessions at random")


async def cancel_statements(fleet: Fleet, rng: random.Random) -> None:
    """Cancel whatever is running, again and again for a second; not while a standby is about to take over.

    A commit that is canceled while it waits for the standby is acknowledged nevertheless: the server documents that.
    """
    async with fleet.alone():
        await _cancel_statements(fleet, await _server(fleet).connection())


async def _cancel_statements(fleet: Fleet, connection: asyncpg.Connection[asyncpg.Record]) -> None:
    hits, deadline = 0, time.monotonic() + 2.0
    try:
        while time.monotonic() < deadline and hits < 20:
            hits += await connection.fetchval(
                "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = 'holdfast' AND datname = 'soak' AND state = 'active'"
            )
            await asyncio.sleep(0.01)
    finally:
        await connection.close(timeout=5)
    if not hits:
        raise Missed
    await fleet.strike("cancel statements at random")


async def deafen(fleet: Fleet, rng: random.Random) -> None:
    await _end_sessions(fleet, "application_name = 'holdfast-notify' AND datname = 'soak'")
    await fleet.strike("end every session that listens")


async def pin(fleet: Fleet, rng: random.Random) -> None:
    if isinstance(fleet.ground, SqliteGround):
        await fleet.strike("an old snapshot is held")
        await asyncio.to_thread(hold_file, fleet.ground, "BEGIN", rng.uniform(5.0, 15.0))
        return
    connection = await _server(fleet).connection()
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetch("SELECT FROM holdfast.job LIMIT 1")
        await fleet.strike("an old snapshot is held")
        await asyncio.sleep(rng.uniform(5.0, 20.0))
    finally:
        await connection.close(timeout=5)


async def lock(fleet: Fleet, rng: random.Random) -> None:
    """Lock the table that every outcome goes to."""
    connection = await _server(fleet).connection()
    try:
        await connection.execute("BEGIN")
        await connection.execute("LOCK TABLE holdfast.archive IN EXCLUSIVE MODE")
        async with fleet.lasting("a lock stops all outcomes"):
            await asyncio.sleep(rng.uniform(0.5, 1.2) * LEASE)
    finally:
        await connection.close(timeout=5)


async def deadlock(fleet: Fleet, rng: random.Random) -> None:
    """Lock leases one by one against the order of everybody else."""
    blow = None
    connection = await _server(fleet).connection()
    try:
        await connection.execute("BEGIN")
        with suppress(asyncpg.DeadlockDetectedError):  # one of the two had to give way
            for row in await connection.fetch("SELECT job_id FROM holdfast.lease ORDER BY job_id DESC LIMIT 20"):
                if await connection.fetch("SELECT FROM holdfast.lease WHERE job_id = $1 FOR UPDATE", row[0]):
                    blow = blow or await fleet.strike("leases are locked in the wrong order")
                await asyncio.sleep(0.05)
    finally:
        await connection.close(timeout=5)
    if blow is None:
        raise Missed
    blow.over = time.time()
