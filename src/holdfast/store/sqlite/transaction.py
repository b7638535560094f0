"""A handler's own transaction: a connection and a thread apart from the store's, for as long as it may keep others waiting."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, TypeVar, cast

from holdfast.errors import BadSetting, TransactionTooLong
from holdfast.store.sqlite import producing, settling, working
from holdfast.store.sqlite.caller import Fence
from holdfast.store.sqlite.connection import Place, connect, is_busy, settings, translated
from holdfast.store.sqlite.database import perform_within
from holdfast.store.sqlite.facade import Sqlite3Facade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Lease
    from holdfast.store.port import Enqueued, Settled, Settlement
    from holdfast.store.sqlite.writing import Writing

T = TypeVar("T")

LONGEST: Final = 5.0
"""Seconds a handler may keep every other writer waiting."""
BUSY_SLICE: Final = 0.05
"""Seconds for which the wait for other writers cannot be given up."""


class Cap:
    """How long a transaction may be open, and the one lock under which anything happens in it.

    The lock lets the end of the time come between two statements, never into one: those of the runtime's thread, of
    the handler's own, and of the alarm take turns.
    """

    def __init__(self, seconds: float) -> None:
        self.lock = threading.RLock()
        self.seconds = seconds
        self.over = False

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.over:
            self.lock.release()
            raise self.error()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.lock.release()
        if self.over and isinstance(error, sqlite3.Error):
            raise self.error() from error  # the statement was cut off

    def error(self) -> TransactionTooLong:
        """Return what everything raises from then on."""
        return TransactionTooLong(
            f"the transaction was open for more than {self.seconds:g} s and has been undone: on SQLite it keeps every other "
            "writer of the file waiting, heartbeats included. Do the long work before it, and write at its end; "
            "or use PostgreSQL"
        )


_GAP: Final = r"(?:\s|\ufeff|;|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))"
"""What SQLite passes over between the words of a statement."""
_ENDS: Final = re.compile(
    rf"{_GAP}*+(BEGIN|COMMIT|END|ROLLBACK(?!{_GAP}++(TRANSACTION{_GAP}++)?TO\b))\b", re.IGNORECASE | re.DOTALL
)
"""A statement that begins or ends a transaction; going back to a savepoint does not."""
_MODES: Final = frozenset({"isolation_level", "autocommit"})
"""What sqlite3 commits for when it is set."""


class CappedCursor(sqlite3.Cursor):
    """A cursor whose statements raise `TransactionTooLong` when the time is over, and `BadSetting` when the transaction is."""

    connection: CappedConnection

    def execute(self, sql: str, *args: Any) -> CappedCursor:
        """Run one statement, unless it would end the transaction."""
        if (ends := _ENDS.match(sql)) is not None:
            raise BadSetting(f"{ends[1]} is not taken here: the transaction is begun and ended by its block")
        with self.connection.statement():
            super().execute(sql, *args)
        return self

    def executemany(self, *args: Any) -> CappedCursor:
        """Run one statement for each row of parameters."""
        with self.connection.statement():
            super().executemany(*args)
        return self

    def executescript(self, *_: Any) -> CappedCursor:
        """Refuse: sqlite3 commits before it runs a script."""
        raise BadSetting("executescript commits first, and so would tear the transaction apart: use execute")


class CappedConnection(sqlite3.Connection):
    """The connection of a handler's transaction. Nothing happens on it outside of that, and it does not end it."""

    cap: Cap
    begun = False

    @contextlib.contextmanager
    def statement(self) -> Iterator[None]:
        """Let one statement run in its turn, and in the transaction: what came after its end would be committed at once.

        Also looks afterwards: not everything that ends a transaction can be seen in the text of a statement.
        """
        with self.cap:
            self.check_open()
            yield
            self.check_open()

    def check_open(self) -> None:
        """Refuse to go on where something else than the block has ended the transaction."""
        if self.begun and not self.in_transaction:  # as after a conflict that was declared with ON CONFLICT ROLLBACK
            raise BadSetting(
                "the transaction was ended by a statement of the handler: its block alone ends it. The job is not done, "
                "nothing is completed, and nothing more can be written here"
            )

    def __enter__(self) -> Self:
        """Return the connection: the block of sqlite3 is no transaction here, but a part of the one that is open."""
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        """Do nothing, and let errors pass: sqlite3 would commit or roll back, past `commit` and `rollback` below."""
        return False

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse another mode: sqlite3 commits when it is set."""
        if name in _MODES:
            raise BadSetting(f"{name} cannot be set here: that would end the transaction, and its block alone does")
        super().__setattr__(name, value)

    def cursor(self, factory: Any = CappedCursor) -> Any:
        """Return a cursor whose statements heed the cap, whatever else it is."""
        if not (isinstance(factory, type) and issubclass(factory, CappedCursor)):
            raise BadSetting("cursors of another kind are not taken here: they could write when the transaction has ended")
        return super().cursor(factory)

    def execute(self, *args: Any) -> CappedCursor:
        """Run one statement."""
        cursor: CappedCursor = self.cursor()
        return cursor.execute(*args)

    def executemany(self, *args: Any) -> CappedCursor:
        """Run one statement for each row of parameters."""
        cursor: CappedCursor = self.cursor()
        return cursor.executemany(*args)

    def executescript(self, *args: Any) -> CappedCursor:
        """Refuse: sqlite3 commits before it runs a script."""
        cursor: CappedCursor = self.cursor()
        return cursor.executescript(*args)

    def blobopen(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: what is written through it is no statement, and could outlive the transaction."""
        raise BadSetting("blobopen is not taken here: it could write when the transaction has ended. Write blobs with execute")

    def commit(self) -> None:
        """Refuse: the job's end must be the last thing written."""
        raise BadSetting("the transaction is committed at the end of its block, with the job's end as the last thing written")

    def rollback(self) -> None:
        """Refuse: the block ends the transaction."""
        raise BadSetting("raise an error to have the transaction undone: its block ends it")

    def close(self) -> None:
        """Refuse: the block ends the transaction."""
        raise BadSetting("the connection is closed at the end of its block: that would undo the transaction")

    def let_go(self) -> None:
        """Undo what is open, and close."""
        roll_back(self)  # not left to the close, which waits for every cursor that the handler has kept
        super().close()


class SqliteTransaction:
    """The port's `Transaction`. Whatever it has not committed when its time is over is undone, by an alarm.

    `turn_over` is called on the event loop as soon as others may write again, `ended` when connection and thread are gone.
    """

    blocking = False
    exclusive = True
    """It keeps every other writer of the file waiting."""

    def __init__(
        self,
        path: str,
        environment: Environment,
        *,
        busy_timeout: float,
        longest: float,
        turn_over: Callable[[], None],
        ended: Callable[[SqliteTransaction], None],
    ) -> None:
        self._path = path
        self._environment = environment
        self._busy_timeout = busy_timeout
        self._turn_over = turn_over
        self._on_end = ended
        self._cap = Cap(longest)
        self._call_off: Callable[[], None] | None = None
        self._runner = environment.runner("holdfast-sqlite-transaction")
        self._place = Place(path)
        self._fence = Fence()
        self._calls: list[Callable[[], None]] = []
        self._connection: CappedConnection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._given_up = False
        self._released = False
        self._closed = False

    async def open(self) -> None:
        """Connect, and wait until nobody else writes."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._runner.run(self._open)
        except BaseException:
            self._given_up = True
            self._close()
            raise

    def _open(self) -> None:
        with translated(self._path):
            opened = connect(self._path, create=False, busy_timeout=self._busy_timeout, factory=CappedConnection)
            connection = cast("CappedConnection", opened)
            connection.cap = self._cap
            self._connection = connection
            self._place.remember()
            settings(connection, self._path, self._busy_timeout)
            connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SLICE * 1000)}")
            deadline = time.monotonic() + self._busy_timeout
            while not connection.in_transaction:
                try:
                    sqlite3.Cursor(connection).execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    if not is_busy(error) or self._given_up or time.monotonic() >= deadline:
                        raise
            connection.begun = True
        self._call_off = self._environment.alarm(self._cap.seconds, self._run_out)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of sqlite3; any thread may use it, one at a time."""
        return self._present()

    async def execute(self, sql: str, *args: Any) -> list[Any]:
        """Run one statement of the handler's own, and return its rows."""
        connection = self._present()
        return await self._runner.run(lambda: self._execute(connection, sql, args))

    def _execute(self, connection: CappedConnection, statement: str, args: tuple[Any, ...]) -> list[Any]:
        with self._cap:
            return connection.execute(statement, args).fetchall()

    async def begin(self) -> None:
        """Do nothing: it has begun."""

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        """Create jobs; they exist once the transaction has committed."""
        return await self._run(lambda writing: producing.enqueue(writing, jobs, None, caps))

    async def prove(self, lease: Lease) -> Settled:
        """Hold a lease in place until the end: nobody else can write before that."""
        return self._fence.heed(lease, await self._run(lambda writing: working.prove(writing, lease)))

    async def settle(self, settlement: Settlement) -> Settled:
        """End an attempt."""
        (answer,) = await self._run(lambda writing: settling.settle(writing, [settlement]))
        return self._fence.heed(settlement.lease, answer)

    async def _run(self, operation: Callable[[Writing], T]) -> T:
        connection = self._present()
        return await self._runner.run(lambda: self._operate(connection, operation))

    def _operate(self, connection: CappedConnection, operation: Callable[[Writing], T]) -> T:
        with translated(self._path), self._cap:
            connection.check_open()
            # through cursors of our own: the handler may have set a row factory
            return perform_within(Sqlite3Facade(connection), self._environment, operation)

    def after_commit(self, call: Callable[[], None]) -> bool:
        """Have `call` called once when the transaction has committed."""
        self._calls.append(call)
        return True

    async def tell(self, text: str) -> None:
        """Do nothing: whoever watches the file sees the commit itself."""

    async def commit(self) -> None:
        """Commit. Raises `TransactionTooLong`, or `StaleLease` where a lease to be held is lost; then nothing stands."""
        connection = self._present()
        try:
            self._fence.check()
            await self._runner.run(lambda: self._commit(connection))
        finally:
            await self.rollback()
        for call in self._calls:
            call()

    def _commit(self, connection: CappedConnection) -> None:
        with translated(self._path), self._cap:
            connection.check_open()
            self._place.check()
            sqlite3.Cursor(connection).execute("COMMIT")

    async def rollback(self) -> None:
        """Undo what is not committed, and let go of connection and thread. Never raises."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._runner.run(self._undo)
        finally:
            self._close()

    def _undo(self) -> None:
        with self._cap.lock, contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.let_go()

    def _close(self) -> None:
        self._closed = True
        self._runner.close()
        if self._call_off is not None:  # only now: it is the thread that sets it
            self._call_off()
        self._undo()
        self._release()
        self._on_end(self)

    def _run_out(self) -> None:
        """End the time; the alarm's thread does, so that neither a blocked event loop nor a long statement can put it off."""
        self._cap.over = True
        with contextlib.suppress(sqlite3.Error):  # it has just ended
            if self._connection is not None:
                self._connection.interrupt()  # the statement that runs now would otherwise be waited for
                with self._cap.lock:
                    roll_back(self._connection)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits for a turn
                self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self._turn_over()

    def _present(self) -> CappedConnection:
        if self._connection is None or self._closed:
            raise BadSetting("this transaction has ended: begin another one")
        return self._connection


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what is open; the cap's lock must be held."""
    if connection.in_transaction:
        sqlite3.Cursor(connection).execute("ROLLBACK")
