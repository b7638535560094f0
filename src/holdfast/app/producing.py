"""Producing: enqueuing jobs, by themselves or in a caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from holdfast.app.asking import Asking
from holdfast.errors import BadArgs, BadSetting
from holdfast.notify.port import Hint
from holdfast.runtime.enqueuing import hint_of
from holdfast.tasks.bound import Call
from holdfast.tasks.chain import Chain
from holdfast.tasks.group import Group
from holdfast.tasks.handle import Handle
from holdfast.tasks.options import Using
from holdfast.tasks.values import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.store.port import Enqueued
    from holdfast.tasks.options import QueueOptions

R = TypeVar("R")

LONGEST_TOLD: Final = 7_500
"""Bytes of a hint that PostgreSQL surely takes along; one that names more queues says that there is something anywhere."""


class Producing(Asking):
    """The part of an app that jobs are enqueued with."""

    def new_id(self) -> UUID:
        """Return a fresh job id."""
        return self._environment.job_id()

    def queue_options(self, name: str) -> QueueOptions | None:
        """Return what was said about a queue."""
        return self._queues.get(name)

    @property
    def default_conn(self) -> Any:
        """The connection of what is enqueued without one; `None`: the app's own."""
        return None

    async def enqueue_many(self, calls: Sequence[Call[Any]], *, conn: Any = None) -> list[Handle[Any]]:
        """Enqueue calls (`task.call(…)`) in order, all or none; returns their handles in the same order.

        With `conn` in the transaction of that connection or session: they exist once it has committed.
        """
        calls = _checked(calls)
        if self.tracing is None or not calls:
            return await self._enqueue_checked(calls, conn)
        with self.tracing.enqueuing(calls):
            return await self._enqueue_checked(calls, conn)

    async def _enqueue_checked(self, calls: Sequence[Call[Any]], conn: Any) -> list[Handle[Any]]:
        conn = self._one_conn(calls, conn)
        jobs = [call.job for call in calls]
        caps = {
            name: queue.max_depth
            for name in {job.queue for job in jobs}
            if (queue := self._queues.get(name)) is not None and queue.max_depth is not None
        }
        answers = await (self.client().enqueue(jobs, caps) if conn is None else self._enqueue_within(conn, jobs, caps))
        return [self._handle(call, answer) for call, answer in zip(calls, answers, strict=True)]

    def enqueue_many_sync(self, calls: Sequence[Call[Any]], *, conn: Any = None) -> list[Handle[Any]]:
        """Do as `enqueue_many`, from blocking code."""
        calls = _checked(calls)
        return self.blocking(self.enqueue_many(calls, conn=conn), self._one_conn(calls, conn))

    async def group(self, calls: Sequence[Call[R]], *, conn: Any = None) -> Group[R]:
        """Enqueue calls, as `enqueue_many` does, and return them as one: to be awaited together, or to be named in `after=`."""
        return Group(await self.enqueue_many(calls, conn=conn), self)

    def group_sync(self, calls: Sequence[Call[R]], *, conn: Any = None) -> Group[R]:
        """Do as `group`, from blocking code."""
        calls = _checked(calls)
        return self.blocking(self.group(calls, conn=conn), self._one_conn(calls, conn))

    def _one_conn(self, calls: Sequence[Call[Any]], conn: Any) -> Any:
        one = _one_conn(calls, conn)
        return self.default_conn if one is None else one

    def _handle(self, call: Call[Any], answer: Enqueued) -> Handle[Any]:
        kind: type[Handle[Any]] = Handle if call.job.chain_id is None else Chain
        return kind(answer.job_id, self, call.task.results, answer.status)

    async def _enqueue_within(self, conn: Any, jobs: Sequence[NewJob], caps: Mapping[str, int]) -> list[Enqueued]:
        """Enqueue in a caller's transaction. Nothing of the app's own is opened, and no other caller's jobs go along."""
        if not jobs:
            return []
        caller = self.caller(conn)
        answers = await caller.enqueue(jobs, caps=caps or None)
        hint = hint_of(jobs, answers, unseen=True)
        told = not hint or caller.after_commit(lambda: self._hint_from_anywhere(hint))
        if not told and self._notify_in_transactions:
            await caller.tell(_text(hint))
        return answers

    def _hint_from_anywhere(self, hint: Hint) -> None:
        """Send a hint from whichever thread has committed, on its event loop where it has one. Does not block."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._portal.post(self._hint(hint))
        else:
            self.client().notifier.hint(hint)

    async def _hint(self, hint: Hint) -> None:
        self.client().notifier.hint(hint)


def _text(hint: Hint) -> str:
    """Return what a transaction sends. It names no jobs: texts that are alike are delivered once, however many there are."""
    text = msgspec.json.encode(msgspec.structs.replace(hint, ready=()))
    if len(text) > LONGEST_TOLD:
        text = msgspec.json.encode(Hint(anything=True, waiters=hint.waiters))
    return text.decode()


def _checked(calls: Sequence[Call[Any]]) -> list[Call[Any]]:
    if not isinstance(calls, Iterable):
        raise BadArgs(f"must be a list of calls, [task.call(…), …], not {short(calls)}", path="calls")
    calls = list(calls)
    for index, call in enumerate(calls):
        if not isinstance(call, Call):
            raise BadArgs(f"must be a call: write task.call(…), not {short(call)}", path=f"calls[{index}]")
    return calls


def _one_conn(calls: Sequence[Call[Any]], conn: Any) -> Any:
    """Return the one transaction that calls are to be enqueued in; `None`: the app's own."""
    conns = [call.conn for call in calls if call.conn is not None]
    if conn is None and not conns:
        return None
    first = conns[0] if conn is None else conn
    some_without = conn is None and 0 < len(conns) < len(calls)
    if some_without or not all(one is first or (isinstance(one, Using) and one == first) for one in conns):
        raise BadSetting(
            "these calls belong to different transactions, and one enqueue is all or nothing: give them all the same conn=, "
            "or enqueue them apart"
        )
    return first
