"""Stores whose sessions can be asked what they have cost the server: blocks and processor time, whoever else is busy there.

    async with Session(url) as claims, Session(url) as settles:
        before = await claims.cost()
        await claims.store.claim(request)
        cost = await claims.cost() - before
        print(cost.blocks, cost.seconds)

One handle for each kind of call, so that what is counted is known to be of that kind. PostgreSQL 18 and later.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import asyncpg

from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from holdfast.core.environment import Environment
    from holdfast.store.postgres.connection import Connection

BLOCK: Final = 8192

_BLOCKS: Final = f"""
SELECT sum(coalesce(io.hits, 0) + (coalesce(io.read_bytes, 0) + coalesce(io.extend_bytes, 0)) / {BLOCK})::bigint
FROM unnest($1::int[]) AS session(pid) CROSS JOIN LATERAL pg_stat_get_backend_io(session.pid) io WHERE io.object = 'relation'
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What sessions have cost."""

    blocks: int = 0
    """Blocks of tables and indexes they have touched, in memory or not, counted by the server."""
    seconds: float = 0.0
    """Processor time of their processes; 0 where the system does not tell (the server is elsewhere, or this is no Linux)."""

    def __sub__(self, before: Cost) -> Cost:
        """Return what came since."""
        return Cost(self.blocks - before.blocks, self.seconds - before.seconds)


class Session:
    """A store with a fixed number of connections, and one beside it that asks the server about them."""

    def __init__(self, url: str, environment: Environment | None = None, *, connections: int = 1) -> None:
        self.store = PostgresStore(url, environment or SystemEnvironment(), pool_size=connections)
        self._url = url
        self._connections = connections
        self._asking: asyncpg.Connection[asyncpg.Record] | None = None

    async def __aenter__(self) -> Self:
        await self.store.open()
        self._asking = await asyncpg.connect(self._url)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._asking is not None:
            await self._asking.close()
        await self.store.close()

    async def cost(self) -> Cost:
        """Return what its sessions have cost so far."""
        return await self._cost_of(await self.pids())

    async def cost_of_others(self, *known: Session) -> Cost:
        """Return what all sessions of stores in this database have cost, but for those of this one and of the known.

        They are not told to report and do so once a second: good for a sum over many seconds.
        """
        pids = [pid for session in (self, *known) for pid in await session.pids()]
        others = await self._there.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast' "
            "AND pid <> ALL ($1::int[])",
            pids,
        )
        return await self._cost_of([row[0] for row in others])

    @property
    def _there(self) -> asyncpg.Connection[asyncpg.Record]:
        assert self._asking is not None, "use it in `async with`"
        return self._asking

    async def _cost_of(self, pids: list[int]) -> Cost:
        blocks = await self._there.fetchval(_BLOCKS, pids)
        return Cost(blocks or 0, sum(map(_seconds, pids)))

    async def pids(self) -> list[int]:
        """Have all its connections report to the server, and return the processes that serve them."""
        return await asyncio.gather(*map(self._report, [asyncio.Barrier(self._connections)] * self._connections))

    async def _report(self, all_taken: asyncio.Barrier) -> int:
        """Have one connection report what it did, which it does at most once a second unless told to; returns its process."""

        async def report(connection: Connection) -> int:
            await all_taken.wait()  # so that each of these takes another connection
            pid: int = await connection.fetchval("SELECT pg_backend_pid() FROM pg_stat_force_next_flush()")
            return pid

        return await self.store._db.run(report)  # noqa: SLF001  these very connections


def _seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return 0.0
