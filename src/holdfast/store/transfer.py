"""Moving everything from one store to another: the portable form, and the check that nothing was lost on the way.

A source gives the rows of `TABLES` in order; a target takes them, inside one transaction. Portable are: UUIDs, datetimes with a
time zone, numbers, booleans, text. Leases do not travel: what runs is to be released first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

_ERROR: Final = ("code", "message", "traceback")

TABLES: Final = {
    "worker": (
        *(
            "id",
            "name",
            "kind",
            "version",
            "slots",
            "registered_at",
            "heartbeat_at",
            "offline_at",
            "disabled_at",
            "disabled_by",
            "draining_at",
        ),
        *("counters", "capabilities", "info"),
    ),
    "queue": ("name", "paused_at", "paused_by", "reason"),
    "schedule": ("name", "task", "cron", "timezone", "spec", "next_at", "last_at", "last_job"),
    "signal": ("name", "data", "emitted_at", "emitted_by"),
    "limits": (*("id", "kind", "name", "key", "declared", "override", "override_by", "override_at", "tokens", "filled_at"),),
    "lane": ("lane", "queue", "task", "priority", "requires"),
    "deadline": ("job_id", "start_by"),
    "job": (
        *(
            "id",
            "born",
            "created_at",
            "lane",
            "entry",
            "queue",
            "task",
            "priority",
            "lease",
            "policy",
            "scope",
            "key",
            "held_for",
        ),
        *("requires", "tags", "chain_id", "blockers", "trace", "args"),
    ),
    "chain": ("id", "step", "steps"),
    "blocker": ("blocker_id", "waiter_id", "position", "ended"),
    "blocked": ("job_id", "run_at"),
    "scheduled": ("job_id", "run_at", "attempt", "failures"),
    "suspended": ("signal", "job_id"),
    "ready": ("lane", "seq", "job_id", "attempt", "failures", "ready_at"),
    "archive": (
        *("job_id", "state", "attempt", "failures", "finished_at", "claimed_at", "worker_id", "token", "late", *_ERROR),
        *("result", "continued_by"),
    ),
    "attempt": ("job_id", "attempt", "worker_id", "claimed_at", "ended_at", "event", "token", "late", *_ERROR),
    "event": ("job_id", "number", "event", "at", "state", "attempt", "actor", "detail"),
    "log": ("job_id", "number", "at", "attempt", "level", "logger", "message", "fields"),
    "part": ("job_id", "name", "number", "state", "done", "total", "data", "error", "started_at", "completed_at"),
    "progress": ("job_id", "percent", "step", "message"),
    "unique_key": ("scope", "key", "job_id", "until"),
    "key": (
        *("id", "name", "role", "digest", "queues", "actions", "created_by", "created_at", "expires_at", "revoked_at"),
        *("revoked_by", "used_at"),
    ),
    "audit": ("no", "at", "actor", "action", "targets", "count", "detail"),
    "figure": ("grain", "at", "queue", "task", "event", "code", "count", "waited", "ran", "waits", "runs"),
}
"""The tables of the portable form and their columns, in the order in which they are moved."""

DERIVED: Final = frozenset({"lane", "deadline"})
"""Tables that a target may keep in another number of rows."""


class TransferFailed(HoldfastError):
    """What arrived is not what was sent. Nothing was kept."""


class Source(Protocol):
    """A store that is read as a whole, as of one moment."""

    def count(self, table: str) -> int:
        """Return how many rows a table holds."""
        ...

    def rows(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a table."""
        ...

    def facts(self) -> Iterator[tuple[Any, ...]]:
        """Return (id, args, result, state, attempt, failures) of every job, by id."""
        ...


class Target(Protocol):
    """An empty store that is being filled inside one transaction."""

    async def copy(self, table: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        """Write the rows of one table."""
        ...

    async def finish(self) -> None:
        """Write what follows from the rows."""
        ...

    async def count(self, table: str) -> int:
        """Return how many rows a table holds now."""
        ...

    def facts(self) -> AsyncIterator[tuple[Any, ...]]:
        """Return (id, args, result, state, attempt, failures) of every job, by id."""
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved: rows by table, jobs by state, and the hash over every job that both sides agree on."""

    tables: dict[str, int]
    states: dict[str, int]
    digest: str


async def transfer(source: Source, target: Target, tell: Callable[[str, int], None]) -> Moved:
    """Move everything and compare both sides; `tell` hears of each table how many rows have passed. Raises `TransferFailed`."""
    counts = {}
    for table, columns in TABLES.items():
        counts[table] = source.count(table)
        await target.copy(table, columns, _told(source.rows(table, columns), table, tell))
    await target.finish()
    for table in TABLES.keys() - DERIVED:
        if (arrived := await target.count(table)) != counts[table]:
            raise TransferFailed(f"{counts[table]} rows of {table!r} were sent and {arrived} arrived: nothing was kept")
    sent, received = Tally(), Tally()
    for fact in source.facts():
        sent.add(fact)
    async for fact in target.facts():
        received.add(fact)
    if (sent.states, sent.digest) != (received.states, received.digest):
        raise TransferFailed(
            f"the jobs that arrived differ from those that were sent ({dict(received.states)} against {dict(sent.states)}): "
            "nothing was kept"
        )
    return Moved(counts, dict(sent.states), sent.digest)


class Tally:
    """A hash over what matters about every job, and the count by state."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self._hash = blake2b(digest_size=16)

    def add(self, fact: tuple[Any, ...]) -> None:
        """Count one job in; the order matters. Lengths go in too, so that no text can pass for another's end."""
        self.states[fact[3]] += 1
        for value in fact:
            data = b"\0" if value is None else str(value).encode()
            self._hash.update(len(data).to_bytes(8, "big") + data)

    @property
    def digest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


def _told(rows: Iterator[tuple[Any, ...]], table: str, tell: Callable[[str, int], None]) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(rows, start=1):
        yield row
        if number % 1000 == 0:
            tell(table, number)
