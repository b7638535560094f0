"""What running jobs tell of themselves: log lines, and stages entered and left."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.memory.handle import Handle
from holdfast.store.port import LogView, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.store.memory.records import Record
    from holdfast.store.port import LogLine, StageMark


class Journal(Handle):
    """What the port says about logs and stages. Neither extends a lease."""

    async def log(self, lines: Sequence[LogLine]) -> list[Settled]:
        """Append lines to the logs of jobs, in order."""
        now = self.environment.now()
        return [self._log_one(line, now) for line in lines]

    def _log_one(self, line: LogLine, now: datetime) -> Settled:
        if (held := self.data.held(line.lease)) is None:
            return Settled.STALE
        record, attempt = held
        if line.id not in record.lines and self.data.move(record, Write(Event.LOG, record.failures), now):
            self._append(record, line, now)
        return Settled.LATE if attempt.lapsed(now) else Settled.APPLIED

    def _append(self, record: Record, line: LogLine, now: datetime) -> None:
        self.data.log_lines += 1
        if line.id is not None:
            record.lines.add(line.id)
        record.log.append(
            LogView(
                no=self.data.log_lines,
                at=now - timedelta(seconds=line.age),
                attempt=record.attempt,
                level=line.level,
                logger=line.logger,
                message=line.message,
                fields=line.fields,
            )
        )

    async def logs(self, job_id: UUID, *, limit: int, after: int = 0) -> list[LogView]:
        """Return the log of a job, oldest first, from the line after number `after` on."""
        record = self.data.jobs.get(job_id)
        lines = [] if record is None else record.log
        return list(islice((line for line in lines if line.no > after), max(0, limit)))

    async def mark(self, marks: Sequence[StageMark]) -> list[Settled]:
        """Write stages entered and left into event logs, in order."""
        now = self.environment.now()
        return [self._mark_one(mark, now) for mark in marks]

    def _mark_one(self, mark: StageMark, now: datetime) -> Settled:
        if (held := self.data.held(mark.lease)) is None:
            return Settled.STALE
        record, attempt = held
        happened, actor = now - timedelta(seconds=mark.age), self.worker_name(attempt.worker) or ""
        self.data.move(record, Write(mark.event, record.failures), happened, actor=actor, reason=mark.name)
        return Settled.LATE if attempt.lapsed(now) else Settled.APPLIED
