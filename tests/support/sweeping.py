"""Empties the tables of a schema, and keeps emptied schemas: making one anew takes ten times as long as emptying it."""

from __future__ import annotations

from uuid import uuid4

import psycopg

_TABLES = "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname = $1"
_FEW = 1_000


class Broom:
    """Sweeps the schemas of one database, on a connection that is kept: a new one would plan all its statements anew."""

    def __init__(self, url: str) -> None:
        # What a test has left locked is an error, not a hang.
        self.connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, options="-c lock_timeout=20s", application_name="broom"
        )

    def close(self) -> None:
        self.connection.close()

    def sweep(self, schema: str) -> None:
        """Make the tables empty, if there are any: a TRUNCATE makes every file anew, for the few rows of most tests a DELETE
        is four times as fast.
        """
        tables = [name for (name,) in self.connection.execute(_TABLES, [schema]) if not name.endswith(".meta")]
        if tables:
            few = self.few(schema)
            empty = [f"DELETE FROM {table}" for table in tables] if few else [f"TRUNCATE {', '.join(tables)}"]
            if not few or self.connection.execute(f"SELECT FROM {schema}.audit LIMIT 1".encode()).fetchone() is not None:
                guards = f"ALTER TABLE {schema}.audit {{}} TRIGGER USER"  # which only its owner may tell to stand aside
                empty = [guards.format("DISABLE"), *empty, guards.format("ENABLE")]
            self.connection.execute("; ".join([*empty, f"UPDATE {schema}.meta SET rewound = '0'"]).encode())

    def few(self, schema: str) -> bool:
        """Tell whether there are so few jobs that a table may be read from end to end."""
        few = f"SELECT count(*) < {_FEW} FROM (SELECT FROM {schema}.job LIMIT {_FEW}) AS first"
        [[answer]] = self.connection.execute(few.encode()).fetchall()
        return bool(answer)


class Schemas:
    """Schemas of one database for tests that want an empty one each: who ends leaves it to the next, swept."""

    def __init__(self, url: str) -> None:
        self._broom = Broom(url)
        self._free: list[str] = []

    def close(self) -> None:
        self._broom.close()

    def take(self) -> str:
        """Return the name of a schema that is empty, or not there yet."""
        return self._free.pop() if self._free else f"t{uuid4().hex}"

    def give_back(self, schema: str) -> None:
        """Sweep a schema that nobody uses any more."""
        self._broom.sweep(schema)
        self._free.append(schema)
