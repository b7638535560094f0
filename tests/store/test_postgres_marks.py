"""The two marks: nothing is missed, whatever commits late and whatever is rolled back.

First against a model of what PostgreSQL promises (transaction ids, snapshots, sequences, row locks), thousands of random
schedules; then the same against real servers.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast.core.job import NewJob
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.postgres import PostgresStore, migrate
from holdfast.store.postgres.asyncpg_line import AsyncpgLine
from holdfast.store.postgres.caller import PostgresCaller
from holdfast.store.postgres.marks import MOST_PAIRS, Marks
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID


@dataclass
class Transaction:
    """A transaction of the model: its id, the places it drew, the rows it deleted."""

    xid: int
    drawn: list[int] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)


@dataclass
class Server:
    """What matters of PostgreSQL: ids and places in order, visibility at commit, deleted rows locked until the end."""

    next_xid: int = 1
    next_place: int = 1
    visible: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    running: list[Transaction] = field(default_factory=list)
    completed: int = 0

    def begin(self) -> Transaction:
        transaction = Transaction(self.next_xid)
        self.next_xid += 1
        self.running.append(transaction)
        return transaction

    def insert(self, transaction: Transaction) -> None:
        transaction.drawn.append(self.next_place)
        self.next_place += 1

    def claim(self, transaction: Transaction, mark: int, limit: int) -> list[int]:
        rows = sorted(place for place in self.visible - self.locked if place >= mark)[:limit]
        transaction.deleted += rows
        self.locked.update(rows)
        return rows

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        self.running.remove(transaction)
        self.completed = max(self.completed, transaction.xid)
        self.locked.difference_update(transaction.deleted)
        if commit:
            self.visible.update(transaction.drawn)
            self.visible.difference_update(transaction.deleted)

    def look(self, marks: Marks[int], *, meanwhile: Callable[[], None] = lambda: None, naive: bool = False) -> None:
        """Look as the store does. `naive`: take the snapshot's xmax, above all *ended* ids, for one above all handed out."""
        reached = marks.reached
        first = min((place for place in self.visible if place >= marks.base), default=None)
        xmin = min((t.xid for t in self.running), default=self.completed + 1)
        xnext = self.completed + 1 if naive else self.next_xid
        last = self.next_place - 1
        meanwhile()
        marks.looked(first, reached=reached, xmin=xmin, xnext=xnext)
        marks.took(last + 1 if first is None else first)


def run_schedule(seed: int, *, marks: Marks[int], steps: int = 60, naive: bool = False) -> set[int]:
    """Run a random schedule and return the places that are still there after two looks at the end."""
    chance = random.Random(seed)
    server = Server()
    producers: list[Transaction] = []
    others: list[Transaction] = []

    def claim(limit: int) -> None:
        """Claim as the store does: from the hint, sometimes rolled back before the answer was used."""
        transaction = server.begin()
        rows = server.claim(transaction, marks.hint, limit)
        commit = chance.random() < 0.8
        server.end(transaction, commit=commit)
        if rows and commit:
            marks.took(rows[-1] + 1)

    def look() -> None:
        def meanwhile() -> None:
            if chance.random() < 0.3:
                claim(5)  # another loop of the same store claims while the look is on its way

        server.look(marks, meanwhile=meanwhile, naive=naive)

    for _ in range(steps):
        match chance.choice(("begin", "insert", "insert", "commit", "claim", "claim", "look", "steal", "give back")):
            case "begin":
                producers.append(server.begin())
            case "insert" if producers:
                server.insert(chance.choice(producers))
            case "commit" if producers:
                server.end(producers.pop(chance.randrange(len(producers))), commit=chance.random() < 0.9)
            case "claim":
                claim(chance.randint(1, 10))
            case "look":
                look()
            case "steal":  # another claimer, slow to commit
                others.append(server.begin())
                server.claim(others[-1], 0, chance.randint(1, 5))
            case "give back" if others:
                server.end(others.pop(chance.randrange(len(others))), commit=chance.random() < 0.5)
            case _:
                pass
    for transaction in producers + others:
        server.end(transaction, commit=chance.random() < 0.5)
    # from here on the world is quiet: a second look at most, and everything must be taken
    for _ in range(2):
        server.look(marks, naive=naive)
        transaction = server.begin()
        rows = server.claim(transaction, marks.hint, 10_000)
        server.end(transaction, commit=True)
        if rows:
            marks.took(rows[-1] + 1)
    return server.visible


def test_nothing_is_missed_in_thousands_of_random_schedules() -> None:
    missed = {seed: rows for seed in range(5_000) if (rows := run_schedule(seed, marks=Marks(0)))}
    assert missed == {}, f"schedules that lost rows (seed: places): {missed}"


class OneMark(Marks[int]):
    """What one would write first: a mark behind the last row taken, never lowered."""

    def looked(self, first: int | None, *, reached: int, xmin: int, xnext: int) -> None:
        pass


class Hasty(Marks[int]):
    """A base that trusts the first look instead of waiting for those that could still write below it."""

    def looked(self, first: int | None, *, reached: int, xmin: int, xnext: int) -> None:
        super().looked(first, reached=reached, xmin=xmin, xnext=xmin)


def test_a_bound_above_ended_ids_only_loses_rows_in_the_same_schedules() -> None:
    assert any(run_schedule(seed, marks=Marks(0), naive=True) for seed in range(1_000))


@pytest.mark.parametrize("broken", [OneMark, Hasty])
def test_weaker_marks_lose_rows_in_the_same_schedules(broken: type[Marks[int]]) -> None:
    assert any(run_schedule(seed, marks=broken(0)) for seed in range(1_000))


def test_the_base_follows_once_those_who_could_write_below_it_have_ended() -> None:
    marks = Marks(0)
    marks.took(100)
    marks.looked(None, reached=marks.reached, xmin=5, xnext=10)
    assert marks.base == 0, "transactions 5 to 9 may still write below 100"
    marks.looked(None, reached=marks.reached, xmin=10, xnext=12)
    assert marks.base == 100


def test_a_row_that_is_still_there_holds_the_base_and_lowers_the_hint() -> None:
    marks = Marks(0)
    marks.took(100)
    marks.looked(None, reached=marks.reached, xmin=5, xnext=10)
    marks.looked(40, reached=marks.reached, xmin=10, xnext=12)
    assert (marks.base, marks.hint) == (40, 40)


def test_pairs_do_not_pile_up_under_a_long_writing_transaction() -> None:
    marks = Marks(0)
    for number in range(1, MOST_PAIRS * 3):
        marks.took(number)
        marks.looked(None, reached=marks.reached, xmin=1, xnext=number + 1)
    assert marks.base == 0
    marks.looked(None, reached=marks.reached, xmin=MOST_PAIRS * 4, xnext=MOST_PAIRS * 4)
    assert marks.base == MOST_PAIRS * 3 - 1


# --- the same on real servers ---------------------------------------------------------------------------------------------


class Steered(SystemEnvironment):
    """A world whose monotonic clock the test moves: looks happen when it says so, without waiting."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def world() -> Steered:
    return Steered()


@pytest.fixture
async def store(postgres_url: str, world: Steered) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, world)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def worker(store: PostgresStore, world: Steered) -> UUID:
    worker = Worker(id=world.token(), name="claimer")
    await store.register(worker)
    return worker.id


async def start_enqueue(connection: asyncpg.Connection[asyncpg.Record], jobs: list[NewJob]) -> asyncpg.transaction.Transaction:
    """Enqueue in a transaction of the caller's own and leave it open."""
    transaction = connection.transaction()
    await transaction.start()
    await on(connection).enqueue(jobs)
    return transaction


def on(connection: asyncpg.Connection[asyncpg.Record]) -> PostgresCaller:
    return PostgresCaller(AsyncpgLine(connection), "holdfast", "unheard")


def some_jobs(world: Steered, count: int, task: str = "late") -> list[NewJob]:
    return [NewJob(id=world.job_id(), task=task) for _ in range(count)]


async def settle_all(store: PostgresStore, request: ClaimRequest) -> set[UUID]:
    """Claim and settle until a claim comes back empty."""
    done: set[UUID] = set()
    while claimed := await store.claim(request):
        await store.settle([Settlement(job.lease, Write(Event.SUCCEED, 0, result="null")) for job in claimed])
        done |= {job.job_id for job in claimed}
    return done


async def test_a_transaction_that_commits_a_minute_late_is_served_within_two_seconds(
    store: PostgresStore, world: Steered, worker: UUID, postgres_url: str
) -> None:
    request = ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=100)
    late = some_jobs(world, 5)
    connection = await asyncpg.connect(postgres_url)
    try:
        transaction = await start_enqueue(connection, late)
        for _ in range(60):
            others = some_jobs(world, 20)
            await store.enqueue(others)
            assert await settle_all(store, request) == {job.id for job in others}
            world.at += 1.0
        await transaction.commit()
    finally:
        await connection.close()
    committed = world.at
    claimed: set[UUID] = set()
    while len(claimed) < len(late) and world.at < committed + 5:
        claimed |= await settle_all(store, request)
        world.at += 0.25
    assert claimed == {job.id for job in late}
    assert world.at - committed <= 2.0


@pytest.mark.parametrize("schedules", [400, pytest.param(4_000, marks=pytest.mark.slow)])
async def test_random_schedules_lose_nothing_on_a_real_server(
    store: PostgresStore, world: Steered, worker: UUID, postgres_url: str, schedules: int
) -> None:
    chance = random.Random(schedules)
    request = ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=7)
    async with AsyncExitStack() as stack:
        connections = [await asyncpg.connect(postgres_url) for _ in range(3)]
        for connection in connections:
            stack.push_async_callback(connection.close)
        for schedule in range(schedules):
            expected: set[UUID] = set()
            claimed: set[UUID] = set()
            open_ones: dict[int, tuple[asyncpg.transaction.Transaction, set[UUID]]] = {}
            for _ in range(12):
                which = chance.randrange(3)
                match chance.choice(("begin", "end", "enqueue", "claim", "claim", "steal", "time")):
                    case "begin" if which not in open_ones:
                        jobs = some_jobs(world, chance.randint(1, 3))
                        open_ones[which] = (await start_enqueue(connections[which], jobs), {job.id for job in jobs})
                    case "end" if which in open_ones:
                        transaction, ids = open_ones.pop(which)
                        if ids and chance.random() < 0.8:
                            await transaction.commit()
                            expected |= ids
                        else:
                            await transaction.rollback()
                    case "enqueue":
                        jobs = some_jobs(world, chance.randint(1, 5))
                        await store.enqueue(jobs)
                        expected |= {job.id for job in jobs}
                    case "claim":
                        jobs_now = await store.claim(request)
                        claimed |= {job.job_id for job in jobs_now}
                    case "steal" if which not in open_ones:
                        open_ones[which] = (await steal(connections[which]), set())
                    case "time":
                        world.at += 1.0
                    case _:
                        pass
            for transaction, ids in open_ones.values():
                if ids:  # a thief (no ids) always gives back
                    await transaction.commit()
                    expected |= ids
                else:
                    await transaction.rollback()
            for _ in range(2):
                world.at += 1.0
                while batch := await store.claim(request):
                    claimed |= {job.job_id for job in batch}
            assert claimed == expected, (
                f"schedule {schedule} of seed {schedules}: lost {expected - claimed}, extra {claimed - expected}"
            )


async def steal(connection: asyncpg.Connection[asyncpg.Record]) -> asyncpg.transaction.Transaction:
    """Claim as another worker whose transaction will be rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    lanes = [row[0] for row in await connection.fetch("SELECT DISTINCT entry FROM holdfast.lane")]
    await connection.fetch("SELECT * FROM holdfast.claim(1, $1, $2, 4, NULL)", lanes, [0] * len(lanes))
    return transaction


async def test_a_job_rescheduled_to_a_moment_that_has_passed_is_promoted(
    store: PostgresStore, world: Steered, worker: UUID
) -> None:
    await store.enqueue(some_jobs(world, 1))
    (job,) = await store.claim(ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=1, look=True))
    for _ in range(4):  # the promoter's base moves on to the present
        await store.promote(10)
    # the worker believed this moment to lie ahead; by the database's clock it does not
    write = Write(Event.RESCHEDULE_LATER, 0, run_at=job.claimed_at)
    await store.settle([Settlement(job.lease, write)])
    assert sum([(await store.promote(10)).count for _ in range(3)]) == 1


@pytest.mark.parametrize("delay", [0.0, 0.001])
async def test_a_lone_late_commit_is_found_in_a_quiet_system(
    store: PostgresStore, world: Steered, worker: UUID, postgres_url: str, delay: float
) -> None:
    """Nobody else is there to lift the snapshot's bounds: the open transaction is the newest there is."""
    request = ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=10, look=True)
    jobs = [NewJob(id=world.job_id(), task="late", delay=delay) for _ in range(3)]
    connection = await asyncpg.connect(postgres_url)
    try:
        await settle_all(store, request)
        transaction = await start_enqueue(connection, jobs)
        for _ in range(5):
            await store.promote(10)
            await store.claim(request)
            world.at += 1.0
        await transaction.commit()
    finally:
        await connection.close()
    for _ in range(2):
        await store.promote(10)
    assert await settle_all(store, request) == {job.id for job in jobs}


@pytest.mark.parametrize("later", [False, True])
async def test_a_retry_that_is_written_early_and_commits_late_is_served(
    store: PostgresStore, world: Steered, worker: UUID, postgres_url: str, *, later: bool
) -> None:
    """Retries wait in a lane of their own, which has marks of its own, and may not be known before the commit."""
    request = ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=10, look=True)
    await settle_all(store, request)
    await store.enqueue(some_jobs(world, 4))
    late, *others = await store.claim(request)
    event, delay = (Event.RETRY_LATER, 0.001) if later else (Event.RETRY, 0.0)
    connection = await asyncpg.connect(postgres_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await on(connection).settle(Settlement(late.lease, Write(event, 1, delay=delay, error=Error("BOOM"))))
        for other in others:
            await store.settle([Settlement(other.lease, Write(Event.RETRY, 1, error=Error("BOOM")))])
            (again,) = await store.claim(request)
            assert (again.job_id, again.failures) == (other.job_id, 1)
            await store.settle([Settlement(again.lease, Write(Event.SUCCEED, 1, result="null"))])
            for _ in range(2):
                await store.promote(10)
                assert await store.claim(request) == []
                world.at += 1.0
        await transaction.commit()
    finally:
        await connection.close()
    for _ in range(2):
        await store.promote(10)
    assert await settle_all(store, request) == {late.job_id}


async def test_a_deadline_that_commits_late_is_kept(store: PostgresStore, world: Steered, postgres_url: str) -> None:
    late = [NewJob(id=world.job_id(), task="late", expires_in=0.001) for _ in range(3)]
    connection = await asyncpg.connect(postgres_url)
    try:
        transaction = await start_enqueue(connection, late)
        for _ in range(5):
            others = [NewJob(id=world.job_id(), task="late", expires_in=0.001) for _ in range(2)]
            await store.enqueue(others)
            dropped = 0
            while dropped < len(others):  # until the millisecond has passed
                dropped += await store.drop_overdue(10)
        await transaction.commit()
    finally:
        await connection.close()
    assert sum([await store.drop_overdue(10) for _ in range(3)]) == len(late)
    assert {job and job.state for job in await store.get([job.id for job in late])} == {State.CANCELED}


@pytest.fixture
async def fresh(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection to a database in which the schema is made anew by the test."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
    yield connection
    await connection.close()


@pytest.mark.usefixtures("fresh")
async def test_the_very_first_lease_of_a_schema_is_reaped_by_a_reaper_that_was_there_before_it(
    postgres_url: str, world: Steered
) -> None:
    reaper, other = PostgresStore(postgres_url, world), PostgresStore(postgres_url, world)
    await reaper.open()
    await other.open()
    for _ in range(4):
        await reaper.reap(10)
    await other.register(Worker(id=world.token(), name="dies"))
    me = (await other.workers())[0].worker.id
    await other.enqueue([NewJob(id=world.job_id(), task="late", lease=0.001) for _ in range(2)])
    assert len(await other.claim(ClaimRequest(worker=me, tasks=frozenset({"late"}), limit=10, look=True))) == 2
    reaped = 0
    while not reaped:  # until the millisecond has passed
        reaped = len(await reaper.reap(10))
    assert reaped == 2
    await reaper.close()
    await other.close()


async def test_a_schema_made_anew_under_a_running_handle_is_noticed(
    store: PostgresStore, world: Steered, worker: UUID, postgres_url: str, fresh: asyncpg.Connection[asyncpg.Record]
) -> None:
    await migrate(postgres_url, world)  # `fresh` has dropped what the store was opened on
    await store.register(Worker(id=worker, name="again"))
    request = ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=10, look=True)
    await store.enqueue(some_jobs(world, 8))
    assert len(await settle_all(store, request)) == 8
    for _ in range(3):
        world.at += 1.0
        await store.claim(request)
    await fresh.execute("DROP SCHEMA holdfast CASCADE")
    await migrate(postgres_url, world)
    await store.register(Worker(id=worker, name="again"))
    await store.enqueue(some_jobs(world, 3))
    assert len(await settle_all(store, request)) == 3


async def test_long_leases_that_are_left_alone_do_not_hold_up_short_ones(
    store: PostgresStore, world: Steered, worker: UUID, postgres_url: str
) -> None:
    request = ClaimRequest(worker=worker, tasks=frozenset({"late"}), limit=20_000, look=True)
    await settle_all(store, request)
    await store.enqueue([NewJob(id=world.job_id(), task="late", lease=3600) for _ in range(1_100)])
    await store.enqueue([NewJob(id=world.job_id(), task="late", lease=1) for _ in range(3)])
    assert len(await store.claim(request)) == 1_103
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("UPDATE holdfast.lease SET expires_at = clock_timestamp() - interval '1 s'")
    await connection.execute("UPDATE holdfast.meta SET rewound = rewound + interval '1 day'")
    await connection.close()
    reaped = [one for _ in range(2) for one in await store.reap(100, up_for=30)]  # others have left leases of 60 s
    assert len(reaped) == 3
