"""What child processes of the conformance suite open: in a module that imports little, for each of them imports it anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from holdfast.core.environment import Environment
    from holdfast.store.postgres import PostgresStore
    from holdfast.store.sqlite import SqliteStore


def open_postgres(url: str, environment: Environment | None = None) -> PostgresStore:
    """Return a store, not yet opened."""
    from holdfast.store.postgres import PostgresStore  # noqa: PLC0415  its driver is not for those on a file

    return PostgresStore(url, environment or SystemEnvironment())


def open_sqlite(url: str, environment: Environment | None = None) -> SqliteStore:
    """Return a store, not yet opened."""
    from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415  as above

    return SqliteStore(url, environment or SystemEnvironment())
