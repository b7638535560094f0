"""A jobs file in which the audit log, or everything else, cannot be written any more: neither must happen without the other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any


def refuse_lines(path: str) -> None:
    """Have every line that anybody writes into the audit log abort its transaction."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER no_lines BEFORE INSERT ON holdfast_audit BEGIN SELECT RAISE(ABORT, 'the log takes no lines'); END"
        )


def refuse_changes(path: str) -> None:
    """Have every change of anything but the audit log abort its transaction."""
    with closing(sqlite3.connect(path)) as connection:
        for table in _tables(connection):
            for change in ("INSERT", "UPDATE", "DELETE"):
                connection.execute(
                    f"CREATE TRIGGER no_{change}_{table} BEFORE {change} ON {table} "
                    "BEGIN SELECT RAISE(ABORT, 'nothing can be changed'); END"
                )


def picture(path: str) -> dict[str, list[Any]]:
    """Return everything that the file holds besides the audit log."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in _tables(connection)
        }


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast_%'").fetchall()
    return [name for (name,) in found if name != "holdfast_audit"]
