"""The SQLite store as a whole: each operation of the port, handed to the thread that owns the connection."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from holdfast.core.lease import Taken
from holdfast.core.numbers import check_seconds
from holdfast.core.text import checked_name, flaw
from holdfast.errors import BadJob, StoreUnavailable
from holdfast.store.port import SEARCH_LIMIT, check_rotation, names_a_key, patience_here
from holdfast.store.sqlite import (
    access,
    chaining,
    claiming,
    deleting,
    figuring,
    housekeeping,
    journal,
    limiting,
    looking,
    producing,
    registry,
    scheduling,
    settling,
    signaling,
    steering,
    working,
)
from holdfast.store.sqlite.connection import check_path
from holdfast.store.sqlite.database import Reader, Writer
from holdfast.store.sqlite.transaction import LONGEST, SqliteTransaction
from holdfast.store.sqlite.values import moment, stamp

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.environment import Environment, Runner
    from holdfast.core.figures import Figure
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Extended, Lease
    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.core.outcome import Error
    from holdfast.core.states import Event
    from holdfast.store.port import (
        Action,
        Answer,
        AttemptView,
        Audit,
        AuditView,
        Beat,
        BlockerView,
        ChainPage,
        ChainsDeleted,
        ChainView,
        Checkpoint,
        ClaimRequest,
        Emitted,
        Enqueued,
        EventView,
        FailureView,
        FigureView,
        Firing,
        Grain,
        JobFilter,
        JobView,
        Key,
        LimitView,
        LogLine,
        LogView,
        Notice,
        Page,
        Part,
        Progress,
        Promoted,
        Pruned,
        QueueView,
        Reaped,
        Retention,
        RunningView,
        Schedule,
        ScheduleView,
        Settled,
        Settlement,
        Signal,
        StageMark,
        Stats,
        Storage,
        Worker,
        WorkerPlace,
        WorkerView,
    )
    from holdfast.store.sqlite.writing import Writing

T = TypeVar("T")

BUSY_TIMEOUT: Final = 2 * LONGEST
"""Seconds: a handler's transaction that takes all the time it may is no outage."""


class _Open(NamedTuple):
    """The two connections, each with its thread."""

    writing: Runner
    writer: Writer
    reading: Runner
    reader: Reader

    def close(self) -> None:
        """End the threads; then close what they have left open because nobody waited for them to close it."""
        self.reading.close()
        self.writing.close()
        self.reader.close()
        self.writer.close()


class SqliteStore:
    """Jobs in one file. Several stores, in one process or many on one machine, may share it.

    A write waits at most `busy_timeout` seconds for the writes of others. `find` looks at no more than `search_limit`
    jobs in one call. A handler's transaction is undone after `longest_transaction` seconds. A store belongs to the process
    that opened it: open it after forking.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        environment: Environment,
        *,
        create: bool = True,
        busy_timeout: float = BUSY_TIMEOUT,
        search_limit: int = SEARCH_LIMIT,
        longest_transaction: float = LONGEST,
    ) -> None:
        self.path = os.fspath(path)
        check_path(self.path)
        self._environment = environment
        self._create = create
        self._busy_timeout = busy_timeout
        self._search_limit = search_limit
        self._longest_transaction = longest_transaction
        self._process: int | None = None
        self._opening = asyncio.Lock()
        self._open: _Open | None = None
        self._account = claiming.Account(environment.lot)
        self._transactions: set[SqliteTransaction] = set()
        self._next_transaction = asyncio.Lock()

    async def open(self) -> None:
        """Connect and check the schema; create a missing one unless `create=False`. Safe to call again."""
        self._check_process()
        async with self._opening:
            if self._open is None:
                self._open = await self._connect()
                self._process = os.getpid()

    async def _connect(self) -> _Open:
        opened = _Open(
            self._environment.runner("holdfast-sqlite"),
            Writer(self.path, self._environment, busy_timeout=self._busy_timeout),
            self._environment.runner("holdfast-sqlite-read"),
            Reader(self.path, busy_timeout=self._busy_timeout),
        )
        try:
            await opened.writing.run(lambda: opened.writer.open(create=self._create))
            await opened.reading.run(opened.reader.open)
        except BaseException:
            opened.close()
            raise
        return opened

    async def close(self) -> None:
        """Let go of connections and threads, after what they are doing; undo open transactions. Safe to call again."""
        self._check_process()
        opened, self._open, self._process = self._open, None, None
        for transaction in tuple(self._transactions):
            await transaction.rollback()
        if opened is None:
            return
        try:
            # in their threads: closing the last connection brings the log back into the file
            await opened.reading.run(opened.reader.close)
            await opened.writing.run(opened.writer.close)
        finally:
            opened.close()

    async def data_version(self) -> int:
        """Return a number that changes with every commit of anybody: ask again, and compare."""
        opened = self._opened()
        return await opened.reading.run(opened.reader.data_version)

    async def _write(self, operation: Callable[[Writing], T]) -> T:
        """Run an operation in a write transaction. Cancelling the wait does not stop it: all of it happens, or none."""
        opened = self._opened()
        return await opened.writing.run(lambda: opened.writer.write(operation))

    async def _read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        opened = self._opened()
        seconds = patience_here()  # of this task: the thread does not know it
        return await opened.reading.run(lambda: opened.reader.read(operation, seconds))

    def _opened(self) -> _Open:
        self._check_process()
        if self._open is None:
            raise StoreUnavailable(self.path, 0.0, "the store is not open: await store.open() first")
        return self._open

    def _check_process(self) -> None:
        if self._process not in (None, os.getpid()):
            # the threads stayed behind in the parent, and SQLite's locks do not survive a fork
            raise StoreUnavailable(self.path, 0.0, "it was opened before this process was forked: open a store per process")

    def _now(self) -> int:
        return stamp(self._environment.now())

    # producing

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        under: Lease | None = None,
        caps: Mapping[str, int] | None = None,
        notice: Notice | None = None,  # noqa: ARG002  who watches the file notices the commit
        audit: Audit | None = None,
    ) -> list[Enqueued]:
        """Create jobs."""
        return await self._write(lambda writing: producing.enqueue(writing, jobs, under, caps, audit))

    # working

    async def register(self, worker: Worker) -> None:
        """Make a worker known, or change what it says of itself."""
        await self._write(lambda writing: registry.register(writing, worker))

    async def beat(self, beat: Beat) -> Signal:
        """Note that a worker is alive, and its counters."""
        return await self._write(lambda writing: registry.beat(writing, beat))

    async def heard(self, workers: Collection[UUID]) -> None:
        """Note that workers are alive that claimed or reported. Looks first, so that nobody waits for what is known."""
        if await self._read(lambda connection: registry.unheard(connection, workers, self._now())):
            await self._write(lambda writing: registry.heard(writing, workers))

    async def retire(self, worker: UUID) -> None:
        """Note that a worker has stopped."""
        await self._write(lambda writing: registry.retire(writing, worker))

    async def claim(self, request: ClaimRequest) -> Taken:
        """Take ready jobs and receive leases. Every claim looks for itself, whether or not asked to."""
        claim, taken = claiming.Claim(request, self._account), Taken()
        while not claim.over:
            step = await self._write(claim.step)
            if step.again is not None:
                taken.held_back(step.again)
            taken.weights = step.weights
            taken += step
        return taken

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease this worker holds."""
        return await self._read(lambda connection: working.holding(connection, worker))

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases by their own length. Waits for other writers, as every write to a file does."""
        return await self._write(lambda writing: working.extend(writing, leases))

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress and extend the leases."""
        return await self._write(lambda writing: working.progress(writing, updates))

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts of jobs and extend the leases."""
        return await self._write(lambda writing: working.checkpoint(writing, checkpoints))

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job in the order they were first written."""
        return await self._read(lambda connection: working.parts(connection, job_id))

    async def log(self, lines: Sequence[LogLine]) -> list[Settled]:
        """Append lines to the logs of jobs, in order."""
        return await self._write(lambda writing: journal.log(writing, lines))

    async def logs(self, job_id: UUID, *, limit: int, after: int = 0) -> list[LogView]:
        """Return the log of a job, oldest first, from the line after number `after` on."""
        return await self._read(lambda connection: journal.logs(connection, job_id, limit, after))

    async def mark(self, marks: Sequence[StageMark]) -> list[Settled]:
        """Write stages entered and left into event logs, in order."""
        return await self._write(lambda writing: journal.mark(writing, marks))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts."""
        return await self._write(lambda writing: settling.settle(writing, settlements))

    async def settled(self, lease: Lease) -> Event | None:
        """Tell how its holder has settled an attempt, once nobody else writes."""
        return await self._write(lambda writing: settling.settled(writing, lease))

    async def blockers(self, job_id: UUID) -> list[BlockerView]:
        """Return the chains a job was to wait for, as they stand, in the order they were named."""
        return await self._read(lambda connection: chaining.blockers(connection, job_id))

    async def signals(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of these signals that were emitted, with the JSON text they carry."""
        return await self._read(lambda connection: signaling.signals(connection, names))

    async def begin(self) -> SqliteTransaction:
        """Begin a transaction for a handler, when those of other handlers here have ended. Nobody else writes until it ends."""
        await self._next_transaction.acquire()
        try:
            self._opened()
            transaction = SqliteTransaction(
                self.path,
                self._environment,
                busy_timeout=self._busy_timeout,
                longest=self._longest_transaction,
                turn_over=self._next_transaction.release,
                ended=self._transactions.discard,
            )
        except BaseException:
            self._next_transaction.release()
            raise
        self._transactions.add(transaction)
        await transaction.open()
        return transaction

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault."""
        return await self._write(lambda writing: working.flag_free(writing, leases))

    # housekeeping

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled jobs ready, in `run_at` order."""
        return await self._write(lambda writing: housekeeping.promote(writing, limit))

    async def reap(self, limit: int, *, tasks: frozenset[str] = frozenset(), up_for: float | None = None) -> list[Reaped]:
        """Settle lapsed leases by the policy stored with each job; those of `tasks` first."""
        writer = self._opened().writer

        def work(writing: Writing) -> list[Reaped]:
            # asked for only now that the file is ours: who kept it has kept all heartbeats waiting too
            undisturbed = [] if up_for is None else [up_for]
            if writer.free_since is not None:
                undisturbed.append(self._environment.monotonic() - writer.free_since)
            return housekeeping.reap(writing, limit, tasks, min(undisturbed, default=None))

        return await self._write(work)

    async def drop_overdue(self, limit: int) -> int:
        """End waiting jobs whose `start_by` has passed."""
        return await self._write(lambda writing: housekeeping.drop_overdue(writing, limit))

    async def mark_offline(self, after: float) -> list[UUID]:
        """Mark workers offline that gave no sign of life for `after` seconds."""
        return await self._write(lambda writing: registry.mark_offline(writing, after))

    async def unblock(self, limit: int) -> int:  # noqa: ARG002  the port's signature
        """Find nothing: there is one writer at a time, so nothing ends where the creator of a waiter could not see it."""
        return 0

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None = None, by: str = "") -> Pruned:
        """Delete terminal jobs older than their state's retention."""
        return await self._write(lambda writing: housekeeping.prune(writing, retention, limit, after, by))

    # steering

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop."""
        return await self._write(lambda writing: steering.cancel(writing, job_ids, by, reason))

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> list[Answer]:
        """End live jobs as succeeded from outside."""
        return await self._write(lambda writing: steering.complete(writing, results, by))

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> list[Answer]:
        """End live jobs as failed from outside."""
        return await self._write(lambda writing: steering.fail(writing, errors, by))

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records."""
        return await self._write(lambda writing: deleting.delete(writing, job_ids, by))

    async def delete_chains(self, chain_ids: Sequence[UUID], *, cascade: bool = False, by: str = "") -> ChainsDeleted:
        """Remove chains with all their steps; with `cascade` also the chains they waited for, and so on. All or nothing."""
        return await self._write(lambda writing: deleting.delete_chains(writing, chain_ids, cascade=cascade, by=by))

    async def emit(self, signal: str, data: str, *, by: str = "") -> Emitted:
        """Emit a signal with JSON text, once."""
        checked_name(signal, "signal")
        if (reason := flaw(data)) is not None:
            raise BadJob(reason, path="data")
        return await self._write(lambda writing: signaling.emit(writing, signal, data, by))

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready."""
        return await self._write(lambda writing: steering.reopen(writing, job_ids, by))

    async def disable(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker claim nothing more."""
        return await self._write(lambda writing: registry.disable(writing, worker, by))

    async def enable(self, worker: UUID, *, by: str = "") -> bool:
        """Let a disabled worker claim again, and one that was asked to end go on."""
        return await self._write(lambda writing: registry.enable(writing, worker, by))

    async def drain(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker finish what it runs and end."""
        return await self._write(lambda writing: registry.drain(writing, worker, by))

    async def revoke(self, worker: UUID, *, by: str = "") -> list[UUID] | None:
        """Disable a worker and take back every lease it holds."""
        return await self._write(lambda writing: registry.revoke(writing, worker, by))

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> None:
        """Stop claims from a queue."""
        checked_name(queue, "queue")
        await self._write(lambda writing: steering.pause(writing, queue, by, reason))

    async def resume(self, queue: str, *, by: str = "") -> None:
        """Let claims from a queue go on."""
        checked_name(queue, "queue")
        await self._write(lambda writing: steering.resume(writing, queue, by))

    # limits

    async def declare(self, rules: Mapping[LimitName, LimitRule]) -> None:
        """Say what programs say about limits."""
        await self._write(lambda writing: limiting.declare(writing, rules))

    async def set_limit(self, name: LimitName, rule: LimitRule | None, *, by: str = "") -> None:
        """Set a limit, whatever programs declare."""
        await self._write(lambda writing: limiting.set_limit(writing, name, rule, by))

    async def limits(self, names: Sequence[LimitName] | None = None) -> list[LimitView]:
        """Return every limit that was declared or set, and the keys that jobs run with; or those that are named."""
        now = stamp(self._environment.now())
        return await self._read(lambda connection: limiting.limits(connection, now, names))

    # access

    async def add_key(self, key: Key, *, by: str = "") -> None:
        """Keep a key."""
        await self._write(lambda writing: access.add_key(writing, key, by))

    async def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        """Return all keys or those of these ids, newest first."""
        return await self._read(lambda connection: access.keys(connection, ids))

    async def expire_key(self, key_id: str, within: float, *, by: str = "") -> bool:
        """Have a key end within so many seconds, sooner where it would anyway."""
        check_seconds(within, "within", least=0.0)
        return names_a_key(key_id) and await self._write(lambda writing: access.expire_key(writing, key_id, within, by))

    async def rotate_key(self, key_id: str, new: Key, within: float, *, by: str = "") -> bool:
        """Keep a key in the place of another, which ends a while later."""
        check_rotation(key_id, new, within)
        return names_a_key(key_id) and await self._write(lambda writing: access.rotate_key(writing, key_id, new, within, by))

    async def revoke_key(self, key_id: str, *, by: str = "") -> bool:
        """End a key at once."""
        return names_a_key(key_id) and await self._write(lambda writing: access.revoke_key(writing, key_id, by))

    async def use_key(self, key_id: str) -> None:
        """Note that a key was used. Looks first: every request of its holder comes by here, and nobody is to wait for that."""
        if names_a_key(key_id) and await self._read(lambda connection: access.unnoted(connection, key_id, self._now())):
            await self._write(lambda writing: access.use_key(writing, key_id))

    async def note(self, action: Action, targets: Sequence[str] = (), *, by: str, detail: str = "") -> None:
        """Write a line into the audit log for what is no operation of the store."""
        await self._write(lambda writing: access.note(writing, action, targets, by, detail))

    async def audits(
        self, *, limit: int, before: int | None = None, actor: str | None = None, action: Action | None = None
    ) -> list[AuditView]:
        """Return lines of the audit log, newest first, below number `before`."""
        return await self._read(lambda connection: access.audits(connection, limit, before, actor, action))

    # figures

    async def measure(self, figures: Sequence[Figure]) -> None:
        """Add figures to those of this minute, of this hour and of all time."""
        if figures:
            await self._write(lambda writing: figuring.measure(writing, figures))

    async def figures(self, grain: Grain, *, since: datetime | None = None, whole: bool = False) -> list[FigureView]:
        """Return the figures of this grain, oldest first, from the one on that `since` falls into."""
        return await self._read(lambda connection: figuring.figures(connection, grain, since, whole=whole))

    async def failures(self, *, since: datetime, limit: int, after: FailureView | None = None) -> list[FailureView]:
        """Return attempts that ended badly since then, newest first."""
        return await self._read(lambda connection: figuring.failures(connection, since, limit, after))

    # schedules

    async def schedule(self, schedules: Sequence[Schedule]) -> None:
        """Make schedules known."""
        await self._write(lambda writing: scheduling.schedule(writing, schedules))

    async def unschedule(self, names: Sequence[str]) -> None:
        """Forget schedules."""
        await self._write(lambda writing: scheduling.unschedule(writing, names))

    async def schedules(self) -> list[ScheduleView]:
        """Return the known schedules by name."""
        return await self._read(lambda connection: scheduling.schedules(connection, self._now()))

    async def fire(self, firing: Firing) -> Enqueued | None:
        """Advance a schedule from one slot to the next and enqueue the job of the slot."""
        return await self._write(lambda writing: scheduling.fire(writing, firing))

    async def now(self) -> datetime:
        """Return the clock that decides here, which is this machine's."""
        return moment(self._now())

    # looking

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, all as of one moment."""
        return await self._read(lambda connection: looking.get(connection, job_ids, self._now()))

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return jobs newest first, as of one moment, from the cursor on."""
        searched = self._search_limit
        return await self._read(
            lambda connection: looking.find(connection, where, limit, after, self._now(), searched=searched)
        )

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView | None]:
        """Return chains by their first jobs, all as of one moment."""
        return await self._read(lambda connection: chaining.chains(connection, chain_ids))

    async def find_chains(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> ChainPage:
        """Return chains newest first, as of one moment, from the cursor on."""
        searched = self._search_limit
        return await self._read(lambda connection: chaining.find_chains(connection, where, limit, after, searched=searched))

    async def running(self, *, limit: int, queues: frozenset[str] | None = None) -> RunningView:
        """Return the running jobs that a person should see first."""
        return await self._read(lambda connection: looking.running(connection, limit, queues, self._now()))

    async def attempts(self, job_id: UUID, *, last: int | None = None) -> list[AttemptView]:
        """Return every claim of a job, oldest first, or the last of them."""
        return await self._read(lambda connection: looking.attempts(connection, job_id, last))

    async def events(self, job_id: UUID, *, last: int | None = None) -> list[EventView]:
        """Return the event log of a job, oldest first, or the last of it."""
        return await self._read(lambda connection: looking.events(connection, job_id, last))

    async def queues(self) -> list[QueueView]:
        """Return the known queues by name."""
        return await self._read(lambda connection: looking.queues(connection, self._now()))

    async def workers(
        self, *, limit: int = 1000, ids: Collection[UUID] | None = None, after: WorkerPlace | None = None
    ) -> list[WorkerView]:
        """Return the registered workers, the living first."""
        return await self._read(lambda connection: registry.workers(connection, limit, ids, after))

    async def stats(self) -> Stats:
        """Return exact counts and oldest waits."""
        return await self._read(lambda connection: looking.stats(connection, self._now()))

    async def storage(self) -> Storage:
        """Return the size of the file, and what is free on its file system."""
        return await self._read(lambda connection: looking.storage(connection, self.path))

    # testing

    async def rewind(self, seconds: float) -> None:
        """Make everything stored `seconds` older."""
        await self._write(lambda writing: housekeeping.rewind(writing, seconds))


async def migrate(
    path: str | os.PathLike[str], environment: Environment, *, busy_timeout: float = BUSY_TIMEOUT
) -> tuple[int, int]:
    """Create the schema in a file or bring it up to date. Returns the versions before and after.

    Atomic; safe when several processes do it at once: one does the work, the others find it done.
    """
    check_path(os.fspath(path))
    writer = Writer(os.fspath(path), environment, busy_timeout=busy_timeout)
    runner = environment.runner("holdfast-sqlite-migrate")
    try:
        return await runner.run(writer.migrate)
    finally:
        runner.close()
