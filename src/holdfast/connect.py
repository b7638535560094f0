"""From a URL to a store: the one module that knows every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import BadUrl
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from holdfast.core.environment import Environment
    from holdfast.store.port import Store

_FORMS = "sqlite:///jobs.db (relative), sqlite:////var/lib/jobs.db (absolute), postgresql://user@host/database, or memory://"


def connect(url: str, *, create: bool = True, environment: Environment | None = None) -> Store:
    """Return the store a URL names, not yet opened.

    `postgresql://…?schema=name` keeps it in a schema of that name (default `holdfast`); `&prepare=off` does without
    prepared statements, for PgBouncer in transaction mode.
    """
    world = environment or SystemEnvironment()
    scheme = _scheme(url)
    if scheme == "memory":
        from holdfast.store.memory import MemoryStore  # noqa: PLC0415  adapters load on demand

        return MemoryStore(world)
    if scheme == "sqlite":
        from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415  adapters load on demand

        return SqliteStore(sqlite_path(url), world, create=create)
    from holdfast.store.postgres import PostgresStore  # noqa: PLC0415  adapters load on demand

    database, schema, prepare = postgres_parts(url)
    return PostgresStore(database, world, schema=schema, create=create, prepare=prepare)


async def migrate(url: str) -> tuple[int, int]:
    """Create the schema a URL names or bring it up to date; returns the version before and after."""
    scheme = _scheme(url)
    if scheme == "memory":
        raise BadUrl("a memory:// store has no schema to migrate: it lives and dies with its process")
    if scheme == "sqlite":
        from holdfast.store.sqlite import migrate as migrate_sqlite  # noqa: PLC0415  adapters load on demand

        return await migrate_sqlite(sqlite_path(url), SystemEnvironment())
    from holdfast.store.postgres import migrate as migrate_postgres  # noqa: PLC0415  adapters load on demand

    database, schema, _ = postgres_parts(url)
    return await migrate_postgres(database, SystemEnvironment(), schema=schema)


def sqlite_path(url: str) -> str:
    """Return the file a `sqlite:` URL names: three slashes for a relative path, four for an absolute one."""
    path = url.removeprefix("sqlite://")
    if not path.startswith("/") or len(path) < 2:  # noqa: PLR2004  a slash and a name
        raise BadUrl(f"{url!r} names no file. Use {_FORMS}")
    return path[1:]


def postgres_parts(url: str) -> tuple[str, str, bool]:
    """Return a PostgreSQL URL without Holdfast's own parameters, the schema, and whether to prepare statements."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadUrl(f"this PostgreSQL URL cannot be read: {error}. Use {_FORMS}") from error
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in query if name in {"schema", "prepare"}}
    rest = [(name, value) for name, value in query if name not in own]
    if not own.get("schema", "holdfast"):
        raise BadUrl("?schema= is empty: leave it out for the schema 'holdfast'")
    prepare = own.get("prepare", "on")
    if prepare not in {"on", "off"}:
        raise BadUrl(f"?prepare={prepare} is neither 'on' nor 'off'")
    return (
        urlunsplit(parts._replace(scheme="postgresql", query=urlencode(rest))),
        own.get("schema", "holdfast"),
        prepare == "on",
    )


def _scheme(url: str) -> str:
    scheme = url.partition("://")[0] if "://" in url else ""
    known = {"memory": "memory", "sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
    if scheme not in known:
        said = f"the scheme {scheme!r}" if scheme else f"{url!r}"
        raise BadUrl(f"{said} names no store Holdfast knows. Use {_FORMS}")
    return known[scheme]
