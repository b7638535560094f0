"""What people do to jobs and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from holdfast.core.outcome import CANCELED, checked_result
from holdfast.core.states import Event, State, origins, target
from holdfast.core.text import checked_name, clean, flaw
from holdfast.errors import BadJob
from holdfast.store.port import EMITTED_BEFORE, TEXT_LIMIT, Action, Answer, ChainsDeleted, Emitted, audit_line, cancel_line
from holdfast.store.postgres.connection import Raised
from holdfast.store.postgres.handle import Handle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg import Record

    from holdfast.core.outcome import Error
    from holdfast.store.port import AuditLine
    from holdfast.store.postgres.connection import Connection

NO_CHAIN: Final = "HF001"
"""What `delete_chains` refuses with when there is no such chain; else something outside needs one."""

BEFORE: Final = "requested before"
"""What `cancel` answers for a job that had been asked to stop: nothing changed."""


class Steering(Handle):
    """The steering section of the port."""

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop."""
        waiting = [state.value for state in origins(Event.CANCEL) if target(state, Event.CANCEL) is State.CANCELED]
        call = Call("SELECT * FROM {schema}.cancel($1, $2, $3, $4, $5)", (waiting, said(by), CANCELED, said(reason)))
        return await self._steer(Action.CANCEL, job_ids, call, by, reason)

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> list[Answer]:
        """End live jobs as succeeded from outside."""
        texts = [checked_result(text) for text in results.values()]
        call = _end_outside(Event.COMPLETE_OUTSIDE, texts, None, by)
        return await self._steer(Action.COMPLETE, list(results), call, by)

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> list[Answer]:
        """End live jobs as failed from outside."""
        call = _end_outside(Event.FAIL_OUTSIDE, None, list(errors.values()), by)
        return await self._steer(Action.FAIL, list(errors), call, by)

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records."""
        anywhere = [state.value for state in origins(Event.DELETE)]
        return await self._steer(Action.DELETE, job_ids, Call("SELECT * FROM {schema}.delete($1, $2)", (anywhere,)), by)

    async def delete_chains(self, chain_ids: Sequence[UUID], *, cascade: bool = False, by: str = "") -> ChainsDeleted:
        """Remove chains with all their steps, or nothing."""
        anywhere = [state.value for state in origins(Event.DELETE)]
        sql = self._sql("SELECT chain, job_id FROM {schema}.delete_chains($1, $2, $3)")

        def line(rows: list[Record]) -> AuditLine | None:
            return audit_line(Action.DELETE_CHAINS, chain_ids, by=by, detail=f"{len(rows)} jobs") if chain_ids else None

        try:
            rows = await self._audited(
                by, lambda connection: connection.fetch(sql, list(dict.fromkeys(chain_ids)), cascade, anywhere), line
            )
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
        sql = self._sql("SELECT first, job_id, queue FROM {schema}.emit($1, $2, $3)")
        emitted, *woken = await self._audited(
            by,
            lambda connection: connection.fetch(sql, signal, data, said(by)),
            lambda rows: audit_line(Action.EMIT, [signal], by=by, detail="" if rows[0][0] else EMITTED_BEFORE),
        )
        if woken:
            self._lanes.look_soon()
        return Emitted(first=emitted[0], jobs=tuple(row[1] for row in woken), queues=frozenset(row[2] for row in woken))

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready."""
        terminal = [state.value for state in origins(Event.REOPEN)]
        call = Call("SELECT * FROM {schema}.reopen($1, $2, $3)", (terminal, said(by)))
        return await self._steer(Action.RETRY, job_ids, call, by)

    async def _steer(self, action: Action, job_ids: Sequence[UUID], call: Call, by: str, reason: str = "") -> list[Answer]:
        """Run a steering function over all ids at once; one that is given again is answered by a second call, after that.

        Not one by one: the end of the first may end those that waited for it, and then their own turn would come too late.
        """
        answers: list[Answer] = []
        sql = self._sql(call.sql)

        async def work(connection: Connection) -> None:
            answers.clear()
            unanswered = dict.fromkeys(job_ids, Answer.NOT_FOUND.value)
            rows = await connection.fetch(sql, list(unanswered), *call.parameters)
            unanswered |= {row[0]: row[1] for row in rows}
            told: list[str] = []
            for job_id in job_ids:
                if job_id in unanswered:
                    told.append(unanswered.pop(job_id))
                else:
                    row = await connection.fetchrow(sql, [job_id], *call.parameters)
                    told.append(Answer.NOT_FOUND.value if row is None else row[1])
            before = told.count(BEFORE)
            answers.extend(Answer.REQUESTED if answer == BEFORE else Answer(answer) for answer in told)
            if not by:
                return
            if action is Action.CANCEL:
                line = cancel_line(job_ids, by=by, reason=reason, answers=answers, before=before)
            else:
                line = audit_line(action, job_ids, by=by, detail=reason, answers=answers)
            if line is not None:
                await self._write_line(connection, line)

        if job_ids:
            alone = not by and len(set(job_ids)) == len(job_ids)
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
        checked_name(queue, "queue")
        await self._audited(
            by,
            lambda connection: connection.execute(sql, queue, said(by), said(reason)),
            lambda _: audit_line(Action.PAUSE, [queue], by=by, detail=reason),
        )

    async def resume(self, queue: str, *, by: str = "") -> None:
        """Let claims from a queue go on."""
        sql = self._sql("DELETE FROM {schema}.queue WHERE name = $1")
        checked_name(queue, "queue")
        await self._audited(
            by, lambda connection: connection.execute(sql, queue), lambda _: audit_line(Action.RESUME, [queue], by=by)
        )
        self._lanes.look_soon()


class Call(NamedTuple):
    """A steering function, with what it takes beside the ids."""

    sql: str
    parameters: Sequence[object]


def _end_outside(event: Event, results: list[str] | None, errors: list[Error] | None, by: str) -> Call:
    live = [state.value for state in origins(event)]
    columns = (
        [error.code for error in errors] if errors else None,
        [error.message for error in errors] if errors else None,
        [error.traceback or None for error in errors] if errors else None,
    )
    sql = "SELECT * FROM {schema}.end_outside($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    return Call(sql, (live, event.value, target(State.RUNNING, event), results, *columns, said(by)))


def said(text: str) -> str:
    """Return what somebody said, as the log keeps it."""
    return clean(text, TEXT_LIMIT)
