"""What was taken already: a table beside the jobs, written in the transaction that enqueues.

A unique key goes when its job is pruned, and a file may lie in its folder for years. So each version of a file has a row that
no retention touches, and exactly one transaction can insert it. See docs/decisions/0029-a-file-is-taken-once.md.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from holdfast.connect import postgres_parts
from holdfast.core.job import Unique
from holdfast.errors import CENTURY, BadSetting
from holdfast.store.port import Enqueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.store.port import Store, Transaction
    from holdfast.watch.versions import Version

SCOPE: Final = "holdfast.watch"
NOT_ALLOWED: Final = "42501"
"""PostgreSQL's code for a missing privilege."""
COLUMNS: Final = (
    "task text NOT NULL, path text NOT NULL, version text NOT NULL, taken_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, "
    "PRIMARY KEY (task, path, version)"
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of database wants it."""

    table: str
    mark: str
    """What stands before the number of a parameter."""
    exists: str
    lock: str | None = None
    """What lets one at a time create the table."""

    @property
    def create(self) -> str:
        """The statement that makes the table."""
        return f"CREATE TABLE IF NOT EXISTS {self.table} ({COLUMNS})"

    @property
    def take(self) -> str:
        """The statement that returns a row to the first who comes, and to nobody after."""
        one, two, three = (f"{self.mark}{number}" for number in (1, 2, 3))
        return (
            f"INSERT INTO {self.table} (task, path, version) VALUES ({one}, {two}, {three}) "  # noqa: S608  a quoted name
            "ON CONFLICT DO NOTHING RETURNING 1"
        )

    @property
    def known(self) -> str:
        """The statement that reads what was taken below a folder."""
        one, two = f"{self.mark}1", f"{self.mark}2"
        return f"SELECT path, version FROM {self.table} WHERE task = {one} AND substr(path, 1, length({two})) = {two}"  # noqa: S608  as above


def dialect_of(url: str) -> Dialect:
    """Return the dialect for a store. Raises `BadSetting` where there is no database to write into."""
    if url.startswith("sqlite:"):
        exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_watched'"
        return Dialect("holdfast_watched", "?", exists)
    if url.startswith(("postgresql:", "postgres:")):
        schema = postgres_parts(url)[1]
        quoted, text = '"' + schema.replace('"', '""') + '"', schema.replace("'", "''")
        exists = f"SELECT 1 FROM pg_tables WHERE schemaname = '{text}' AND tablename = 'watched'"  # noqa: S608  as above
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('holdfast.watch.{text}', 0))"
        return Dialect(f"{quoted}.watched", "$", exists, lock)
    raise BadSetting(
        "watching a folder needs the database itself, where what was taken is written down with the jobs: "
        "give --url sqlite:///jobs.db or --url postgresql://user@host/database"
    )


class Ledger:
    """Turns files into jobs, each version once. What it keeps in memory saves questions and decides nothing."""

    def __init__(self, store: Store, dialect: Dialect, task: str, caps: Mapping[str, int] | None = None) -> None:
        self._store = store
        self._caps = caps
        """How many jobs may wait in a queue."""
        self._dialect = dialect
        self._task = task
        self._known: defaultdict[str, set[str]] = defaultdict(set)

    async def open(self, folder: str) -> None:
        """Make the table if it is missing, and read what was taken below a folder. Repeatable."""
        transaction = await self._store.begin()
        try:
            await self._create(transaction)
            rows = await transaction.execute(self._dialect.known, self._task, folder)
            await transaction.commit()
        except BaseException:
            await transaction.rollback()
            raise
        self._known.clear()
        for path, version in rows:
            self._known[path].add(version)

    async def _create(self, transaction: Transaction) -> None:
        if await transaction.execute(self._dialect.exists):
            return
        try:
            if self._dialect.lock is not None:
                await transaction.execute(self._dialect.lock)
            await transaction.execute(self._dialect.create)
        except Exception as error:
            if getattr(error, "sqlstate", None) != NOT_ALLOWED:
                raise
            raise BadSetting(
                f"the table {self._dialect.table} is missing, and this role may not create it ({error}). "
                f"Have somebody who may run: {self._dialect.create}"
            ) from error

    def knows(self, path: str, version: Version) -> bool:
        """Tell whether it is known here that this was taken. False may also mean that another watcher took it."""
        return str(version) in self._known.get(path, ())

    def knows_like(self, path: str, begin: str) -> bool:
        """Tell whether it is known here that a version was taken whose text begins so."""
        return any(version.startswith(begin) for version in self._known.get(path, ()))

    async def take(
        self, files: Mapping[str, Version], make: Callable[[str], NewJob], then: Callable[[Sequence[NewJob]], None]
    ) -> list[tuple[str, UUID]]:
        """Enqueue a job for each file that nobody has taken; returns those that became jobs, with their ids.

        Atomic: rows and jobs are committed together. Repeatable. `then` is called with the jobs once they are committed.
        Raises `QueueFull` where not all of them find room, and none is taken then.
        """
        transaction = await self._store.begin()
        try:
            # in order: two watchers that take the same files never wait for each other crosswise
            fresh = [
                path
                for path in sorted(files)
                if await transaction.execute(self._dialect.take, self._task, path, str(files[path]))
            ]
            fresh.sort(key=lambda path: (files[path].modified, path))
            jobs = [self._marked(make(path), path, files[path]) for path in fresh]
            answers = await transaction.enqueue(jobs, caps=self._caps) if jobs else []
            if jobs:
                transaction.after_commit(lambda: then(jobs))
            await transaction.commit()
        except BaseException:
            await transaction.rollback()
            raise
        for path, version in files.items():
            self._known[path].add(str(version))
        return [(path, answer.job_id) for path, answer in zip(fresh, answers, strict=True) if answer.status is Enqueue.CREATED]

    def _marked(self, job: NewJob, path: str, version: Version) -> NewJob:
        """Return the job with a key for this version of the file: `holdfast move` takes keys along, and not this table."""
        digest = blake2b("\0".join((self._task, path, str(version))).encode(), digest_size=16).hexdigest()
        return replace(job, unique=Unique(key=f"file:{digest}", scope=SCOPE, window=CENTURY))
