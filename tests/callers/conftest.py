"""An app, a table of the caller's own beside its jobs, and a stack that writes to both."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from holdfast import Holdfast, JobNotFound
from holdfast.connect import Adapters, migrate, postgres_parts, sqlite_path
from holdfast.notify.port import Hint
from holdfast.notify.postgres import channel_name
from tests.callers.stacks import POSTGRES, SQLITE
from tests.notify.ear import Ear, eventually
from tests.support.majors import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast import Handle
    from tests.callers.stacks import Stack
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

_CLEAR = """DO $$ DECLARE name text; BEGIN
    SET LOCAL lock_timeout = '20s';
    DELETE FROM {table};
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'jobs' AND tablename <> 'meta' LOOP
        EXECUTE format('DELETE FROM jobs.%I', name);
    END LOOP;
END $$"""


@dataclass
class Place:
    """A database with a table of the caller's own, as anybody else sees it."""

    url: str
    table: str = "orders"

    @property
    def on_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    async def prepare(self) -> None:
        """Make the caller's table."""
        await self._execute(f"CREATE TABLE {self.table} (n bigint CHECK (n < 1000))")

    async def clear(self) -> None:
        """Remove all rows and all jobs."""
        await self._execute(_CLEAR.format(table=self.table))

    async def rows(self) -> list[int]:
        """Return what the caller has written and committed."""
        return [row[0] for row in await self._execute(f"SELECT n FROM {self.table} ORDER BY n")]

    async def end_sessions(self) -> None:
        """End every session on the server in which a transaction is open."""
        await self._execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL "
            "AND backend_type = 'client backend'"
        )

    async def _execute(self, sql: str) -> list[Any]:
        if self.on_postgres:
            connection = await asyncpg.connect(postgres_parts(self.url)[0])
            try:
                return await connection.fetch(sql)
            finally:
                await connection.close()
        with sqlite3.connect(sqlite_path(self.url), timeout=30) as file:
            found = file.execute(sql).fetchall()
        file.close()
        return found


@dataclass
class Workers:
    """What a worker in another process would hear."""

    place: Place
    hints: list[str] = field(default_factory=list)
    ear: Ear = field(default_factory=Ear)

    async def __aenter__(self) -> Self:
        if self.place.on_postgres:
            database, schema, _ = postgres_parts(self.place.url)
            self._connection = await asyncpg.connect(database)
            self._channel = channel_name(schema)
            await self._connection.add_listener(self._channel, lambda _c, _p, _n, said: self.hints.append(said))
        else:
            self._notifier = Adapters(self.place.url).notifier()
            await self._notifier.listen(self.ear)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.place.on_postgres:
            await self._connection.close()
        else:
            await self._notifier.close()

    async def heard(self) -> list[Hint]:
        """Return all that was sent until now: on PostgreSQL what was sent before the mark is heard before it."""
        if not self.place.on_postgres:
            return self.ear.hints
        mark = uuid4().hex
        await self._connection.execute(f"SELECT pg_notify('{self._channel}', '{mark}')")
        await eventually(lambda: mark in self.hints)
        self.hints.remove(mark)
        return [_hint(said) for said in self.hints]

    async def hear_of(self, queue: str) -> None:
        """Wait until they were told of a queue, or that anything may have happened."""
        await eventually(lambda: any(hint.anything or queue in hint.queues for hint in self._told()))

    async def hear_of_waiters(self) -> None:
        """Wait until they were told to look for waiters: with the jobs, or after them where the caller's library tells."""
        await eventually(lambda: any(hint.anything or hint.waiters for hint in self._told()))

    def _told(self) -> list[Hint]:
        return [_hint(said) for said in self.hints] if self.place.on_postgres else self.ear.hints


def _hint(said: str) -> Hint:
    return msgspec.json.decode(said, type=Hint) if said.startswith("{") else Hint()


async def exists(handle: Handle[Any]) -> bool:
    """Tell whether anybody else sees a job."""
    try:
        await handle.state()
    except JobNotFound:
        return False
    return True


@pytest.fixture(scope="module", params=NEWEST)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of the newest version; the older one with `--slow`: these tests wait for locks, by the second."""
    return postgres_servers[request.param]


@pytest.fixture(scope="session")
def shared_place(postgres_servers: PostgresServers) -> Place:
    """A table on PostgreSQL, and a schema for jobs. One for all tests: making and dropping hundreds takes minutes."""
    place = Place(f"{postgres_servers[18].create_database()}?schema=jobs")
    asyncio.run(place.prepare())
    asyncio.run(migrate(place.url))
    return place


@pytest_asyncio.fixture
async def postgres_place(shared_place: Place) -> Place:
    """A table on PostgreSQL, and room for jobs, both empty."""
    await shared_place.clear()
    return shared_place


@pytest_asyncio.fixture
async def sqlite_place(tmp_path: Path) -> Place:
    """A table in a file, and room for jobs."""
    place = Place(f"sqlite:///{tmp_path}/jobs.db")
    await place.prepare()
    return place


@pytest_asyncio.fixture
async def app(place: Place) -> AsyncIterator[Holdfast]:
    """An app whose jobs are kept beside the caller's table."""
    app = Holdfast(place.url)

    @app.task(name="mail", queue="mail")
    async def mail(order: int) -> str:
        return f"order {order}"

    app.queue("small", max_depth=1)
    async with app:
        yield app


@pytest.fixture(params=[*POSTGRES, *SQLITE])
def stack_name(request: pytest.FixtureRequest) -> str:
    """The name of each stack."""
    name: str = request.param
    return name


@pytest.fixture
def place(stack_name: str, request: pytest.FixtureRequest) -> Place:
    """Where the stack leads."""
    kind = "postgres_place" if stack_name in POSTGRES else "sqlite_place"
    place: Place = request.getfixturevalue(kind)
    return place


@pytest.fixture
def begins() -> bool:
    """Whether the stack begins a transaction before the test."""
    return True


@pytest_asyncio.fixture
async def stack(stack_name: str, place: Place, app: Holdfast, begins: bool) -> AsyncIterator[Stack]:  # noqa: FBT001  a fixture
    """A stack with a transaction begun."""
    stack = (POSTGRES | SQLITE)[stack_name](place.url, place.table)
    try:
        await stack.open()
        if begins:
            await stack.begin()
        yield stack
    finally:
        await stack.close()


@pytest_asyncio.fixture
async def workers(place: Place, app: Holdfast) -> AsyncIterator[Workers]:
    """What workers hear, from the moment in which nothing is under way any more."""
    async with Workers(place) as workers:
        yield workers
