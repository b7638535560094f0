"""From a connection that somebody has to the caller that takes part in its transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.callers.leading import of_connection, of_url
from holdfast.callers.recognising import Stack, other_store, stack_of, title
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    import sqlite3

    from holdfast.callers.leading import Led
    from holdfast.core.environment import Environment
    from holdfast.store.port import Caller
    from holdfast.store.postgres.caller import Line
    from holdfast.store.sqlite.caller import SqliteCaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where the jobs of an app are kept."""

    kind: str
    """`postgresql`, `sqlite` or `memory`."""
    shown: str
    """Its URL, as it may be shown."""
    environment: Environment
    path: str = ""
    """The file, on SQLite."""
    schema: str = ""
    """On PostgreSQL, as the channel."""
    channel: str = ""
    led: Led | None = None
    """Where its URL leads, on PostgreSQL."""

    def check(self, conn: object, kind: str) -> None:
        """Refuse a connection to another kind of database."""
        if kind != self.kind:
            raise other_store(title(conn), kind, self.shown)

    def check_database(self, conn: object, led: Led | None) -> None:
        """Refuse a connection to another database of the same server: it may have a schema too, where no worker looks."""
        if self.led is not None and led is not None and self.led.is_elsewhere(led):
            raise other_store(title(conn), f"the database {led.database!r}", self.shown)

    def postgres(self, line: Line) -> Caller:
        """Return a caller on PostgreSQL."""
        from holdfast.store.postgres.caller import PostgresCaller  # noqa: PLC0415  adapters load on demand

        return PostgresCaller(line, self.schema, self.channel, target=self.shown)

    def sqlite(self, connection: sqlite3.Connection) -> SqliteCaller:
        """Return a caller on SQLite."""
        from holdfast.store.sqlite.caller import SqliteCaller  # noqa: PLC0415  adapters load on demand

        return SqliteCaller.on(connection, self.path, self.environment)


def caller_on(conn: Any, home: Home) -> Caller:
    """Return what takes part in the transaction on a connection; raises `BadSetting` for one that cannot be used."""
    match stack_of(conn):
        case Stack.ASYNCPG | Stack.PSYCOPG | Stack.PSYCOPG_ASYNC as stack:
            home.check(conn, "postgresql")
            home.check_database(conn, of_connection(conn, stack))
            return home.postgres(_line_of(conn, stack))
        case Stack.SQLITE3:
            home.check(conn, "sqlite")
            return home.sqlite(conn)
        case Stack.AIOSQLITE:
            home.check(conn, "sqlite")
            from holdfast.callers.aiosqlite import AiosqliteKeeper  # noqa: PLC0415  each library only where it is used
            from holdfast.callers.keeping import KeptCaller  # noqa: PLC0415  as above

            return KeptCaller(AiosqliteKeeper(conn), home.sqlite, home.path)
        case Stack.SQLALCHEMY:
            return _on_sqlalchemy(conn, home)
        case Stack.DJANGO:
            return _on_django(conn, home)


def caller_using(alias: str, home: Home) -> Caller:
    """Return what takes part in the transaction of a Django database, in this thread."""
    from holdfast.callers.django import wrapper_of  # noqa: PLC0415  as above

    return _on_django(wrapper_of(alias), home)


def _line_of(conn: Any, stack: Stack) -> Line:
    if stack is Stack.ASYNCPG:
        from holdfast.store.postgres.asyncpg_line import AsyncpgLine  # noqa: PLC0415  as above

        return AsyncpgLine(conn)
    from holdfast.callers.psycopg import AsyncPsycopgLine, PsycopgLine  # noqa: PLC0415  as above

    return PsycopgLine(conn) if stack is Stack.PSYCOPG else AsyncPsycopgLine(conn)


def _on_sqlalchemy(conn: Any, home: Home) -> Caller:
    from holdfast.callers.keeping import KeptCaller  # noqa: PLC0415  as above
    from holdfast.callers.sqlalchemy import DRIVERS, Sqlalchemy, SqlalchemyKeeper  # noqa: PLC0415  as above

    through = Sqlalchemy(conn)
    kind, driver = through.dialect.name, through.dialect.driver
    home.check(conn, kind)
    if driver not in DRIVERS[kind]:
        taken = " or ".join(f"{kind}+{name}" for name in DRIVERS[kind] if not name.endswith("_async"))
        raise BadSetting(f"conn= was given {title(conn)} on {kind}+{driver}, which is not taken: use an engine on {taken}")
    if kind == "postgresql":
        home.check_database(conn, of_url(str(through.url)))
        from holdfast.callers.sqlalchemy_line import SqlalchemyLine  # noqa: PLC0415  as above

        return home.postgres(SqlalchemyLine(through))
    return KeptCaller(SqlalchemyKeeper(through), home.sqlite, home.path)


def _on_django(conn: Any, home: Home) -> Caller:
    from holdfast.callers.django import DjangoCaller  # noqa: PLC0415  as above

    home.check(conn, conn.vendor)
    return DjangoCaller(conn, lambda driver: caller_on(driver, home), home.shown)
