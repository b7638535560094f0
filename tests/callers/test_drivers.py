"""Drivers: a connection outside of a transaction, and one that was closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiosqlite
import asyncpg
import psycopg
import pytest

from holdfast import BadSetting, StoreUnavailable
from holdfast.connect import postgres_parts, sqlite_path

if TYPE_CHECKING:
    from holdfast import Holdfast
    from tests.callers.conftest import Place


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue("sqlite_place" if "sqlite" in request.node.name else "postgres_place")
    return place


@pytest.fixture
def mail(app: Holdfast) -> Any:
    return app.tasks["mail"]


async def test_asyncpg_outside_of_a_transaction_is_refused_with_the_line_to_write(
    app: Holdfast, place: Place, mail: Any
) -> None:
    connection = await asyncpg.connect(postgres_parts(place.url)[0])
    with pytest.raises(BadSetting, match=r"connection\.transaction\(\)"):
        await mail.options(conn=connection).enqueue(1)
    await connection.close()


async def test_psycopg_in_autocommit_outside_of_a_transaction_is_refused_with_the_line_to_write(
    app: Holdfast, place: Place, mail: Any
) -> None:
    connection = await psycopg.AsyncConnection.connect(postgres_parts(place.url)[0], autocommit=True)
    with pytest.raises(BadSetting, match=r"async with connection\.transaction\(\)"):
        await mail.options(conn=connection).enqueue(1)
    async with connection.transaction():
        await mail.options(conn=connection).enqueue(1)
    await connection.close()
    assert (await app.stats())["ready"] == 1


async def test_psycopg_in_a_pipeline_says_what_went_wrong_and_goes_on(app: Holdfast, place: Place, mail: Any) -> None:
    connection = await psycopg.AsyncConnection.connect(postgres_parts(place.url)[0])
    async with connection.pipeline():
        await connection.execute(f"INSERT INTO {place.table} (n) VALUES (1)")
        with pytest.raises(ValueError, match="no job"):
            await mail.options(conn=connection, after=[app.new_id()]).enqueue(1)
        await mail.options(conn=connection).enqueue(2)
        await connection.commit()
    await connection.close()
    assert (await app.stats())["ready"] == 1
    assert await place.rows() == [1]


async def test_nothing_is_prepared_on_psycopg(app: Holdfast, place: Place, mail: Any) -> None:
    """Behind PgBouncer the next statement may meet a server process that knows nothing of it."""
    connection = await psycopg.AsyncConnection.connect(postgres_parts(place.url)[0], prepare_threshold=0)
    for order in range(3):
        await mail.options(conn=connection).enqueue(order)
    cursor = psycopg.AsyncClientCursor(connection)
    await cursor.execute("SELECT statement FROM pg_prepared_statements")
    assert await cursor.fetchall() == []
    await connection.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_closed_connection_is_said_to_be_away(app: Holdfast, place: Place, mail: Any, driver: str) -> None:
    database = postgres_parts(place.url)[0]
    connection: Any = await (asyncpg.connect(database) if driver == "asyncpg" else psycopg.AsyncConnection.connect(database))
    await connection.close()
    with pytest.raises((StoreUnavailable, BadSetting), match="closed"):
        await mail.options(conn=connection).enqueue(1)


async def test_aiosqlite_outside_of_a_transaction_is_refused_on_sqlite(app: Holdfast, place: Place, mail: Any) -> None:
    async with aiosqlite.connect(sqlite_path(place.url), isolation_level=None) as connection:
        with pytest.raises(BadSetting, match="BEGIN"):
            await mail.options(conn=connection).enqueue(1)
        await connection.execute("BEGIN")
        await mail.options(conn=connection).enqueue(1)
        await connection.commit()
    assert (await app.stats())["ready"] == 1
