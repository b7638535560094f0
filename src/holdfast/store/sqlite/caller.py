"""Jobs in a transaction that somebody else began, on a connection of their own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.abort import AbortReason
from holdfast.errors import Aborted, BadSetting, StaleLease, StoreUnavailable
from holdfast.store.port import Settled
from holdfast.store.sqlite import producing, schema, settling, working
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.connection import is_busy, translated
from holdfast.store.sqlite.database import perform_within
from holdfast.store.sqlite.facade import Sqlite3Facade

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Enqueued, Settlement
    from holdfast.store.sqlite.facade import Facade
    from holdfast.store.sqlite.writing import Writing

T = TypeVar("T")

IMMEDIATE = 'connection.execute("BEGIN IMMEDIATE")'
MARK = "SAVEPOINT holdfast_job"
UNMARK = "RELEASE holdfast_job"
"""What dies with the transaction in which it was made."""


class Fence:
    """What a transaction has been told about the leases it stands or falls with: it may commit only while they are held."""

    def __init__(self) -> None:
        self._lost: Lease | None = None
        self._canceled = False

    def heed(self, lease: Lease, answer: Settled) -> Settled:
        """Remember that a lease is lost, or that its attempt has ended without what is written here or what was to follow."""
        if answer in (Settled.STALE, Settled.REPEATED):
            self._lost = lease
        self._canceled |= answer is Settled.CANCELED
        return answer

    def check(self) -> None:
        """Refuse to go on without the lease (`StaleLease`), or without what the attempt was to end with (`Aborted`)."""
        if self._canceled:
            raise Aborted(AbortReason.CANCELED)
        if self._lost is not None:
            raise StaleLease(f"job {self._lost.job_id} is no longer held under this token: nothing was committed")


class SqliteCaller:
    """The port's `Caller` on a connection to the very file that the jobs are in. Everything blocks, nothing suspends.

    `facade` is how statements get to that connection (`SqliteCaller.on` makes the one for sqlite3), `connection` what its
    owner calls it, `path` and `environment` are the store's. Other processes notice a commit by themselves, and so does a
    worker of this one: there is nothing to hint.
    """

    blocking = True
    exclusive = True
    """It keeps every other writer of the file waiting."""

    def __init__(self, facade: Facade, connection: Any, path: str, environment: Environment) -> None:
        self._facade = facade
        self._connection = connection
        self._path = path
        self._environment = environment
        self._fence = Fence()
        self.marked = False
        """Whether `begin` has marked the transaction, which is then looked for by whatever ends an attempt."""

    @classmethod
    def on(cls, connection: sqlite3.Connection, path: str, environment: Environment) -> SqliteCaller:
        """Return the one for a connection of sqlite3."""
        if connection.text_factory is not str:
            raise BadSetting(
                f"the connection has text_factory={connection.text_factory!r}, and jobs are made of str. "
                "Give a connection without one, and decode what is not UTF-8 with CAST(column AS BLOB)"
            )
        return cls(Sqlite3Facade(connection), connection, path, environment)

    @property
    def connection(self) -> Any:
        """What the caller brought."""
        return self._connection

    async def begin(self) -> None:
        """Begin a transaction where none is open, in whatever mode the connection is, and mark it.

        sqlite3 begins the next one by itself after a commit that other code has made (`with connection:`), and would take the
        attempt's end into that, apart from what it was to stand or fall with.
        """
        with translated(self._path):
            self._check_file()
            if not self._facade.in_transaction:
                self._check_schema()
                self._facade.execute("BEGIN IMMEDIATE")
            self._facade.execute(MARK)
            self.marked = True

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs; they exist once the transaction has committed."""
        return self._run(lambda writing: producing.enqueue(writing, jobs, None, caps))

    async def prove(self, lease: Lease) -> Settled:
        """Hold a lease in place until the end: nobody else can write before that."""
        self._check_same()
        return self._fence.heed(lease, self._run(lambda writing: working.prove(writing, lease)))

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt."""
        self._check_same()
        (answer,) = self._run(lambda writing: settling.settle(writing, [settlement]))
        return self._fence.heed(settlement.lease, answer)

    def after_commit(self, call: Callable[[], None]) -> bool:  # noqa: ARG002  nobody here can tell
        """Tell that sqlite3 says nothing about commits."""
        return False

    async def tell(self, text: str) -> None:
        """Do nothing: whoever watches the file sees the commit itself."""

    async def commit(self) -> None:
        """Commit, unless a lease that was to be held is lost (`StaleLease`) or a cancel has won (`Aborted`)."""
        self._fence.check()
        with translated(self._path):
            if not self._facade.in_transaction:
                # sqlite3 would take it for nothing to do, and who asked would take the job for completed
                raise BadSetting(
                    "the transaction has been ended by other code on this connection before it could be committed here: "
                    "whether what was written stands is up to that. Leave the end of it to the block it was given to"
                )
            self._facade.commit()

    async def rollback(self) -> None:
        """Undo everything."""
        with contextlib.suppress(sqlite3.Error):
            self._facade.rollback()

    def _check_same(self) -> None:
        """Refuse to end an attempt in another transaction than the one that was begun here."""
        if not self.marked:
            return
        with translated(self._path):
            try:
                self._facade.execute(UNMARK)
            except sqlite3.OperationalError as error:
                if "no such savepoint" not in str(error):
                    raise
                raise BadSetting(
                    "this transaction was committed or rolled back inside the block: what was written before that stands, or "
                    "is undone, and nothing was completed. It is begun and ended by its block alone: leave out commit() and "
                    "`with connection:` there, also in the functions that it calls, and use savepoints"
                ) from error
        self.marked = False

    def _run(self, operation: Callable[[Writing], T]) -> T:
        with translated(self._path):
            self._check_file()
            if self._facade.in_transaction:
                # first of all: a look at any table binds the transaction to what it sees, and others may write before it does
                self._take_write_lock()
                self._check_schema()
                return perform_within(self._facade, self._environment, operation)
            return self._begin_and_run(operation)

    def _begin_and_run(self, operation: Callable[[Writing], T]) -> T:
        """Begin what the connection would have begun by itself with the first change, but with the write lock."""
        if self._facade.commits_by_itself:
            raise BadSetting(
                "the connection is in autocommit mode and has no transaction open: the jobs would not stand or fall with "
                f"anything. Begin one first: {IMMEDIATE}; and commit it when all is written"
            )
        self._check_schema()
        self._facade.execute("BEGIN IMMEDIATE")
        try:
            return perform_within(self._facade, self._environment, operation)
        except BaseException:
            if self._facade.in_transaction:
                self._facade.execute("ROLLBACK")  # there was none before: nobody would know that the file is locked
            raise

    def _take_write_lock(self) -> None:
        begun = time.monotonic()
        try:
            self._facade.execute(sql("writing.take_lock"))
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                self._check_schema()
                raise
            raise StoreUnavailable(
                self._path,
                time.monotonic() - begun,
                "the transaction began by reading, and cannot write now: somebody else has written since, or is writing",
                fix=f"Roll back, and begin transactions in which you enqueue with: {IMMEDIATE}",
            ) from error

    def _check_file(self) -> None:
        """Refuse a connection to anything but the file that workers look into. Reads nothing of it."""
        (file,) = (file for _, name, file in self._facade.execute("PRAGMA database_list").fetchall() if name == "main")
        mine = os.path.realpath(self._path)
        if not file or os.path.realpath(file) != mine:
            raise BadSetting(
                f"the connection is open on {file or 'a database in memory'}, and the jobs are in {mine}: what is enqueued "
                "there, no worker would find. Give a connection to that file, or give the app the URL of yours"
            )

    def _check_schema(self) -> None:
        schema.check(schema.version(self._facade, self._path), self._path)
