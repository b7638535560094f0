"""How an attempt that runs in this process reaches its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import BadSetting, StaleLease
from holdfast.runtime.attempt import Commit
from holdfast.runtime.reporter import MOST_LINES
from holdfast.runtime.settling import store_time
from holdfast.runtime.transacting import AttemptTransactor
from holdfast.store.port import Checkpoint, LogLine, Progress, StageMark
from holdfast.tasks.channel import Stored
from holdfast.tasks.options import Executor as Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import datetime

    from holdfast.core.states import Event
    from holdfast.runtime.attempt import Attempt
    from holdfast.runtime.base import Base
    from holdfast.runtime.reporter import Reporter
    from holdfast.store.port import Part
_TRANSACTING: Final = frozenset({Kind.ASYNC, Kind.THREAD})


class AttemptChannel:
    """The channel of one attempt that runs in this process: on the event loop or in a thread."""

    __slots__ = ("_attempt", "_base", "_lines", "_reporter")

    def __init__(self, attempt: Attempt, reporter: Reporter, base: Base) -> None:
        self._attempt = attempt
        self._reporter = reporter
        self._base = base
        self._lines = 0

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._reporter.environment.monotonic()

    def now(self) -> datetime:
        """Return the store's time as far as the worker knows it."""
        return store_time(self._attempt, self._reporter.environment)

    def progress(self, percent: float, step: str, message: str) -> None:
        """Pass on how far the job is."""
        if self._over():
            return
        self._reporter.add(self._reporter.progress, Progress(self._attempt.lease, percent, step, message))

    def stage(self, name: str, event: Event) -> None:
        """Pass on that a stage was entered or left."""
        if self._over():
            return
        mark = StageMark(lease=self._attempt.lease, name=name, event=event)
        self._reporter.add(self._reporter.mark, self.monotonic(), mark)

    def log(self, level: str, logger: str, message: str, fields: str) -> None:
        """Pass on a line of the job's log; `fields` is JSON text."""
        self._lines += 1
        if self._lines > MOST_LINES or self._over():
            return
        if self._lines == MOST_LINES:
            level, message, fields = "warning", f"more than {MOST_LINES:,} lines: the rest of this attempt is not kept", "{}"
        name = self._reporter.environment.token()  # it may have to be sent again
        line = LogLine(lease=self._attempt.lease, message=message, level=level, logger=logger, fields=fields, id=name)
        self._reporter.add(self._reporter.line, self.monotonic(), line)

    def checkpoint(self, part: Part) -> Awaitable[None]:
        """Write a part. In a thread: done when this returns. On the event loop: done when awaited."""
        if self._over():
            raise StaleLease(f"part {part.name!r} was not stored: a transaction has completed {self._attempt} already")
        if (sealer := self._attempt.entry.task.sealer) is not None:
            part = sealer.sealed_part(part, self._attempt.claimed.task)
        checkpoint = Checkpoint(self._attempt.lease, part)
        if self._reporter.on_loop():
            return self._reporter.checkpoint(checkpoint)

        async def stored() -> None:
            await self._reporter.checkpoint(checkpoint)

        self._reporter.run_coroutine(stored())
        return Stored()

    def transactor(self) -> AttemptTransactor:
        """Return who carries out the job's transactions; refused for what runs elsewhere, also where tests run it here."""
        kind = self._attempt.entry.task.executor
        if kind not in _TRANSACTING:
            raise BadSetting(
                f"a job with executor='{kind}' has no transaction: the lease and its connections are the worker's own. "
                "Use executor='async' or 'thread' for it, or continue with a task that has one"
            )
        return AttemptTransactor(self._attempt, self._base, self._reporter)

    def _over(self) -> bool:
        """Tell whether a transaction has settled the attempt, and the store takes no reports any more; else note the report."""
        if self._attempt.commit is Commit.DONE:
            return True
        self._attempt.reported = True
        return False
