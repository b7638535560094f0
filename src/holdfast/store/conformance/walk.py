"""Random walks: the store under test and the memory store do the same things and must give the same answers.

Everything that decides by time is kept far from its moment: rewinds are whole hundreds of seconds, all other durations lie
forty or more away from any of them, so that a slow machine changes nothing. Ids are numbered, so that a walk repeats exactly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID, uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.core.job import BlockerPolicy, NewJob, OnConflict, Policy, Unique
from holdfast.core.lease import Claimed, Extended, Lease
from holdfast.core.outcome import Continued, Failed, Outcome, Released, Rescheduled, Stopped, Succeeded, Suspended
from holdfast.core.retry import Retry
from holdfast.core.states import STAGE_EVENTS, State
from holdfast.errors import HoldfastError
from holdfast.store.conformance.world import BOOM, Subject, counts, settlement_of, write_of
from holdfast.store.memory import MemoryStore
from holdfast.store.port import (
    AttemptView,
    Beat,
    Checkpoint,
    ClaimRequest,
    EventView,
    Firing,
    JobFilter,
    JobView,
    LogLine,
    Part,
    PartState,
    Progress,
    Promoted,
    Reaped,
    Retention,
    Schedule,
    Settled,
    Settlement,
    StageMark,
    Store,
    Worker,
    WorkerView,
)
from holdfast.store.replay import replay
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.store.conformance.harness import Harness

TASKS: Final = ("x", "y")
QUEUES: Final = ("a", "b", "ledger")
FIFO: Final = "ledger"
ALL: Final = 1_000
RETENTION: Final = Retention(succeeded=5030.0, failed=150.0, canceled=5030.0, signals=5030.0)
RETRIES: Final = (
    Retry(max_attempts=3, initial=0.0, jitter=0.0),
    Retry(max_attempts=3, initial=550.0, factor=1.0, jitter=0.0),
    Retry(max_attempts=1),
)
OUTCOMES: Final[tuple[Outcome, ...]] = (
    Succeeded('{"n": 1}'),
    Failed(BOOM),
    Released("not now"),
    Released("shutdown", aborted=True),
    Rescheduled(),
    Rescheduled(after=1050.0),
    Stopped("enough"),
    Failed(BOOM, fatal=True),
)
TOUCHES: Final = ("extend", "progress", "checkpoint", "log", "mark", "flag_free", "enqueue a child")
HOUSEKEEPING: Final = ("promote", "promote", "drop_overdue", "mark_offline", "prune", "unblock")
SILENCE: Final = 150.0
SIGNALS: Final = ("s", "t")
WRITTEN: Final = frozenset({Settled.APPLIED, Settled.LATE, Settled.FREED})
CAPS: Final = {"a": 3, FIFO: 2}
STAGES: Final = tuple(sorted(STAGE_EVENTS))
WORKER_LIFE: Final = ("register", "beat", "heard", "retire", "disable", "enable", "drain", "revoke")
SCHEDULING: Final = ("schedule", "schedule", "change", "unschedule", "fire", "fire", "fire", "pass over", "fire what was fired")
SLOT: Final = datetime(2026, 1, 1, tzinfo=UTC)
STEERING: Final = ("cancel", "cancel", "complete", "fail", "delete", "reopen", "reopen")
WORKERS: Final = {"one": UUID(int=1), "two": UUID(int=2)}

picks = st.integers(0, 40)
"""Which of the jobs or leases so far; counted from the newest."""


class Walks(Subject):
    """Lockstep with the memory store."""

    walk_examples: ClassVar[int] = 100
    walk_steps: ClassVar[int] = 30

    def test_random_walks_agree_with_the_memory_store(self, harness: Harness) -> None:
        machine = type("Walk", (Walk,), {"harness": harness})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=self.walk_examples,
                stateful_step_count=self.walk_steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@dataclass
class Side:
    """One of the two stores, and the leases it handed out, in the same order on both sides."""

    name: str
    store: Store
    leases: list[Lease] = field(default_factory=list)


@dataclass
class Holder:
    """Somebody who once claimed a job: what it knows of it, the same on both sides."""

    job_id: UUID
    policy: Policy
    failures: int


class Walk(RuleBasedStateMachine):
    """Drives both stores. Rules act; each compares the answers, and after each the jobs are compared."""

    harness: ClassVar[Harness]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.jobs: list[NewJob] = []
        self.holders: list[Holder] = []
        self.tied: set[UUID] = set()
        """Jobs that became ready together by one operation that promises no order among them.

        For ever: released later, they return to places whose order was never promised.
        """
        self.broken = False
        self.sides = self.runner.run(self._open())

    async def _open(self) -> tuple[Side, Side]:
        await self.harness.clean()
        model = MemoryStore(SystemEnvironment())
        await model.open()
        sides = (Side("the store", await self.harness.open()), Side("the memory store", model))
        for side in sides:
            for name, worker in WORKERS.items():
                await side.store.register(Worker(id=worker, name=name))
        return sides

    def teardown(self) -> None:
        """Compare all records once more, unless the walk has failed already."""
        try:
            if not self.broken:
                self.both(_records, lambda records: records)
        finally:
            for side in self.sides:
                self.runner.run(side.store.close())
            self.runner.close()

    def both(self, act: Callable[[Side], Awaitable[Any]], shown: Callable[[Any], object]) -> list[Any]:
        """Do the same on both sides, compare what is shown of the answers, and return them."""
        try:
            answers = [self.runner.run(_answer(act, side)) for side in self.sides]
            seen = [answer if isinstance(answer, str) else shown(answer) for answer in answers]
            assert seen[0] == seen[1], f"the store answers\n  {seen[0]}\nand the memory store\n  {seen[1]}"
        except BaseException:
            self.broken = True
            raise
        return answers

    def pick(self, number: int) -> NewJob:
        """Return one of the jobs so far."""
        return self.jobs[-1 - number % len(self.jobs)]

    def picked(self, numbers: Sequence[int]) -> list[UUID]:
        """Return the ids of some jobs, each once."""
        return list(dict.fromkeys(self.pick(number).id for number in numbers))

    # producing

    @rule(
        count=st.integers(1, 3),
        task=st.sampled_from(TASKS),
        queue=st.sampled_from(QUEUES),
        delay=st.sampled_from((0.0, 0.0, 3650.0)),
        retry=st.sampled_from(RETRIES),
        key=st.sampled_from((None, None, "k", "l")),
        window=st.sampled_from((None, None, 1850.0)),
        on_conflict=st.sampled_from(OnConflict),
        after=st.lists(picks, max_size=2),
        policy=st.sampled_from(BlockerPolicy),
        expires_in=st.sampled_from((None, None, 2450.0)),
        capped=st.booleans(),
        chained=st.booleans(),
    )
    def enqueue(
        self,
        *,
        count: int,
        task: str,
        queue: str,
        delay: float,
        retry: Retry,
        key: str | None,
        window: float | None,
        on_conflict: OnConflict,
        after: list[int],
        policy: BlockerPolicy,
        expires_in: float | None,
        capped: bool,
        chained: bool,
    ) -> None:
        """Enqueue jobs of one kind in one call; they may wait for earlier ones, begin chains, and share a key."""
        blockers = tuple(self.picked(after)) if self.jobs else ()
        if key is not None:  # whether a taken key or a blocker that cannot be waited for is noticed first is left open
            there = self.runner.run(self.sides[1].store.chains(blockers))
            blockers = tuple(view.id for view in there if view is not None)
        unique = None if key is None else Unique(key=key, scope="walk", window=window, on_conflict=on_conflict)
        jobs = [
            NewJob(
                id=_id(len(self.jobs) + number),
                chain_id=_id(len(self.jobs) + number) if chained else None,
                task=task,
                queue=queue,
                fifo=queue == FIFO,
                delay=delay,
                policy=Policy(retry=retry, on_blocker_failure=policy),
                unique=unique,
                after=blockers,
                args=f'{{"n": {number}}}',
                expires_in=expires_in,
            )
            for number in range(1, count + 1)
        ]
        self.jobs += jobs
        caps = CAPS if capped else None
        self._together(
            lambda: self.both(lambda side: side.store.enqueue(jobs, caps=caps), list), ordered={job.id for job in jobs}
        )

    # working

    @rule(worker=st.sampled_from(sorted(WORKERS)), queues=st.sampled_from((None, None, *QUEUES)))
    def claim(self, worker: str, queues: str | None) -> None:
        """Claim all there is, or all of one queue."""
        self._claim(worker, TASKS, queues, ALL)

    @rule(
        worker=st.sampled_from(sorted(WORKERS)),
        task=st.sampled_from(TASKS),
        queue=st.sampled_from(QUEUES),
        limit=st.integers(1, 3),
    )
    def claim_few(self, worker: str, task: str, queue: str, limit: int) -> None:
        """Claim the first of one lane; only where the order within it is promised, and no second lane has its retries."""
        ready = self.runner.run(self.sides[1].store.find(JobFilter(states=frozenset({State.READY}), queue=queue), limit=ALL))
        retries = {view.failures > 0 for view in ready.jobs if view.task == task}
        if len(retries) > 1 or any(job.queue == queue and job.id in self.tied for job in self.jobs):
            limit = ALL
        self._claim(worker, (task,) if queue != FIFO or limit != ALL else TASKS, queue, limit)

    def _claim(self, worker: str, tasks: Sequence[str], queue: str | None, limit: int) -> None:
        request = ClaimRequest(
            worker=WORKERS[worker],
            tasks=frozenset(tasks),
            limit=limit,
            queues=None if queue is None else frozenset({queue}),
            look=True,
        )
        answers = self.both(lambda side: side.store.claim(request), self._shown_claims)
        for side, claims in zip(self.sides, answers, strict=True):
            side.leases += [claim.lease for claim in sorted(claims, key=_by_job)]
        self.holders += [Holder(claim.job_id, claim.policy, claim.failures) for claim in sorted(answers[0], key=_by_job)]

    def _shown_claims(self, claims: list[Claimed]) -> object:
        """Show each claim, and the order within each lane as far as it is promised."""
        lanes: dict[str, list[UUID]] = {}
        for claim in claims:
            if claim.job_id not in self.tied:
                lane = FIFO if claim.queue == FIFO else f"{claim.queue} {claim.task} {claim.failures > 0}"
                lanes.setdefault(lane, []).append(claim.job_id)
        facts = {
            claim.job_id: (
                *(claim.attempt, claim.failures, claim.args, claim.queue, claim.task, claim.overdue),
                *(claim.chain_id, claim.blockers),
            )
            for claim in claims
        }
        return facts, lanes

    def _lease(self, which: int) -> int:
        return -1 - which % len(self.holders)

    @precondition(lambda self: self.holders)
    @rule(which=st.lists(st.tuples(picks, st.sampled_from(OUTCOMES)), min_size=1, max_size=3))
    def settle(self, which: list[tuple[int, Outcome]]) -> None:
        """Settle a batch under leases that may be current, dead or settled."""
        batch = {self._lease(number): outcome for number, outcome in which}
        writes = {
            index: write_of(outcome, self.holders[index].policy.retry, self.holders[index].failures)
            for index, outcome in batch.items()
        }
        self._together(
            lambda: self.both(
                lambda side: side.store.settle([Settlement(side.leases[i], writes[i]) for i in batch]), _shown_settled
            )
        )

    @precondition(lambda self: self.holders)
    @rule(
        which=picks,
        task=st.sampled_from(TASKS),
        queue=st.sampled_from(QUEUES),
        delay=st.sampled_from((0.0, 0.0, 3650.0)),
        key=st.sampled_from((None, None, "k", "l")),
        on_conflict=st.sampled_from(OnConflict),
        after=st.lists(picks, max_size=2),
        policy=st.sampled_from(BlockerPolicy),
    )
    def go_on(
        self,
        *,
        which: int,
        task: str,
        queue: str,
        delay: float,
        key: str | None,
        on_conflict: OnConflict,
        after: list[int],
        policy: BlockerPolicy,
    ) -> None:
        """Let a step continue, under a lease that may be current, dead or settled; the next one may not be possible."""
        index = self._lease(which)
        then = NewJob(
            id=_id(len(self.jobs) + 1),
            task=task,
            queue=queue,
            fifo=queue == FIFO,
            delay=delay,
            policy=Policy(retry=RETRIES[0], on_blocker_failure=policy),
            unique=None if key is None else Unique(key=key, scope="walk", on_conflict=on_conflict),
            after=tuple(self.picked(after)) if key is None else (),
        )
        self.jobs.append(then)
        self._settle_one(index, Continued(then), ordered={then.id})

    @precondition(lambda self: self.holders)
    @rule(which=picks, signal=st.sampled_from((None, *SIGNALS)), sleeps=st.booleans())
    def suspend(self, which: int, signal: str | None, *, sleeps: bool) -> None:
        """Let a job wait without a slot."""
        until = datetime.now(UTC) + timedelta(seconds=1050) if sleeps or signal is None else None
        self._settle_one(self._lease(which), Suspended(until, signal))

    @rule(signal=st.sampled_from(SIGNALS), number=st.integers(0, 9))
    def emit(self, signal: str, number: int) -> None:
        """Emit a signal, perhaps again."""
        self._together(
            lambda: self.both(
                lambda side: side.store.emit(signal, f"{number}", by="client"),
                lambda emitted: (emitted.first, set(emitted.jobs), emitted.queues),
            )
        )

    def _settle_one(self, index: int, outcome: Outcome, *, ordered: set[UUID] | None = None) -> None:
        holder = self.holders[index]
        self._together(
            lambda: self.both(
                lambda side: side.store.settle(
                    [settlement_of(side.leases[index], outcome, holder.policy.retry, holder.failures)]
                ),
                _shown_settled,
            ),
            ordered=ordered,
        )

    @precondition(lambda self: self.holders)
    @rule(which=picks, percent=st.integers(0, 100), operation=st.sampled_from(TOUCHES))
    def touch(self, which: int, percent: int, operation: str) -> None:
        """Let a holder write, current or not, without ending its attempt."""
        index = self._lease(which)
        match operation:
            case "extend":
                self.both(lambda side: side.store.extend([side.leases[index]]), _shown_extensions)
            case "progress":
                self.both(lambda side: side.store.progress([Progress(side.leases[index], percent)]), _shown_writes)
            case "checkpoint":
                part = Part(f"part {percent % 2}", list(PartState)[percent % 5])
                self.both(lambda side: side.store.checkpoint([Checkpoint(side.leases[index], part)]), _shown_writes)
            case "log":
                self.both(lambda side: side.store.log([LogLine(lease=side.leases[index], message=f"{percent}")]), _shown_writes)
            case "mark":
                name, event = f"stage {percent}", STAGES[percent % 3]
                self.both(
                    lambda side: side.store.mark([StageMark(lease=side.leases[index], name=name, event=event)]), _shown_writes
                )
            case "flag_free":
                self.both(lambda side: side.store.flag_free([side.leases[index]]), _shown_writes)
            case _:
                child = NewJob(id=_id(len(self.jobs) + 1), task="x", queue="a")
                self.jobs.append(child)
                self.both(lambda side: side.store.enqueue([child], under=side.leases[index]), list)

    @precondition(lambda self: self.jobs)
    @rule(which=picks, again=st.booleans())
    def repeat_or_guess(self, which: int, *, again: bool) -> None:
        """Repeat an enqueue, or try to settle and extend with a made-up token."""
        job = self.pick(which)
        if again:
            self.both(lambda side: side.store.enqueue([job]), list)
            return
        lease = Lease(job.id, uuid4())
        self.both(lambda side: side.store.settle([Settlement(lease, write_of(Succeeded()))]), list)
        self.both(lambda side: side.store.extend([lease]), _shown_extensions)

    # housekeeping

    @rule(seconds=st.sampled_from((100.0, 100.0, 7200.0)))
    def reap(self, seconds: float) -> None:
        """Let time pass, and reap all that has lapsed."""
        self.both(lambda side: side.store.rewind(seconds), lambda nothing: nothing)
        self._together(lambda: self.both(lambda side: side.store.reap(ALL), _shown_reaped))

    @rule(seconds=st.sampled_from((0.0, 100.0, 7200.0)), operation=st.sampled_from(HOUSEKEEPING))
    def keep_house(self, seconds: float, operation: str) -> None:
        """Let time pass without reaping, and promote, end what is overdue, prune, or look for stranded waiters."""
        if seconds:
            self.both(lambda side: side.store.rewind(seconds), lambda nothing: nothing)
        match operation:
            case "promote":
                self._together(lambda: self.both(lambda side: side.store.promote(ALL), _shown_promotion))
            case "drop_overdue":
                self._together(lambda: self.both(lambda side: side.store.drop_overdue(ALL), int))
            case "mark_offline":
                self.both(lambda side: side.store.mark_offline(SILENCE), list)
            case "prune":
                self.both(lambda side: side.store.prune(RETENTION, limit=ALL), lambda pruned: (pruned.count, pruned.after))
            case _:
                self.both(lambda side: side.store.unblock(ALL), int)

    # steering

    @precondition(lambda self: self.jobs)
    @rule(which=st.lists(picks, min_size=1, max_size=3), operation=st.sampled_from(STEERING))
    def steer(self, which: list[int], operation: str) -> None:
        """Cancel, end, delete or reopen jobs in whatever state."""
        jobs = [self.pick(number).id for number in which]
        operations: dict[str, Callable[[Side], Awaitable[Any]]] = {
            "cancel": lambda side: side.store.cancel(jobs, by="client", reason="why not"),
            "complete": lambda side: side.store.complete(dict.fromkeys(jobs, "2"), by="client"),
            "fail": lambda side: side.store.fail(dict.fromkeys(jobs, BOOM), by="client"),
            "delete": lambda side: side.store.delete(jobs, by="client"),
            "reopen": lambda side: side.store.reopen(jobs, by="client"),
        }
        self._together(lambda: self.both(operations[operation], list))

    @precondition(lambda self: self.jobs)
    @rule(which=st.lists(picks, min_size=1, max_size=2), cascade=st.booleans())
    def delete_chains(self, which: list[int], *, cascade: bool) -> None:
        """Remove chains; who else needs them is named, but whom of several is left open."""
        chains = self.picked(which)
        self.both(
            lambda side: side.store.delete_chains(chains, cascade=cascade, by="client"),
            lambda deleted: (deleted.answer, sorted(deleted.chains), sorted(deleted.jobs), deleted.needed_by is None),
        )

    @rule(queue=st.sampled_from(QUEUES), stop=st.booleans())
    def pause_or_resume(self, queue: str, *, stop: bool) -> None:
        """Pause or resume a queue."""
        if stop:
            self.both(lambda side: side.store.pause(queue, by="ops", reason="maintenance"), lambda nothing: nothing)
        else:
            self.both(lambda side: side.store.resume(queue, by="ops"), lambda nothing: nothing)

    @rule(name=st.sampled_from(sorted(WORKERS)), operation=st.sampled_from(WORKER_LIFE), number=st.integers(0, 9))
    def live_as_a_worker(self, name: str, operation: str, number: int) -> None:
        """Let a worker give a sign of life or none, and people disable, enable, drain and revoke it."""
        worker = WORKERS[name]
        operations: dict[str, Callable[[Side], Awaitable[Any]]] = {
            "register": lambda side: side.store.register(Worker(id=worker, name=name, version=f"{number}")),
            "beat": lambda side: side.store.beat(Beat(worker=worker, counters=f"{number}")),
            "heard": lambda side: side.store.heard([worker]),
            "retire": lambda side: side.store.retire(worker),
            "disable": lambda side: side.store.disable(worker, by=f"{number}"),
            "enable": lambda side: side.store.enable(worker, by=f"{number}"),
            "drain": lambda side: side.store.drain(worker, by="ops"),
            "revoke": lambda side: side.store.revoke(worker, by="ops"),
        }
        self._together(lambda: self.both(operations[operation], lambda answer: answer))

    @rule(name=st.sampled_from(("s", "t")), operation=st.sampled_from(SCHEDULING), number=st.integers(0, 9))
    def keep_schedules(self, name: str, operation: str, number: int) -> None:
        """Make schedules known, forget them, and fire their slots, also such as are gone."""
        spec = f"{number}" if operation == "change" else "{}"
        given = Schedule(name=name, task="x", cron="* * * * *", timezone="UTC", spec=spec, next_at=SLOT)
        known = {view.schedule.name: view for view in self.runner.run(self.sides[1].store.schedules())}
        slot = known[name].schedule.next_at if name in known else SLOT
        if operation == "fire what was fired":
            slot -= timedelta(hours=1)
        job = None
        if operation.startswith("fire"):
            job = NewJob(id=_id(len(self.jobs) + 1), task="x", queue="b")
            self.jobs.append(job)
        firing = Firing(name=name, slot=slot, next_at=slot + timedelta(hours=1), job=job)
        match operation:
            case "schedule" | "change":
                self.both(lambda side: side.store.schedule([given]), lambda nothing: nothing)
            case "unschedule":
                self.both(lambda side: side.store.unschedule([name]), lambda nothing: nothing)
            case _:
                self.both(lambda side: side.store.fire(firing), lambda answer: answer)

    # comparing

    @invariant()
    def same_jobs(self) -> None:
        """Both stores show the same jobs, counts and pauses."""
        self.both(_picture, lambda picture: picture)

    def _together(self, act: Callable[[], object], *, ordered: set[UUID] | None = None) -> None:
        """Note which jobs one operation made ready together, except those it makes ready in a promised order."""
        before = self.runner.run(_ready(self.sides[1]))
        act()
        fresh = self.runner.run(_ready(self.sides[1])) - before
        if len(fresh) > 1 and fresh - (ordered or set()):
            self.tied |= fresh


def _id(number: int) -> UUID:
    """Return a UUIDv7 whose order is that of its number."""
    return UUID(int=(number << 80) | (7 << 76) | (2 << 62) | number)


def _by_job(claim: Claimed) -> UUID:
    return claim.job_id


async def _answer(act: Callable[[Side], Awaitable[Any]], side: Side) -> Any:
    """Return what a store answered; a refusal is an answer too."""
    try:
        return await act(side)
    except HoldfastError as error:
        return type(error).__name__


async def _ready(side: Side) -> set[UUID]:
    page = await side.store.find(JobFilter(states=frozenset({State.READY})), limit=ALL)
    return {view.id for view in page.jobs}


def _shown_writes(answers: list[Settled]) -> object:
    return [answer.accepted and answer is not Settled.REPEATED for answer in answers]


def _shown_settled(answers: list[Settled]) -> object:
    """Show what was settled, and whether somebody was let go: which answer of a batch says so is left open."""
    return ["written" if answer in WRITTEN else answer for answer in answers], Settled.FREED in answers


def _shown_extensions(answers: list[Extended]) -> object:
    return [(answer.hold, answer.cancel_requested) for answer in answers]


def _shown_promotion(promoted: Promoted) -> object:
    return promoted.count, promoted.queues, promoted.next_due is None


def _shown_reaped(reaped: list[Reaped]) -> object:
    return {(one.job_id, one.task, one.attempt, one.worker_id, one.write.event, one.write.failures) for one in reaped}


async def _picture(side: Side) -> dict[str, object]:
    """Return what is seen of all jobs at once."""
    page = await side.store.find(JobFilter(), limit=ALL)
    picture: dict[str, object] = {str(view.id): _shown(view) for view in page.jobs}
    picture["counts"] = counts(await side.store.stats())
    return picture


def _shown(view: JobView) -> tuple[object, ...]:
    """Return what both stores must show alike; times differ, and so may texts of errors."""
    held = view.state is State.RUNNING
    ended = view.finished_at is not None
    return (
        view.state,
        view.attempt,
        view.failures,
        view.late,
        view.cancel_requested,
        view.lapsed,
        view.paused,
        frozenset(view.waits_for),
        view.after,
        view.chain_id,
        view.continued_by,
        view.progress,
        view.step,
        view.result,
        view.error and view.error.code,
        view.worker_name if held or ended else None,
        view.run_at is not None if view.state is State.SCHEDULED else None,
        view.start_by is not None,
    )


async def _records(side: Side) -> dict[str, object]:
    """Return the records of every job, and check that each log replays to the job's state."""
    records: dict[str, object] = {}
    for view in (await side.store.find(JobFilter(), limit=ALL)).jobs:
        events = await side.store.events(view.id)
        assert replay(events) == view.state, (
            f"{side.name} shows {view.state} for {view.id}, its log replays to {replay(events)}"
        )
        records[f"{view.id} events"] = [_shown_event(line) for line in events]
        records[f"{view.id} attempts"] = [_shown_attempt(attempt) for attempt in await side.store.attempts(view.id)]
        if view.after:
            handed = await side.store.blockers(view.id)
            records[f"{view.id} blockers"] = [(one.chain_id, one.state, one.task, one.result) for one in handed]
        records[f"{view.id} parts"] = [(part.name, part.state) for part in await side.store.parts(view.id)]
        records[f"{view.id} log"] = [(line.message, line.attempt) for line in await side.store.logs(view.id, limit=ALL)]
    for name, worker in WORKERS.items():
        records[f"held by {name}"] = {lease.job_id for lease in await side.store.holding(worker)}
    chains = (await side.store.find_chains(JobFilter(), limit=ALL)).chains
    records["chains"] = [(one.id, one.task, one.steps, one.step, one.step_task, one.state, one.result) for one in chains]
    records["signals"] = await side.store.signals(SIGNALS)
    records["queues"] = [
        (queue.name, {state: count for state, count in queue.counts.items() if count}, queue.paused_by, queue.reason)
        for queue in await side.store.queues()
    ]
    records["workers"] = {view.worker.id: _shown_worker(view) for view in await side.store.workers()}
    records["audit"] = [
        (line.actor, line.action, line.targets, line.count, line.detail) for line in await side.store.audits(limit=ALL)
    ]
    records["schedules"] = [(view.schedule, view.last_at, view.last_job) for view in await side.store.schedules()]
    return records


def _shown_event(line: EventView) -> tuple[object, ...]:
    return (line.event, line.state, line.attempt, line.actor, line.detail if line.event in STAGE_EVENTS else None)


def _shown_worker(view: WorkerView) -> tuple[object, ...]:
    seen = (view.heartbeat_at is not None, view.draining_at is not None)
    return (view.worker, view.state, *seen, view.disabled_by, view.running, view.jobs, view.counters)


def _shown_attempt(view: AttemptView) -> tuple[object, ...]:
    return (view.attempt, view.event, view.late, view.worker_name, view.error and view.error.code)
