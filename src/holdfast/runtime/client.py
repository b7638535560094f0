"""The client: everything an app asks of its store that is not a worker's business. One for each event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.core.states import TERMINAL
from holdfast.errors import BadSetting, JobNotFound, NotAllowed
from holdfast.notify.port import Hint
from holdfast.runtime.enqueuing import Enqueuer
from holdfast.runtime.waiting import Waiter
from holdfast.store.port import Answer, JobFilter
from holdfast.tasks.report import completion, make_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.core.outcome import Error
    from holdfast.notify.port import Notifier
    from holdfast.store.port import Audit, ChainView, Emitted, Enqueued, EventView, JobView, LogView, Store
    from holdfast.tasks.report import Completion, Report

PAGE: Final = 500
MOST_TOLD: Final = 100
"""Jobs that a hint names; of more, workers find out when they look."""


class Client:
    """A store and its notifier, opened on first use."""

    def __init__(self, store: Store, notifier: Notifier, environment: Environment) -> None:
        self.store = store
        self.notifier = notifier
        self._waiter = Waiter(store, environment)
        self._enqueuer = Enqueuer(store, notifier)
        self._opening = asyncio.Lock()
        self._opened = False

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
        await self._enqueuer.close()
        await self._waiter.close()
        await self.notifier.close()
        await self.store.close()

    # producing

    async def enqueue(self, jobs: Sequence[NewJob], caps: Mapping[str, int], audit: Audit | None = None) -> list[Enqueued]:
        """Enqueue jobs, all or none; concurrent callers share a commit, and each caller's jobs stand or fall alone.

        With `audit` in a commit of their own, which writes that line too.
        """
        if not self._opened:
            await self.open()
        if audit is not None:
            return await self._enqueuer.enqueue_audited(jobs, caps, audit)
        return await self._enqueuer.enqueue(jobs, caps) if jobs else []

    # looking

    async def view(self, job_id: UUID) -> JobView:
        """Return a job; raises `JobNotFound`."""
        await self.open()
        view = (await self.store.get([job_id]))[0]
        if view is None:
            raise JobNotFound(job_id)
        return view

    async def wait(self, job_id: UUID, timeout: float | None) -> JobView:
        """Return a job, or the last step of the chain it continued, once that is terminal.

        Raises `TimeoutError`, `JobNotFound`.
        """
        await self.open()
        if timeout is None or timeout > 0:
            return await self._waiter.wait(job_id, timeout)
        view = await self.view(job_id)
        if view.continued_by is not None:
            view = await self.view((await self.chains([view.chain_id or view.id]))[0].step)
        if view.state not in TERMINAL or view.continued_by is not None:
            raise TimeoutError(f"job {job_id} has not ended; it goes on")
        return view

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView]:
        """Return chains by their first jobs, as of one moment; raises `JobNotFound`, and `BadSetting` for a later step."""
        await self.open()
        found = await self.store.chains(chain_ids)
        views = [view for view in found if view is not None]
        if len(views) < len(found):
            missing = chain_ids[found.index(None)]
            step = (await self.store.get([missing]))[0]
            if step is not None and step.chain_id not in (None, step.id):
                raise BadSetting(f"job {missing} is a step of chain {step.chain_id}: a chain is known by its first job")
            raise JobNotFound(missing)
        return views

    async def steps(self, chain_id: UUID) -> list[JobView]:
        """Return the steps of a chain, in their order; raises `JobNotFound`."""
        first = await self.view(chain_id)
        found = {first.id: first}  # a chain of one need not know that it is one
        after: UUID | None = None
        while True:
            page = await self.store.find(JobFilter(chain_id=chain_id), limit=PAGE, after=after)
            found |= {step.id: step for step in page.jobs}
            after = page.after
            if after is None:
                break
        # ids are usually in order, but may be given by anyone: what each step says of the next decides
        steps = [found.pop(chain_id)]
        while (then := steps[-1].continued_by) is not None and then in found:
            steps.append(found.pop(then))
        return steps

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
        self._tell_of_ends([job_id] if answer is not Answer.REFUSED else [])
        return answer is not Answer.REFUSED

    async def cancel_chains(self, chain_ids: Sequence[UUID], reason: str) -> list[bool]:
        """Cancel chains where they stand; False for each that had ended; raises `JobNotFound`.

        A step that continues meanwhile is followed: a chain either is canceled, or has ended by itself.
        """
        canceled = dict.fromkeys(chain_ids, False)
        rest = list(canceled)
        while rest:
            live = {chain.step: chain.id for chain in await self.chains(rest) if chain.state not in TERMINAL}
            answers = await self.store.cancel(list(live), reason=reason)
            done = [step for step, answer in zip(live, answers, strict=True) if answer in (Answer.DONE, Answer.REQUESTED)]
            canceled |= {live[step]: True for step in done}
            self._tell_of_ends(done)
            rest = [chain_id for step, chain_id in live.items() if step not in done]
        return [canceled[chain_id] for chain_id in chain_ids]

    async def retry(self, job_id: UUID) -> None:
        """Bring a terminal job back; raises `NotAllowed`, `JobNotFound`."""
        await self.open()
        answer = (await self.store.reopen([job_id]))[0]
        if answer is Answer.NOT_FOUND:
            raise JobNotFound(job_id)
        if answer is Answer.KEY_TAKEN:
            raise NotAllowed(f"job {job_id} cannot be brought back: another live job holds its unique key")
        view = await self.view(job_id)
        if answer is Answer.CHAINED:
            raise NotAllowed(
                f"job {job_id} is a step of chain {view.chain_id or job_id}, which has gone on: bring the chain back, "
                "at its last step (app.chain(id).retry())"
            )
        if answer is not Answer.DONE:
            raise NotAllowed(f"job {job_id} is {view.state}: only jobs that have ended can be brought back")
        self.notifier.hint(Hint(frozenset({view.queue})))

    async def retry_chain(self, chain_id: UUID) -> None:
        """Bring the last step of an ended chain back; raises `NotAllowed`, `JobNotFound`."""
        chain = (await self.chains([chain_id]))[0]
        if chain.state not in TERMINAL:
            raise NotAllowed(f"chain {chain_id} is {chain.state}: only chains that have ended can be brought back")
        await self.retry(chain.step)

    async def delete_chain(self, chain_id: UUID, *, cascade: bool, by: str) -> tuple[UUID, ...]:
        """Remove a chain, and with `cascade` those it waited for; raises `NotAllowed`, `JobNotFound`."""
        await self.chains([chain_id])  # says so where it is a later step
        deleted = await self.store.delete_chains([chain_id], cascade=cascade, by=by)
        if deleted.answer is Answer.NOT_FOUND:
            raise JobNotFound(deleted.chain or chain_id)
        if deleted.answer is Answer.NEEDED:
            raise NotAllowed(
                f"chain {deleted.chain} cannot be deleted: job {deleted.needed_by} waits for it, or will be handed its result. "
                "Cancel or delete that one first; nothing was deleted"
            )
        self._tell_of_ends(deleted.jobs)
        return deleted.chains

    async def complete(self, job_id: UUID, result: str, by: str) -> Completion:
        """End a live job as succeeded; says who was first; raises `JobNotFound`."""
        await self.open()
        return await self._completion(job_id, (await self.store.complete({job_id: result}, by=by))[0])

    async def fail(self, job_id: UUID, error: Error, by: str) -> Completion:
        """End a live job as failed; says who was first; raises `JobNotFound`."""
        await self.open()
        return await self._completion(job_id, (await self.store.fail({job_id: error}, by=by))[0])

    async def _completion(self, job_id: UUID, answer: Answer) -> Completion:
        if answer is Answer.DONE:
            self._tell_of_ends([job_id])
        told = None
        if answer is not Answer.NOT_FOUND:
            told = completion(await self.store.events(job_id), applied=answer is Answer.DONE)
        if told is None:  # it never was, or was deleted before its log could be read
            raise JobNotFound(job_id)
        return told

    async def emit(self, signal: str, data: str, by: str) -> Emitted:
        """Emit a signal, once."""
        await self.open()
        emitted = await self.store.emit(signal, data, by=by)
        if emitted.queues:
            self.notifier.hint(Hint(emitted.queues))
        return emitted

    def _tell_of_ends(self, job_ids: Sequence[UUID]) -> None:
        """Tell the workers that run these, and all others too: waiters may have become ready, in whatever queue."""
        if job_ids:
            self.notifier.hint(Hint(jobs=frozenset(job_ids[:MOST_TOLD]), anything=True))


def bury(client: Client) -> None:
    """Close a client whose event loop has ended, in a thread: what belonged to that loop cannot be closed on it any more."""

    async def close_parts() -> None:
        for part in (client.notifier, client.store):
            with suppress(Exception):  # what hangs on the ended loop goes with it
                await part.close()

    threading.Thread(target=lambda: asyncio.run(close_parts()), name="holdfast-bury", daemon=True).start()
