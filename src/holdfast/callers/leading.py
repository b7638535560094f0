"""Where a connection to PostgreSQL leads, as far as its driver knows without asking the server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from holdfast.callers.recognising import Stack

PORT = 5432


class Led(NamedTuple):
    """A database of a server."""

    host: str
    """Also the folder of a socket."""
    port: int
    database: str

    def is_elsewhere(self, other: Led) -> bool:
        """Tell whether another one is a different database of the same server.

        Of different hosts or ports nothing can be said: one of them may be a pooler, or a second name of the same server.
        """
        return (self.host, self.port) == (other.host, other.port) and self.database != other.database


def of_url(url: str) -> Led | None:
    """Return where a URL leads; `None`: it does not say, and the driver finds out elsewhere."""
    parts = urlsplit(url)
    host = parts.hostname or parse_qs(parts.query).get("host", [""])[0]
    database = unquote(parts.path.removeprefix("/"))
    return Led(host, parts.port or PORT, database) if host and database and "," not in parts.netloc else None


def of_connection(conn: Any, stack: Stack) -> Led | None:
    """Return where a connection of asyncpg or psycopg leads; `None`: it does not say, for instance because it is closed."""
    with suppress(Exception):  # drivers raise what they like when they are asked about a lost connection
        if stack is not Stack.ASYNCPG:
            return Led(conn.info.host, conn.info.port, conn.info.dbname)
        # asyncpg has no public way to it, and a statement would cost a round trip for each enqueue
        address, database = conn._addr, conn._params.database  # noqa: SLF001  as said
        if isinstance(address, str):
            socket = PurePath(address)
            return Led(str(socket.parent), int(socket.suffix[1:]), database)
        return Led(address[0], address[1], database)
    return None
