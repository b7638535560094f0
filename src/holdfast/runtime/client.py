"""The client: everything an app asks of its store that is not a worker's business. One for each event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.states import TERMINAL, State
from holdfast.errors import BadJob, JobCanceled, JobFailed, JobNotFound, NotAllowed, QueueFull
from holdfast.notify.port import Hint
from holdfast.runtime.waiting import Waiter
from holdfast.store.port import Answer, Enqueue
from holdfast.tasks.report import make_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.notify.port import Notifier
    from holdfast.store.port import Enqueued, EventView, JobView, LogView, Store
    from holdfast.tasks.codec import ResultCodec
    from holdfast.tasks.report import Report


class Client:
    """A store and its notifier, opened on first use."""

    def __init__(self, store: Store, notifier: Notifier, environment: Environment) -> None:
        self.store = store
        self.notifier = notifier
        self._waiter = Waiter(store, environment)
        self._opening = asyncio.Lock()
        self._opened = False
        self._waiting: list[tuple[Sequence[NewJob], Mapping[str, int], asyncio.Future[list[Enqueued]]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the store. Safe to call again."""
        if self._opened:
            return
        async with self._opening:
            if not self._opened:
                await self.store.open()
                self._opened = True

    async def close(self) -> None:
        """Write what was asked for, and let go of everything."""
        if self._flushing is not None and not self._flushing.done():
            await asyncio.gather(self._flushing, return_exceptions=True)
        await self._waiter.close()
        await self.notifier.close()
        await self.store.close()

    # producing

    async def enqueue(self, jobs: Sequence[NewJob], caps: Mapping[str, int]) -> list[Enqueued]:
        """Enqueue jobs, all or none. Callers that come while another's are being written share the next commit.

        Each caller's jobs stand or fall alone: where the shared call is refused, each is tried by itself.
        """
        await self.open()
        if not jobs:
            return []
        future: asyncio.Future[list[Enqueued]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieved)
        self._waiting.append((jobs, caps, future))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(), name="holdfast-enqueue")
        # a caller that is cancelled does not take back what is being written, and its neighbours go on
        return await asyncio.shield(future)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            jobs = [job for group, _, _ in batch for job in group]
            caps = {queue: cap for _, group, _ in batch for queue, cap in group.items()}
            try:
                answers = await self.store.enqueue(jobs, caps=caps or None)
            except Exception as error:  # noqa: BLE001  each caller gets its own
                if len(batch) > 1 and isinstance(error, (QueueFull, BadJob)):
                    for one in batch:
                        await self._alone(*one)
                else:
                    for _, _, future in batch:
                        _fail(future, error)
                continue
            self._hint(jobs, answers)
            start = 0
            for group, _, future in batch:
                if not future.done():
                    future.set_result(answers[start : start + len(group)])
                start += len(group)

    async def _alone(self, jobs: Sequence[NewJob], caps: Mapping[str, int], future: asyncio.Future[list[Enqueued]]) -> None:
        try:
            answers = await self.store.enqueue(jobs, caps=caps or None)
        except Exception as error:  # noqa: BLE001  the caller's own
            _fail(future, error)
        else:
            self._hint(jobs, answers)
            if not future.done():
                future.set_result(answers)

    def _hint(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        created = [job for job, answer in zip(jobs, answers, strict=True) if answer.status is Enqueue.CREATED]
        ready = frozenset(job.queue for job in created if not job.delay and job.run_at is None and not job.after)
        later = any(job.delay or job.run_at is not None for job in created)
        if ready or later:
            self.notifier.hint(Hint(ready, later))

    # looking

    async def view(self, job_id: UUID) -> JobView:
        """Return a job; raises `JobNotFound`."""
        await self.open()
        view = (await self.store.get([job_id]))[0]
        if view is None:
            raise JobNotFound(job_id)
        return view

    async def wait(self, job_id: UUID, timeout: float | None) -> JobView:
        """Return a job once it is terminal; raises `TimeoutError`, `JobNotFound`."""
        await self.open()
        if timeout is not None and timeout <= 0:
            view = await self.view(job_id)
            if view.state not in TERMINAL:
                raise TimeoutError(f"job {job_id} has not ended; it goes on")
            return view
        return await self._waiter.wait(job_id, timeout)

    async def events(self, job_id: UUID) -> list[EventView]:
        """Return the event log of a job; raises `JobNotFound`."""
        await self.view(job_id)
        return await self.store.events(job_id)

    async def logs(self, job_id: UUID, after: int, limit: int) -> list[LogView]:
        """Return log lines of a job; raises `JobNotFound`."""
        await self.view(job_id)
        return await self.store.logs(job_id, after=after, limit=limit)

    async def report(self, job_id: UUID) -> Report:
        """Return how a job went; raises `JobNotFound`."""
        view = await self.view(job_id)
        attempts = await self.store.attempts(job_id)
        events = await self.store.events(job_id)
        parts = await self.store.parts(job_id)
        return make_report(view, attempts, events, parts, await self.store.now())

    # steering

    async def cancel(self, job_id: UUID, reason: str) -> bool:
        """Cancel a job; returns False when it had ended; raises `JobNotFound`."""
        await self.open()
        answer = (await self.store.cancel([job_id], reason=reason))[0]
        if answer is Answer.NOT_FOUND:
            raise JobNotFound(job_id)
        if answer is Answer.REQUESTED:
            self.notifier.hint(Hint(jobs=frozenset({job_id})))
        return answer is not Answer.REFUSED

    async def retry(self, job_id: UUID) -> None:
        """Bring a terminal job back; raises `NotAllowed`, `JobNotFound`."""
        await self.open()
        answer = (await self.store.reopen([job_id]))[0]
        if answer is Answer.NOT_FOUND:
            raise JobNotFound(job_id)
        if answer is Answer.KEY_TAKEN:
            raise NotAllowed(f"job {job_id} cannot be brought back: another live job holds its unique key")
        if answer is not Answer.DONE:
            state = (await self.view(job_id)).state
            raise NotAllowed(f"job {job_id} is {state}: only jobs that have ended can be brought back")
        self.notifier.hint(Hint(frozenset({(await self.view(job_id)).queue})))


def bury(client: Client) -> None:
    """Close a client whose event loop has ended, in a thread: what belonged to that loop cannot be closed on it any more."""

    async def close_parts() -> None:
        for part in (client.notifier, client.store):
            with suppress(Exception):  # what hangs on the ended loop goes with it
                await part.close()

    threading.Thread(target=lambda: asyncio.run(close_parts()), name="holdfast-bury", daemon=True).start()


def outcome(view: JobView, codec: ResultCodec | None) -> Any:
    """Return the result of a terminal job, or raise `JobFailed` or `JobCanceled`."""
    if view.state is State.SUCCEEDED:
        text = view.result or "null"
        return msgspec.json.decode(text) if codec is None else codec.decode(text)
    error = view.error
    code, message, trace = ("ERROR", "", "") if error is None else (error.code, error.message, error.traceback)
    if view.state is State.CANCELED:
        raise JobCanceled(view.id, code, message)
    raise JobFailed(view.id, code, message, trace)


def _fail(future: asyncio.Future[list[Enqueued]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _retrieved(future: asyncio.Future[list[Enqueued]]) -> None:
    # a caller that was cancelled meanwhile does not ask for the error any more
    if not future.cancelled():
        future.exception()
