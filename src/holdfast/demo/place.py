"""Where the demonstration takes place: a fresh SQLite file, or a fresh schema of a PostgreSQL database."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.connect import postgres_parts
from holdfast.core.redact import redact
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class Place:
    """The store's URL, the URL as it may be shown to anyone, and a folder for whatever else there is to write."""

    kind: str
    url: str
    shown: str
    folder: Path


@asynccontextmanager
async def make_place(url: str | None, *, keep: bool, purpose: str = "demo") -> AsyncIterator[Place]:
    """Make a place that nobody else uses; unless it is to be kept, nothing of it is left afterwards."""
    if url is not None and not url.startswith(("postgresql://", "postgres://")):
        raise BadSetting(
            f"the {purpose} makes a SQLite file of its own: leave --url out, or use --url postgresql://user@host/database"
        )
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{purpose}-"))
    try:
        if url is None:
            file = f"sqlite:///{folder / 'jobs.db'}"
            yield Place("SQLite", file, file, folder)
        else:
            async with _schema(url, purpose, keep=keep) as own:
                yield Place("PostgreSQL", own, redact(own), folder)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _schema(url: str, purpose: str, *, keep: bool) -> AsyncIterator[str]:
    database, _, prepare = postgres_parts(url)
    schema = f"holdfast_{purpose}_{secrets.token_hex(4)}"
    own = f"{database}{'&' if '?' in database else '?'}schema={schema}"
    try:
        yield own if prepare else f"{own}&prepare=off"
    except BaseException:
        if not keep:
            with suppress(Exception):  # what went wrong before is the news
                await _drop(database, schema)
        raise
    if not keep:
        await _drop(database, schema)


async def _drop(database: str, schema: str) -> None:
    import asyncpg  # noqa: PLC0415  an extra, needed on PostgreSQL only; the store was opened with it

    connection = await asyncpg.connect(database)
    try:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    finally:
        await connection.close()
