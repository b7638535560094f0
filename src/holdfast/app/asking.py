"""Asking: looking at jobs and chains, and steering them from outside."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.app.checking import filter_of, id_of, limit_of, text_of
from holdfast.app.life import Life
from holdfast.core.limits import limit_named, make_rule
from holdfast.core.outcome import Error
from holdfast.core.states import LIVE, State
from holdfast.core.text import checked_name
from holdfast.errors import BadJob, BadResult
from holdfast.notify.port import Hint
from holdfast.tasks.chain import Chain
from holdfast.tasks.codec import ResultCodec
from holdfast.tasks.handle import Handle, outcome
from holdfast.tasks.sealing import Purpose
from holdfast.tasks.task import Task
from holdfast.throttling import change_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Self
    from uuid import UUID

    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.store.port import ChainPage, JobView, LimitView, Stats
    from holdfast.tasks.report import Completion


class Asking(Life):
    """The part of an app that looks at jobs, and acts on them from outside."""

    def job(self, job_id: UUID | str) -> Handle[Any]:
        """Return a handle on a job that was enqueued at some time. Nothing is looked up before it is used."""
        return Handle(id_of(job_id), self)

    def chain(self, chain_id: UUID | str) -> Chain[Any]:
        """Return a handle on a chain by its first job. Nothing is looked up before it is used."""
        return Chain(id_of(chain_id), self)

    async def chains(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        states: Iterable[State | str] | None = None,
        tag: str | None = None,
        key: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 50,
        after: UUID | str | None = None,
    ) -> ChainPage:
        """Return a page of chains, newest first: those started as one, and those that jobs have become by continuing.

        All that is given must hold: `states` of the chain (also `live`, `waiting` and `ended`, for several), everything else
        of its first step. `after` is the cursor, from the page before; a page whose `searched_all` is False stopped its
        search early, and goes on from there as well. Raises `BadSetting`.
        """
        where = filter_of(
            {
                "task": task,
                "queue": queue,
                "states": states,
                "tag": tag,
                "key": key,
                "created_from": created_from,
                "created_before": created_before,
            }
        )
        if where.key is not None and self.sealer is not None:
            where = msgspec.structs.replace(where, key=self.sealer.hash(where.key))
        page, start = limit_of(limit), None if after is None else id_of(after, "after")
        client = self.client()
        await client.open()
        return await client.store.find_chains(where, limit=page, after=start)

    def chains_sync(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        states: Iterable[State | str] | None = None,
        tag: str | None = None,
        key: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 50,
        after: UUID | str | None = None,
    ) -> ChainPage:
        """Do as `chains`, from blocking code."""
        return self.blocking(
            self.chains(
                task=task,
                queue=queue,
                states=states,
                tag=tag,
                key=key,
                created_from=created_from,
                created_before=created_before,
                limit=limit,
                after=after,
            )
        )

    # from outside

    async def complete(self, job_id: UUID | str | Handle[Any], result: Any = None, *, by: str = "") -> Completion:
        """End a live job as succeeded, with this result: for what a person or another service does.

        Atomic; the first one stands, and the answer says who that was. A worker that runs the job is told at once. Raises
        `BadResult` for what the task would not return, `JobNotFound`.
        """
        wanted, who = id_of(job_id), text_of(by, "by")
        client = self.client()
        text = self._result_codec((await client.view(wanted)).task).encode(result)
        return await client.complete(wanted, text, who)

    def complete_sync(self, job_id: UUID | str | Handle[Any], result: Any = None, *, by: str = "") -> Completion:
        """Do as `complete`, from blocking code."""
        return self.blocking(self.complete(job_id, result, by=by))

    async def fail(
        self, job_id: UUID | str | Handle[Any], message: str = "", *, code: str = "FAILED", by: str = ""
    ) -> Completion:
        """End a live job as failed. As `complete`."""
        error = Error(text_of(code, "code", empty=False), text_of(message, "message"))
        return await self.client().fail(id_of(job_id), error, text_of(by, "by"))

    def fail_sync(
        self, job_id: UUID | str | Handle[Any], message: str = "", *, code: str = "FAILED", by: str = ""
    ) -> Completion:
        """Do as `fail`, from blocking code."""
        return self.blocking(self.fail(job_id, message, code=code, by=by))

    async def signal(self, name: str, data: Any = None, *, by: str = "") -> bool:
        """Emit a signal, once, with data that can be stored as JSON; returns False when it was emitted before.

        Jobs that wait for it (`job.wait_for(name)`) go on with the data; those that will wait for it later need not.
        Atomic; repeatable: what was emitted first stands.
        """
        checked_name(name, "signal")
        who = text_of(by, "by")
        try:
            text = ResultCodec.of(_anything, task=f"signal {name}", max_bytes=self._max_bytes).encode(data)
        except BadResult as error:
            raise BadJob(error.reason, path=error.path.replace("result", "data", 1)) from error
        if self.sealer is not None:
            text = self.sealer.seal(text, Purpose.SIGNAL)
        return (await self.client().emit(name, text, who)).first

    def signal_sync(self, name: str, data: Any = None, *, by: str = "") -> bool:
        """Do as `signal`, from blocking code."""
        return self.blocking(self.signal(name, data, by=by))

    # the whole

    async def stats(self) -> dict[str, Any]:
        """Return counts: each state, `live`, `queues` and `tasks` (counts per state), `oldest_waiting` seconds per queue."""
        client = self.client()
        await client.open()
        return _stats_dict(await client.store.stats())

    def stats_sync(self) -> dict[str, Any]:
        """Do as `stats`, from blocking code."""
        return self.blocking(self.stats())

    async def pause(self, queue: str, *, reason: str = "") -> None:
        """Stop claims from a queue."""
        client = self.client()
        await client.open()
        await client.store.pause(queue, reason=reason)

    def pause_sync(self, queue: str, *, reason: str = "") -> None:
        """Do as `pause`, from blocking code."""
        self.blocking(self.pause(queue, reason=reason))

    async def resume(self, queue: str) -> None:
        """Let claims from a queue go on."""
        client = self.client()
        await client.open()
        await client.store.resume(queue)
        client.notifier.hint(Hint(frozenset({queue})))

    def resume_sync(self, queue: str) -> None:
        """Do as `resume`, from blocking code."""
        self.blocking(self.resume(queue))

    async def limits(self) -> list[LimitView]:
        """Return every limit that was declared or set, and the keys that jobs run with: what holds, who said it."""
        client = self.client()
        await client.open()
        return await client.store.limits()

    def limits_sync(self) -> list[LimitView]:
        """Do as `limits`, from blocking code."""
        return self.blocking(self.limits())

    async def set_limit(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        scope: str | None = None,
        key: str | None = None,
        most: int | None = None,
        rate: float | None = None,
        per: float | timedelta = 1.0,
        burst: float | None = None,
        weight: float | None = None,
        by: str = "",
    ) -> None:
        """Set the limit of a queue, a task, each key of a scope or one of them, whatever programs declare.

        The whole of it: what is not given holds no more. It holds for every claim that begins after this call returned, whoever
        makes it; what runs already counts, and runs on. Atomic; repeatable. Raises `BadJob`.
        """
        name = limit_named(queue=queue, task=_name_of(task), scope=scope, key=self._key_of(key))
        seconds = per.total_seconds() if isinstance(per, timedelta) else per
        rule = make_rule(most=most, rate=rate, per=seconds, burst=burst, weight=weight)
        if rule.nothing:
            raise BadJob(
                "says nothing: give most=, rate= or weight=; what is declared holds again by clear_limit", path="limit"
            )
        await self._change_limit(name, rule, by)

    def set_limit_sync(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        scope: str | None = None,
        key: str | None = None,
        most: int | None = None,
        rate: float | None = None,
        per: float | timedelta = 1.0,
        burst: float | None = None,
        weight: float | None = None,
        by: str = "",
    ) -> None:
        """Do as `set_limit`, from blocking code."""
        self.blocking(
            self.set_limit(
                queue=queue,
                task=task,
                scope=scope,
                key=key,
                most=most,
                rate=rate,
                per=per,
                burst=burst,
                weight=weight,
                by=by,
            )
        )

    async def clear_limit(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        scope: str | None = None,
        key: str | None = None,
        by: str = "",
    ) -> None:
        """Take back what was set about a limit: what programs declare holds again. Atomic; repeatable."""
        name = limit_named(queue=queue, task=_name_of(task), scope=scope, key=self._key_of(key))
        await self._change_limit(name, None, by)

    def clear_limit_sync(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        scope: str | None = None,
        key: str | None = None,
        by: str = "",
    ) -> None:
        """Do as `clear_limit`, from blocking code."""
        self.blocking(self.clear_limit(queue=queue, task=task, scope=scope, key=key, by=by))

    async def _change_limit(self, name: LimitName, rule: LimitRule | None, by: str) -> None:
        who = text_of(by, "by")
        client = self.client()
        await client.open()
        await client.store.set_limit(name, rule, by=who)
        client.notifier.hint(change_of(name))

    def _key_of(self, key: str | None) -> str | None:
        """Return the key of a limit as it is stored: an app that encrypts hashes it, as it does for its jobs."""
        return key if self.sealer is None or not key else self.sealer.hash(key)

    # what handles ask for

    @property
    def desk(self) -> Self:
        """Return what handles talk to."""
        return self

    def outcome(self, view: JobView, codec: ResultCodec | None) -> Any:
        """Return the result of a terminal job, or raise `JobFailed` or `JobCanceled`."""
        return outcome(self.opened(view), codec)

    def opened(self, view: JobView) -> JobView:
        """Return a job whose result is clear, where the app encrypts. Raises `SealError`."""
        if self.sealer is None or view.result is None:
            return view
        # by the task whose function gave it: of a chain that is the last one's, not the one the handle came from
        return msgspec.structs.replace(view, result=self.sealer.open(view.result, Purpose.RESULT, view.task))

    def _result_codec(self, task: str) -> ResultCodec:
        """Return what checks results of a task; of one that is declared elsewhere, whatever can be stored."""
        if task in self._tasks:
            return self._tasks[task].results
        return ResultCodec.of(_anything, task=task, max_bytes=self._max_bytes, sealer=self.sealer)


def _name_of(task: Task[..., Any] | str | None) -> str | None:
    return task.name if isinstance(task, Task) else task


def _anything() -> Any:
    """Stand for a function that may return whatever can be stored."""


def _stats_dict(stats: Stats) -> dict[str, Any]:
    """Return counts as plain data: by state, `live`, by queue, by task, oldest waiting."""
    total = dict.fromkeys(map(str, State), 0)
    queues: dict[str, dict[str, int]] = {}
    tasks: dict[str, dict[str, int]] = {}
    for row in stats.tasks:
        own = (
            total,
            queues.setdefault(row.queue, dict.fromkeys(total, 0)),
            tasks.setdefault(row.task, dict.fromkeys(total, 0)),
        )
        for state, count in row.counts.items():
            for counts in own:
                counts[str(state)] += count
    return {
        **total,
        "live": sum(total[state] for state in LIVE),
        "queues": dict(sorted(queues.items())),
        "tasks": dict(sorted(tasks.items())),
        "oldest_waiting": dict(stats.oldest_waiting),
    }
