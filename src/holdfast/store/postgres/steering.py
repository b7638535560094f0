"""What people do to jobs and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.outcome import CANCELED, checked_result
from holdfast.core.states import Event, State, origins, target
from holdfast.core.text import checked_name, clean, flaw
from holdfast.errors import BadJob
from holdfast.store.port import TEXT_LIMIT, Answer, ChainsDeleted, Emitted
from holdfast.store.postgres.connection import Raised
from holdfast.store.postgres.handle import Handle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.outcome import Error
    from holdfast.store.postgres.connection import Connection

NO_CHAIN: Final = "HF001"
"""What `delete_chains` refuses with when there is no such chain; else something outside needs one."""


class Steering(Handle):
    """The steering section of the port."""

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop."""
        waiting = [state.value for state in origins(Event.CANCEL) if target(state, Event.CANCEL) is State.CANCELED]
        return await self._steer(
            job_ids, "SELECT * FROM {schema}.cancel($1, $2, $3, $4, $5)", waiting, said(by), CANCELED, said(reason)
        )

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> list[Answer]:
        """End live jobs as succeeded from outside."""
        texts = [checked_result(text) for text in results.values()]
        return await self._end_outside(Event.COMPLETE_OUTSIDE, list(results), texts, None, by)

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> list[Answer]:
        """End live jobs as failed from outside."""
        return await self._end_outside(Event.FAIL_OUTSIDE, list(errors), None, list(errors.values()), by)

    async def _end_outside(
        self, event: Event, ids: list[UUID], results: list[str] | None, errors: list[Error] | None, by: str
    ) -> list[Answer]:
        live = [state.value for state in origins(event)]
        columns = (
            [error.code for error in errors] if errors else None,
            [error.message for error in errors] if errors else None,
            [error.traceback or None for error in errors] if errors else None,
        )
        sql = "SELECT * FROM {schema}.end_outside($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        return await self._steer(ids, sql, live, event.value, target(State.RUNNING, event), results, *columns, said(by))

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records."""
        del by  # nothing of the job stays behind to keep it in
        anywhere = [state.value for state in origins(Event.DELETE)]
        return await self._steer(job_ids, "SELECT * FROM {schema}.delete($1, $2)", anywhere)

    async def delete_chains(self, chain_ids: Sequence[UUID], *, cascade: bool = False, by: str = "") -> ChainsDeleted:
        """Remove chains with all their steps, or nothing."""
        del by  # as in delete
        anywhere = [state.value for state in origins(Event.DELETE)]
        sql = self._sql("SELECT chain, job_id FROM {schema}.delete_chains($1, $2, $3)")
        try:
            rows = await self._db.fetch(sql, list(dict.fromkeys(chain_ids)), cascade, anywhere)
        except Raised as refused:
            named = [UUID(text) for text in str(refused).split()]
            if refused.code == NO_CHAIN:
                return ChainsDeleted(answer=Answer.NOT_FOUND, chain=named[0])
            return ChainsDeleted(answer=Answer.NEEDED, chain=named[0], needed_by=named[1])
        return ChainsDeleted(
            answer=Answer.DONE, chains=tuple(dict.fromkeys(row[0] for row in rows)), jobs=tuple(row[1] for row in rows)
        )

    async def emit(self, signal: str, data: str, *, by: str = "") -> Emitted:
        """Emit a signal once, and wake who waits for it."""
        checked_name(signal, "signal")
        if (reason := flaw(data)) is not None:
            raise BadJob(reason, path="data")
        emitted, *woken = await self._db.fetch(
            self._sql("SELECT first, job_id, queue FROM {schema}.emit($1, $2, $3)"), signal, data, said(by)
        )
        if woken:
            self._lanes.look_soon()
        return Emitted(first=emitted[0], jobs=tuple(row[1] for row in woken), queues=frozenset(row[2] for row in woken))

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready."""
        terminal = [state.value for state in origins(Event.REOPEN)]
        return await self._steer(job_ids, "SELECT * FROM {schema}.reopen($1, $2, $3)", terminal, said(by))

    async def _steer(self, job_ids: Sequence[UUID], template: str, *args: object) -> list[Answer]:
        """Run a steering function over all ids at once; one that is given again is answered by a second call, after that.

        Not one by one: the end of the first may end those that waited for it, and then their own turn would come too late.
        """
        answers: list[Answer] = []

        async def work(connection: Connection) -> None:
            answers.clear()
            unanswered = dict.fromkeys(job_ids, Answer.NOT_FOUND)
            rows = await connection.fetch(self._sql(template), list(unanswered), *args)
            unanswered |= {row[0]: Answer(row[1]) for row in rows}
            for job_id in job_ids:
                if job_id in unanswered:
                    answers.append(unanswered.pop(job_id))
                else:
                    row = await connection.fetchrow(self._sql(template), [job_id], *args)
                    answers.append(Answer.NOT_FOUND if row is None else Answer(row[1]))

        if job_ids:
            alone = len(set(job_ids)) == len(job_ids)
            await (self._db.run if alone else self._db.in_transaction)(work)
            self._lanes.look_soon()
        return answers

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> None:
        """Stop claims from a queue."""
        sql = self._sql(
            "INSERT INTO {schema}.queue (name, paused_at, paused_by, reason) VALUES ($1, clock_timestamp(), $2, $3) "
            "ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(queue.paused_at, excluded.paused_at), "
            "paused_by = excluded.paused_by, reason = excluded.reason"
        )
        await self._db.execute(sql, checked_name(queue, "queue"), said(by), said(reason))

    async def resume(self, queue: str) -> None:
        """Let claims from a queue go on."""
        sql = self._sql("DELETE FROM {schema}.queue WHERE name = $1")
        await self._db.execute(sql, checked_name(queue, "queue"))
        self._lanes.look_soon()


def said(text: str) -> str:
    """Return what somebody said, as the log keeps it."""
    return clean(text, TEXT_LIMIT)
