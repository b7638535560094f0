"""What a connection must be able to do so that jobs can be written through it, and sqlite3's own made to do so."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Rows(Protocol):
    """What a statement gave: a cursor of the DBAPI, as far as it is used. Each execution has one of its own."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row as a plain tuple; `None` when there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left, as plain tuples."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the rows that are left, one by one."""
        ...


class Executes(Protocol):
    """Runs statements with `?` and `:name` for parameters. A `sqlite3.Connection` of ours is one as it stands."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Rows:
        """Run one statement."""
        ...

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Rows:
        """Run one statement for each row of parameters."""
        ...


class Facade(Executes, Protocol):
    """A connection that somebody brought, for `SqliteCaller`.

    Rows are plain tuples, text is `str` and blobs are `bytes`, whatever the owner has set for their own statements. Rows
    of one execution stay readable while the next one runs. Raises `sqlite3.Error` and what is derived from it.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def commits_by_itself(self) -> bool:
        """Whether a statement outside of a transaction would be committed at once."""
        ...

    def commit(self) -> None:
        """Commit what is open."""
        ...

    def rollback(self) -> None:
        """Undo what is open."""
        ...


class Sqlite3Facade:
    """Statements on a `sqlite3.Connection`, through cursors of our own: its row factory and kinds of cursors do not matter."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. One made with `autocommit=False` always has one."""
        return self._connection.in_transaction

    @property
    def commits_by_itself(self) -> bool:
        """Whether it was made with `isolation_level=None`, or with `autocommit=True`."""
        return self._autocommit is True or (self._autocommit is None and self._connection.isolation_level is None)

    @property
    def _autocommit(self) -> bool | None:
        # from Python 3.12 on; before that, and where it was not given, `isolation_level` decides
        value = getattr(self._connection, "autocommit", None)
        return value if isinstance(value, bool) else None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement."""
        return self._cursor().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """Run one statement for each row of parameters."""
        return self._cursor().executemany(sql, rows)

    def _cursor(self) -> sqlite3.Cursor:
        cursor = sqlite3.Cursor(self._connection)
        cursor.row_factory = None
        return cursor

    def commit(self) -> None:
        """Commit; with `autocommit=True` the connection's own method would do nothing."""
        if self._autocommit is True:
            self.execute("COMMIT")
        else:
            self._connection.commit()

    def rollback(self) -> None:
        """Undo; see `commit`."""
        if self._autocommit is True:
            self.execute("ROLLBACK")
        else:
            self._connection.rollback()
