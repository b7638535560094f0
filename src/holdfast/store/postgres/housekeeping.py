"""Promoting, reaping, unblocking, pruning: what any process does now and then."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.job import policy_of
from holdfast.core.lease import Lease
from holdfast.core.settle import Write, expire, overdue
from holdfast.core.states import Event, State, origins, target
from holdfast.store.port import SOME_WORKERS, Grain, Promoted, Pruned, Reaped, Settlement, prune_line
from holdfast.store.postgres.handle import SNAPSHOT, most
from holdfast.store.postgres.lanes import Snapshot
from holdfast.store.postgres.working import Working

if TYPE_CHECKING:
    from asyncpg import Record

    from holdfast.store.port import Retention
    from holdfast.store.postgres.connection import Connection
    from holdfast.store.postgres.lanes import Row
    from holdfast.store.postgres.leases import Known

FOLD_EVERY: Final = 5.0
FOLD_LEAST: Final = 200
"""Fewer tally rows than this are cheaper to read than to fold."""
MOST_LAPSED: Final = 10_000

_NEXT: Final = f"SELECT s.xmin, s.xnext, s.now, s.life, d.first FROM ({SNAPSHOT}) s LEFT JOIN {{schema}}."
_NEXT_DUE: Final = _NEXT + "due($1) d ON true"
_NEXT_DEADLINE: Final = _NEXT + "first_deadline($1) d ON true"
_LEASES: Final = (
    f"SELECT s.xmin, s.xnext, s.now, s.life, s.last_claim, s.up_for, l.* FROM ({SNAPSHOT}) s "
    "LEFT JOIN {schema}.leases($1, $2) l ON true"
)

_PRUNE_SIGNALS: Final = "DELETE FROM {schema}.signal WHERE emitted_at < clock_timestamp() - $1 * interval '1 s'"

_PRUNE_LINES: Final = """
DELETE FROM {schema}.audit WHERE no = ANY (ARRAY(
    SELECT a.no FROM (SELECT no, at FROM {schema}.audit WHERE action = 'enqueue' ORDER BY no LIMIT $2) a
    WHERE a.at < clock_timestamp() - $1 * interval '1 s'
))
"""
"""Looks at the first ones, which are the oldest: no index by time is needed."""
SOME_LINES: Final = 1_000
"""Lines that one statement deletes: after months without a pruner, all of them would take longer than a statement may."""

_PRUNE_WORKERS: Final = """
UPDATE {schema}.worker SET past = true, info = '{}', capabilities = '[]', counters = '{}'
WHERE no = ANY (ARRAY(
    SELECT w.no FROM {schema}.worker w
    WHERE NOT w.past AND w.offline_at < clock_timestamp() - $1 * interval '1 s' AND w.disabled_at IS NULL
        AND NOT EXISTS (SELECT FROM {schema}.lease l WHERE l.worker = w.no)
    ORDER BY w.offline_at LIMIT $2 FOR NO KEY UPDATE OF w SKIP LOCKED
))
"""
"""So many at a time: the next walk goes on. Skips who comes back right now, and whom another caller has in hand."""

_PRUNED: Final = {grain: grain.kept for grain in Grain if grain.kept is not None}
_PRUNE_FIGURES: Final = """
DELETE FROM {schema}.figure
USING unnest($1::text[], $2::float8[]) AS g(grain, age)
WHERE figure.grain = g.grain AND coalesce(at, '-infinity'::timestamptz) < clock_timestamp() - g.age * interval '1 s'
"""


class Housekeeping(Working):
    """The housekeeping section of the port."""

    async def promote(self, limit: int) -> Promoted:
        """Make due jobs ready; fold the counts now and then."""
        queues: set[str] = set()
        count = 0
        if limit > 0:
            rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.promote($1, $2)"), self._scheduled.hint, most(limit))
            for queue, promoted, last_due in rows:
                queues.add(queue)
                count += promoted
                self._scheduled.took(last_due)
            if rows:
                self._lanes.look_soon()
        if self._environment.monotonic() >= self._next_fold:
            self._next_fold = self._environment.monotonic() + FOLD_EVERY
            await self._db.execute(self._sql("SELECT {schema}.fold($1)"), FOLD_LEAST)
        return Promoted(count, frozenset(queues), await self._scheduled.look(partial(self._first, _NEXT_DUE)))

    async def _first(self, template: str, base: datetime) -> Row:
        return (await self._db.fetch(self._sql(template), base))[0]

    async def drop_overdue(self, limit: int) -> int:
        """End waiting jobs whose `start_by` has passed."""
        if limit <= 0:
            return 0

        async def work(connection: Connection) -> list[Record]:
            passed = await connection.fetch(
                self._sql("SELECT * FROM {schema}.overdue($1, $2)"), self._deadlines.hint, most(limit)
            )
            if drop := {row[0]: overdue(0, row[2]).error for row in passed if row[2] is not None}:
                await connection.execute(
                    self._sql("SELECT {schema}.end_outside($1, $2, $3, $4, NULL, $5, $6, NULL, $7)"),
                    list(drop),
                    [state.value for state in origins(Event.OVERDUE)],
                    Event.OVERDUE.value,
                    target(State.READY, Event.OVERDUE),
                    [error.code for error in drop.values() if error is not None],
                    [error.message for error in drop.values() if error is not None],
                    "store",
                )
            return passed

        passed = await self._db.in_transaction(work)
        for row in passed:
            self._deadlines.took(row[1])
        if passed:
            self._lanes.look_soon()
        await self._deadlines.look(partial(self._first, _NEXT_DEADLINE))
        return len(passed)

    async def reap(self, limit: int, *, tasks: frozenset[str] = frozenset(), up_for: float | None = None) -> list[Reaped]:
        """Settle lapsed leases by the policy stored with each job."""
        lapsed, server_up_for = await self._lapsed()
        # A server that is to start yet has had its clock set back, which tells nothing: jobs shall not wait for that moment.
        undisturbed = [server_up_for] if server_up_for >= 0 else []
        if up_for is not None:
            undisturbed.append(up_for)
        if self._db.back_since is not None:
            undisturbed.append(self._environment.monotonic() - self._db.back_since)
        # Ripe ones first, then the bound: long leases that are still left alone must not stand before short ones.
        longest = 1000 * min(undisturbed, default=math.inf)
        ids = [job_id for job_id, known in lapsed if known.lease_ms <= longest]
        if not ids or limit <= 0:
            return []
        rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.lapsed($1)"), ids[:MOST_LAPSED])
        ripe = sorted(rows, key=lambda row: (row["task"] not in tasks, row["expires_at"]))[:limit]
        settlements = [Settlement(Lease(row["job_id"], row["token"]), self._expire(row)) for row in ripe]
        if not settlements:
            return []
        answers = await self._settle(settlements, reap=True)
        self._lanes.look_soon()
        return [
            Reaped(row["job_id"], row["task"], row["queue"], row["attempt"], row["worker"], settlement.write)
            for row, settlement, answer in zip(ripe, settlements, answers, strict=True)
            if answer.accepted
        ]

    def _expire(self, row: Record) -> Write:
        return expire(
            policy_of(row["policy"]).retry,
            row["failures"],
            self._environment.random,
            cancel_requested=row["cancel"],
            free=row["free"],
        )

    async def _lapsed(self) -> tuple[list[tuple[UUID, Known]], float]:
        sql = self._sql(_LEASES)
        while True:
            question = self._leases.question(self._server_now())
            rows = await self._db.fetch(sql, question.base, question.ids)
            snapshot = Snapshot(*rows[0][:5])
            self._server_clock = (snapshot.now, self._environment.monotonic())
            seen = [row[6:] for row in rows if row["job_id"] is not None]
            lapsed = self._leases.looked(question, seen, snapshot)
            if lapsed is not None:
                return lapsed, rows[0]["up_for"]

    def _server_now(self) -> datetime | None:
        if self._server_clock is None:
            return None
        then, monotonic = self._server_clock
        return then + timedelta(seconds=self._environment.monotonic() - monotonic)

    async def unblock(self, limit: int) -> int:
        """Settle waiters whose blockers ended unseen."""
        left: int = await self._db.fetch_value(self._sql("SELECT {schema}.unblock($1)"), most(limit))
        if left:
            self._lanes.look_soon()
        return left

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None = None, by: str = "") -> Pruned:
        """Delete terminal jobs that ended long enough ago, and what else is old with the first look of a walk."""

        async def work(connection: Connection) -> Pruned:
            signals, lines = await self._prune_others(connection, retention) if after is None else (0, 0)
            ages = retention.seconds()
            (row,) = await connection.fetch(
                self._sql("SELECT * FROM {schema}.prune($1, $2, $3, $4)"),
                [state.value for state in ages],
                list(ages.values()),
                most(limit),
                after or UUID(int=0),
            )
            pruned = Pruned(row["pruned"], row["next"])
            if (line := prune_line(by=by, jobs=pruned.count, signals=signals, lines=lines)) is not None:
                await self._write_line(connection, line)
            return pruned

        if after is None:  # in a transaction of its own: who enqueues with a key waits for it
            await self._db.execute(self._sql("SELECT {schema}.rest()"))
        return await (self._db.in_transaction if by else self._db.run)(work)

    async def _prune_others(self, connection: Connection, retention: Retention) -> tuple[int, int]:
        """Delete old figures, signals and lines about enqueues; returns how many of the last two there were."""
        await connection.execute(self._sql(_PRUNE_FIGURES), [grain.value for grain in _PRUNED], list(_PRUNED.values()))
        if retention.workers is not None:
            await connection.execute(self._sql(_PRUNE_WORKERS), float(retention.workers), SOME_WORKERS)
        signals = lines = 0
        if retention.signals is not None:
            signals = _count(await connection.execute(self._sql(_PRUNE_SIGNALS), float(retention.signals)))
        while retention.enqueues is not None:
            gone = _count(await connection.execute(self._sql(_PRUNE_LINES), float(retention.enqueues), SOME_LINES))
            lines += gone
            if gone < SOME_LINES:
                break
        return signals, lines


def _count(status: str) -> int:
    """Return how many rows a statement was about, by what the server said of it: `DELETE 7`."""
    return int(status.rpartition(" ")[2])
