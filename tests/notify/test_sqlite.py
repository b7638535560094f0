"""Hints among processes that share a file: they notice each other's commits, and never disturb the file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from holdfast.core.job import NewJob
from holdfast.notify.channel import Channel
from holdfast.notify.port import Hint
from holdfast.notify.sqlite import SqliteNotifier, Watcher
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment
from tests.notify.ear import Ear, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

WORLD = SystemEnvironment()
SOMETHING = Hint(anything=True)

COMMITTER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
for line in sys.stdin:
    connection.execute(line)
    print(flush=True)
"""


class Committer:
    """Another process, which commits when told to."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMITTER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def commit(self, statement: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline(), "the other process has died"

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def empty(path: Path) -> Path:
    path.touch()
    return path


@pytest.fixture
def no_database(path: Path) -> Path:
    path.write_text("not a database, and longer than the header of one would be: " * 10)
    return path


@pytest.fixture
def table(path: Path) -> Path:
    make_table(path)
    return path


def make_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (n)")


def is_up(notifier: SqliteNotifier) -> bool:
    return notifier.healthy


def names(path: Path) -> list[str]:
    """What lies beside a file, itself included."""
    return sorted(file.name for file in path.parent.iterdir())


@pytest.fixture
def committer(path: Path) -> Iterator[Committer]:
    committer = Committer(path)
    yield committer
    committer.end()


@pytest.fixture
async def notifier(path: Path) -> AsyncIterator[SqliteNotifier]:
    notifier = SqliteNotifier(path, WORLD)
    yield notifier
    await notifier.close()


async def test_commits_of_another_process_are_noticed_each_time(notifier: SqliteNotifier, committer: Committer) -> None:
    committer.commit("PRAGMA journal_mode = WAL")
    committer.commit("CREATE TABLE t (n)")
    ear = Ear()
    await notifier.listen(ear)
    assert notifier.healthy
    assert ear.hints == []
    for _ in range(3):
        ear.hints.clear()
        committer.commit("INSERT INTO t VALUES (1)")
        await ear.hears(SOMETHING)
        assert set(ear.hints) == {SOMETHING}


async def test_commits_are_noticed_when_the_log_is_switched_on_later(notifier: SqliteNotifier, committer: Committer) -> None:
    committer.commit("CREATE TABLE t (n)")
    ear = Ear()
    await notifier.listen(ear)
    committer.commit("PRAGMA journal_mode = WAL")
    await ear.hears(SOMETHING)
    ear.hints.clear()
    committer.commit("INSERT INTO t VALUES (1)")
    await ear.hears(SOMETHING)


async def test_a_store_of_the_same_process_is_noticed_too(path: Path, notifier: SqliteNotifier) -> None:
    store = SqliteStore(path, WORLD)
    await store.open()
    ear = Ear()
    await notifier.listen(ear)
    await store.enqueue([NewJob(id=WORLD.job_id(), task="t")])
    await ear.hears(SOMETHING)
    await store.close()


async def test_a_missing_file_is_not_made_and_is_found_once_it_is_there(
    path: Path, notifier: SqliteNotifier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.notify")
    ear = Ear()
    await notifier.listen(ear)
    assert not is_up(notifier)
    assert names(path) == []
    store = SqliteStore(path, WORLD)
    await store.open()
    await ear.hears(SOMETHING)
    assert is_up(notifier)
    await store.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_an_empty_file_stays_empty_and_free(empty: Path, notifier: SqliteNotifier) -> None:
    ear = Ear()
    await notifier.listen(ear)
    assert notifier.healthy
    with closing(sqlite3.connect(empty, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert empty.stat().st_size == 0  # noqa: ASYNC240  a test's own file
        connection.execute("CREATE TABLE t (n)")
        connection.execute("COMMIT")
    await ear.hears(SOMETHING)


async def test_a_file_that_is_deleted_and_made_anew_is_watched_again(table: Path, notifier: SqliteNotifier) -> None:
    ear = Ear()
    await notifier.listen(ear)
    table.unlink()  # noqa: ASYNC240  a test's own file
    await eventually(lambda: not notifier.healthy)
    assert ear.hints == []
    make_table(table)
    await ear.hears(SOMETHING)
    assert notifier.healthy


async def test_a_file_put_in_its_place_is_watched_instead(table: Path, notifier: SqliteNotifier) -> None:
    replacement = table.with_name("new.db")
    make_table(replacement)
    ear = Ear()
    await notifier.listen(ear)
    replacement.replace(table)
    await ear.hears(SOMETHING)
    ear.hints.clear()
    with closing(sqlite3.connect(table, isolation_level=None)) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    await ear.hears(SOMETHING)


async def test_a_file_that_is_no_database_makes_it_unhealthy(no_database: Path, notifier: SqliteNotifier) -> None:
    ear = Ear()
    await notifier.listen(ear)
    assert not notifier.healthy
    notifier.hint(Hint(later=True))
    await ear.hears(Hint(later=True))


async def test_two_names_of_one_file_meet(empty: Path, notifier: SqliteNotifier) -> None:
    link = empty.with_name("link.db")
    link.symlink_to(empty)
    ear = Ear()
    await notifier.listen(ear)
    other = SqliteNotifier(link, WORLD)
    other.hint(Hint(later=True))
    await ear.hears(Hint(later=True))
    await other.close()


async def test_without_watching_only_its_own_process_is_heard(empty: Path) -> None:
    notifier, ear = SqliteNotifier(empty, WORLD, watch=False), Ear()
    await notifier.listen(ear)
    assert not notifier.healthy
    notifier.hint(Hint(later=True))
    await ear.hears(Hint(later=True))
    await notifier.close()


async def test_the_last_to_go_leaves_no_log_behind(path: Path, notifier: SqliteNotifier) -> None:
    store = SqliteStore(path, WORLD)
    await store.open()
    await store.enqueue([NewJob(id=WORLD.job_id(), task="t")])
    await notifier.listen(Ear())
    await store.close()
    await notifier.close()
    assert names(path) == [path.name]


def test_a_file_at_rest_gives_nothing_to_tell(table: Path) -> None:
    watcher = Watcher(str(table), Channel("the file"))
    assert [watcher.look() for _ in range(100)] == [True] + [False] * 99
    watcher.close()


def test_looks_are_rare_while_nothing_happens_and_frequent_when_something_does(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (n)")
        rests: list[float] = []
        changes: list[int] = []

        class Stop:
            def wait(self, rest: float) -> bool:
                rests.append(rest)
                if len(rests) == 8:
                    connection.execute("INSERT INTO t VALUES (1)")
                return len(rests) == 11

        watcher = Watcher(str(path), Channel("the file"))
        watcher.look()
        watcher.watch(Stop(), lambda: changes.append(len(rests)))  # type: ignore[arg-type]
        watcher.close()
    assert rests == [0.005, 0.01, 0.02, 0.04, 0.05, 0.05, 0.05, 0.05, 0.005, 0.01, 0.02]
    assert changes == [8]
