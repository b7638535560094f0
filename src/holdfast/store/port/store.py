"""The operations of a store, and what each promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.figures import Figure
    from holdfast.core.job import NewJob
    from holdfast.core.lease import Extended, Lease, Taken
    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.core.outcome import Error
    from holdfast.core.states import Event
    from holdfast.store.port.access import Action, Audit, AuditView, Key
    from holdfast.store.port.answers import Answer, Enqueued, Settled, Signal
    from holdfast.store.port.caller import Transaction
    from holdfast.store.port.requests import (
        Beat,
        Checkpoint,
        ClaimRequest,
        Firing,
        JobFilter,
        LogLine,
        Notice,
        Part,
        Progress,
        Retention,
        Schedule,
        Settlement,
        StageMark,
        Worker,
    )
    from holdfast.store.port.views import (
        AttemptView,
        BlockerView,
        ChainPage,
        ChainsDeleted,
        ChainView,
        Emitted,
        EventView,
        FailureView,
        FigureView,
        Grain,
        JobView,
        LimitView,
        LogView,
        Page,
        Promoted,
        Pruned,
        QueueView,
        Reaped,
        RunningView,
        ScheduleView,
        Stats,
        Storage,
        WorkerPlace,
        WorkerView,
    )


class Store(Protocol):
    """Where jobs are kept."""

    async def open(self) -> None:
        """Connect, and check the schema; create a missing one where that is allowed. Safe to call again.

        Raises `SchemaMissing`, `SchemaTooOld`, `SchemaTooNew`, `StoreUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads. Safe to call again."""
        ...

    # producing

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        under: Lease | None = None,
        caps: Mapping[str, int] | None = None,
        notice: Notice | None = None,
        audit: Audit | None = None,
    ) -> list[Enqueued]:
        """Create jobs. Atomic; repeatable by id; with `under` fenced by that lease (raises `StaleLease`).

        A job with a past or no time becomes ready, one with a future time scheduled, one with unfinished `after` chains
        blocked. Ready jobs of one call keep their order. A taken unique key is answered as the job's `on_conflict` says;
        one that somebody's open transaction holds is not waited for beyond a moment (raises `KeyBusy`). A job is claimable
        once the call has returned. `after` must name jobs that exist and are no later step of a chain (raises `BadJob`).

        `caps` says how many waiting jobs (blocked, scheduled, ready) a queue may hold: a call that creates a job in a queue
        and would leave more there creates nothing (raises `QueueFull`); concurrent calls do not get past it together.
        `notice` may be sent with the commit, where all jobs are ready then.

        `audit` has one line written into the audit log, in the same transaction, where the call creates a job: what is refused,
        and a repetition that finds everything there, write none.
        """
        ...

    # working

    async def register(self, worker: Worker) -> None:
        """Make a worker known, or change what it says of itself. Atomic; repeatable. Must precede its first claim.

        A worker that registers again is no longer offline nor asked to end; one that was disabled stays so.
        """
        ...

    async def beat(self, beat: Beat) -> Signal:
        """Note that a worker is alive, and its counters; clears an offline mark. Repeatable. Raises `UnknownWorker`."""
        ...

    async def heard(self, workers: Collection[UUID]) -> None:
        """Note that workers are alive that gave no beat but claimed or reported; clears offline marks, leaves counters.

        Written for those alone whose last sign of life is `HEARD_EVERY` seconds old, or who are offline. Repeatable; unknown
        ones are ignored.
        """
        ...

    async def retire(self, worker: UUID) -> None:
        """Note that a worker has stopped: it is offline at once. Repeatable; an unknown one is ignored."""
        ...

    async def claim(self, request: ClaimRequest) -> Taken:
        """Take ready jobs and receive leases. Atomic; each job goes to one claimer.

        Order: `core.fairness.order` over lanes, within a lane first in first out with released jobs in front. Jobs of
        unknown tasks, paused queues and missing capabilities stay where they are; in a `fifo` lane nothing passes a job
        of an unknown task. A worker that is disabled is given nothing. Raises `UnknownWorker`. Not repeatable: leases whose
        answer was lost are found by `holding`.
        Jobs that have failed before wait in a lane of their own beside their lane's (`NewJob.retry_entry`).

        No claim takes a job that would have more leases held under a limit than it admits, or that it has not enough tokens
        for: counted and taken in one step, whoever else claims. A limit has room again when a lease ends, however that
        happens. Keys of a queue and priority take turns by weight (`core.fairness.Shares`). The answer says in how many
        seconds it is worth asking again where a limit alone held a job back.
        """
        ...

    async def holding(self, worker: UUID) -> list[Lease]:
        """Return every lease this worker holds: what it does not know of, it should release."""
        ...

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        """Prolong leases by their own length from the store's now. Fenced one by one; repeatable.

        Never waits for another writer. A lapsed lease that nobody has reaped is extended too.
        """
        ...

    async def progress(self, updates: Sequence[Progress]) -> list[Settled]:
        """Write progress and extend the leases. Fenced one by one; repeatable."""
        ...

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[Settled]:
        """Write parts of jobs. Fenced one by one; repeatable. Extends the leases too."""
        ...

    async def parts(self, job_id: UUID) -> list[Part]:
        """Return the parts of a job in the order they were first written."""
        ...

    async def log(self, lines: Sequence[LogLine]) -> list[Settled]:
        """Append lines to the logs of jobs, in order. Fenced one by one. A repetition may write lines twice."""
        ...

    async def logs(self, job_id: UUID, *, limit: int, after: int = 0) -> list[LogView]:
        """Return the log of a job, oldest first, from the line after number `after` on. Kept as long as the job is."""
        ...

    async def mark(self, marks: Sequence[StageMark]) -> list[Settled]:
        """Write stages entered and left into event logs, in order. Fenced one by one. A repetition may write lines twice."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End attempts. Atomic as a batch, fenced one by one; repeatable: archive and attempt records keep the token.

        In the same transaction: the unique key is freed and waiters are unblocked when the chain has ended, the attempt
        is recorded unless it simply succeeded, the event is logged. A token dies with its lease, not at `expires_at`.

        `Event.CONTINUE` creates `then` as the next step of the chain in the same transaction; its first step's key stays
        held, its own is freed. Where a cancel was asked for, the step ends as canceled instead, and nothing follows
        (`CANCELED`, as for everything else that would let the job live on). A key
        of the next step that another job holds refuses the settlement (`KEY_TAKEN`), whatever the job's `on_conflict`
        says of a running one. `BadJob`: the next step cannot be created (its id is taken, or it waits for what is not there);
        nothing of the call happened.

        `Event.SUSPEND` with a `signal` that was emitted already makes the job ready at once.
        """
        ...

    async def settled(self, lease: Lease) -> Event | None:
        """Tell how its holder has settled an attempt, after an unknown outcome; `None`: it has not, or the job is gone.

        Waits for a writer who has it in hand.
        """
        ...

    async def blockers(self, job_id: UUID) -> list[BlockerView]:
        """Return the chains a job was to wait for, as they stand, in the order they were named."""
        ...

    async def signals(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of these signals that were emitted, with the JSON text they carry."""
        ...

    async def begin(self) -> Transaction:
        """Begin a transaction for a handler, on a connection apart from those of the store's own work.

        On an embedded store it stops every other writer, and is undone after 5 seconds: what comes later raises
        `TransactionTooLong`.
        """
        ...

    async def flag_free(self, leases: Sequence[Lease]) -> list[Settled]:
        """Say that the expiry of these leases is not the jobs' fault (the worker shuts down). Fenced; repeatable."""
        ...

    # housekeeping: any process may run it, several at once do no harm

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled jobs ready, in `run_at` order. Atomic; repeatable."""
        ...

    async def reap(self, limit: int, *, tasks: frozenset[str] = frozenset(), up_for: float | None = None) -> list[Reaped]:
        """Settle lapsed leases by the policy stored with each job; those of `tasks` first. Atomic; repeatable.

        One guarded statement decides against a heartbeat or settle that comes at the same moment. Leases longer than
        `up_for` seconds (how long the caller has been undisturbed) are left alone, and so are those longer than the
        database has been up or this connection has been back: an outage must not spend budgets.
        """
        ...

    async def drop_overdue(self, limit: int) -> int:
        """End waiting jobs whose `start_by` has passed, as canceled with the code `EXPIRED`. Atomic; repeatable.

        Returns how many it looked at: below `limit`, none is left. A job that runs at its `start_by` is left alone; when
        it waits again and is claimed, the claim says `overdue`.
        """
        ...

    async def mark_offline(self, after: float) -> list[UUID]:
        """Mark workers offline that gave no sign of life for `after` seconds, from registration where there never was one.

        One conditional update: of several callers, one is told of each worker.
        """
        ...

    async def unblock(self, limit: int) -> int:
        """Settle waiters whose blockers ended unseen; returns how many left `blocked`. Atomic; repeatable.

        Reads only waiters that were created in a caller's transaction and are not known to be seen yet.
        """
        ...

    async def prune(self, retention: Retention, *, limit: int, after: UUID | None = None, by: str = "") -> Pruned:
        """Delete terminal jobs older than their state's retention, with all their records. Atomic; repeatable.

        Looks at no more than `limit` archived jobs from `after` on; go on from the answer's `after`. The steps of a chain
        are kept until its last one is pruned, and the whole of it while a live job waits for it or will be handed its result.
        Old signals, figures and lines about enqueues go with the first look of a walk, whatever `limit` is. With `by` all of
        it is one transaction, and a look that deletes anything writes its line.
        """
        ...

    # steering

    async def cancel(self, job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        """End waiting jobs as canceled; ask running ones to stop. Atomic; repeatable."""
        ...

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> list[Answer]:
        """End live jobs as succeeded from outside. Atomic; a lease it ends is dead at once."""
        ...

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> list[Answer]:
        """End live jobs as failed from outside. Atomic; a lease it ends is dead at once."""
        ...

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Remove jobs and all their records, in whatever state. Atomic; a lease it ends is dead at once.

        Refused for one of several steps of a chain (`CHAINED`), and where a live job waits for it or will be handed its
        result (`NEEDED`).
        """
        ...

    async def delete_chains(self, chain_ids: Sequence[UUID], *, cascade: bool = False, by: str = "") -> ChainsDeleted:
        """Remove chains with all their steps; with `cascade` also the chains they waited for, and so on. All or nothing.

        Atomic; a lease it ends is dead at once. Refused (`NEEDED`) while a live job outside of what is removed waits for one
        of the chains or will be handed its result. Waiters among what is removed go with it.
        """
        ...

    async def emit(self, signal: str, data: str, *, by: str = "") -> Emitted:
        """Emit a signal with JSON text, once: who waits for it becomes ready, who will wait for it does not have to.

        Atomic; repeatable: a signal that was emitted before stands as it is.
        """
        ...

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> list[Answer]:
        """Bring terminal jobs back as ready with their budget restored; attempts go on counting. Atomic."""
        ...

    async def disable(self, worker: UUID, *, by: str = "") -> bool:
        """Give a worker nothing more; it learns of it with its next sign of life. Returns whether it is known."""
        ...

    async def enable(self, worker: UUID, *, by: str = "") -> bool:
        """Let a disabled worker claim again, and one that was asked to end go on. Returns whether it is known."""
        ...

    async def drain(self, worker: UUID, *, by: str = "") -> bool:
        """Have a worker finish what it runs and end, as soon as it beats again. Returns whether it is known."""
        ...

    async def revoke(self, worker: UUID, *, by: str = "") -> list[UUID] | None:
        """Disable a worker and take back every lease it holds, free of cost, in one transaction: its tokens are dead at once.

        Returns the jobs that wait again (`Event.RELEASE`, in front); `None` for an unknown worker. A job that was asked to
        stop ends as canceled instead. Repeatable. What the worker claims before its next sign of life tells it, it holds.
        """
        ...

    # schedules

    async def schedule(self, schedules: Sequence[Schedule]) -> None:
        """Make schedules known. One whose task, cron, timezone and spec are known keeps its place; else it begins anew.

        Atomic; repeatable.
        """
        ...

    async def unschedule(self, names: Sequence[str]) -> None:
        """Forget schedules. Jobs they have enqueued stay. Repeatable."""
        ...

    async def schedules(self) -> list[ScheduleView]:
        """Return the known schedules by name."""
        ...

    async def fire(self, firing: Firing) -> Enqueued | None:
        """Advance a schedule from one slot to the next and enqueue the job of the slot, in one transaction.

        `None`: another caller has fired this slot (or the schedule is gone), nothing changed. Where the slot is passed over
        the answer is `None` too. Repeatable: the slot guards it.
        """
        ...

    async def now(self) -> datetime:
        """Return the store's clock, the one that decides."""
        ...

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> None:
        """Stop claims from a queue: none that begins after this call returned takes a job of it. Repeatable."""
        ...

    async def resume(self, queue: str, *, by: str = "") -> None:
        """Let claims from a queue go on. Repeatable."""
        ...

    # limits: kept in the store, so that whoever claims heeds the same ones

    async def declare(self, rules: Mapping[LimitName, LimitRule]) -> None:
        """Say what programs say about limits; a rule that says nothing takes back what was said. Atomic; repeatable.

        What people have set (`set_limit`) stands above it.
        """
        ...

    async def set_limit(self, name: LimitName, rule: LimitRule | None, *, by: str = "") -> None:
        """Set a limit, whatever programs declare; `None`: what they declare holds again. Atomic; repeatable.

        It holds for every claim that begins after this call returned. What runs already counts, and runs on.
        """
        ...

    async def limits(self, names: Sequence[LimitName] | None = None) -> list[LimitView]:
        """Return every limit that was declared or set, and the keys that jobs run with: up to 1,000, by their names.

        Where there are more, single keys are left out first. With `names` those, each in its place, whoever has spoken of it.
        """
        ...

    # access: every steering operation that is given `by` writes one line into the audit log, in its own transaction. One that
    # is refused as a whole, names an unknown worker or key, or is given nothing to do writes none; a repetition writes its own

    async def add_key(self, key: Key, *, by: str = "") -> None:
        """Keep a key. Atomic; repeatable: a key that is known by this id with this digest stays as it is.

        Raises `BadJob` where the id is taken by another key.
        """
        ...

    async def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        """Return all keys or those of these ids, also what has expired or was revoked, newest first."""
        ...

    async def expire_key(self, key_id: str, within: float, *, by: str = "") -> bool:
        """Have a key end within so many seconds, sooner where it would anyway. Returns whether it is known."""
        ...

    async def rotate_key(self, key_id: str, new: Key, within: float, *, by: str = "") -> bool:
        """Keep a key in the place of another, which ends within so many seconds, sooner where it would anyway. Atomic.

        Returns whether there is such a key and it lets somebody in: where it has expired or was revoked, nothing is changed.
        Repeatable: one that has taken over already stays as it is. Raises `BadJob` where the new id is taken by another key.
        """
        ...

    async def revoke_key(self, key_id: str, *, by: str = "") -> bool:
        """End a key at once. Repeatable: the first revocation stands. Returns whether it is known."""
        ...

    async def use_key(self, key_id: str) -> None:
        """Note that a key was used; written once a minute at most. An unknown one is ignored."""
        ...

    async def note(self, action: Action, targets: Sequence[str] = (), *, by: str, detail: str = "") -> None:
        """Write a line into the audit log for what is no operation of the store. A repetition writes another."""
        ...

    async def audits(
        self, *, limit: int, before: int | None = None, actor: str | None = None, action: Action | None = None
    ) -> list[AuditView]:
        """Return lines of the audit log, newest first, below number `before`. Nothing changes one.

        Nothing removes one either, but for those about enqueues, which `Retention.enqueues` lets go.
        """
        ...

    # figures

    async def measure(self, figures: Sequence[Figure]) -> None:
        """Add figures to those of this minute, of this hour and of all time. Atomic; not repeatable: they would count twice."""
        ...

    async def figures(self, grain: Grain, *, since: datetime | None = None, whole: bool = False) -> list[FigureView]:
        """Return the figures of this grain, oldest first, from the one on that `since` falls into.

        With `whole` those of all tasks and queues together, with empty names, in place of those of each.

        Minutes are kept for a day and hours for ninety, pruned with the first look of a walk; those of all time for ever.
        """
        ...

    async def failures(self, *, since: datetime, limit: int, after: FailureView | None = None) -> list[FailureView]:
        """Return attempts that ended badly (any recorded end with an error) since then, newest first. By an index.

        With `after`, the last one of a page, the list goes on behind it.
        """
        ...

    # looking

    async def get(self, job_ids: Sequence[UUID]) -> list[JobView | None]:
        """Return jobs, all as of one moment."""
        ...

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return jobs newest first, as of one moment, from the cursor on. Searches a bounded number and says so."""
        ...

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView | None]:
        """Return chains by their first jobs, all as of one moment. A job that never continued is a chain of one."""
        ...

    async def find_chains(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> ChainPage:
        """Return chains newest first, as `find` returns jobs: those started as a chain, and those that have continued."""
        ...

    async def running(self, *, limit: int, queues: frozenset[str] | None = None) -> RunningView:
        """Return the running jobs of these queues (`None`: of all) that a person should see first.

        Those whose lease has lapsed come first, then the oldest claim. Reads every lease, and of jobs those it returns.
        """
        ...

    async def attempts(self, job_id: UUID, *, last: int | None = None) -> list[AttemptView]:
        """Return every claim of a job, oldest first; with `last` no more than so many, the latest, and read no more."""
        ...

    async def events(self, job_id: UUID, *, last: int | None = None) -> list[EventView]:
        """Return the event log of a job, oldest first. Replayed through `TRANSITIONS` it gives the job's state.

        With `last` no more than so many lines, the latest, and read no more.
        """
        ...

    async def queues(self) -> list[QueueView]:
        """Return the known queues by name."""
        ...

    async def workers(
        self, *, limit: int = 1000, ids: Collection[UUID] | None = None, after: WorkerPlace | None = None
    ) -> list[WorkerView]:
        """Return the registered workers: the living, newest first; then those that are offline, who went last first.

        With `ids` those of them alone; with `after` those that are listed behind this place, whatever is there now.
        """
        ...

    async def stats(self) -> Stats:
        """Return exact counts and oldest waits. Cheap whatever the tables hold."""
        ...

    async def storage(self) -> Storage:
        """Return how much room there is. Asks the store itself: raises `SchemaError` where its schema is another by now."""
        ...

    # testing

    async def rewind(self, seconds: float) -> None:
        """Make everything stored `seconds` older, as if that time had passed. For tests, instead of sleeping."""
        ...
