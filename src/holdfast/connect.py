"""From a URL to a store: the one module that knows every adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import BadSetting, BadUrl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from holdfast.callers.choosing import Home
    from holdfast.core.environment import Environment
    from holdfast.notify.hub import Hub
    from holdfast.notify.port import Notifier
    from holdfast.store.memory import MemoryData
    from holdfast.store.port import Caller, Store
    from holdfast.store.transfer import Source, Target
    from holdfast.system import SystemEnvironment

_FORMS = (
    "sqlite:///jobs.db (relative), sqlite:////var/lib/jobs.db (absolute), postgresql://user@host/database, memory://, "
    "or https://host of a Holdfast server"
)


class Adapters:
    """The adapters a URL names: fresh handles on one store and its notifier, as many as are asked for.

    Each handle belongs to one event loop. Handles on `memory://` share their data, which lives as long as this object.
    Without a URL the settings say which store, at first use. `https://` names a server, which lets in whoever has a `key`:
    the one given, else the one of the settings. With a `redis_url` workers on PostgreSQL are told of jobs through Redis, as
    `dispatch` says (`database`, `redis`, `hybrid`); where neither is given, the settings say both.
    """

    def __init__(
        self,
        url: str | None,
        *,
        create: bool = True,
        environment: Environment | None = None,
        key: str | None = None,
        redis_url: str | None = None,
        dispatch: str | None = None,
    ) -> None:
        self._url = None if url is None else checked_url(url)
        self._key = key
        self._redis_url = redis_url
        self._dispatch = dispatch
        self._create = create
        self._world = environment or system()
        self._memory: tuple[MemoryData, Hub] | None = None

    @property
    def url(self) -> str:
        """The store's URL; raises `BadSetting` when it was not given and no setting says it."""
        if self._url is None:
            from holdfast.config import configured_url  # noqa: PLC0415  for apps that are given no URL

            self._url = checked_url(configured_url())
        return self._url

    @property
    def remote(self) -> bool:
        """Whether the store is behind a server."""
        return _scheme(self.url) == "http"

    def store(self) -> Store:
        """Return a handle on the store, not yet opened."""
        if self.remote:
            return connect(self.url, environment=self._world, key=self._server_key())
        if _scheme(self.url) == "memory":
            from holdfast.store.memory import MemoryStore  # noqa: PLC0415  adapters load on demand

            return MemoryStore(self._world, self._shared()[0])
        return connect(self.url, create=self._create, environment=self._world)

    def notifier(self) -> Notifier:
        """Return a channel for hints."""
        scheme = _scheme(self.url)
        if scheme != "postgresql" and (self._redis_url or self._dispatch):
            _ = self.dispatch  # raises: what was asked for here does not go together
        if scheme == "memory":
            from holdfast.notify.local import LocalNotifier  # noqa: PLC0415  adapters load on demand

            return LocalNotifier(self._shared()[1])
        if scheme == "sqlite":
            from holdfast.notify.sqlite import SqliteNotifier  # noqa: PLC0415  adapters load on demand

            return SqliteNotifier(sqlite_path(self.url), self._world)
        if scheme == "http":
            from holdfast.notify.http import HttpNotifier  # noqa: PLC0415  adapters load on demand

            return HttpNotifier(self.url, self._server_key(), self._world)
        match self.dispatch:
            case "redis":
                return self._redis_notifier(None)
            case "hybrid":
                return self._redis_notifier(self._postgres_notifier())
        return self._postgres_notifier()

    @property
    def dispatch(self) -> str:
        """How workers are told of new jobs: `database`, `redis` or `hybrid`. Raises `BadSetting`."""
        if self._redis_url is None and self._dispatch is None:
            from holdfast.config import configured_redis  # noqa: PLC0415  for apps that are given neither

            self._redis_url, self._dispatch = configured_redis()
        self._dispatch = checked_dispatch(self._redis_url, self._dispatch)
        if self._dispatch != "database" and _scheme(self.url) != "postgresql":
            raise BadSetting(
                f"dispatch through Redis is for jobs on PostgreSQL, not for {without_password(self.url)}: there is nothing to "
                "win where one machine watches a file, and a server tells its workers itself. Leave redis_url and dispatch out"
            )
        return self._dispatch

    def _postgres_notifier(self) -> Notifier:
        from holdfast.notify.postgres import PostgresNotifier  # noqa: PLC0415  adapters load on demand

        database, schema, prepare = postgres_parts(self.url)
        return PostgresNotifier(database, self._world, schema=schema, prepare=prepare, listen=prepare)

    def _redis_notifier(self, fallback: Notifier | None) -> Notifier:
        from holdfast.notify.redis import RedisNotifier  # noqa: PLC0415  adapters load on demand; tells of a missing extra

        database, schema, _ = postgres_parts(self.url)
        # by the names alone: one process may reach the database under another address than the next
        name = f"holdfast:{urlsplit(database).path.strip('/') or 'postgres'}.{schema}"
        return RedisNotifier(self._redis_url or "", self._world, name=name, fallback=fallback)

    def caller(self, conn: object) -> Caller:
        """Return what takes part in the transaction on a connection that somebody brings; raises `BadSetting` for other things.

        Taken are connections of asyncpg, psycopg 3, sqlite3 and aiosqlite, sessions and connections of SQLAlchemy, and those
        of Django; each where it leads to the kind of database that the jobs are kept in.
        """
        from holdfast.callers.choosing import caller_on  # noqa: PLC0415  adapters load on demand

        return caller_on(conn, self._home())

    def caller_using(self, alias: str) -> Caller:
        """Return what takes part in the transaction of a Django database, by its alias, in this thread."""
        from holdfast.callers.choosing import caller_using  # noqa: PLC0415  adapters load on demand

        return caller_using(alias, self._home())

    def _home(self) -> Home:
        from holdfast.callers.choosing import Home  # noqa: PLC0415  adapters load on demand
        from holdfast.callers.leading import of_url  # noqa: PLC0415  adapters load on demand

        scheme = _scheme(self.url)
        home = Home(kind=scheme, shown=without_password(self.url), environment=self._world)
        if scheme == "sqlite":
            return replace(home, path=sqlite_path(self.url))
        if scheme == "postgresql":
            from holdfast.notify.postgres import channel_name  # noqa: PLC0415  adapters load on demand

            schema = postgres_parts(self.url)[1]
            return replace(home, schema=schema, channel=channel_name(schema), led=of_url(self.url))
        return home

    def _server_key(self) -> str:
        if self._key is None:
            from holdfast.config import configured_key  # noqa: PLC0415  for apps that are given no key

            self._key = configured_key(self.url)
        return self._key

    def _shared(self) -> tuple[MemoryData, Hub]:
        if self._memory is None:
            from holdfast.notify.hub import Hub  # noqa: PLC0415  adapters load on demand
            from holdfast.store.memory import MemoryData  # noqa: PLC0415  adapters load on demand

            self._memory = MemoryData(), Hub()
        return self._memory


def connect(url: str, *, create: bool = True, environment: Environment | None = None, key: str | None = None) -> Store:
    """Return the store a URL names, not yet opened. `key` is for `https://`, the URL of a server.

    `postgresql://…?schema=name` keeps it in a schema of that name (default `holdfast`); `&prepare=off` does without
    prepared statements, for PgBouncer in transaction mode.
    """
    world = environment or system()
    scheme = _scheme(url)
    if scheme == "memory":
        from holdfast.store.memory import MemoryStore  # noqa: PLC0415  adapters load on demand

        return MemoryStore(world)
    if scheme == "sqlite":
        from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415  adapters load on demand

        return SqliteStore(sqlite_path(url), world, create=create)
    if scheme == "http":
        from holdfast.config import configured_key  # noqa: PLC0415  where no key is given
        from holdfast.store.http import HttpStore  # noqa: PLC0415  adapters load on demand; tells of a missing extra

        return HttpStore(url, configured_key(url) if key is None else key, world)
    from holdfast.store.postgres import PostgresStore  # noqa: PLC0415  adapters load on demand; tells of a missing extra

    database, schema, prepare = postgres_parts(url)
    from holdfast.notify.postgres import channel_name  # noqa: PLC0415  after the store, which tells of a missing extra

    return PostgresStore(database, world, schema=schema, create=create, prepare=prepare, channel=channel_name(schema))


async def migrate(url: str) -> tuple[int, int]:
    """Create the schema a URL names or bring it up to date; returns the version before and after."""
    scheme = _scheme(url)
    if scheme == "memory":
        raise BadUrl("a memory:// store has no schema to migrate: it lives and dies with its process")
    if scheme == "http":
        raise BadUrl("a schema is migrated beside the database: give the URL of that, not of a server")
    if scheme == "sqlite":
        from holdfast.store.sqlite import migrate as migrate_sqlite  # noqa: PLC0415  adapters load on demand

        return await migrate_sqlite(sqlite_path(url), system())
    from holdfast.store.postgres import migrate as migrate_postgres  # noqa: PLC0415  adapters load on demand

    database, schema, prepare = postgres_parts(url)
    return await migrate_postgres(database, system(), schema=schema, prepare=prepare)


def dump(url: str) -> AbstractContextManager[Source]:
    """Return everything in the file that a `sqlite:` URL names, for `store.transfer`."""
    from holdfast.store.sqlite.dump import Dump  # noqa: PLC0415  adapters load on demand

    return Dump(sqlite_path(url))


async def load(url: str, work: Callable[[Target], Awaitable[None]]) -> None:
    """Have `work` fill the empty schema that a PostgreSQL URL names, in one transaction."""
    from holdfast.store.postgres.load import load as load_postgres  # noqa: PLC0415  adapters load on demand

    database, schema, prepare = postgres_parts(url)
    await load_postgres(database, system(), schema, work, prepare=prepare)


def system() -> SystemEnvironment:
    """Return the real world."""
    from holdfast.system import SystemEnvironment  # noqa: PLC0415  brings asyncio along, which takes longer than all else here

    return SystemEnvironment()


def sqlite_flaws() -> list[str]:
    """Return what is known to be wrong with the SQLite that Python came with."""
    import sqlite3  # noqa: PLC0415  as the adapters

    from holdfast.store.sqlite import known_flaws  # noqa: PLC0415  adapters load on demand

    return known_flaws(sqlite3.sqlite_version_info)


def checked_url(url: str) -> str:
    """Return a URL that names a store, or raise `BadUrl`. Nothing is opened."""
    scheme = _scheme(url)
    if scheme == "sqlite":
        sqlite_path(url)
    elif scheme == "postgresql":
        postgres_parts(url)
    elif scheme == "http":
        check_server_url(url)
    return url


def checked_dispatch(redis_url: str | None, dispatch: str | None) -> str:
    """Return the mode of dispatch; `hybrid` where there is a Redis and nobody said. Raises `BadSetting`."""
    modes = ("database", "redis", "hybrid")
    mode = dispatch or ("database" if redis_url is None else "hybrid")
    if mode not in modes:
        raise BadSetting(f"dispatch is one of {', '.join(modes)}, not {mode!r}")
    if mode != "database" and redis_url is None:
        raise BadSetting(f"dispatch={mode!r} needs a Redis: export HOLDFAST_REDIS_URL=redis://host:6379/0, or redis_url=")
    if redis_url is not None and not redis_url.startswith(("redis://", "rediss://", "unix://")):
        raise BadSetting("redis_url must be redis://host:6379/0, rediss://… or unix://…")
    return mode


def check_server_url(url: str) -> None:
    """Refuse a URL that names no server, or has a secret in it: URLs are logged, keys never."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadUrl(f"this URL of a server cannot be read: {error}. Use https://host or https://host/prefix") from error
    if not parts.hostname or parts.query or parts.fragment:
        raise BadUrl("the URL of a server is https://host or https://host/prefix, and nothing more")
    if "@" in parts.netloc:
        raise BadUrl("the URL of a server has no user and no key in it: give the key apart (HOLDFAST_KEY, or --key)")


def same_store(one: str, other: str) -> bool:
    """Tell whether two URLs name the same store as far as their text says; passwords do not matter."""
    return _identity(one) == _identity(other)


def without_password(url: str) -> str:
    """Return a URL that may be shown."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{':***' if colon else ''}{at}{place}"


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


def _identity(url: str) -> str:
    scheme = _scheme(url)
    if scheme == "sqlite":
        return str(Path(sqlite_path(url)).absolute())
    return f"{scheme}://{without_password(url).partition('://')[2]}"


def _scheme(url: str) -> str:
    if not isinstance(url, str):
        raise BadUrl(f"a store's URL is a text, not {url!r}. Use {_FORMS}")
    scheme = url.partition("://")[0] if "://" in url else ""
    known = {"memory": "memory", "sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"} | dict.fromkeys(
        ("http", "https"), "http"
    )
    if scheme not in known:
        said = f"the scheme {scheme!r}" if scheme else f"{url!r}"
        raise BadUrl(f"{said} names no store Holdfast knows. Use {_FORMS}")
    return known[scheme]
