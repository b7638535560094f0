"""The schema of the SQLite store: created, upgraded, refused; and the sum of its migrations."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import SchemaError, SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.store.sqlite import SqliteStore, migrate, schema
from holdfast.store.sqlite.housekeeping import TIMES
from holdfast.system import SystemEnvironment

SNAPSHOT = Path(schema.__file__).with_name("schema.sql")
WORLD = SystemEnvironment()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


def fresh() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.upgrade(connection, ":memory:")
    return connection


def files(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).parent.iterdir()}


def set_version(path: str, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE holdfast_meta SET version = ?", (version,))


async def test_a_missing_schema_is_created_on_first_use(path: str) -> None:
    store = SqliteStore(path, WORLD)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert schema.version(connection, path) == schema.newest()


async def test_a_missing_file_is_refused_and_not_made_when_it_is_not_to_be_created(path: str) -> None:
    with pytest.raises(SchemaMissing, match=r"there is no file .*jobs\.db \(looked in .*\)\. Check the path"):
        await SqliteStore(path, WORLD, create=False).open()
    assert files(path) == {}


async def test_somebody_elses_file_is_left_as_it_is_when_no_schema_is_to_be_created(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (a)")
    before = files(path)
    with pytest.raises(SchemaMissing):
        await SqliteStore(path, WORLD, create=False).open()
    assert files(path) == before


async def test_jobs_may_live_beside_the_tables_of_an_application(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE job (theirs)")
        connection.execute("INSERT INTO job VALUES (1)")
    store = SqliteStore(path, WORLD)
    await store.open()
    assert (await store.stats()).live == 0
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT theirs FROM job").fetchall() == [(1,)]


async def test_a_foreign_table_of_our_name_is_named(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE holdfast_meta (a)")
    with pytest.raises(SchemaError, match="holdfast_meta that is not Holdfast's"):
        await SqliteStore(path, WORLD).open()


async def test_an_older_schema_is_refused_with_the_command_that_upgrades_it(path: str) -> None:
    await migrate(path, WORLD)
    set_version(path, schema.newest() - 1)
    with pytest.raises(
        SchemaTooOld, match=rf"version {schema.newest() - 1}.*Upgrade it with: holdfast migrate sqlite:///.*jobs\.db"
    ):
        await SqliteStore(path, WORLD).open()


async def test_a_newer_schema_is_refused_by_open_and_by_migrate(path: str) -> None:
    await migrate(path, WORLD)
    set_version(path, schema.newest() + 1)
    with pytest.raises(SchemaTooNew, match=r"from a newer clone: pip install \.\./holdfast"):
        await SqliteStore(path, WORLD).open()
    with pytest.raises(SchemaTooNew):
        await migrate(path, WORLD)


async def test_migrate_says_from_where_to_where_and_may_be_repeated(path: str) -> None:
    assert await migrate(path, WORLD) == (0, schema.newest())
    assert await migrate(path, WORLD) == (schema.newest(), schema.newest())
    store = SqliteStore(path, WORLD, create=False)
    await store.open()
    await store.close()


async def test_several_may_migrate_and_open_one_file_at_once(path: str) -> None:
    stores = [SqliteStore(path, WORLD) for _ in range(5)]
    await asyncio.gather(*(migrate(path, WORLD) for _ in range(5)), *(store.open() for store in stores))
    for store in stores:
        assert (await store.stats()).live == 0
        await store.close()


def test_several_processes_may_create_one_file_at_once(path: str) -> None:
    code = (
        "import asyncio, sys\n"
        "from holdfast.store.sqlite import SqliteStore\n"
        "from holdfast.system import SystemEnvironment\n"
        "async def main():\n"
        "    store = SqliteStore(sys.argv[1], SystemEnvironment())\n"
        "    sys.stdin.readline()\n"
        "    await store.open()\n"
        "    await store.close()\n"
        "asyncio.run(main())"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE) for _ in range(4)]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    assert [child.wait(30) for child in children] == [0] * 4


def test_the_sum_of_the_migrations_is_the_committed_schema() -> None:
    assert schema.snapshot() == SNAPSHOT.read_text(encoding="utf-8"), (
        "the migrations no longer lead to schema.sql. If that is meant, write it anew: python -c "
        "'from holdfast.store.sqlite import schema; print(schema.snapshot(), end=\"\")' > src/holdfast/store/sqlite/schema.sql"
    )


def test_rewinding_knows_every_stored_moment() -> None:
    with closing(fresh()) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        moments = {
            table: tuple(
                row[1]
                for row in connection.execute(f"PRAGMA table_info({table})")
                if re.fullmatch(r".+_at|at|until|start_by", row[1])
            )
            for table in tables
        }
    assert {table: columns for table, columns in moments.items() if columns} == TIMES


def test_the_tables_refuse_states_that_are_not_in_the_table_of_transitions() -> None:
    with closing(fresh()) as connection:
        for statement in (
            "INSERT INTO holdfast_tally VALUES (1, 'waiting', 0)",
            "INSERT INTO holdfast_tally VALUES (1, 'ready', -1)",
            "INSERT INTO holdfast_attempt VALUES (x'00', 1, x'00', 0, 0, 'claimed', NULL, 0, NULL, NULL, NULL)",
            "INSERT INTO holdfast_event VALUES (x'00', 1, 'exploded', 0, 'ready', 0, '', '')",
            "INSERT INTO holdfast_lane VALUES (3, 'default', 'task', 5, '[]')",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
                connection.execute(statement)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE holdfast_audit SET actor = 'nobody'",
        "DELETE FROM holdfast_audit",
        "INSERT OR REPLACE INTO holdfast_audit SELECT no, at, 'nobody', action, targets, count, detail FROM holdfast_audit",
    ],
)
async def test_lines_of_the_audit_log_stand_whoever_is_connected(path: str, change: str) -> None:
    store = SqliteStore(path, WORLD)
    await store.open()
    await store.pause("mail", by="ann")
    await store.rewind(60)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="lines of the audit log"):
        connection.execute(change)
    (line,) = await store.audits(limit=5)
    await store.close()
    assert line.actor == "ann"
