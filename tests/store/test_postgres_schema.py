"""The schema on PostgreSQL: made, checked, migrated, and every way it can be wrong said clearly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast.errors import SchemaError, SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.store.port import Worker
from holdfast.store.postgres import PostgresStore, migrate, schema
from holdfast.system import SystemEnvironment
from tests.support.catalog import SNAPSHOT, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.postgres import PostgresServer

WORLD = SystemEnvironment()


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection to a database without Holdfast in it."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute('DROP SCHEMA IF EXISTS holdfast CASCADE; DROP SCHEMA IF EXISTS "we""ird Näme" CASCADE')
    yield connection
    await connection.close()


async def test_the_sum_of_the_migrations_is_the_schema(
    postgres_url: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await migrate(postgres_url, WORLD)
    assert await describe(connection) == SNAPSHOT.read_text(), "after a wanted change: python -m tests.support.catalog"


async def test_a_missing_schema_is_created_on_first_use(
    postgres_url: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    store = PostgresStore(postgres_url, WORLD)
    await store.open()
    await store.open()
    await store.close()
    await store.close()
    assert await schema.version(connection, "holdfast") == schema.latest()  # type: ignore[arg-type]


@pytest.mark.usefixtures("connection")
async def test_a_missing_schema_is_not_created_when_told_not_to(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, WORLD, create=False)
    with pytest.raises(SchemaMissing, match=r"no Holdfast schema 'holdfast' at 127\.0\.0\.1.*holdfast migrate URL"):
        await store.open()


async def test_a_role_that_may_not_create_is_told_who_should(
    postgres_url: str, connection: asyncpg.Connection[asyncpg.Record], postgres_server: PostgresServer
) -> None:
    await connection.execute("DROP ROLE IF EXISTS holdfast_guest; CREATE ROLE holdfast_guest LOGIN")
    try:
        guest = postgres_url.replace("//holdfast@", "//holdfast_guest@")
        with pytest.raises(SchemaMissing, match=r"may not create it.*with a role that may"):
            await PostgresStore(guest, WORLD).open()
    finally:
        await connection.execute("DROP ROLE holdfast_guest")
    assert postgres_server.major


async def test_a_schema_from_the_future_is_refused(postgres_url: str, connection: asyncpg.Connection[asyncpg.Record]) -> None:
    await migrate(postgres_url, WORLD)
    await connection.execute("UPDATE holdfast.meta SET version = 999")
    with pytest.raises(SchemaTooNew, match=r"version 999.*from a newer clone: pip install \.\./holdfast"):
        await PostgresStore(postgres_url, WORLD).open()
    with pytest.raises(SchemaTooNew):
        await migrate(postgres_url, WORLD)


async def test_an_older_schema_is_upgraded_by_migrate_alone(
    postgres_url: str, connection: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(postgres_url, WORLD)
    known = schema.migrations()
    added = (known[-1][0] + 1, "ALTER TABLE job ADD COLUMN colour text;")
    monkeypatch.setattr(schema, "migrations", lambda: (*known, added))
    with pytest.raises(SchemaTooOld, match=r"version 1, this Holdfast needs 2.*holdfast migrate URL"):
        await PostgresStore(postgres_url, WORLD).open()

    assert await migrate(postgres_url, WORLD) == (known[-1][0], added[0])

    store = PostgresStore(postgres_url, WORLD)
    await store.open()
    await store.close()
    assert "job.colour text" in await describe(connection)


@pytest.mark.usefixtures("connection")
async def test_many_may_migrate_and_open_at_once(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url, WORLD) for _ in range(4)]
    answers = await asyncio.gather(*(migrate(postgres_url, WORLD) for _ in range(4)), *(store.open() for store in stores))
    assert sorted(answer for answer in answers if answer is not None)[:1] in ([(0, 1)], [(1, 1)])
    await asyncio.gather(*(store.register(Worker(id=WORLD.token(), name="w")) for store in stores))
    assert len(await stores[0].workers()) == len(stores)
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_migration_that_fails_leaves_nothing_behind(
    postgres_url: str, connection: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*schema.migrations(), (2, "CREATE TABLE fine (a int); SELECT * FROM no_such_table;"))
    monkeypatch.setattr(schema, "migrations", lambda: broken)
    with pytest.raises(SchemaError, match="no_such_table"):
        await migrate(postgres_url, WORLD)
    assert await schema.version(connection, "holdfast") == 0  # type: ignore[arg-type]
    assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'holdfast'") == 0


@pytest.mark.usefixtures("connection")
async def test_two_schemas_in_one_database_are_two_stores(postgres_url: str) -> None:
    plain, odd = PostgresStore(postgres_url, WORLD), PostgresStore(postgres_url, WORLD, schema='we"ird Näme')
    await plain.open()
    await odd.open()
    await odd.register(Worker(id=WORLD.token(), name="only here"))
    assert ([view.worker.name for view in await odd.workers()], await plain.workers()) == (["only here"], [])
    await plain.close()
    await odd.close()
