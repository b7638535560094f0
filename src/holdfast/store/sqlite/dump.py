"""Everything in a file, row by row and as of one moment, in the portable form of `store.transfer`."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.states import TRANSITIONS, Event
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.connection import connect, translated
from holdfast.store.sqlite.values import moment_or_none, uuid_or_none

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from typing import Self


def _as_is(value: Any) -> Any:
    return value


def _state(born: str) -> str:
    return str(TRANSITIONS[None, Event(born)])


_AT: Final = moment_or_none
_ID: Final = uuid_or_none
_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("id", "job_id", "chain_id", "chain.step", "continued_by", "worker_id", "token"), _ID),
    **dict.fromkeys(("blocker_id", "waiter_id", "last_job"), _ID),
    **dict.fromkeys(
        (
            *(
                "created_at",
                "run_at",
                "ready_at",
                "start_by",
                "finished_at",
                "claimed_at",
                "ended_at",
                "at",
                "until",
                "paused_at",
            ),
            *("registered_at", "heartbeat_at", "offline_at", "disabled_at", "next_at", "last_at", "started_at", "completed_at"),
            *("emitted_at", "draining_at", "expires_at", "revoked_at", "used_at", "override_at", "filled_at"),
        ),
        _AT,
    ),
    "key.id": _as_is,
    "limits.id": _as_is,
    "late": bool,
    "ended": bool,
    "born": _state,
}
"""How a column's values become portable, wherever it is or in one table; the others already are."""

_FACTS: Final = """
SELECT job.id AS id, job.args, archive.result,
    CASE WHEN archive.job_id IS NOT NULL THEN archive.state WHEN lease.job_id IS NOT NULL THEN 'running'
        WHEN ready.job_id IS NOT NULL THEN 'ready' WHEN scheduled.job_id IS NOT NULL THEN 'scheduled' ELSE 'blocked' END,
    coalesce(archive.attempt, lease.attempt, ready.attempt, scheduled.attempt, 0) AS attempt,
    coalesce(archive.failures, lease.failures, ready.failures, scheduled.failures, 0) AS failures
FROM holdfast_job AS job
LEFT JOIN holdfast_archive AS archive ON archive.job_id = job.id
LEFT JOIN holdfast_lease AS lease ON lease.job_id = job.id
LEFT JOIN holdfast_ready AS ready ON ready.job_id = job.id
LEFT JOIN holdfast_scheduled AS scheduled ON scheduled.job_id = job.id
ORDER BY job.id
"""


def _place(table: str) -> str:
    """Return where the rows of a table of the portable form are."""
    if table == "suspended":
        return "holdfast_scheduled WHERE signal IS NOT NULL"
    return f"holdfast_{table}"


class Dump:
    """A file that is read as a whole. Nobody writes to it meanwhile: what came later would be left behind unseen."""

    def __init__(self, path: str, *, busy_timeout: float = 5.0) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(translated(self._path))
            self._connection = connect(self._path, create=False, busy_timeout=self._busy_timeout)
            self._stack.callback(self._connection.close)
            schema.check(schema.version(self._connection, self._path), self._path)
            self._connection.execute("BEGIN IMMEDIATE")
            self._stack.callback(self._connection.execute, "ROLLBACK")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def count(self, table: str) -> int:
        """Return how many rows a table holds."""
        with self._reading(f"SELECT count(*) FROM {_place(table)}") as cursor:  # noqa: S608  a name of ours
            return int(cursor.fetchone()[0])

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table in the order of its key, with these columns in their portable form."""
        converters = [_CONVERTERS.get(f"{table}.{column}") or _CONVERTERS.get(column, _as_is) for column in columns]
        with self._reading(f"SELECT {', '.join(columns)} FROM {_place(table)} ORDER BY 1, 2") as cursor:  # noqa: S608  names of ours
            for row in cursor:
                yield tuple(convert(value) for convert, value in zip(converters, row, strict=True))

    def facts(self) -> Iterator[tuple[Any, ...]]:
        """Return (id, args, result, state, attempt, failures) of every job, by id."""
        with self._reading(_FACTS) as cursor:
            for job_id, *rest in cursor:
                yield _ID(job_id), *rest

    @contextmanager
    def _reading(self, statement: str) -> Iterator[sqlite3.Cursor]:
        with translated(self._path):
            cursor = self._connection.execute(statement)
            try:
                yield cursor
            finally:
                cursor.close()
