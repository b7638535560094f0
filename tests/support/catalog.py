"""What a PostgreSQL schema consists of, as text that can be compared: `python -m tests.support.catalog` writes it anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import asyncpg

SNAPSHOT: Final = Path(__file__).parents[2] / "src/holdfast/store/postgres/schema.txt"

_PARTS: Final = {
    "table": """
        SELECT c.relname || coalesce(' with ' || array_to_string(c.reloptions, ', '), '') FROM pg_class c
        WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r'""",
    "column": """
        SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
            || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
            || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
            || CASE WHEN a.attidentity <> '' THEN ' identity' ELSE '' END
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = $1::regnamespace""",
    "constraint": """
        SELECT t.relname || ' ' || pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
        WHERE c.connamespace = $1::regnamespace AND c.contype <> 'n'""",
    "index": "SELECT replace(indexdef, schemaname || '.', '') FROM pg_indexes WHERE schemaname = $1",
    "sequence": """
        SELECT sequencename || ' ' || data_type::text || ' cache ' || cache_size FROM pg_sequences WHERE schemaname = $1""",
    "trigger": """
        SELECT c.relname || ' ' || t.tgname || ' ' || p.proname || ' ' || t.tgtype FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE c.relnamespace = $1::regnamespace AND NOT t.tgisinternal""",
    "function": """
        SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ') ' || md5(p.prosrc)
            || ' ' || coalesce(array_to_string(p.proconfig, ', '), '')
        FROM pg_proc p WHERE p.pronamespace = $1::regnamespace""",
}


async def describe(connection: asyncpg.Connection[asyncpg.Record], schema: str = "holdfast") -> str:
    """Return a description of everything in a schema."""
    lines = []
    for part, sql in _PARTS.items():
        lines += sorted(f"{part} {row[0]}".replace(f"{schema}.", "") for row in await connection.fetch(sql, schema))
    return "\n".join(lines) + "\n"


async def _main() -> None:
    from holdfast.store.postgres import migrate  # noqa: PLC0415  only to write
    from holdfast.system import SystemEnvironment  # noqa: PLC0415  only to write
    from tests.support.postgres import MAJORS, PostgresServer  # noqa: PLC0415  only to write

    with PostgresServer(MAJORS[0]) as server:
        url = server.url("postgres")
        await migrate(url, SystemEnvironment())
        connection = await asyncpg.connect(url)
        SNAPSHOT.write_text(await describe(connection))
        await connection.close()


if __name__ == "__main__":
    asyncio.run(_main())
