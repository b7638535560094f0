"""Reads that take too long are given up by the database itself, and leave nothing behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast import StoreUnavailable
from holdfast.errors import SchemaError
from holdfast.store.port import patience
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

ENDLESS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT count(*) FROM numbers"
SAID = r"longer than the 0.2 s that a look may take"


def endless(connection: sqlite3.Connection) -> Any:
    return connection.execute(ENDLESS).fetchone()


async def test_a_file_is_not_read_for_longer_than_a_look_may_take(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), SystemEnvironment())
    await store.open()
    try:
        begun = time.monotonic()
        with patience(0.2), pytest.raises(StoreUnavailable, match=SAID):
            await store._read(endless)
        assert time.monotonic() - begun < 30, "it went on"
        assert (await store.stats()).live == 0  # the connection is as good as before, and nobody hurries it
        with pytest.raises(SchemaError, match="no such table"), patience(0.2):
            await store._read(lambda connection: connection.execute("SELECT * FROM absent"))
    finally:
        await store.close()


async def test_the_server_itself_gives_up_what_takes_longer_than_a_look_may(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, SystemEnvironment())
    await store.open()
    watcher = await asyncpg.connect(postgres_url)
    try:
        with patience(0.2), pytest.raises(StoreUnavailable, match=SAID):
            await store._db.fetch("SELECT pg_sleep(600)")
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'"
        assert await watcher.fetchval(f"{asleep} AND state = 'active'") == 0, "it goes on there"
        assert store._db.back_since is None, "a slow look is no outage"
        with patience(0.2):
            assert await store._db.fetch_value("SHOW statement_timeout") == "200ms"
        assert await store._db.fetch_value("SHOW statement_timeout") == "0", "it stays with the connection"
        assert (await store.stats()).live == 0
    finally:
        await watcher.close()
        await store.close()
