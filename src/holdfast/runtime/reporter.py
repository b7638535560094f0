"""What running jobs report (progress, stages, log lines, checkpoints), gathered and written in batches."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from holdfast.core.health import Pulse
from holdfast.errors import SchemaError, StaleLease, StoreUnavailable
from holdfast.notify.port import SHOWN
from holdfast.runtime import counters as count
from holdfast.store.port import Checkpoint, LogLine, Progress, Settled, StageMark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from holdfast.core.lease import Lease
    from holdfast.runtime.base import Base

T = TypeVar("T")
logger = logging.getLogger("holdfast.worker")

LINGER: Final = 0.02
"""Reports that follow one another within this many seconds are written together."""
MOST_LINES: Final = 10_000
"""An attempt that logs more than this is cut off, with a note."""
BATCH: Final = 500


Answered: TypeAlias = Settled | Exception
"""What became of a report: the store's answer, or why it could not be written at all."""


class Reporter:
    """Writes reports under the leases of their jobs. A refused one means that the lease is lost: `lost` is told."""

    def __init__(self, base: Base, lost: Callable[[Lease], None]) -> None:
        self.pulse = Pulse("reporter")
        self._store = base.store
        self._notifier = base.notifier
        self.environment = base.environment
        self._backoff = base.outage.backoff()
        self._counters = base.counters
        self._lost = lost
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._progress: dict[Lease, Progress] = {}
        self._marks: list[tuple[float, StageMark]] = []
        self._lines: list[tuple[float, LogLine]] = []
        self._checkpoints: list[tuple[Checkpoint, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._noted = 0
        """Counts the reports as they come."""
        self._written = 0
        """Up to which of them all are written or refused."""
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._hurry = asyncio.Event()
        self._stopping = False

    def on_loop(self) -> bool:
        """Tell whether the caller is on the worker's event loop, where nothing may block."""
        return threading.get_ident() == self._thread

    def add(self, function: Callable[..., None], *args: Any) -> None:
        """Do something with the buffers: here, or on the event loop when called from elsewhere."""
        if self.on_loop():
            function(*args)
        else:
            with suppress(RuntimeError):  # the loop is closed: its worker has ended, and the lease with it
                self.loop.call_soon_threadsafe(function, *args)

    def progress(self, update: Progress) -> None:
        """Note progress; only the last before a write counts."""
        self._progress[update.lease] = update
        self._dirty()

    def mark(self, at: float, mark: StageMark) -> None:
        """Note a stage entered or left at this time (monotonic)."""
        self._marks.append((at, mark))
        self._dirty()

    def line(self, at: float, line: LogLine) -> None:
        """Note a line of a log written at this time (monotonic)."""
        self._lines.append((at, line))
        self._dirty()

    def checkpoint(self, checkpoint: Checkpoint) -> asyncio.Future[None]:
        """Note a part; the future is done when it is stored, or holds `StaleLease`."""
        future: asyncio.Future[None] = self.loop.create_future()
        future.add_done_callback(_retrieved)
        if self._stopping:
            future.set_exception(_not_stored(checkpoint))
            return future
        self._checkpoints.append((checkpoint, future))
        self._dirty()
        self._hurry.set()
        return future

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the worker's event loop from another thread, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def flush(self) -> None:
        """Wait until everything reported so far is written or refused; what comes meanwhile is not waited for."""
        if self._written < self._noted:
            done = self.loop.create_future()
            self._flushes.append((self._noted, done))
            self._hurry.set()
            await done

    def stop(self) -> None:
        """Have it end when everything is written."""
        self._stopping = True
        self._hurry.set()
        self._wake.set()

    async def run(self) -> None:
        """Write until stopped and nothing is left."""
        while not (self._stopping and self._written == self._noted):
            await self._wake.wait()
            if not self._hurry.is_set():
                await _linger(self._hurry)
            self._wake.clear()
            self._hurry.clear()
            upto = self._noted
            await self._write()
            self.pulse.waits()
            self._written = upto
            self._flushed()

    def _flushed(self) -> None:
        """Tell those whose reports are out."""
        waiting, self._flushes = self._flushes, []
        for upto, done in waiting:
            if upto > self._written:
                self._flushes.append((upto, done))
                self._hurry.set()
                self._wake.set()
            elif not done.done():
                done.set_result(None)

    def _dirty(self) -> None:
        self._noted += 1
        self._wake.set()

    async def _write(self) -> None:
        marks, self._marks = self._marks, []
        lines, self._lines = self._lines, []
        checkpoints, self._checkpoints = self._checkpoints, []
        progress, self._progress = list(self._progress.values()), {}
        try:
            await self._send("stage", self._store.mark, marks, lambda items: [self._aged(*item) for item in items])
            await self._send("log", self._store.log, lines, lambda items: [self._aged(*item) for item in items])
            await self._send("progress", self._store.progress, progress, lambda items: items)
            answers = await self._send(
                "checkpoint", self._store.checkpoint, checkpoints, lambda items: [checkpoint for checkpoint, _ in items]
            )
        except BaseException as error:
            # nobody writes any more: a thread that waits for its checkpoint would wait for ever
            self._stopping = True
            for _, future in checkpoints:
                if not future.done():
                    future.set_exception(error)
            raise
        self._notifier.hint(SHOWN)
        for (checkpoint, future), answer in zip(checkpoints, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            elif answer is Settled.STALE:
                future.set_exception(_not_stored(checkpoint))
            else:
                future.set_result(None)

    def _aged(self, at: float, item: Any) -> Any:
        """Say how long ago it was: the store's clock decides what time that makes."""
        return type(item)(**{name: getattr(item, name) for name in item.__struct_fields__} | {"age": self._age(at)})

    def _age(self, at: float) -> float:
        return max(0.0, self.environment.monotonic() - at)

    async def _send(
        self, kind: str, write: Callable[[Any], Awaitable[list[Settled]]], items: Sequence[Any], requests: Callable[[Any], Any]
    ) -> list[Answered]:
        """Write reports of one kind, again until the store answers; returns its answers in order."""
        answers: list[Answered] = []
        for start in range(0, len(items), BATCH):
            batch = items[start : start + BATCH]
            answers += await self._until_answered(kind, write, batch, requests)
        return answers

    async def _until_answered(
        self, kind: str, write: Callable[[Any], Awaitable[list[Settled]]], items: Sequence[Any], requests: Callable[[Any], Any]
    ) -> list[Answered]:
        while True:
            sent = requests(items)
            self.pulse.came(self.environment.monotonic())
            try:
                answers = await write(sent)
            except (StoreUnavailable, SchemaError) as error:
                rest = self._backoff.failed(error)
                if self._stopping:  # the worker ends: nobody would be there to hear the answer
                    return [Settled.STALE] * len(items)
                await asyncio.sleep(rest)
                continue
            except Exception as error:
                if len(items) > 1:  # one that cannot be written must not take its neighbours with it
                    return [answer for one in items for answer in await self._until_answered(kind, write, [one], requests)]
                logger.exception("a report (%s) cannot be written; it is dropped", kind)
                return [error]
            self._backoff.answered()
            for request, answer in zip(sent, answers, strict=True):
                if answer is Settled.STALE:
                    self._counters.add(count.STALE, label=kind)
                    self._lost(request.lease)
            return list(answers)


def _not_stored(checkpoint: Checkpoint) -> StaleLease:
    part, job_id = checkpoint.part.name, checkpoint.lease.job_id
    return StaleLease(f"part {part!r} of job {job_id} was not stored: the lease is lost")


def _retrieved(future: asyncio.Future[None]) -> None:
    # a checkpoint need not be awaited, and its refusal is no news to a handler that is being stopped
    if not future.cancelled():
        future.exception()


async def _linger(hurry: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LINGER):
            await hurry.wait()
    except TimeoutError:
        return
