"""From an alias in DATABASES to the URL of the store that lives in that database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSED_ON: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "passfile")
"""Options of psycopg that mean the same to the connections of workers."""


class InMemory(BadSetting):
    """A database that lives and dies with its process: no worker could reach it."""

    def __init__(self, message: str, *, of_tests: bool) -> None:
        super().__init__(message)
        self.of_tests = of_tests
        """Whether Django's test runner made it."""


def store_url(alias: str, schema: str | None = None) -> str:
    """Return the URL of the store in a Django database; raises `BadSetting`.

    Asked each time: the test runner points the aliases at other databases.
    """
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist as error:
        known = ", ".join(repr(name) for name in connections)
        raise BadSetting(f"using={alias!r} names no database of Django: settings.DATABASES has {known}") from error
    if connection.vendor == "postgresql":
        return _postgres(connection.settings_dict, alias, schema)
    if connection.vendor == "sqlite":
        return _sqlite(connection.settings_dict, alias, schema)
    raise BadSetting(
        f"the database {alias!r} is {connection.display_name}, and Holdfast keeps jobs in PostgreSQL or SQLite: "
        "name another alias of DATABASES, DjangoHoldfast(using=…)"
    )


def _postgres(database: Mapping[str, Any], alias: str, schema: str | None) -> str:
    options = database.get("OPTIONS") or {}
    if "service" in options:
        raise BadSetting(
            f"the database {alias!r} is named by a connection service, which workers cannot read: "
            "write NAME, USER, PASSWORD, HOST and PORT into DATABASES"
        )
    user = quote(str(database.get("USER") or ""), safe="")
    if password := database.get("PASSWORD"):
        user = f"{user}:{quote(str(password), safe='')}"
    host, query = str(database.get("HOST") or ""), {name: str(options[name]) for name in PASSED_ON if name in options}
    if host.startswith("/"):  # a folder with a socket
        query["host"], host = host, ""
    if port := database.get("PORT"):
        if host:
            host = f"{host}:{port}"
        else:
            query["port"] = str(port)
    if schema is not None:
        query["schema"] = schema
    name = quote(str(database.get("NAME") or ""), safe="")
    return f"postgresql://{user}{'@' if user else ''}{host}/{name}{'?' if query else ''}{urlencode(query)}"


def _sqlite(database: Mapping[str, Any], alias: str, schema: str | None) -> str:
    if schema is not None:
        raise BadSetting(f"schema={schema!r} is for PostgreSQL, and the database {alias!r} is SQLite, which has none")
    name = str(database.get("NAME") or "")
    if not name or name == ":memory:" or "mode=memory" in name:
        raise InMemory(
            f"the database {alias!r} is SQLite in memory, which no worker could reach. In tests use "
            "holdfast.testing.override(app), or give it a file: DATABASES[…]['TEST'] = {'NAME': 'test.sqlite3'}",
            of_tests="mode=memory" in name,
        )
    return f"sqlite:///{Path(name).absolute()}"
