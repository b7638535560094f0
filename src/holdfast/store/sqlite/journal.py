"""What running jobs say of themselves: lines of their logs, stages in their event logs. Neither extends a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.states import State
from holdfast.store.port import LogView, Settled
from holdfast.store.sqlite._sql import sql
from holdfast.store.sqlite.values import microseconds, moment

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.core.lease import Lease
    from holdfast.store.port import LogLine, StageMark
    from holdfast.store.sqlite.writing import Writing


def log(writing: Writing, lines: Sequence[LogLine]) -> list[Settled]:
    """Append lines to the logs of jobs; see the port."""
    holders, answers, rows = _Holders(writing), [], []
    for line in lines:
        holder = holders.of(line.lease)
        answers.append(holder.answer)
        if holder.answer.accepted:
            at = writing.now - microseconds(line.age)
            texts = (line.level, line.logger, line.message, line.fields)
            line_id = None if line.id is None else line.id.bytes
            rows.append((line.lease.job_id.bytes, writing.number(), at, holder.attempt, *texts, line_id))
    writing.connection.executemany(sql("log.line"), rows)
    return answers


def mark(writing: Writing, marks: Sequence[StageMark]) -> list[Settled]:
    """Write stages entered and left into event logs; see the port."""
    holders, answers = _Holders(writing), []
    for one in marks:
        holder = holders.of(one.lease)
        answers.append(holder.answer)
        if holder.answer.accepted:
            at, actor = writing.now - microseconds(one.age), writing.worker_name(holder.worker_id)
            writing.log(one.lease.job_id.bytes, one.event, State.RUNNING, holder.attempt, actor, reason=one.name, at=at)
    return answers


class _Holder(NamedTuple):
    """What a lease allows its holder, and whose it is."""

    answer: Settled
    attempt: int = 0
    worker_id: bytes = b""


class _Holders:
    """The leases that one call writes under, each looked at once: many lines come from one job."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._found: dict[Lease, _Holder] = {}

    def of(self, lease: Lease) -> _Holder:
        """Return who holds a job under this token."""
        holder = self._found.get(lease)
        if holder is None:
            holder = self._found[lease] = self._look(lease)
        return holder

    def _look(self, lease: Lease) -> _Holder:
        row = self._writing.connection.execute(sql("log.held"), (lease.job_id.bytes, lease.token.bytes)).fetchone()
        if row is None:
            return _Holder(Settled.STALE)
        attempt, expires_at, worker_id = row
        return _Holder(Settled.LATE if expires_at <= self._writing.now else Settled.APPLIED, attempt, worker_id)


def logs(connection: sqlite3.Connection, job_id: UUID, limit: int, after: int) -> list[LogView]:
    """Return the log of a job, oldest first, from the line after number `after` on."""
    return [
        LogView(no=number, at=moment(at), attempt=attempt, level=level, logger=logger, message=message, fields=fields)
        for number, at, attempt, level, logger, message, fields in connection.execute(
            sql("logs.lines"), (job_id.bytes, after, max(0, limit))
        )
    ]
