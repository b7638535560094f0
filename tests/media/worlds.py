"""A place where jobs and videos live: a SQLite file, or a schema of a PostgreSQL server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast import Holdfast
from holdfast_media import Media

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.postgres import PostgresServers

KINDS = ("sqlite", "postgres")


@dataclass
class World:
    """An app with the media application, and where its files are."""

    url: str
    folder: Path
    app: Holdfast
    media: Media

    @property
    def on_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    def again(self, **options: Any) -> Media:
        """Return the same application as another process would have it."""
        return media_on(Holdfast(self.url), self.folder, **options)


def url_for(kind: str, folder: Path, servers: PostgresServers | None) -> str:
    if servers is None or kind == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}"
    base = _database(servers)
    return f"{base}{'&' if '?' in base else '?'}schema=media_{uuid4().hex[:12]}"


_DATABASES: dict[int, str] = {}


def _database(servers: PostgresServers) -> str:
    if id(servers) not in _DATABASES:
        _DATABASES[id(servers)] = servers[18].create_database()
    return _DATABASES[id(servers)]


def media_on(app: Holdfast, folder: Path, **options: Any) -> Media:
    return Media(app, **{"root": folder / "media", "scratch": folder / "scratch", "reserve": 0, **options})


async def apart(function: Callable[[], None]) -> None:
    """Run blocking code in a thread that ends with it; those of the event loop's own pool would outlive the test."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        await asyncio.wrap_future(pool.submit(function))
