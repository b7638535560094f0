"""Enqueuing: callers of one event loop share commits; what is enqueued in a caller's own transaction shares nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.job import OnConflict
from holdfast.errors import BadJob, KeyBusy, QueueFull, StoreUnavailable
from holdfast.notify.port import MOST_NAMED, USUAL_PRIORITY, Hint
from holdfast.store.port import Enqueue, Notice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.job import NewJob
    from holdfast.notify.port import Notifier
    from holdfast.store.port import Audit, Enqueued, Store


BUSY: Final = 5.0
"""Seconds during which those who want a key that was found busy are written apart from others."""


class Asked(NamedTuple):
    """What one caller wants enqueued."""

    jobs: Sequence[NewJob]
    caps: Mapping[str, int]
    future: asyncio.Future[list[Enqueued]]

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        """The unique keys it wants."""
        return frozenset((job.unique.scope, job.unique.key) for job in self.jobs if job.unique is not None)


class Enqueuer:
    """Writes what is asked for while something is being written in one commit. One event loop.

    Each caller's jobs stand or fall alone: where the shared call is refused, each is tried by itself. A unique key that
    somebody's open transaction holds is waited for by those who want it, apart from everybody else.
    """

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier
        self._waiting: list[Asked] = []
        self._flushing: asyncio.Task[None] | None = None
        self._apart: set[asyncio.Task[None]] = set()
        self._busy: dict[tuple[str, str], float] = {}
        """Keys that were found busy, and until when they are taken for that."""

    async def enqueue(self, jobs: Sequence[NewJob], caps: Mapping[str, int]) -> list[Enqueued]:
        """Enqueue jobs, all or none. Callers that come while another's are being written share the next commit."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Enqueued]] = loop.create_future()
        self._waiting.append(Asked(jobs, caps, future))
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush(), name="holdfast-enqueue")
        # a caller that is cancelled gives up the answer alone: what is being written is not taken back, its neighbours go on
        return await future

    async def enqueue_audited(self, jobs: Sequence[NewJob], caps: Mapping[str, int], audit: Audit) -> list[Enqueued]:
        """Enqueue jobs in a commit of their own, with a line about it in the audit log."""
        answers = await self._store.enqueue(jobs, caps=caps or None, audit=audit)
        if hint := hint_of(jobs, answers):
            self._notifier.hint(hint)
        return answers

    async def close(self) -> None:
        """Wait until what was asked for is written."""
        while pending := [task for task in (self._flushing, *self._apart) if task is not None and not task.done()]:
            await asyncio.gather(*pending, return_exceptions=True)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            if self._busy:
                batch = self._set_apart(batch)
            try:
                await self._write(batch)
            except KeyBusy as error:
                if len(batch) == 1:
                    _fail(batch, error)
                    continue
                self._busy |= dict.fromkeys(self._keys_of(batch), asyncio.get_running_loop().time() + BUSY)
                self._waiting[:0] = self._set_apart(batch)
            except (QueueFull, BadJob):
                await self._one_by_one(batch)
            except Exception as error:  # noqa: BLE001  each caller gets its own
                _fail(batch, error)

    def _set_apart(self, batch: Sequence[Asked]) -> list[Asked]:
        """Have those who want keys that were busy a moment ago written on their own, by their keys; returns the others."""
        now = asyncio.get_running_loop().time()
        self._busy = {key: until for key, until in self._busy.items() if until > now}
        groups: dict[frozenset[tuple[str, str]], list[Asked]] = {}
        rest = []
        for asked in batch:
            if keys := asked.keys.intersection(self._busy):
                groups.setdefault(keys, []).append(asked)
            else:
                rest.append(asked)
        for group in groups.values():
            task = asyncio.create_task(self._write_apart(group), name="holdfast-enqueue-key")
            self._apart.add(task)
            task.add_done_callback(self._apart.discard)
        return rest

    async def _write_apart(self, group: Sequence[Asked]) -> None:
        """Write what wants the same keys in one call: while they are busy, one wait answers all."""
        try:
            await self._write(group)
        except (QueueFull, BadJob):
            await self._one_by_one(group)
        except Exception as error:  # noqa: BLE001  each caller gets its own
            _fail(group, error)
        else:
            for key in self._keys_of(group):
                self._busy.pop(key, None)

    async def _one_by_one(self, batch: Sequence[Asked]) -> None:
        for asked in batch:
            try:
                await self._write([asked])
            except Exception as error:  # noqa: BLE001  the caller's own
                _fail([asked], error)

    async def _write(self, batch: Sequence[Asked]) -> None:
        """Enqueue what callers asked for in one call, and answer them."""
        if not batch:
            return
        jobs = batch[0].jobs if len(batch) == 1 else [job for asked in batch for job in asked.jobs]
        caps = {queue: cap for asked in batch for queue, cap in asked.caps.items()}
        queues = Hint(frozenset([job.queue for job in jobs]))
        notice = Notice(lambda: self._notifier.with_commit(queues))
        try:
            answers = await self._store.enqueue(jobs, caps=caps or None, notice=notice)
        except StoreUnavailable:
            # it may have been committed all the same. Then others have heard of it; this process, which heeds nothing that it
            # has sent itself, has not
            self._notifier.hint(queues, told=True)
            raise
        if hint := hint_of(jobs, answers):
            self._notifier.hint(hint, told=notice.sent)
        start = 0
        for asked in batch:
            if not asked.future.done():
                asked.future.set_result(answers[start : start + len(asked.jobs)])
            start += len(asked.jobs)

    def _keys_of(self, batch: Sequence[Asked]) -> set[tuple[str, str]]:
        return {key for asked in batch for key in asked.keys}


def hint_of(jobs: Sequence[NewJob], answers: Sequence[Enqueued], *, unseen: bool = False) -> Hint:
    """Return what workers should hear of jobs that were enqueued; `unseen`: where no settlement saw the waiters among them."""
    created = []
    queues = set()
    plain = not unseen
    usual = True
    existing = Enqueue.EXISTING  # an enum takes its time to find a member
    # a loop, and each job looked at once: this is done for every batch
    for job, answer in zip(jobs, answers, strict=True):
        if answer.status is not existing:  # repeated: of the first time, whose answer was lost, nobody may have heard
            created.append(job)
            queues.add(job.queue)
            if job.delay or job.run_at is not None or job.after:
                plain = False
            if job.priority != USUAL_PRIORITY:
                usual = False
    priority = None if usual else max(job.priority for job in created)
    if priority == USUAL_PRIORITY:
        priority = None
    ready = tuple(
        [
            answer.job_id
            for job, answer in zip(jobs[:MOST_NAMED], answers[:MOST_NAMED], strict=True)
            if not (answer.status is existing or job.delay or job.run_at or job.after)
        ]
    )
    if plain:
        return Hint(frozenset(queues), priority=priority, ready=ready)
    return Hint(
        # a waiter is ready at once where all it was to wait for had ended, and so is a job whose time has passed
        frozenset(job.queue for job in created if not job.delay),
        later=any(job.delay or job.run_at is not None for job in created),
        waiters=unseen and any(job.after or (job.unique and job.unique.on_conflict is not OnConflict.SKIP) for job in created),
        # who makes a waiter locks its blockers for a moment, and a claim passes over what is locked: it may look again
        anything=any(job.after for job in created),
        priority=priority,
        ready=ready,
    )


def _fail(batch: Sequence[Asked], error: Exception) -> None:
    for asked in batch:
        if not asked.future.done():
            asked.future.set_exception(error)
            asked.future.exception()  # looked at: a caller that is cancelled meanwhile does not ask for it any more
