"""The tables of the library, in the database of the jobs. Made by one function that may be called again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast import SchemaTooNew

if TYPE_CHECKING:
    from holdfast_media.library.statements import Statements

SCHEMA: Final = 1
"""The version of the tables below."""

TABLES: Final = ("media_meta", "media_video", "media_version", "media_quality")

STATEMENTS: Final = (
    """CREATE TABLE IF NOT EXISTS media_meta (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS media_video (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        state TEXT NOT NULL,
        source TEXT NOT NULL,
        reference TEXT,
        facts TEXT,
        published TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        deleted_at TEXT,
        swept_at TEXT
    )""",
    # `reference` is the caller's own name for a video: added twice under one, it is there once
    "CREATE UNIQUE INDEX IF NOT EXISTS media_video_reference ON media_video (reference) WHERE deleted_at IS NULL",
    """CREATE INDEX IF NOT EXISTS media_video_unswept ON media_video (deleted_at)
        WHERE deleted_at IS NOT NULL AND swept_at IS NULL""",
    """CREATE TABLE IF NOT EXISTS media_version (
        id TEXT PRIMARY KEY,
        video_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        state TEXT NOT NULL,
        asked TEXT NOT NULL,
        source TEXT,
        plan TEXT,
        jobs TEXT NOT NULL,
        code TEXT,
        message TEXT,
        result TEXT,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        finished_at TEXT,
        tidied_at TEXT,
        UNIQUE (video_id, number)
    )""",
    # what makes two requests at once one version and one refusal, whoever asks and however many
    """CREATE UNIQUE INDEX IF NOT EXISTS media_version_active ON media_version (video_id)
        WHERE state IN ('pending', 'processing')""",
    "CREATE INDEX IF NOT EXISTS media_version_untidied ON media_version (finished_at) WHERE tidied_at IS NULL",
    """CREATE TABLE IF NOT EXISTS media_quality (
        version_id TEXT NOT NULL,
        name TEXT NOT NULL,
        place INTEGER NOT NULL,
        required INTEGER NOT NULL,
        state TEXT NOT NULL,
        facts TEXT NOT NULL,
        result TEXT,
        code TEXT,
        message TEXT,
        updated_at TEXT NOT NULL,
        PRIMARY KEY (version_id, name)
    )""",
)
"""Columns that hold JSON are TEXT, times are ISO 8601 in UTC: the same on both databases, and readable in both."""


async def create(statements: Statements) -> None:
    """Make the tables where they are missing. Idempotent, and safe when several do it at once; raises `SchemaTooNew`."""
    if not await _made(statements):
        await _make(statements)
    rows = await statements.execute("SELECT value FROM media_meta WHERE name = 'schema'")
    if int(rows[0][0]) > SCHEMA:
        raise SchemaTooNew(
            f"the media library of this database was made by a newer Holdfast (its tables are of version {rows[0][0]}, "
            f"and this one knows {SCHEMA}). Update this program, from a newer clone: pip install '../holdfast[media]'"
        )


async def _made(statements: Statements) -> bool:
    """Tell whether the tables are there: all are made in one transaction, so one stands for all.

    Asked first, because CREATE … IF NOT EXISTS needs the right to create even where there is nothing to do.
    """
    if statements.dialect.postgres:
        rows = await statements.execute(
            "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = ? AND tablename = ?",
            *(statements.dialect.schema, TABLES[0]),
        )
    else:
        rows = await statements.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", TABLES[0])
    return bool(rows)


async def _make(statements: Statements) -> None:
    if statements.dialect.lock is not None:
        # CREATE … IF NOT EXISTS of two sessions at once is an error on PostgreSQL
        await statements.execute(statements.dialect.lock)
    for statement in STATEMENTS:
        await statements.execute(statement)
    await statements.execute(
        "INSERT INTO media_meta (name, value) VALUES ('schema', ?) ON CONFLICT (name) DO NOTHING", str(SCHEMA)
    )
