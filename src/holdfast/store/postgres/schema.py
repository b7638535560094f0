"""The schema: numbered migrations for the tables, one `.sql` file for each server function."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.core.limits import AGAIN
from holdfast.core.states import TERMINAL, WAITING, State
from holdfast.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.store.port import TEXT_LIMIT
from holdfast.store.postgres.connection import Connections

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from holdfast.core.environment import Environment
    from holdfast.store.postgres.connection import Connection

_HERE: Final = resources.files("holdfast.store.postgres")

HOT: Final = (
    "SET search_path TO {schema}, pg_temp SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off "
    "SET plan_cache_mode TO force_generic_plan"
)
"""How hot statements are planned: once, by index, without looking at statistics that may be a million rows behind."""

BRISK: Final = "SET search_path TO {schema}, pg_temp SET enable_seqscan TO off SET plan_cache_mode TO force_generic_plan"
"""As `HOT`, where the plan leaves nothing else to choose: each setting costs a single enqueue some microseconds."""

PAIRED: Final = "SET enable_nestloop TO off SET enable_mergejoin TO off"
"""How (id, token) pairs are matched: by a hash join, whatever the planner thinks of the sizes."""

IMPATIENT: Final = "SET lock_timeout TO '2s'"
"""How long is waited for what somebody's open transaction may hold for as long as it likes."""

READ_COMMITTED: Final = """IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = 'HF007', MESSAGE = current_setting('transaction_isolation');
    END IF;"""
"""Refuses what relies on later statements seeing what others have committed meanwhile, where they would not."""

IN_HAND: Final = 0.02
"""In how many seconds it is worth asking again for jobs under a limit that another claimer has in hand this moment."""

_STATES: Final = {
    "waiting": ", ".join(f"'{state}'" for state in State if state in WAITING),
    "terminal": ", ".join(f"'{state}'" for state in State if state in TERMINAL),
}
"""Groups of states, as SQL takes them from the state machine."""


def quoted(schema: str) -> str:
    """Return a schema name as an SQL identifier."""
    return '"' + schema.replace('"', '""') + '"'


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Return the migrations in order: number and text."""
    files = sorted((f for f in (_HERE / "migrations").iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple((int(f.name.split("_")[0]), f.read_text()) for f in files)


@cache
def functions() -> tuple[str, ...]:
    """Return the definitions of the server functions; a function that calls others comes in any order."""
    return tuple(f.read_text() for f in sorted(_sql_files(), key=lambda f: f.name))


def _sql_files() -> list[Traversable]:
    return [f for f in (_HERE / "sql").iterdir() if f.name.endswith(".sql")]


def latest() -> int:
    """Return the version this code works with."""
    return migrations()[-1][0]


async def migrate(
    url: str, environment: Environment, *, schema: str = "holdfast", connect_for: float = 5.0, prepare: bool = True
) -> tuple[int, int]:
    """Create the schema or bring it up to date; returns the version before and after.

    Atomic, and safe when several processes do it at once: an advisory lock makes them take turns.
    """
    connections = Connections(url, environment, size=1, connect_for=connect_for, timeout=600.0, prepare=prepare)
    await connections.open()
    try:
        return await connections.in_transaction(lambda connection: upgrade(connection, schema, connections.target))
    finally:
        await connections.close()


async def upgrade(connection: Connection, schema: str, target: str) -> tuple[int, int]:
    """Apply what is missing, inside the caller's transaction."""
    name = quoted(schema)
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"holdfast.migrate.{schema}")
    before = await version(connection, schema)
    if before > latest():
        raise too_new(schema, target, before)
    if before == latest():
        return before, before
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}" if before == 0 else "SELECT")
    await connection.execute(f"SET LOCAL search_path TO {name}")
    # bodies name functions that come later in the alphabet
    await connection.execute("SET LOCAL check_function_bodies TO off")
    for number, text in migrations():
        if number > before:
            await connection.execute(text)
    parts = {
        "schema": name,
        "schema_text": schema.replace("'", "''"),
        "hot": HOT.format(schema=name),
        "brisk": BRISK.format(schema=name),
        "paired": PAIRED,
        "impatient": IMPATIENT,
        "read_committed": READ_COMMITTED,
        "text_limit": TEXT_LIMIT,
        "again": AGAIN,
        "in_hand": IN_HAND,
        **_STATES,
    }
    for text in functions():
        await connection.execute(text.format(**parts))
    await connection.execute("UPDATE meta SET version = $1", latest())
    return before, latest()


async def version(connection: Connection, schema: str) -> int:
    """Return the version of the schema; 0 when there is none."""
    # Not to_regclass(): it may answer from a cache filled before another session created the schema.
    exists = await connection.fetchval(
        "SELECT count(*) = 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relname = 'meta'",
        schema,
    )
    return (await connection.fetchval(f"SELECT version FROM {quoted(schema)}.meta") if exists else 0) or 0


async def check(connection: Connection, schema: str, target: str, *, create: bool) -> None:
    """Make sure that the schema is the one this code works with; create a missing one if `create`.

    Inside the caller's transaction: all of it, or nothing.
    """
    found = await version(connection, schema)
    if found == latest():
        return
    if found > latest():
        raise too_new(schema, target, found)
    if found:
        raise SchemaTooOld(
            f"the schema {schema!r} at {target} has version {found}, this Holdfast needs {latest()}. "
            "Upgrade it with: holdfast migrate URL (old and new workers may run side by side meanwhile)"
        )
    if not create:
        raise SchemaMissing(f"there is no Holdfast schema {schema!r} at {target}. Create it with: holdfast migrate URL")
    try:
        await upgrade(connection, schema, target)
    except asyncpg.InsufficientPrivilegeError as error:
        raise SchemaMissing(
            f"there is no Holdfast schema {schema!r} at {target}, and this role may not create it ({error}). "
            "Run `holdfast migrate URL` with a role that may"
        ) from error


def too_new(schema: str, target: str, found: int) -> SchemaTooNew:
    """Return the error for a schema from the future."""
    return SchemaTooNew(
        f"the schema {schema!r} at {target} has version {found}, this Holdfast knows versions up to {latest()}. "
        "Upgrade Holdfast on this machine to a version that knows it, from a newer clone: pip install ../holdfast"
    )
