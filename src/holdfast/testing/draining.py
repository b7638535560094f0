"""Running the jobs of an app inline: claimed, run and settled through the store as a worker does, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, overload

from holdfast.core.abort import AbortReason
from holdfast.core.outcome import Error, Failed, Released, Rescheduled
from holdfast.core.states import State
from holdfast.errors import CENTURY, BadSetting, HoldfastError, JobFailed
from holdfast.runtime.attempt import Attempt, Commit
from holdfast.runtime.attempting import Ended, attempted
from holdfast.runtime.base import Base
from holdfast.runtime.channel import AttemptChannel
from holdfast.runtime.counters import MemoryCounters
from holdfast.runtime.entry import Entry
from holdfast.runtime.executor.command import CommandExecutor
from holdfast.runtime.executor.thread import ThreadExecutor
from holdfast.runtime.housekeeping import Reaper
from holdfast.runtime.logs import kept_logs
from holdfast.runtime.outage import Outage
from holdfast.runtime.recalling import recalled
from holdfast.runtime.reporter import Reporter
from holdfast.runtime.scheduler import Scheduler
from holdfast.runtime.settler import Settler
from holdfast.runtime.weights import Turns
from holdfast.store.port import ClaimRequest, JobFilter, Worker
from holdfast.tasks.options import Executor as Kind
from holdfast.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from holdfast.app import Holdfast
    from holdfast.core.lease import Claimed, Lease
    from holdfast.core.outcome import Outcome
    from holdfast.runtime.executor.port import Executor
    from holdfast.runtime.recalling import Recalled
    from holdfast.runtime.world import World
    from holdfast.store.port import JobView, Store
    from holdfast.testing.crashing import Crash
    from holdfast.testing.jobs import Declared

BATCH: Final = 1000
MOST_JOBS: Final = 10_000
RETRY_SHARE: Final = 0.2
SHORTEST_STEP: Final = 0.001
"""Seconds the clock moves at least, so that rounding cannot keep it from reaching what is due."""
_ENDS_THE_TEST: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Raised again as they are, these would be taken for what they are not."""


class DrainLimit(HoldfastError):
    """`drain` ran as many attempts as it may and there is still work: jobs that enqueue one another, or retry without end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A job that `drain` ran, as it stands now."""

    id: UUID
    task: str
    state: State
    attempts: int
    """How often this call ran it."""
    result: Any = None
    """What it returned, decoded; `None` unless it succeeded, and of a step whose chain went on."""
    error: Error | None = None
    """Why it failed or was canceled: code, message and traceback as the store keeps them."""
    exception: BaseException | None = None
    """What its last attempt raised, as it was raised."""


class Drained(Sequence[Ran]):
    """The jobs that `drain` ran, in the order in which each was first run."""

    def __init__(self, jobs: Sequence[Ran]) -> None:
        self._jobs = tuple(jobs)

    @overload
    def __getitem__(self, index: int) -> Ran: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Ran]: ...

    def __getitem__(self, index: int | slice) -> Ran | Sequence[Ran]:
        return self._jobs[index]

    def __len__(self) -> int:
        return len(self._jobs)

    def of(self, task: Declared) -> list[Ran]:
        """Return those of one task."""
        return [job for job in self._jobs if job.task == task.name]

    @property
    def succeeded(self) -> list[Ran]:
        """Those that succeeded."""
        return self._in(State.SUCCEEDED)

    @property
    def failed(self) -> list[Ran]:
        """Those that failed for good."""
        return self._in(State.FAILED)

    @property
    def canceled(self) -> list[Ran]:
        """Those that were canceled."""
        return self._in(State.CANCELED)

    @property
    def waiting(self) -> list[Ran]:
        """Those that will run again: a retry or a reschedule that is not due yet."""
        return self._in(State.SCHEDULED, State.READY, State.BLOCKED)

    def _in(self, *states: State) -> list[Ran]:
        return [job for job in self._jobs if job.state in states]

    def __repr__(self) -> str:
        lines = [f"  {job.task} {job.state}" + (f" {job.error.code}" if job.error else "") for job in self._jobs]
        return "\n".join([f"<Drained {len(self._jobs)} job(s)>", *lines])


async def drain(
    app: Holdfast,
    *,
    advance: bool = False,
    until: datetime | timedelta | None = None,
    max_jobs: int = MOST_JOBS,
    queues: Sequence[str] | None = None,
    raises: bool = False,
    crash: Crash | None = None,
) -> Drained:
    """Run every ready job here and now, also those that jobs enqueue, until none is left; returns what ran.

    One after another, in the order of claims, through the store and with the app's middlewares and lifespans: the rules are
    a worker's. Async functions run on this event loop, all others in a thread, also those with `executor="process"`; commands
    are run. `queues` limits it to some queues.

    With a `FakeClock`, `advance=True` moves the clock to the next scheduled job or retry until nothing is left; `until` (a
    time, or a `timedelta` from now) bounds how far, leaves the clock there, and alone has periodic tasks fire on the way.
    `raises=True` raises what the first failing attempt raised, once it is settled. `DrainLimit` after `max_jobs` attempts.

    With a `crash` (from `crashes`) the worker dies where that says; then the clock moves on until its leases have lapsed, and
    another one does what is left. What is returned tells of both.
    """
    drainer = _Drainer(app, queues=queues, max_jobs=max_jobs, raises=raises)
    clock = _clock_of(app) if advance or until is not None else None
    if crash is None:
        return await drainer.drained(clock, until)
    if (survived := await crash.survived(drainer.drained(clock, until, crash))) is not None:
        return survived[0]
    return await drainer.drained(clock, until, lapsing=_clock_of(app))


def drain_sync(
    app: Holdfast,
    *,
    advance: bool = False,
    until: datetime | timedelta | None = None,
    max_jobs: int = MOST_JOBS,
    queues: Sequence[str] | None = None,
    raises: bool = False,
    crash: Crash | None = None,
) -> Drained:
    """Do as `drain`, from blocking code. Async functions run on the event loop of the app's `_sync` methods."""
    return app.blocking(
        drain(app, advance=advance, until=until, max_jobs=max_jobs, queues=queues, raises=raises, crash=crash),
    )


def _clock_of(app: Holdfast) -> FakeClock:
    clock = app.world().environment
    if not isinstance(clock, FakeClock):
        raise BadSetting(
            "drain can only move a FakeClock, and this app goes by the machine's clock. "
            "Use testing.override(app), or Holdfast(url, environment=FakeClock())"
        )
    return clock


class _Drainer:
    """One call of `drain`: a worker with one slot, no loops and no patience."""

    def __init__(self, app: Holdfast, *, queues: Sequence[str] | None, max_jobs: int, raises: bool) -> None:
        if isinstance(queues, str):
            raise BadSetting(f"queues takes a list of names: queues=[{queues!r}]")
        self._world: World = app.world()
        self._queues = None if queues is None else frozenset(queues)
        self._capabilities = frozenset(name for task in self._world.tasks.values() for name in task.options_declared.requires)
        """All that the tasks require: a test shows what they do, and not where."""
        self._max_jobs = max_jobs
        self._raises = raises
        self._environment = self._world.environment
        self._turns = Turns(self._world.weights, RETRY_SHARE, self._environment.lot)
        self._runs: dict[UUID, list[Ended]] = {}
        self._count = 0
        self._limit: datetime | None = None

    async def drained(
        self,
        clock: FakeClock | None,
        until: datetime | timedelta | None,
        crash: Crash | None = None,
        *,
        lapsing: FakeClock | None = None,
    ) -> Drained:
        """Do it all, as one worker; `lapsing` has the leases of one that died lapse first."""
        async with AsyncExitStack() as stack:
            await self.open(stack, crash)
            if lapsing is not None:
                await self._outlast(lapsing)
            await self.run(clock, until)
            return await self.summary()

    async def open(self, stack: AsyncExitStack, crash: Crash | None) -> None:
        """Get ready as a worker does; what is opened is left with the stack."""
        made = self._world.make_store()
        self._store: Store = made if crash is None else crash.deadly(made)
        stack.push_async_callback(self._store.close)
        self._worker = Worker(id=self._environment.job_id(), name="drain")
        await self._store.open()
        notifier = self._world.make_notifier()
        stack.push_async_callback(notifier.close)
        stack.enter_context(kept_logs())
        for lifespan in self._world.lifespans:
            await stack.enter_async_context(lifespan())
        threads, commands = ThreadExecutor(1), CommandExecutor(1)
        for executor in (threads, commands):
            await executor.open()
            stack.push_async_callback(executor.close)
        kinds: Mapping[Kind, Executor] = {Kind.THREAD: threads, Kind.PROCESS: threads, Kind.COMMAND: commands}
        self._entries = {
            name: Entry(task, kinds.get(task.executor), self._world.middlewares) for name, task in self._world.tasks.items()
        }
        await self._store.register(self._worker)
        stack.push_async_callback(self._store.retire, self._worker.id)
        outage = Outage(self._environment)
        callers = self._world.make_caller if crash is None else crash.deadly_callers(self._world.make_caller)
        self._base = Base(self._store, notifier, self._environment, outage, MemoryCounters(), callers)
        self._reaper = Reaper(self._base, frozenset(self._entries))
        self._scheduler = Scheduler(self._base, list(self._world.tasks.values()))
        self._periodic = {name for name, task in self._world.tasks.items() if task.options_declared.cron is not None}

    async def run(self, clock: FakeClock | None, until: datetime | timedelta | None) -> None:
        """Run what is ready, and with a clock what will be."""
        if self._limit is None:
            self._limit = await self._store.now() + until if isinstance(until, timedelta) else until
        limit = self._limit
        while True:
            next_due = await self._keep_house(periodic=limit is not None)
            before = self._count
            while (attempt := await self._claim()) is not None:
                await self._run(attempt)
            if self._count > before:
                continue  # what ran may have enqueued something, or taken its time
            if clock is None or not await self._move_on(clock, next_due, limit):
                return

    # what is due

    async def _keep_house(self, *, periodic: bool) -> float | None:
        """Make ready what is due; returns the seconds until the next job is (or the next slot of a periodic task).

        Periodic tasks fire only where a time is given until which: they have no end, and a test of something else should not
        change when the app gets another one.
        """
        if periodic:
            await self._scheduler.tick()
        while await self._reaper.tick() is not None:
            pass
        while await self._store.drop_overdue(BATCH) >= BATCH:
            pass
        while await self._store.unblock(BATCH) >= BATCH:
            pass
        while (promoted := await self._store.promote(BATCH)).count >= BATCH:
            pass
        # a job that waits for a signal alone stands a century ahead: no time that passes wakes it
        waits = [] if promoted.next_due is None or promoted.next_due > CENTURY / 2 else [promoted.next_due]
        if periodic:
            waits += [view.due_in for view in await self._store.schedules() if view.schedule.task in self._periodic]
        return min(waits, default=None)

    async def _move_on(self, clock: FakeClock, next_due: float | None, limit: datetime | None) -> bool:
        """Let time pass until something is due, or the limit is reached; returns whether there may be something to run."""
        if limit is not None:
            left = (limit - await self._store.now()).total_seconds()
            if next_due is None or next_due > left:
                if left > 0:
                    await self._pass(clock, left)
                return False
        if next_due is None:
            return False
        if next_due > 0:
            await self._pass(clock, max(next_due, SHORTEST_STEP))
        return True

    async def _outlast(self, clock: FakeClock) -> None:
        """Let time pass until every lease has lapsed: nobody extends those of the dead."""
        page = await self._store.find(JobFilter(states=frozenset({State.RUNNING})), limit=BATCH)
        if ends := [view.expires_at for view in page.jobs if view.expires_at is not None]:
            left = (max(ends) - await self._store.now()).total_seconds()
            await self._pass(clock, max(left, 0.0) + SHORTEST_STEP)

    async def _pass(self, clock: FakeClock, seconds: float) -> None:
        before = await self._store.now()
        clock.advance(seconds)
        if (await self._store.now() - before).total_seconds() < seconds / 2:
            # a database goes by its own clock: there everything stored becomes older instead
            await self._store.rewind(seconds)

    # one attempt

    async def _claim(self) -> Attempt | None:
        first, retries_first = self._turns.next()
        request = ClaimRequest(
            worker=self._worker.id,
            tasks=frozenset(self._entries),
            limit=1,
            queues=self._queues,
            capabilities=self._capabilities,
            look=True,
            first=first,
            retries_first=retries_first,
        )
        asked_at = self._environment.monotonic()
        taken = await self._store.claim(request)
        self._turns.weigh(getattr(taken, "weights", None) or {})
        for claimed in taken:
            return Attempt.of(claimed, self._entries[claimed.task], asked_at)
        return None

    async def _run(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        if self._count >= self._max_jobs:
            await self._settle(attempt, Released("drain reached its limit"))
            raise DrainLimit(
                f"drain ran {self._count:,} attempts and is not done: next would be {claimed.task}, attempt {claimed.attempt}. "
                "Jobs that enqueue one another or retry for ever never end; raise max_jobs= if these do"
            )
        self._count += 1
        ended = await self._attempted(attempt)
        self._runs.setdefault(claimed.job_id, []).append(ended)
        if ended.outcome is not None and attempt.commit is Commit.NONE:
            await self._settle(attempt, ended.outcome)
        if self._raises:
            _raise_failure(claimed, ended)

    async def _attempted(self, attempt: Attempt) -> Ended:
        """Run the handler in an asyncio task of its own, so that its time-out cannot hit anybody else."""
        reporter = Reporter(self._base, _lost)
        async with asyncio.TaskGroup() as group:
            group.create_task(reporter.run(), name="holdfast-reporter")
            runner = group.create_task(self._handled(attempt, reporter), name="holdfast-drain")
        if runner.cancelled():
            error = Error("CancelledError", "the handler cancelled its own asyncio task")
            return Ended(Failed(error), asyncio.CancelledError())
        return runner.result()

    async def _handled(self, attempt: Attempt, reporter: Reporter) -> Ended:
        try:
            with self._timed(attempt):
                channel = AttemptChannel(attempt, reporter, self._base)
                return await attempted(attempt, channel, self._environment, self._recall)
        finally:
            reporter.stop()  # it ends when everything is written

    async def _recall(self, attempt: Attempt) -> Recalled:
        return await recalled(self._store, attempt.claimed)

    @contextmanager
    def _timed(self, attempt: Attempt) -> Iterator[None]:
        """Ask the attempt to stop when its time-out is over, by the machine's clock or by one that is moved by hand."""
        loop, runner = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            if attempt.finished or attempt.job is None or runner is None:
                return
            attempt.entry.stop(attempt.job)
            if attempt.entry.cancellable:
                runner.cancel()

        def strike() -> None:
            if attempt.abort.set(AbortReason.TIMEOUT):
                # in a later turn of the event loop: whoever moves the clock may be the handler itself
                loop.call_soon_threadsafe(stop)

        def moved() -> None:
            if attempt.deadline is not None and self._environment.monotonic() >= attempt.deadline:
                strike()

        timeout = attempt.claimed.policy.timeout
        with ExitStack() as stack:
            if timeout is not None:
                stack.callback(loop.call_later(timeout, strike).cancel)
            if isinstance(self._environment, FakeClock):
                stack.enter_context(self._environment.watched(moved))
            try:
                yield
            finally:
                attempt.finished = True  # whatever strikes from here on comes too late

    async def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        settler = Settler(self._base, _confirmed)
        settler.submit(attempt, outcome)
        settler.finish()
        await settler.run()

    # what ran

    async def summary(self) -> Drained:
        """Return what ran, as it stands now."""
        views = await self._store.get(list(self._runs))
        return Drained([self._ran(view, self._runs[view.id]) for view in views if view is not None])

    def _ran(self, view: JobView, runs: Sequence[Ended]) -> Ran:
        result = None
        if view.state is State.SUCCEEDED and view.continued_by is None:
            result = self._world.tasks[view.task].results.decode(view.result or "null")
        return Ran(view.id, view.task, view.state, len(runs), result, view.error, runs[-1].error)


def _raise_failure(claimed: Claimed, ended: Ended) -> None:
    match ended.outcome:
        case Failed(error) | Rescheduled(error=Error() as error):
            if ended.error is None or isinstance(ended.error, _ENDS_THE_TEST):
                raise JobFailed(claimed.job_id, error.code, error.message, error.traceback) from ended.error
            raise ended.error
        case _:
            return


def _lost(lease: Lease) -> None:
    """Do nothing: settling will tell."""


def _confirmed(attempts: Sequence[Attempt]) -> None:
    """Do nothing: nothing is held but the one that was settled."""
