"""The faults: each with its name, its rows of the catalogue, and how it is brought about."""

# ruff: noqa: ARG001, D103  all take the same, though some leave nothing to chance; the table at the end says what each is

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg
import psutil

from lab.soak import tasks
from lab.soak.ground import PostgresGround, SqliteGround, patiently
from lab.soak.needs import CLOCK, DISK, POOLER
from lab.soak.recovery import LONGEST

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast import Call
    from lab.soak.fleet import Fleet
    from lab.soak.places import Place
    from lab.soak.proxy import Way

LEASE: Final = tasks.LEASE
STOPS_WITHIN: Final = 60.0
"""Seconds within which a worker that was asked to stop must have ended, on a busy machine."""
PLACED: Final = '"number"'
"""A text that the args of every job have: an enqueue and the answer to a claim are known by it."""
RETURNED: Final = "attempt "
"""A text that every result has: a settlement is known by it."""
HOUR: Final = 3600.0
UNREPLACED: Final = 0.6
"""The share of those killed that nobody follows for a while: one that starts reaps first of all, and hides who does not."""
STANDSTILL: Final = 10.0
"""Seconds after which PostgreSQL ends a transaction that stands still with a lease in its hand."""
STOPPING: Final = 10.0
"""Seconds that a worker which was asked to stop gives its handlers, and those that do not stop."""


class Missed(Exception):
    """The fault did not come about: there was nobody to strike, or nothing to lose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    rows: str
    """Of the catalogue."""
    weight: int
    """How often it is drawn, compared with others."""
    bring: Callable[[Fleet, random.Random], Awaitable[None]]
    stores: tuple[str, ...] = ("postgres", "sqlite")
    free: bool = False
    """Whether no job may pay for it with an attempt: nobody was at fault, and everybody comes back in time."""
    mild: bool = False
    """Whether it keeps nobody from ending the leases of others: no excuse for a late recovery."""
    needs: str = ""
    """What a machine must have for it."""


# -- processes -------------------------------------------------------------------------------------------------------------


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
            async with fleet.lasting("freeze a worker", place.life, grace=_standstill(fleet)):
                await asyncio.sleep(rng.uniform(1.5, 3.0) * LEASE)
        finally:
            place.thaw()


def _standstill(fleet: Fleet) -> float:
    return STANDSTILL if isinstance(fleet.ground, PostgresGround) else 0.0


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


# -- handlers --------------------------------------------------------------------------------------------------------------


async def poison(fleet: Fleet, rng: random.Random) -> None:
    """Enqueue a job that kills whoever runs it; the supervisor finds the dead, and notes who they were."""
    await fleet.enqueue(tasks.poison.options(priority=9).call(rng.randrange(10**9)))


async def block(fleet: Fleet, rng: random.Random) -> None:
    seconds = rng.uniform(1.0, 1.5 * LEASE)
    call = tasks.block.options(priority=9).call(rng.randrange(10**9), seconds)
    blow = await fleet.strike("a handler blocks the event loop", (await _run_by_somebody(fleet, call)))
    blow.over = blow.at + seconds


async def hog(fleet: Fleet, rng: random.Random) -> None:
    seconds = int(1.5 * LEASE)
    call = tasks.hog.options(priority=9).call(rng.randrange(10**9), seconds)
    life = await _run_by_somebody(fleet, call)
    blow = await fleet.strike("a handler holds the interpreter", life, grace=_standstill(fleet))
    blow.over = blow.at + seconds


async def _run_by_somebody(fleet: Fleet, call: Call[str]) -> str:
    """Enqueue a job that harms whoever runs it, and find out who that is."""
    await fleet.enqueue(call)
    return await _runs(fleet, call, 1, within=4 * LEASE)


async def _runs(fleet: Fleet, call: Call[str], attempt: int, within: float) -> str:
    """Wait until a job is at this attempt; returns who runs it."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        (view,) = await patiently(lambda: fleet.ground.store.get([call.job.id]))
        if view is not None and view.attempt >= attempt:
            return view.worker_name or ""
        await asyncio.sleep(0.02)
    raise Missed


# -- the way to the server -------------------------------------------------------------------------------------------------


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


async def deliver_late(fleet: Fleet, rng: random.Random) -> None:
    """Hold what a worker sends at the end of a job, kill the worker, and deliver when the next attempt is at work."""
    call = tasks.relay.options(priority=9).call(rng.randrange(10**9))
    life = await _run_by_somebody(fleet, call)
    with fleet.victim(rng, [place for place in fleet.workers if place.life == life]) as place:
        way = fleet.ground.ways[place.name]
        if not await way.hold(call.job.id.bytes, RETURNED.encode(), within=2 * LEASE):
            raise Missed
        await place.kill()
        await fleet.strike("outcomes come after their worker's death", life)
    try:
        await _runs(fleet, call, 2, within=10 * LEASE)  # another process is at that place by now
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


async def step_clock(fleet: Fleet, rng: random.Random) -> None:
    """Set the clock of a worker that never had the right time."""
    if fleet.clock is None:
        raise Missed
    with fleet.victim(rng, [fleet.misled]) as place:
        fleet.clock.set(rng.uniform(-2 * HOUR, 2 * HOUR))
        await fleet.strike("the clock of a worker steps", place.life)


# -- the server ------------------------------------------------------------------------------------------------------------


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
    """Cancel whatever is running, again and again for a second."""
    ground = _server(fleet)
    connection = await ground.connection()
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
        await asyncio.to_thread(_hold_file, fleet.ground, "BEGIN", rng.uniform(5.0, 15.0))
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


# -- the file --------------------------------------------------------------------------------------------------------------


def _hold_file(ground: SqliteGround, begin: str, seconds: float) -> None:
    with closing(sqlite3.connect(ground.path, timeout=30, isolation_level=None)) as connection:
        connection.execute(begin)
        connection.execute("SELECT count(*) FROM ledger").fetchall()
        time.sleep(seconds)
        connection.execute("ROLLBACK")


async def long_write(fleet: Fleet, rng: random.Random) -> None:
    if not isinstance(fleet.ground, SqliteGround):
        raise Missed
    async with fleet.lasting("somebody else writes for long"):
        await asyncio.to_thread(_hold_file, fleet.ground, "BEGIN IMMEDIATE", rng.uniform(0.5, 1.3) * LEASE)


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


# -- the table -------------------------------------------------------------------------------------------------------------

POSTGRES: Final = ("postgres",)
SQLITE: Final = ("sqlite",)

FAULTS: Final = (
    Fault("kill a worker", "1 2 3", 12, kill_worker),
    Fault("kill half of the workers", "1", 3, kill_several),
    Fault("kill a producer", "11", 5, kill_producer, free=True),
    Fault("freeze a worker", "5 10", 10, freeze_worker),
    Fault("ask a worker to stop", "41", 6, stop_worker, free=True),
    Fault("ask a worker to stop twice", "41", 4, stop_worker_twice, free=True),
    Fault("kill a child of a worker", "30", 3, kill_child, free=True),
    Fault("a job that kills its worker", "30", 3, poison),
    Fault("a handler blocks the event loop", "6", 4, block, free=True),
    Fault("a handler holds the interpreter", "6", 3, hog),
    Fault("an old snapshot is held", "23", 3, pin, free=True, mild=True),
    Fault("cut all connections of a process", "14", 6, cut, POSTGRES, free=True),
    Fault("connections fall silent", "13 17", 6, fall_silent, POSTGRES),
    Fault("everything takes longer", "13", 5, delay, POSTGRES),
    Fault("outcomes come after their worker's death", "2 5", 4, deliver_late, POSTGRES),
    Fault("the pooler hangs up on its worker", "16", 4, restart_pooler, POSTGRES, free=True, needs=POOLER),
    Fault("the clock of a worker steps", "19", 4, step_clock, POSTGRES, free=True, mild=True, needs=CLOCK),
    Fault("lose the answer to a commit", "11", 6, lose_commit, POSTGRES, free=True),
    Fault("lose the answer to outcomes", "11", 4, lose_settlement, POSTGRES, free=True),
    Fault("lose the answer to a claim", "11", 4, lose_claim, POSTGRES, free=True),
    Fault("lose the answer to an enqueue", "11", 4, lose_enqueue, POSTGRES, free=True),
    Fault("crash of the server, up at once", "11", 5, restart, POSTGRES, free=True),
    Fault("the server is away for two leases", "11b", 2, away, POSTGRES, free=True),
    Fault("end sessions at random", "11", 5, terminate, POSTGRES, free=True),
    Fault("cancel statements at random", "26", 5, cancel_statements, POSTGRES, free=True),
    Fault("end every session that listens", "17", 4, deafen, POSTGRES, free=True, mild=True),
    Fault("a lock stops all outcomes", "9 24", 3, lock, POSTGRES),
    Fault("leases are locked in the wrong order", "24", 4, deadlock, POSTGRES),
    Fault("somebody else writes for long", "27", 8, long_write, SQLITE),
    Fault("kill a process inside a write", "27", 10, kill_writer, SQLITE),
    Fault("the disk is full", "25", 6, fill_disk, SQLITE, free=True, needs=DISK),
)
"""All of them."""
FREE: Final = frozenset(fault.name for fault in FAULTS if fault.free)
MILD: Final = frozenset(fault.name for fault in FAULTS if fault.mild)


def _in_order(row: str) -> tuple[int, str]:
    return int(row.rstrip("b")), row


IN_ORDER: Final = tuple(sorted(FAULTS, key=lambda fault: [_in_order(row) for row in fault.rows.split()]))
"""By their rows."""


def possible(store: str, rows: str | None) -> list[Fault]:
    """Return the faults that a store can suffer, optionally those of some rows; raises `ValueError` for a row without one."""
    suffered = [fault for fault in FAULTS if store in fault.stores]
    if rows is None:
        return suffered
    wanted = [row.strip() for row in rows.split(",")]
    known = {row for fault in suffered for row in fault.rows.split()}
    if unknown := [row for row in wanted if row not in known]:
        there = ", ".join(sorted(known, key=_in_order))
        raise ValueError(f"no fault of row {', '.join(unknown)} on {store}; there are {there}")
    return [fault for fault in suffered if set(wanted) & set(fault.rows.split())]


def chosen(faults: Sequence[Fault], rng: random.Random) -> Fault:
    """Draw one."""
    return rng.choices(faults, [fault.weight for fault in faults])[0]
