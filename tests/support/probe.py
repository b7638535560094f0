"""Counts what a PostgreSQL store's statements touch: EXPLAIN (ANALYZE, BUFFERS) of each, right before it runs.

    async with Probe(store) as probe:
        with probe.watch("claim"):
            jobs = await store.claim(request)
        assert probe.buffers("claim") < 2_000

A statement is explained on a connection of the probe's own, in a transaction that is rolled back, several times; the least
count stands, so that plans made and catalogs read for the first time are not counted. Plans of that connection are kept as
long as the probe is open: what was planned on empty tables stays planned so.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import asyncpg
import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from holdfast.store.postgres import PostgresStore

T = TypeVar("T")

RUNS = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """One statement of an operation: the shared blocks it touched, in memory or not, and the rows it gave."""

    sql: str
    buffers: int
    rows: int
    plan: dict[str, Any]


class Probe:
    """Watches the statements of one store. Only one at a time may watch a store."""

    def __init__(self, store: PostgresStore, *, runs: int = RUNS) -> None:
        self._db = store._db
        self._runs = runs
        self._side: asyncpg.Connection[asyncpg.Record] | None = None
        self._operations: dict[str, list[Seen]] = {}

    async def __aenter__(self) -> Self:
        # What a transaction of the store has locked cannot be explained from outside: an error, not a hang.
        settings = {"application_name": "probe", "lock_timeout": "5s"}
        self._side = await asyncpg.connect(self._db.url, server_settings=settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._side is not None:
            await self._side.close()

    @contextmanager
    def watch(self, operation: str) -> Iterator[None]:
        """Explain every statement the store sends meanwhile, and keep the counts under that name, in place of older ones."""
        seen = self._operations[operation] = []
        real = self._db.run

        async def run(work: Callable[[Any], Awaitable[T]]) -> T:
            return await real(lambda connection: work(_Watched(self, connection, seen)))

        self._db.run = run  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del self._db.run  # the method of the class shows again

    def seen(self, operation: str) -> list[Seen]:
        """Return the statements of the operation, in order."""
        return self._operations[operation]

    def buffers(self, operation: str) -> int:
        """Return the blocks that all its statements touched together."""
        return sum(seen.buffers for seen in self.seen(operation))

    def statements(self, operation: str) -> int:
        """Return how many statements it took."""
        return len(self.seen(operation))

    async def explain(self, sql: str, *args: object) -> Seen:
        """Count what one statement touches, without leaving anything behind but dead rows and used up numbers."""
        plans = [await self._run(sql, args) for _ in range(self._runs)]
        plan = min(plans, key=_blocks)
        return Seen(sql, _blocks(plan), int(plan["Actual Rows"]), plan)

    async def flush_statistics(self) -> None:
        """Have the server count what the probe did now, not a second later."""
        assert self._side is not None
        await self._side.execute("SELECT pg_stat_force_next_flush()")

    async def _run(self, sql: str, args: tuple[object, ...]) -> dict[str, Any]:
        assert self._side is not None
        transaction = self._side.transaction()
        await transaction.start()
        try:
            answer = await self._side.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *args)
        finally:
            await transaction.rollback()
        plan: dict[str, Any] = msgspec.json.decode(answer)[0]["Plan"]
        return plan


class _Watched:
    """A connection as the store sees it, every statement explained first."""

    def __init__(self, probe: Probe, connection: Any, seen: list[Seen]) -> None:
        self._probe = probe
        self._connection = connection
        self._seen = seen

    async def fetch(self, sql: str, *args: object) -> Any:
        return await self._explained(self._connection.fetch, sql, args)

    async def fetchrow(self, sql: str, *args: object) -> Any:
        return await self._explained(self._connection.fetchrow, sql, args)

    async def fetchval(self, sql: str, *args: object) -> Any:
        return await self._explained(self._connection.fetchval, sql, args)

    async def execute(self, sql: str, *args: object) -> Any:
        return await self._explained(self._connection.execute, sql, args)

    def transaction(self) -> Any:
        return self._connection.transaction()

    async def _explained(self, send: Callable[..., Awaitable[Any]], sql: str, args: tuple[object, ...]) -> Any:
        self._seen.append(await self._probe.explain(sql, *args))
        return await send(sql, *args)


def _blocks(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
