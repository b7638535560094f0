"""Worlds for the tests: jobs put where a test wants them by real operations, and pictures of all that can be seen."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import BlockerPolicy, NewJob, OnConflict, Policy, Unique
from holdfast.core.outcome import Continued, Error, Failed, Outcome, Stopped, Succeeded, Suspended
from holdfast.core.retry import Retry
from holdfast.core.settle import settle
from holdfast.core.states import Event, State
from holdfast.store.port import (
    AttemptView,
    ChainView,
    Checkpoint,
    ClaimRequest,
    Enqueued,
    EventView,
    JobFilter,
    JobView,
    LogLine,
    Part,
    PartState,
    Settled,
    Settlement,
    StageMark,
    Stats,
    Store,
    Worker,
    WorkerView,
)
from holdfast.store.replay import replay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from holdfast.core.lease import Claimed, Lease
    from holdfast.core.settle import Write
    from holdfast.store.conformance.harness import Harness

TASK: Final = "conformance.task"
OTHER_TASK: Final = "conformance.other"
BLOCKER_TASK: Final = "conformance.blocker"
NEXT_TASK: Final = "conformance.next"
LEASE: Final = 60.0
"""How long leases run unless a test says otherwise."""
HOUR: Final = 3600.0

AT_ONCE: Final = Retry(max_attempts=3, initial=0.0, jitter=0.0)
"""A failed attempt makes the job ready again."""
LATER: Final = Retry(max_attempts=3, initial=HOUR, factor=1.0, max=HOUR, jitter=0.0)
"""A failed attempt schedules the job in an hour."""
ONCE: Final = Retry(max_attempts=1)
"""The first failure is the last."""

BOOM: Final = Error("BOOM", "it broke", "Traceback: line 1")

APPLIED: Final = frozenset({Settled.APPLIED, Settled.FREED})
"""The answers to a settlement in time, whether or not somebody waited for it."""

ENDINGS: Final[Mapping[State, Outcome]] = {
    State.SUCCEEDED: Succeeded(),
    State.FAILED: Failed(BOOM, fatal=True),
    State.CANCELED: Stopped("had enough"),
}
"""What a holder's attempt gives when the job is to end in a state."""


class Subject:
    """One subject of the suite: a mixin whose tests get a `world` built from the adapter's `harness` fixture."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Mark the coroutine tests, so that they also run where pytest-asyncio is in strict mode."""
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(member):
                setattr(cls, name, pytest.mark.asyncio(member))

    @pytest_asyncio.fixture
    async def world(self, harness: Harness) -> AsyncIterator[World]:
        """Give an empty store with one open handle."""
        async with opened(harness) as world:
            yield world


@asynccontextmanager
async def opened(harness: Harness) -> AsyncIterator[World]:
    """Give a world on clean data, and close every handle it opened."""
    await harness.clean()
    world = World(harness, await harness.open())
    try:
        yield world
    finally:
        await world.close()


@dataclass
class World:
    """A store under test, and short words for what tests do with it.

    Operations go through the first handle unless `store=` names another. Claims look for themselves (`look=True`).
    """

    harness: Harness
    store: Store
    others: list[Store] = field(default_factory=list)
    workers: dict[str, UUID] = field(default_factory=dict)
    has: dict[str, set[str]] = field(default_factory=dict)
    """What each worker was registered with: a server gives it nothing that requires more, whatever a claim says."""

    async def handle(self) -> Store:
        """Open another handle on the same data."""
        store = await self.harness.open()
        self.others.append(store)
        return store

    async def joined(self) -> Store:
        """Open another handle, as another process has it."""
        store = await self.harness.join()
        self.others.append(store)
        return store

    async def close(self) -> None:
        """Close every handle."""
        for store in (*self.others, self.store):
            await store.close()

    # producing

    def job(
        self,
        task: str = TASK,
        *,
        retry: Retry = AT_ONCE,
        on_blocker_failure: BlockerPolicy = BlockerPolicy.FAIL,
        key: str | None = None,
        scope: str | None = None,
        window: float | None = None,
        on_conflict: OnConflict = OnConflict.SKIP,
        **fields: Any,
    ) -> NewJob:
        """Return a job to be enqueued."""
        unique = None if key is None else Unique(key=key, scope=scope or task, window=window, on_conflict=on_conflict)
        policy = Policy(retry=retry, on_blocker_failure=on_blocker_failure)
        return NewJob(**{"id": uuid7(), "task": task, "lease": LEASE, "policy": policy, "unique": unique, **fields})

    def jobs(self, count: int, **fields: Any) -> list[NewJob]:
        """Return several jobs alike."""
        return [self.job(**fields) for _ in range(count)]

    async def enqueue(
        self, *jobs: NewJob, under: Lease | None = None, caps: Mapping[str, int] | None = None, store: Store | None = None
    ) -> list[Enqueued]:
        """Enqueue jobs in one call."""
        return await (store or self.store).enqueue(jobs, under=under, caps=caps)

    async def create(self, **fields: Any) -> UUID:
        """Enqueue one job and return its id."""
        job = self.job(**fields)
        await self.enqueue(job)
        return job.id

    async def waiter(self, blocker: UUID, **fields: Any) -> UUID:
        """Enqueue a job that waits for `blocker`."""
        return await self.create(**{"after": (blocker,), **fields})

    async def chain(self, **fields: Any) -> UUID:
        """Enqueue the first step of a chain and return its id, which is the chain's."""
        job_id = uuid7()
        return await self.create(**{"id": job_id, "chain_id": job_id, **fields})

    # working

    async def worker(self, name: str = "one", capabilities: Iterable[str] = ()) -> UUID:
        """Return the id of a worker, registered at first use, and again when it has what it had not."""
        has = self.has.setdefault(name, set())
        if name not in self.workers or not has.issuperset(capabilities):
            has.update(capabilities)
            worker = Worker(id=self.workers.get(name, uuid4()), name=name, capabilities=tuple(sorted(has)))
            await self.store.register(worker)
            self.workers[name] = worker.id
        return self.workers[name]

    async def claim(
        self,
        limit: int = 1,
        *,
        worker: str = "one",
        tasks: Iterable[str] = (TASK,),
        queues: Iterable[str] | None = None,
        capabilities: Iterable[str] = (),
        first: str | None = None,
        retries_first: bool = False,
        store: Store | None = None,
    ) -> list[Claimed]:
        """Claim jobs, in the order the store gives them."""
        can = frozenset(capabilities)
        request = ClaimRequest(
            worker=await self.worker(worker, can),
            tasks=frozenset(tasks),
            limit=limit,
            queues=None if queues is None else frozenset(queues),
            capabilities=can,
            look=True,
            first=first,
            retries_first=retries_first,
        )
        return await (store or self.store).claim(request)

    async def claimed(self, worker: str = "one", **fields: Any) -> Claimed:
        """Enqueue a job and claim it; no other job of its task may be ready."""
        job_id = await self.create(**fields)
        return await self.claim_only(job_id, worker=worker, tasks=(fields.get("task", TASK),))

    async def claim_only(self, job_id: UUID, **options: Any) -> Claimed:
        """Claim one job, which must be `job_id`."""
        claims = await self.claim(1, **options)
        assert [claim.job_id for claim in claims] == [job_id], f"the claim should have given {job_id}, it gave {claims}"
        return claims[0]

    def settlement(self, claimed: Claimed, outcome: Outcome) -> Settlement:
        """Return the settlement of an attempt that gave `outcome`."""
        return settlement_of(claimed.lease, outcome, claimed.policy.retry, claimed.failures)

    async def settle(self, claimed: Claimed, outcome: Outcome, *, store: Store | None = None) -> Settled:
        """Settle one attempt."""
        return (await (store or self.store).settle([self.settlement(claimed, outcome)]))[0]

    async def succeed(self, claimed: Claimed, result: str = "null") -> Settled:
        """Settle an attempt as succeeded."""
        return await self.settle(claimed, Succeeded(result))

    async def fail(self, claimed: Claimed, error: Error = BOOM, *, fatal: bool = False) -> Settled:
        """Settle an attempt as failed: what follows is the policy's business."""
        return await self.settle(claimed, Failed(error, fatal=fatal))

    async def proceed(self, claimed: Claimed, **fields: Any) -> UUID:
        """Let a step continue, and return the id of the step that follows."""
        then = self.job(**{"task": NEXT_TASK, **fields})
        answer = await self.settle(claimed, Continued(then))
        assert answer is Settled.APPLIED, f"continuing under a current lease was answered {answer}"
        return then.id

    async def lapse(self, seconds: float = 2 * LEASE) -> None:
        """Let time pass until every lease of the usual length has lapsed."""
        await self.store.rewind(seconds)

    async def reaped(self, claimed: Claimed) -> None:
        """Let this lease lapse, and reap it."""
        await self.lapse(2 * claimed.lease_seconds)
        reaped = [one.job_id for one in await self.store.reap(100)]
        assert reaped == [claimed.job_id], f"reap should have settled the one lapsed lease, it settled {reaped}"

    async def part(self, claimed: Claimed, name: str, state: PartState = PartState.IN_PROGRESS, **fields: Any) -> Settled:
        """Write a checkpoint."""
        return (await self.store.checkpoint([Checkpoint(claimed.lease, Part(name, state, **fields))]))[0]

    async def log(self, claimed: Claimed, *messages: str, **fields: Any) -> list[Settled]:
        """Write lines to the log of a job in one call."""
        return await self.store.log([LogLine(lease=claimed.lease, message=message, **fields) for message in messages])

    async def mark(self, claimed: Claimed, *marks: tuple[Event, str], **fields: Any) -> list[Settled]:
        """Write stages entered and left in one call."""
        return await self.store.mark(
            [StageMark(lease=claimed.lease, event=event, name=name, **fields) for event, name in marks]
        )

    # ended jobs

    async def ended(self, state: State, **fields: Any) -> UUID:
        """Return a job in a terminal state; no other job of its task may be ready."""
        claimed = await self.claimed(**fields)
        await self.end(claimed, state)
        return claimed.job_id

    async def end(self, claimed: Claimed, state: State) -> None:
        """Settle an attempt so that the job ends in `state`."""
        answer = await self.settle(claimed, ENDINGS[state])
        assert answer in APPLIED, f"settling a current lease as {state} was answered {answer}"

    # looking

    async def view(self, job_id: UUID, *, store: Store | None = None) -> JobView:
        """Return a job that must be there."""
        view = (await (store or self.store).get([job_id]))[0]
        assert view is not None, f"job {job_id} is gone"
        return view

    async def state(self, job_id: UUID) -> State | None:
        """Return where a job stands; `None` when it is gone."""
        view = (await self.store.get([job_id]))[0]
        return None if view is None else view.state

    async def states(self, job_ids: Iterable[UUID]) -> list[State | None]:
        """Return where jobs stand."""
        return [None if view is None else view.state for view in await self.store.get(list(job_ids))]

    async def chain_view(self, chain_id: UUID, *, store: Store | None = None) -> ChainView:
        """Return a chain that must be there."""
        view = (await (store or self.store).chains([chain_id]))[0]
        assert view is not None, f"chain {chain_id} is gone"
        return view

    async def logged(self, job_id: UUID) -> list[str]:
        """Return what the log of a job says."""
        return [line.message for line in await self.store.logs(job_id, limit=10_000)]

    async def worker_view(self, name: str = "one") -> WorkerView:
        """Return a worker as people see it."""
        worker = await self.worker(name)
        (view,) = await self.store.workers(ids=[worker])
        return view

    async def events(self, job_id: UUID) -> list[Event]:
        """Return what happened to a job."""
        return [line.event for line in await self.store.events(job_id)]

    async def attempts(self, job_id: UUID) -> list[tuple[int, Event | None]]:
        """Return the number of each attempt and how it ended."""
        return [(one.attempt, one.event) for one in await self.store.attempts(job_id)]

    async def all_jobs(self, where: JobFilter | None = None, *, limit: int = 100) -> list[JobView]:
        """Return every job of a list, following its cursors to the end."""
        found: list[JobView] = []
        after: UUID | None = None
        for _ in range(10_000):
            page = await self.store.find(where or JobFilter(), limit=limit, after=after)
            found.extend(page.jobs)
            if page.after is None:
                return found
            after = page.after
        raise AssertionError("the list never ended: 10,000 pages and still a cursor")

    async def replayed(self, job_id: UUID) -> State | None:
        """Return the state that the event log of a job gives."""
        return replay(await self.store.events(job_id))

    async def check_log(self, *job_ids: UUID) -> None:
        """Check that the event logs replay to the states of the jobs, and the counts to what the lists show."""
        for job_id in job_ids:
            state, replayed = await self.state(job_id), await self.replayed(job_id)
            assert state == replayed, f"job {job_id} is {state}, its event log says {replayed}"
        await self.check_counts()

    async def check_counts(self) -> None:
        """Check that the counts are what a walk through the lists gives."""
        listed: dict[tuple[str, str, State], int] = {}
        for view in await self.all_jobs(limit=1_000):
            place = (view.queue, view.task, view.state)
            listed[place] = listed.get(place, 0) + 1
        counted = counts(await self.store.stats())
        assert counted == listed, f"stats() counts {counted}, find() lists {listed}"

    async def snapshot(self, *job_ids: UUID) -> Snapshot:
        """Return everything that can be seen of these jobs, the counts and the leases held."""
        facts: dict[str, object] = {}
        for number, (job_id, view) in enumerate(zip(job_ids, await self.store.get(job_ids), strict=True), start=1):
            label = f"job {number}"
            facts[label] = "gone" if view is None else "there"
            if view is not None:
                facts.update({f"{label}, {name}": value for name, value in msgspec.structs.asdict(view).items()})
            facts[f"{label}, attempts"] = await self.store.attempts(job_id)
            facts[f"{label}, events"] = await self.store.events(job_id)
            facts[f"{label}, parts"] = await self.store.parts(job_id)
            facts[f"{label}, log"] = await self.store.logs(job_id, limit=1_000)
        for name, worker in self.workers.items():
            if held := await self.store.holding(worker):
                facts[f"leases of worker {name}"] = set(held)
        for (queue, task, state), count in counts(await self.store.stats()).items():
            facts[f"count of {state} {task} in {queue}"] = count
        return Snapshot(facts)


@dataclass(frozen=True)
class Snapshot:
    """What could be seen at one moment, fact by fact."""

    facts: dict[str, Any]

    def state(self) -> State | None:
        """Return where the first job stands; `None` when it is gone."""
        return self.facts.get("job 1, state")

    def log(self) -> list[EventView]:
        """Return the event log of the first job."""
        return list(self.facts["job 1, events"])

    def changes(self, later: Snapshot) -> list[str]:
        """Say what a later picture shows otherwise."""
        names = [*self.facts, *(name for name in later.facts if name not in self.facts)]
        pairs = ((name, self.facts.get(name), later.facts.get(name)) for name in names)
        return [f"{name}: {before!r} -> {after!r}" for name, before, after in pairs if before != after]

    def check_unchanged(self, later: Snapshot, what: str) -> None:
        """Fail with what changed, when anything did."""
        changes = self.changes(later)
        assert not changes, f"{what} should have changed nothing, but changed\n  " + "\n  ".join(changes)


def write_of(outcome: Outcome, retry: Retry = AT_ONCE, failures: int = 0) -> Write:
    """Return what is written for the outcome of an attempt, without jitter."""
    return settle(outcome, retry, failures, datetime.now(UTC), lambda: 0.5)


def settlement_of(lease: Lease, outcome: Outcome, retry: Retry = AT_ONCE, failures: int = 0) -> Settlement:
    """Return how an attempt that gave `outcome` is settled."""
    then = outcome.then if isinstance(outcome, Continued) else None
    signal = outcome.signal if isinstance(outcome, Suspended) else None
    return Settlement(lease, write_of(outcome, retry, failures), then, signal)


def counts(stats: Stats) -> dict[tuple[str, str, State], int]:
    """Return the counts that are not zero by queue, task and state."""
    return {(row.queue, row.task, State(state)): count for row in stats.tasks for state, count in row.counts.items() if count}


def ids(jobs: Iterable[NewJob | Claimed | JobView]) -> list[UUID]:
    """Return the ids of jobs, in their order."""
    return [job.job_id if hasattr(job, "job_id") else job.id for job in jobs]


def places(order: Sequence[UUID], claims: Iterable[Claimed]) -> list[int]:
    """Return claims as 1-based positions in `order`: what a reader of a failed order test wants to see."""
    number = {job_id: position for position, job_id in enumerate(order, start=1)}
    return [number[claim.job_id] for claim in claims]


def steps(views: Iterable[EventView]) -> list[tuple[Event, State | None, int]]:
    """Return an event log as (event, state afterwards, attempt)."""
    return [(view.event, view.state, view.attempt) for view in views]


def endings(views: Iterable[AttemptView]) -> list[tuple[int, Event | None, bool]]:
    """Return attempts as (number, how it ended, late)."""
    return [(view.attempt, view.event, view.late) for view in views]
