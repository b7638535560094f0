"""The connections to the file and their transactions: everything blocking, nothing asynchronous."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.port import too_slow
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.connection import Place, connect, settings, translated, warn_of_network
from holdfast.store.sqlite.moving import settle_waiters
from holdfast.store.sqlite.values import stamp
from holdfast.store.sqlite.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.core.environment import Environment
    from holdfast.store.sqlite.facade import Executes, Facade

T = TypeVar("T")

CHECKPOINT_EVERY: Final = 64
"""Commits between two checkpoints: a log of a few megabytes, and two syncs shared among that many."""
STEPS: Final = 10_000
"""Of SQLite's machine, between two looks at the clock: some tenths of a millisecond."""
KEPT: Final = 1.0
"""Seconds that a write waits for others before that counts as an outage, in which nobody could extend a lease."""


def perform(connection: Executes, environment: Environment, operation: Callable[[Writing], T]) -> T:
    """Run an operation inside a write transaction that is open already, its own or a caller's."""
    writing = Writing(connection, stamp(environment.now()), environment.random, environment.token)
    result = operation(writing)
    settle_waiters(writing)
    writing.flush()
    return result


def perform_within(facade: Facade, environment: Environment, operation: Callable[[Writing], T]) -> T:
    """Run an operation inside somebody's transaction, in which the write lock is held. An error leaves that as it was."""
    facade.execute("SAVEPOINT holdfast")
    try:
        result = perform(facade, environment, operation)
    except BaseException:
        if facade.in_transaction:  # some errors have rolled back everything by themselves
            facade.execute("ROLLBACK TO holdfast")
            facade.execute("RELEASE holdfast")
        raise
    facade.execute("RELEASE holdfast")
    return result


class Writer:
    """The one connection through which a process writes. Must stay in one thread."""

    def __init__(self, path: str, environment: Environment, *, busy_timeout: float) -> None:
        self._path = path
        self._environment = environment
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None
        self._checkpointer: sqlite3.Connection | None = None
        self._place = Place(path)
        self._commits = 0
        self.free_since: float | None = None
        """Monotonic time since when the file is free again after somebody kept it for long; `None` when nobody has."""

    def open(self, *, create: bool) -> None:
        """Connect and check the schema; create a missing one where that is allowed."""
        try:
            with translated(self._path):
                if not create and not Path(self._path).exists():
                    schema.check(None, self._path)
                self._connection = connect(self._path, create=create, busy_timeout=self._busy_timeout)
                found = schema.version(self._connection, self._path)
                if found is not None or not create:
                    schema.check(found, self._path)
                self._place.remember()
                settings(self._connection, self._path, self._busy_timeout)
                if found is None:
                    self._create_schema(self._connection)
                self._checkpointer = connect(self._path, create=False, busy_timeout=self._busy_timeout)
                settings(self._checkpointer, self._path, self._busy_timeout)
            warn_of_network(self._path)
        except BaseException:
            self.close()
            raise

    def _create_schema(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection, "BEGIN IMMEDIATE"):
            # several processes may find nothing there at the same time: one of them creates it
            if schema.version(connection, self._path) is None:
                schema.upgrade(connection, self._path)
        schema.check(schema.version(connection, self._path), self._path)

    def migrate(self) -> tuple[int, int]:
        """Create the schema or bring it up to date. Returns the versions before and after."""
        try:
            with translated(self._path):
                self._connection = connect(self._path, create=True, busy_timeout=self._busy_timeout)
                settings(self._connection, self._path, self._busy_timeout)
                with _transaction(self._connection, "BEGIN EXCLUSIVE"):
                    return schema.upgrade(self._connection, self._path)
        finally:
            self.close()

    def write(self, operation: Callable[[Writing], T]) -> T:
        """Run an operation in a transaction of its own: all of it happens or none."""
        with translated(self._path):
            connection = _present(self._connection)
            asked = self._environment.monotonic()
            try:
                # the write lock first, and only then the time: whoever writes later also has the later moment
                with _transaction(connection, "BEGIN IMMEDIATE"):
                    self._waited(asked)
                    result = perform(connection, self._environment, operation)
                    self._place.check()
            except sqlite3.OperationalError:
                self._waited(asked)
                raise
            self._commits += 1
            if self._commits >= CHECKPOINT_EVERY:
                self._checkpoint()
            return result

    def _waited(self, asked: float) -> None:
        now = self._environment.monotonic()
        if now - asked >= KEPT:
            self.free_since = now

    def _checkpoint(self) -> None:
        """Bring the log back into the database while nobody can write.

        SQLite would do so by itself after a commit, beside the writes of other processes. Up to 3.51.2 that may lose a
        commit (see `known_flaws`): the bug needs somebody who starts the log anew during the checkpoint. So we hold the
        write lock with one connection and checkpoint with the other.
        """
        try:
            with _transaction(_present(self._connection), "BEGIN IMMEDIATE"):
                _present(self._checkpointer).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.OperationalError:
            return  # somebody else writes, or the disk is full: what was asked for is committed, the log can wait
        self._commits = 0

    def close(self) -> None:
        """Let go of the file."""
        for connection in (self._checkpointer, self._connection):
            if connection is not None:
                connection.close()
        self._connection = self._checkpointer = None


class Reader:
    """A second connection for looking, so that long looks do not hold up claims. Must stay in one thread."""

    def __init__(self, path: str, *, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._place = Place(path)
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Connect to a file whose schema has been checked."""
        with translated(self._path):
            self._connection = connect(self._path, create=False, busy_timeout=self._busy_timeout)
            self._place.remember()
            settings(self._connection, self._path, self._busy_timeout)
            self._connection.execute("PRAGMA query_only = ON")

    def read(self, operation: Callable[[sqlite3.Connection], T], patience: float | None = None) -> T:
        """Run an operation that sees one moment; `patience`: and is given up after so many seconds."""
        with translated(self._path):
            connection = _present(self._connection)
            self._place.check()
            with _transaction(connection, "BEGIN"):
                if patience is None:
                    return operation(connection)
                with self._given_up_after(connection, patience):
                    return operation(connection)

    @contextmanager
    def _given_up_after(self, connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
        end = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise StoreUnavailable(self._path, seconds, too_slow(seconds)) from error
        finally:
            connection.set_progress_handler(None, 0)

    def data_version(self) -> int:
        """Return a number that changes when anybody else has committed."""
        with translated(self._path):
            return int(_present(self._connection).execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class _transaction:  # noqa: N801  used as a statement; a generator would cost the hot path a microsecond
    """From BEGIN to COMMIT, or to ROLLBACK when anything is raised."""

    __slots__ = ("_begin", "_connection")

    def __init__(self, connection: sqlite3.Connection, begin: str) -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> None:
        self._connection.execute(self._begin)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            # also after a COMMIT that failed; some errors have rolled back by themselves
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _present(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise sqlite3.ProgrammingError("the store is closed")
    return connection
