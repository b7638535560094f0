"""`PostgresStore`: the port on PostgreSQL. Each operation is one call of a server function."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.core.job import policy_of
from holdfast.core.lease import Claimed, Extended, Hold, Lease
from holdfast.core.outcome import CANCELED, checked_result
from holdfast.core.settle import expire
from holdfast.core.states import Event, State, origins, target
from holdfast.errors import BadJob, StaleLease, UnknownWorker
from holdfast.store.port import (
    Answer,
    Enqueue,
    Enqueued,
    Page,
    Promoted,
    Pruned,
    QueueView,
    Reaped,
    Settled,
    Settlement,
    Stats,
    TaskCounts,
    Worker,
)
from holdfast.store.postgres import schema as schemas
from holdfast.store.postgres import views
from holdfast.store.postgres.connection import Connections, asyncpg
from holdfast.store.postgres.lanes import Lanes, Snapshot, claimed, runs
from holdfast.store.postgres.leases import Leases
from holdfast.store.postgres.marks import Marks
from holdfast.store.postgres.producing import ENQUEUE, calls, render, standing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.environment import Environment
    from holdfast.core.job import NewJob
    from holdfast.core.outcome import Error
    from holdfast.store.port import (
        AttemptView,
        Checkpoint,
        ClaimRequest,
        EventView,
        JobFilter,
        JobView,
        Part,
        Progress,
        Retention,
    )
    from holdfast.store.postgres.connection import Connection

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOLD_EVERY: Final = 5.0
FOLD_LEAST: Final = 200
"""Fewer tally rows than this are cheaper to read than to fold."""
MOST_LAPSED: Final = 1000
UNKNOWN_BLOCKER: Final = "HF001"

_SNAPSHOT: Final = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax,
    clock_timestamp() AS now, pg_postmaster_start_time()::text || ' ' || rewound::text AS life,
    extract(epoch FROM clock_timestamp() - pg_postmaster_start_time() + rewound)::float8 AS up_for
FROM {schema}.meta
"""


class PostgresStore:
    """Jobs in a PostgreSQL schema of its own.

    `create=False` never creates a missing schema. `prepare=False` works through PgBouncer in transaction mode without
    prepared statements. `timeout` bounds every statement: keep it below the shortest lease.
    """

    def __init__(  # noqa: PLR0913  options, all by name
        self,
        url: str,
        environment: Environment,
        *,
        schema: str = "holdfast",
        create: bool = True,
        pool_size: int = 4,
        connect_for: float = 5.0,
        timeout: float = 30.0,
        prepare: bool = True,
        search_limit: int = 10_000,
    ) -> None:
        self._environment = environment
        self._schema = schema
        self._name = schemas.quoted(schema)
        self._create = create
        self._search_limit = search_limit
        self._db = Connections(url, environment, size=pool_size, connect_for=connect_for, timeout=timeout, prepare=prepare)
        self._db.on_loss = self._forget
        self._lanes = Lanes()
        self._leases = Leases()
        self._due: Marks[datetime] = Marks(LONG_AGO)
        self._due_life: str | None = None
        self._workers: dict[UUID, int] = {}
        self._server_clock: tuple[datetime, float] | None = None
        self._next_fold = 0.0
        self._statements: dict[str, str] = {}

    def _sql(self, template: str) -> str:
        text = self._statements.get(template)
        if text is None:
            text = self._statements[template] = template.replace("{schema}", self._name)
        return text

    def _forget(self) -> None:
        self._lanes.forget()
        self._leases.forget()
        self._due = Marks(LONG_AGO)
        self._workers.clear()

    async def open(self) -> None:
        """Connect and check the schema."""
        await self._db.open()
        try:
            await self._db.run(lambda connection: schemas.check(connection, self._schema, self._db.target, create=self._create))
        except BaseException:
            await self._db.close()
            raise

    async def close(self) -> None:
        """Close the connections."""
        await self._db.close()

    # producing

    async def enqueue(self, jobs: Sequence[NewJob], *, under: Lease | None = None) -> list[Enqueued]:
        """Create jobs in one transaction."""
        if not jobs and under is None:
            return []
        batches = list(calls(jobs))
        statement = self._sql(ENQUEUE)
        answers: list[Enqueued] = []

        async def work(connection: Connection) -> None:
            answers.clear()
            if under is not None:
                await self._prove(connection, under)
            stands_for: dict[UUID, UUID] = {}
            for batch in batches:
                rows = await connection.fetch(statement, *render([standing(job, stands_for) for job in batch]))
                said = {row[0]: Enqueued(Enqueue(row[1]), row[2]) for row in rows}
                stands_for |= {row[0]: row[2] for row in rows}
                answers.extend(said.get(job.id) or Enqueued(Enqueue.CREATED, job.id) for job in batch)

        try:
            if under is None and len(batches) == 1:
                await self._db.run(work)
            else:
                await self._db.in_transaction(work)
        except asyncpg.PostgresError as error:
            if getattr(error, "sqlstate", None) == UNKNOWN_BLOCKER:
                raise BadJob(f"there is no job {error} to wait for", path="after") from error
            raise
        self._lanes.look_soon()
        return answers

    async def _prove(self, connection: Connection, lease: Lease) -> None:
        """Hold a lease in place until the transaction ends; a settle, cancel or reap of it waits that long."""
        sql = self._sql("SELECT 1 FROM {schema}.lease WHERE job_id = $1 AND token = $2 FOR KEY SHARE")
        if await connection.fetchval(sql, lease.job_id, lease.token) is None:
            raise StaleLease(f"the lease on job {lease.job_id} is no longer held under this token: nothing was enqueued")

    # working

    async def register(self, worker: Worker) -> None:
        """Make a worker known."""
        sql = self._sql(
            "INSERT INTO {schema}.worker (id, name, info, registered_at) VALUES ($1, $2, $3, clock_timestamp()) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, info = excluded.info RETURNING no"
        )
        self._workers[worker.id] = await self._db.fetch_value(sql, worker.id, worker.name, worker.info)

    async def claim(self, request: ClaimRequest) -> list[Claimed]:
        """Take ready jobs, lane by lane in their order."""
        if request.limit <= 0:
            return []
        worker = await self._worker_no(request.worker)
        if request.look or self._lanes.look_due(self._environment.monotonic()):
            await self._look()
        jobs: list[Claimed] = []
        for lanes in runs(self._lanes.choose(request)):
            limit = request.limit - len(jobs)
            numbers = [number for lane in lanes for number in _numbers(lane)]
            marks = [mark for lane in lanes for mark in _marks(lane)]
            tasks = sorted(request.tasks) if lanes[0].fifo else None
            rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.claim($1, $2, $3, $4, $5)"), worker, numbers, marks, limit, tasks)
            claimed(lanes, rows, limit)
            jobs.extend(_in_order(rows, numbers))
            if len(jobs) >= request.limit:
                break
        return jobs

    async def _worker_no(self, worker: UUID) -> int:
        number = self._workers.get(worker)
        if number is None:
            number = await self._db.fetch_value(self._sql("SELECT no FROM {schema}.worker WHERE id = $1"), worker)
            if number is None:
                raise UnknownWorker(f"worker {worker} is not registered with this store: call register() before the first claim")
            self._workers[worker] = number
        return number

    async def _look(self) -> None:
        lanes, bases, reached = self._lanes.question()
        started = self._environment.monotonic()
        sql = self._sql("SELECT s.xmin, s.xmax, s.now, s.life, l.* FROM (" + _SNAPSHOT + ") s LEFT JOIN {schema}.look($1, $2) l ON true")
        rows = await self._db.fetch(sql, lanes, bases)
        ended = self._environment.monotonic()
        snapshot = Snapshot(*rows[0][:4])
        seen = [row[4:] for row in rows if row["entry"] is not None]
        self._lanes.looked(seen, snapshot, reached, at=ended, took=ended - started)

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease a worker holds."""
        sql = self._sql("SELECT l.job_id, l.token FROM {schema}.lease l JOIN {schema}.worker w ON w.no = l.worker WHERE w.id = $1")
        return [Lease(*row) for row in await self._db.fetch(sql, worker)]

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases, never waiting for another writer."""
        if not leases:
            return []
        rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.extend($1, $2)"), *_columns(leases))
        held = {(row[0], row[1]): Extended(Hold.HELD, row[2], row[3]) for row in rows}
        missing = [lease.job_id for lease in leases if lease not in held]
        found = await self._where_are(missing) if missing else {}
        return [held.get(lease) or _lost(lease, found) for lease in leases]

    async def _where_are(self, ids: Sequence[UUID]) -> dict[UUID, tuple[str, UUID | None]]:
        sql = self._sql(
            "SELECT j.id, w.state, l.token FROM {schema}.job j CROSS JOIN LATERAL {schema}.where_is(j) w "
            "LEFT JOIN {schema}.lease l ON l.job_id = j.id WHERE j.id = ANY ($1)"
        )
        return {row[0]: (row[1], row[2]) for row in await self._db.fetch(sql, ids)}

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress under the tokens."""
        return await self._fenced(
            [update.lease for update in updates],
            "SELECT * FROM {schema}.progress($1, $2, $3, $4, $5)",
            lambda keep: [
                [updates[i].percent for i in keep],
                [updates[i].step for i in keep],
                [updates[i].message for i in keep],
            ],
        )

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts under the tokens."""
        parts = [checkpoint.part for checkpoint in checkpoints]
        return await self._fenced(
            [checkpoint.lease for checkpoint in checkpoints],
            "SELECT * FROM {schema}.checkpoint($1, $2, $3, $4, $5, $6, $7, $8)",
            lambda keep: [
                [parts[i].name for i in keep],
                [parts[i].state.value for i in keep],
                [parts[i].done for i in keep],
                [parts[i].total for i in keep],
                [parts[i].data for i in keep],
                [parts[i].error for i in keep],
            ],
        )

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault."""
        return await self._fenced(
            leases,
            "SELECT * FROM {schema}.flag_free($1, $2)",
            lambda _keep: [],
        )

    async def _fenced(self, leases: Sequence[Lease], template: str, columns: Any) -> list[Settled]:  # noqa: ANN401
        """Run a fenced write that answers (job_id, late) for what it applied.

        A statement must not see one job twice: the second writer of a job would overwrite itself, or match the token
        of the first. Batches with repeats go in several statements of one transaction.
        """
        answers = [Settled.STALE] * len(leases)

        async def work(connection: Connection) -> None:
            for keep in _without_repeats(leases):
                ids, tokens = _columns([leases[i] for i in keep])
                rows = {row[0]: row[1] for row in await connection.fetch(self._sql(template), ids, tokens, *columns(keep))}
                for i in keep:
                    late = rows.get(leases[i].job_id)
                    answers[i] = Settled.STALE if late is None else Settled.LATE if late else Settled.APPLIED

        if leases:
            await self._db.in_transaction(work)
        return answers

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job."""
        return views.part_views(await self._db.fetch(self._sql(views.PARTS), job_id))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts under their tokens, in one transaction."""
        if not settlements:
            return []
        leases = [settlement.lease for settlement in settlements]
        answers = [Settled.STALE] * len(settlements)
        rounds = list(_without_repeats(leases))

        async def work(connection: Connection) -> None:
            for keep in rounds:
                rows = await self._settle(connection, [settlements[i] for i in keep], reap=False)
                said = dict(rows)
                for i in keep:
                    answers[i] = Settled(said.get(leases[i].job_id, "stale"))

        if len(rounds) == 1:
            await self._db.run(work)
        else:
            await self._db.in_transaction(work)
        if any(settlement.write.state is State.READY for settlement in settlements):
            self._lanes.look_soon()
        return answers

    async def _settle(self, connection: Connection, settlements: Sequence[Settlement], *, reap: bool) -> list[tuple[UUID, str]]:
        writes = [settlement.write for settlement in settlements]
        ids, tokens = _columns([settlement.lease for settlement in settlements])
        sql = self._sql("SELECT * FROM {schema}.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)")
        live_on = any(write.event is not Event.SUCCEED for write in writes)
        rows = await connection.fetch(
            sql,
            reap,
            ids,
            tokens,
            [write.event.value for write in writes],
            [write.state.value for write in writes],
            [write.failures for write in writes],
            [write.front for write in writes] if live_on else None,
            [write.delay for write in writes] if live_on else None,
            [write.run_at for write in writes] if live_on else None,
            [write.result for write in writes],
            [write.error and write.error.code for write in writes] if live_on else None,
            [write.error and write.error.message for write in writes] if live_on else None,
            [write.error and (write.error.traceback or None) for write in writes] if live_on else None,
        )
        return [(row[0], row[1]) for row in rows]

    # housekeeping

    async def promote(self, limit: int) -> Promoted:
        """Make due jobs ready; fold the counts now and then."""
        queues: set[str] = set()
        count = 0
        if limit > 0:
            rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.promote($1, $2)"), self._due.hint, limit)
            for queue, promoted, last_due in rows:
                queues.add(queue)
                count += promoted
                self._due.took(last_due)
            if rows:
                self._lanes.look_soon()
        if self._environment.monotonic() >= self._next_fold:
            self._next_fold = self._environment.monotonic() + FOLD_EVERY
            await self._db.execute(self._sql("SELECT {schema}.fold($1)"), FOLD_LEAST)
        return Promoted(count, frozenset(queues), await self._next_due())

    async def _next_due(self) -> float | None:
        reached = self._due.reached
        sql = self._sql("SELECT s.xmin, s.xmax, s.now, s.life, d.run_at FROM (" + _SNAPSHOT + ") s LEFT JOIN {schema}.due($1) d ON true")
        row = (await self._db.fetch(sql, self._due.base))[0]
        if row["life"] != self._due_life or row["now"] < self._due.reached:
            self._due_life, self._due = row["life"], Marks(LONG_AGO)
            row = (await self._db.fetch(sql, self._due.base))[0]
            reached = self._due.reached
        self._due.looked(row["run_at"], reached=reached, xmin=row["xmin"], xmax=row["xmax"])
        return None if row["run_at"] is None else (row["run_at"] - row["now"]).total_seconds()

    async def reap(self, limit: int, *, tasks: frozenset[str] = frozenset(), up_for: float | None = None) -> list[Reaped]:
        """Settle lapsed leases by the policy stored with each job."""
        ids, server_up_for = await self._lapsed()
        if not ids or limit <= 0:
            return []
        undisturbed = [server_up_for]
        if up_for is not None:
            undisturbed.append(up_for)
        if self._db.back_since is not None:
            undisturbed.append(self._environment.monotonic() - self._db.back_since)
        rows = await self._db.fetch(self._sql("SELECT * FROM {schema}.lapsed($1)"), ids[:MOST_LAPSED])
        ripe = [row for row in rows if row["lease_ms"] <= min(undisturbed) * 1000]
        ripe.sort(key=lambda row: (row["task"] not in tasks, row["expires_at"]))
        ripe = ripe[:limit]
        settlements = [Settlement(Lease(row["job_id"], row["token"]), self._expire(row)) for row in ripe]
        if not settlements:
            return []
        said = dict(await self._db.run(lambda connection: self._settle(connection, settlements, reap=True)))
        self._lanes.look_soon()
        return [
            Reaped(row["job_id"], row["task"], row["queue"], row["attempt"], row["worker"], settlement.write)
            for row, settlement in zip(ripe, settlements, strict=True)
            if row["job_id"] in said
        ]

    def _expire(self, row: asyncpg.Record) -> Any:  # noqa: ANN401  a Write
        return expire(
            policy_of(row["policy"]).retry,
            row["failures"],
            self._environment.random,
            cancel_requested=row["cancel"],
            free=row["free"],
        )

    async def _lapsed(self) -> tuple[list[UUID], float]:
        sql = self._sql(
            "SELECT s.xmin, s.xmax, s.now, s.life, s.up_for, l.* FROM (" + _SNAPSHOT + ") s LEFT JOIN {schema}.leases($1, $2) l ON true"
        )
        while True:
            base, asked, reached = self._leases.question(self._server_now())
            rows = await self._db.fetch(sql, base, asked)
            snapshot = Snapshot(*rows[0][:4])
            self._server_clock = (snapshot.now, self._environment.monotonic())
            seen = [row[5:] for row in rows if row["job_id"] is not None]
            lapsed = self._leases.looked(seen, asked, snapshot, reached)
            if lapsed is not None:
                return lapsed, rows[0]["up_for"]

    def _server_now(self) -> datetime | None:
        if self._server_clock is None:
            return None
        then, monotonic = self._server_clock
        return then + timedelta(seconds=self._environment.monotonic() - monotonic)

    async def unblock(self, limit: int) -> int:
        """Settle waiters whose blockers ended unseen."""
        left: int = await self._db.fetch_value(self._sql("SELECT {schema}.unblock($1)"), limit)
        if left:
            self._lanes.look_soon()
        return left

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None = None) -> Pruned:
        """Delete terminal jobs that ended long enough ago."""
        ages = retention.seconds()
        row = await self._db.fetch(
            self._sql("SELECT * FROM {schema}.prune($1, $2, $3, $4)"),
            [state.value for state in ages],
            list(ages.values()),
            limit,
            after or UUID(int=0),
        )
        return Pruned(row[0]["pruned"], row[0]["next"])

    # steering

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop."""
        waiting = [state.value for state in origins(Event.CANCEL) if target(state, Event.CANCEL) is State.CANCELED]
        return await self._steer(job_ids, "SELECT * FROM {schema}.cancel($1, $2, $3, $4, $5)", waiting, by, CANCELED, reason)

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
        return await self._steer(ids, sql, live, event.value, target(State.RUNNING, event), results, *columns, by)

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records."""
        del by  # nothing of the job stays behind to keep it in
        anywhere = [state.value for state in origins(Event.DELETE)]
        return await self._steer(job_ids, "SELECT * FROM {schema}.delete($1, $2)", anywhere)

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready."""
        terminal = [state.value for state in origins(Event.REOPEN)]
        return await self._steer(job_ids, "SELECT * FROM {schema}.reopen($1, $2, $3)", terminal, by)

    async def _steer(self, job_ids: Sequence[UUID], template: str, *args: object) -> list[Answer]:
        """Run a steering function over distinct ids; an id given again is answered in turn, by a second call."""
        answers: list[Answer] = []

        async def work(connection: Connection) -> None:
            answers.clear()
            if len(set(job_ids)) == len(job_ids):
                said = {row[0]: row[1] for row in await connection.fetch(self._sql(template), job_ids, *args)}
                answers.extend(Answer(said.get(job_id, Answer.NOT_FOUND)) for job_id in job_ids)
                return
            for job_id in job_ids:
                row = await connection.fetchrow(self._sql(template), [job_id], *args)
                answers.append(Answer.NOT_FOUND if row is None else Answer(row[1]))

        if job_ids:
            await self._db.in_transaction(work)
            self._lanes.look_soon()
        return answers

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> None:
        """Stop claims from a queue."""
        sql = self._sql(
            "INSERT INTO {schema}.queue (name, paused_at, paused_by, reason) VALUES ($1, clock_timestamp(), $2, $3) "
            "ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(queue.paused_at, excluded.paused_at), "
            "paused_by = excluded.paused_by, reason = excluded.reason"
        )
        await self._db.execute(sql, queue, by, reason)

    async def resume(self, queue: str) -> None:
        """Let claims from a queue go on."""
        sql = self._sql("DELETE FROM {schema}.queue WHERE name = $1")
        await self._db.execute(sql, queue)
        self._lanes.look_soon()

    # looking

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, all as of one moment."""
        rows = await self._db.fetch(self._sql(views.GET), list(set(job_ids)))
        found = {row["id"]: views.job_view(row) for row in rows}
        return [found.get(job_id) for job_id in job_ids]

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return a page of jobs, newest first."""
        page, stop, parameters, own = views.find_statement(where, self._name, self._search_limit, after, limit + 1)
        rows = await self._db.fetch(page, *parameters)
        jobs = [views.job_view(row) for row in rows[:limit]]
        if len(rows) > limit:
            return Page(jobs, jobs[-1].id)
        searched = (await self._db.fetch(stop, *parameters[:own]))[0]
        if searched["searched"] < self._search_limit:
            return Page(jobs)
        return Page(jobs, searched["id"], searched_all=False)

    async def attempts(self, job_id: UUID) -> list[AttemptView]:
        """Return every claim of a job."""
        return views.attempt_views(await self._db.fetch(self._sql(views.ATTEMPTS), job_id))

    async def events(self, job_id: UUID) -> list[EventView]:
        """Return the event log of a job."""
        return views.event_views(await self._db.fetch(self._sql(views.EVENTS), job_id))

    async def workers(self) -> list[Worker]:
        """Return the registered workers, newest first."""
        sql = self._sql("SELECT id, name, info, registered_at FROM {schema}.worker ORDER BY no DESC")
        return [Worker(id=row[0], name=row[1], info=row[2], registered_at=row[3]) for row in await self._db.fetch(sql)]

    async def queues(self) -> list[QueueView]:
        """Return the known queues by name."""
        stats = await self.stats()
        sql = self._sql("SELECT name, paused_at, paused_by, reason FROM {schema}.queue")
        paused = {row[0]: row for row in await self._db.fetch(sql)}
        names = sorted({row.queue for row in stats.tasks} | {lane.queue for lane in self._lanes.all()} | set(paused))
        return [
            QueueView(
                name=name,
                counts={state: count for state in State if (count := stats.count(state, queue=name))},
                oldest_waiting=stats.oldest_waiting.get(name),
                paused_at=paused[name][1] if name in paused else None,
                paused_by=paused[name][2] if name in paused else "",
                reason=paused[name][3] if name in paused else "",
            )
            for name in names
        ]

    async def stats(self) -> Stats:
        """Return exact counts and oldest waits."""
        await self._look()
        sql = self._sql(
            "SELECT l.queue, l.task, clock_timestamp() AS now, c.* FROM {schema}.counts() c "
            "CROSS JOIN LATERAL (SELECT queue, task FROM {schema}.lane WHERE id = c.lane LIMIT 1) l"
        )
        rows = await self._db.fetch(sql)
        counts: dict[tuple[str, str], dict[State, int]] = {}
        for row in rows:
            of_task = counts.setdefault((row["queue"], row["task"]), {})
            for state in State:
                if row[state.value]:
                    of_task[state] = of_task.get(state, 0) + row[state.value]
        now = rows[0]["now"] if rows else LONG_AGO
        oldest: dict[str, float] = {}
        for lane in self._lanes.all():
            if (since := lane.oldest()) is not None:
                oldest[lane.queue] = max(oldest.get(lane.queue, 0.0), (now - since).total_seconds())
        return Stats([TaskCounts(queue, task, found) for (queue, task), found in counts.items() if found], oldest)

    # testing

    async def rewind(self, seconds: float) -> None:
        """Make everything stored older."""
        columns = await self._db.fetch(
            "SELECT table_name, array_agg(column_name::text) FROM information_schema.columns "
            "WHERE table_schema = $1 AND data_type = 'timestamp with time zone' GROUP BY table_name",
            self._schema,
        )

        async def work(connection: Connection) -> None:
            for table, names in columns:
                moved = ", ".join(f"{name} = {name} - $1 * interval '1 s'" for name in names)
                await connection.execute(f"UPDATE {self._name}.{table} SET {moved}", seconds)  # noqa: S608
            await connection.execute(f"UPDATE {self._name}.meta SET rewound = rewound + $1 * interval '1 s'", seconds)  # noqa: S608

        await self._db.in_transaction(work)
        self._forget()


def _numbers(lane: Any) -> tuple[int, ...]:  # noqa: ANN401  a Lane
    return (lane.entry,) if lane.front_at is None else (-lane.entry, lane.entry)


def _marks(lane: Any) -> tuple[int, ...]:  # noqa: ANN401  a Lane
    return (lane.marks.hint,) if lane.front_at is None else (0, lane.marks.hint)


def _in_order(rows: Sequence[asyncpg.Record], numbers: Sequence[int]) -> list[Claimed]:
    """Return claimed jobs in the order of their lanes and places: a DELETE returns rows as they lie on the pages."""
    rank = {number: index for index, number in enumerate(numbers)}
    ordered = sorted(rows, key=lambda row: (rank[row[0]], row[1]))
    return [
        Claimed(
            row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], policy_of(row[11]), row[12] / 1000,
            row[13], row[14], row[15], row[16], row[17],
        )
        for row in ordered
    ]  # fmt: skip


def _columns(leases: Sequence[Lease]) -> tuple[list[UUID], list[UUID]]:
    return [lease.job_id for lease in leases], [lease.token for lease in leases]


def _without_repeats(leases: Sequence[Lease]) -> list[list[int]]:
    """Split a batch, in order, into runs of indices in which no job appears twice."""
    if len({lease.job_id for lease in leases}) == len(leases):
        return [list(range(len(leases)))]
    rounds: list[list[int]] = [[]]
    seen: set[UUID] = set()
    for index, lease in enumerate(leases):
        if lease.job_id in seen:
            rounds.append([])
            seen.clear()
        rounds[-1].append(index)
        seen.add(lease.job_id)
    return rounds


def _lost(lease: Lease, found: Mapping[UUID, tuple[str, UUID | None]]) -> Extended:
    state, token = found.get(lease.job_id, (None, None))
    if state is None:
        return Extended(Hold.GONE)
    if state == State.RUNNING:
        return Extended(Hold.SETTLING if token == lease.token else Hold.TAKEN)
    return Extended(Hold.RETURNED if state in {State.BLOCKED, State.SCHEDULED, State.READY} else Hold.ENDED)
