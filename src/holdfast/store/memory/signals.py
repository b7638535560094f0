"""Signals: emitted once, awaited by suspended jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.text import checked_name, flaw
from holdfast.errors import BadJob
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.records import Emission
from holdfast.store.port import EMITTED_BEFORE, Action, Emitted, audit_line

if TYPE_CHECKING:
    from collections.abc import Sequence


class Signals(Handle):
    """What the port says about signals."""

    async def emit(self, signal: str, data: str, *, by: str = "") -> Emitted:
        """Emit a signal once: who waits for it becomes ready. What was emitted before stands as it is."""
        checked_name(signal, "signal")
        if (reason := flaw(data)) is not None:
            raise BadJob(reason, path="data")
        first = signal not in self.data.signals
        self.audit(audit_line(Action.EMIT, [signal], by=by, detail="" if first else EMITTED_BEFORE))
        if not first:
            return Emitted(first=False)
        now = self.environment.now()
        self.data.signals[signal] = Emission(data, now)
        woken = [self.data.jobs[job_id] for job_id in sorted(self.data.suspended.get(signal, ()))]
        for record in woken:
            self.data.wake(record, now, actor=by)
        return Emitted(
            first=True,
            jobs=tuple(record.job.id for record in woken),
            queues=frozenset(record.job.queue for record in woken),
        )

    async def signals(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of these signals that were emitted, with the JSON text they carry."""
        return {name: self.data.signals[name].data for name in names if name in self.data.signals}
