"""One write transaction: its moment, and what it gathers to write at its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.core.text import clean
from holdfast.store.port import TEXT_LIMIT
from holdfast.store.sqlite._sql import sql

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from holdfast.core.outcome import Error
    from holdfast.core.states import Event, State
    from holdfast.store.sqlite.facade import Executes


class Writing:
    """What the functions of one write transaction share. Lives from BEGIN IMMEDIATE to COMMIT, on whosever connection.

    Nobody else writes meanwhile, so what is read stays true until the commit, and counters may be read first and written last.
    """

    __slots__ = ("_drawn", "_log", "_names", "_number", "_tally", "connection", "ended", "freed", "now", "random", "token")

    def __init__(self, connection: Executes, now: int, random: Callable[[], float], token: Callable[[], UUID]) -> None:
        self.connection = connection
        self.now = now
        self.random = random
        self.token = token
        self.ended: list[tuple[bytes, State]] = []
        """Chains that have ended in this transaction, and how; their waiters have not heard of it yet."""
        self.freed = False
        """Whether a waiter may go on because of it."""
        self._number: int | None = None
        self._drawn = 0
        self._tally: Counter[tuple[int, State]] = Counter()
        self._log: list[tuple[object, ...]] = []
        self._names: dict[bytes, str] = {}

    def numbers(self, count: int) -> range:
        """Draw numbers higher than all drawn before."""
        if self._number is None:
            ((last,),) = self.connection.execute(sql("writing.draw"), (count,)).fetchall()
            self._number = int(last)
            return range(self._number - count + 1, self._number + 1)
        first = self._number + self._drawn + 1
        self._drawn += count
        return range(first, first + count)

    def number(self) -> int:
        """Draw one number."""
        return self.numbers(1)[0]

    def count(self, lane: int, left: State | None, entered: State | None, jobs: int = 1) -> None:
        """Count jobs of a lane out of one state and into another."""
        if left is not None:
            self._tally[lane, left] -= jobs
        if entered is not None:
            self._tally[lane, entered] += jobs

    def log(
        self,
        job_id: bytes,
        event: Event,
        state: State,
        attempt: int,
        actor: str,
        *,
        error: Error | None = None,
        reason: str = "",
        at: int | None = None,
    ) -> None:
        """Add a line to a job's event log."""
        detail = reason if error is None else f"{error.code}: {error.message}" if error.message else error.code
        moment = self.now if at is None else at
        texts = (clean(actor, TEXT_LIMIT), clean(detail, TEXT_LIMIT))
        self._log.append((job_id, self.number(), event.value, moment, state.value, attempt, *texts))

    def worker_name(self, worker_id: bytes) -> str:
        """Return the name of a registered worker."""
        if worker_id not in self._names:
            self._names[worker_id] = self.connection.execute(sql("writing.worker_name"), (worker_id,)).fetchone()[0]
        return self._names[worker_id]

    def flush(self) -> None:
        """Write what has been gathered. The last thing before the commit."""
        if self._log:
            self.connection.executemany(sql("writing.log"), self._log)
        self.write_counts()
        if self._drawn:
            self.connection.execute(sql("writing.advance"), (self._drawn,))

    def write_counts(self) -> None:
        """Write the counts gathered so far, so that they can be read."""
        executemany = self.connection.executemany
        # an upsert would not do for both: its CHECK sees the row that would have been inserted, a negative count
        if left := [(-by, lane, state.value) for (lane, state), by in self._tally.items() if by < 0]:
            executemany(sql("writing.count_out"), left)
        if entered := [(lane, state.value, by) for (lane, state), by in self._tally.items() if by > 0]:
            executemany(sql("writing.count_in"), entered)
        self._tally.clear()
