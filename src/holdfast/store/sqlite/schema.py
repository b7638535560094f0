"""The schema: its version, and the migrations that lead there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.core.states import HOLDER_EVENTS, TERMINAL, TRANSITIONS, Event, State, origins
from holdfast.errors import SchemaError, SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.store.port import Grain, Role, WorkerKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.store.sqlite.facade import Executes


@cache
def migrations() -> tuple[str, ...]:
    """Return the migrations in order, words filled in; migration n leads from version n - 1 to n."""
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(_filled(file.read_text(encoding="utf-8")) for file in files)


def newest() -> int:
    """Return the version this Holdfast works with."""
    return len(migrations())


def version(connection: Executes, path: str) -> int | None:
    """Return the version of the schema in a file; `None` when there is none."""
    columns = [row[1] for row in connection.execute("PRAGMA table_info(holdfast_meta)")]
    if not columns:
        return None
    if "version" not in columns:
        raise SchemaError(
            f"{path} has a table holdfast_meta that is not Holdfast's. Keep the jobs in another file, or rename that table."
        )
    row = connection.execute("SELECT version FROM holdfast_meta").fetchone()
    return None if row is None else int(row[0])


def check(found: int | None, path: str) -> None:
    """Raise unless a schema is there and is the one this Holdfast works with."""
    if found is None and not Path(path).exists():
        folder = Path(path).absolute().parent
        raise SchemaMissing(
            f"there is no file {path} (looked in {folder}{'' if folder.is_dir() else ', a folder that does not exist'}). "
            "Check the path. If it is right, nothing was ever enqueued there; a new file is made by the first worker that may, "
            f"or by: holdfast migrate sqlite:///{path}"
        )
    if found is None:
        raise SchemaMissing(
            f"{path} holds no Holdfast schema, and it was not to be created. "
            f"Create it with: holdfast migrate sqlite:///{path} (or open the store with create=True)."
        )
    if found < newest():
        raise SchemaTooOld(
            f"the schema in {path} has version {found}, this Holdfast works with {newest()}. "
            f"Upgrade it with: holdfast migrate sqlite:///{path}"
        )
    if found > newest():
        raise SchemaTooNew(
            f"the schema in {path} has version {found}, this Holdfast knows {newest()} at most. "
            "Upgrade Holdfast on this machine to a version that knows it, from a newer clone: pip install ../holdfast"
        )


def upgrade(connection: sqlite3.Connection, path: str) -> tuple[int, int]:
    """Bring the schema to the newest version inside the caller's write transaction. Returns the versions before and after."""
    before = version(connection, path) or 0
    if before > newest():
        check(before, path)
    for number, script in enumerate(migrations(), start=1):
        if number > before:
            for statement in _split(script):
                connection.execute(statement)
            connection.execute("UPDATE holdfast_meta SET version = ?", (number,))
    return before, newest()


def snapshot() -> str:
    """Return the sum of the migrations as SQL, for comparison with the committed `schema.sql`."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        upgrade(connection, ":memory:")
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'sqlite_sequence' "
            "ORDER BY tbl_name, type = 'trigger', type DESC, name"
        ).fetchall()
    return "".join(f"{statement};\n\n" for (statement,) in rows)


def _split(script: str) -> list[str]:
    """Return the statements of a migration: `executescript` would commit the transaction it runs in."""
    without_comments = re.sub(r"^\s*--.*\n", "", script, flags=re.MULTILINE)
    statements, begun = [], ""
    for piece in without_comments.split(";")[:-1]:
        begun += f"{piece};"
        if sqlite3.complete_statement(begun):  # the body of a trigger has semicolons of its own
            statements.append(begun.strip().removesuffix(";"))
            begun = ""
    return statements


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_LEAVES_RUNNING: Final = tuple(
    event
    for event in Event
    if State.RUNNING in origins(event) and TRANSITIONS[State.RUNNING, event] not in (None, State.RUNNING)
)

_WORDS: Final = {
    "states": _quoted(State),
    "terminal": _quoted(state for state in State if state in TERMINAL),
    "succeeded": _quoted([State.SUCCEEDED]),
    "events": _quoted(
        event for event in Event if any(target is not None for (_, of), target in TRANSITIONS.items() if of is event)
    ),
    "born": _quoted(event for event in Event if (None, event) in TRANSITIONS),
    "leaves_running": _quoted(_LEAVES_RUNNING),
    "settles": _quoted(event for event in _LEAVES_RUNNING if event in HOLDER_EVENTS),
    "worker_kinds": _quoted(WorkerKind),
    "roles": _quoted(Role),
    "grains": _quoted(Grain),
}


def _filled(script: str) -> str:
    for word, values in _WORDS.items():
        script = script.replace(f"{{{word}}}", values)
    return script
