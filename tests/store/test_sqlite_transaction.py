"""A handler's transaction on a file: its connection, its five seconds, and what others see of it meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob
from holdfast.core.outcome import Continued, Succeeded
from holdfast.core.settle import settle
from holdfast.core.states import Event, State
from holdfast.errors import Aborted, BadSetting, StaleLease, StoreUnavailable, TransactionTooLong
from holdfast.store.port import ClaimRequest, Settled, Settlement, Worker
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.transaction import LONGEST
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from holdfast.core.lease import Claimed
    from holdfast.store.sqlite.transaction import SqliteTransaction

T = TypeVar("T")

SHORT = 0.2
"""A cap that is soon over."""
WORKER = Worker(id=uuid4(), name="w")
WRITE = "INSERT INTO balance VALUES (1)"
ENDLESS = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@asynccontextmanager
async def opened(path: str, **options: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, SystemEnvironment(), **options)
    await store.open()
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE IF NOT EXISTS balance (n INTEGER CHECK (n < 100))")
    try:
        yield store
    finally:
        await store.close()


async def claimed(store: SqliteStore) -> Claimed:
    await store.register(WORKER)
    await store.enqueue([NewJob(id=uuid7(), task="t")])
    (one,) = await store.claim(ClaimRequest(worker=WORKER.id, tasks=frozenset({"t"}), limit=1))
    return one


def success(claim: Claimed) -> Settlement:
    write = settle(Succeeded("1"), claim.policy.retry, claim.failures, claim.claimed_at, lambda: 0.5)
    return Settlement(claim.lease, write)


def continued(claim: Claimed) -> Settlement:
    then = NewJob(id=uuid7(), task="next")
    write = settle(Continued(then), claim.policy.retry, claim.failures, claim.claimed_at, lambda: 0.5)
    return Settlement(claim.lease, write, then=then)


def write_to(transaction: SqliteTransaction) -> sqlite3.Cursor:
    return transaction.connection.execute(WRITE)


async def in_thread(work: Callable[[], T]) -> T:
    """Do something in a thread of the handler's own."""
    runner = SystemEnvironment().runner("handler")
    try:
        return await runner.run(work)
    finally:
        runner.close()


def balance(path: str) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT count(*) FROM balance").fetchone()[0])


async def test_rows_and_the_jobs_end_commit_together(path: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        transaction = await store.begin()
        await transaction.execute("INSERT INTO balance VALUES (?)", 1)
        assert await transaction.execute("SELECT n FROM balance") == [(1,)]
        assert await transaction.settle(success(claim)) is Settled.APPLIED
        assert balance(path) == 0
        await transaction.commit()
        assert balance(path) == 1
        assert [view and view.state for view in await store.get([claim.job_id])] == [State.SUCCEEDED]


async def test_a_commit_is_as_durable_as_those_of_the_store(path: str) -> None:
    async with opened(path) as store:
        transaction = await store.begin()
        assert await transaction.execute("PRAGMA synchronous") == [(2,)]
        assert await transaction.execute("PRAGMA journal_mode") == [("wal",)]
        await transaction.rollback()


@pytest.mark.parametrize("how", ["settle", "prove", "settled before"])
async def test_nothing_commits_when_the_lease_is_lost_though_it_is_asked_for(path: str, how: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        if how == "settled before":
            await store.settle([success(claim)])
        else:
            await store.complete({claim.job_id: "2"})
        transaction = await store.begin()
        await transaction.execute("INSERT INTO balance VALUES (1)")
        await (transaction.prove(claim.lease) if how == "prove" else transaction.settle(success(claim)))
        with pytest.raises(StaleLease, match="nothing was committed"):
            await transaction.commit()
        assert balance(path) == 0


async def test_a_statement_that_fails_is_the_handlers_to_catch(path: str) -> None:
    async with opened(path) as store:
        transaction = await store.begin()
        with pytest.raises(sqlite3.IntegrityError):
            await transaction.execute("INSERT INTO balance VALUES (100)")
        await transaction.execute("INSERT INTO balance VALUES (1)")
        await transaction.commit()
        assert balance(path) == 1


async def test_any_thread_may_use_the_connection_and_what_it_sets_there_is_its_own(path: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        transaction = await store.begin()
        connection = transaction.connection

        def work() -> int:
            connection.row_factory = lambda _, row: {"n": row[0]}
            connection.executemany("INSERT INTO balance VALUES (?)", [(1,), (2,)])
            return int(connection.execute("SELECT n FROM balance ORDER BY n").fetchone()["n"])

        assert await in_thread(work) == 1
        assert await transaction.settle(success(claim)) is Settled.APPLIED
        await transaction.commit()
        assert balance(path) == 2


ENDINGS: list[Callable[[sqlite3.Connection], object]] = [
    lambda connection: connection.commit(),
    lambda connection: connection.rollback(),
    lambda connection: connection.execute("COMMIT"),
    lambda connection: connection.execute(" end"),
    lambda connection: connection.execute("/* why */ COMMIT"),
    lambda connection: connection.execute("-- why\n /* and */ -- how\n\tcommit /* now */"),
    lambda connection: connection.execute("\ufeffCOMMIT"),
    lambda connection: connection.execute("COMMIT--"),
    lambda connection: connection.execute("ROLLBACK/* TO mine */"),
    lambda connection: connection.cursor().execute("ROLLBACK TRANSACTION"),
    lambda connection: connection.executescript("SELECT 1"),
    lambda connection: connection.cursor(sqlite3.Cursor),
    lambda connection: connection.blobopen("balance", "n", 1),
    lambda connection: connection.close(),
    lambda connection: setattr(connection, "isolation_level", None),
    lambda connection: setattr(connection, "isolation_level", "DEFERRED"),
    lambda connection: setattr(connection, "autocommit", True),
]


@pytest.mark.parametrize("end", ENDINGS)
async def test_the_handler_cannot_end_the_transaction_behind_the_fence(
    path: str, end: Callable[[sqlite3.Connection], object]
) -> None:
    async with opened(path) as store:
        transaction = await store.begin()
        await transaction.execute("INSERT INTO balance VALUES (1)")
        with pytest.raises(BadSetting):
            end(transaction.connection)
        assert balance(path) == 0
        await transaction.commit()
        assert balance(path) == 1


async def test_the_usual_block_of_sqlite3_neither_commits_nor_undoes(path: str) -> None:
    async with opened(path) as store:
        transaction = await store.begin()
        with transaction.connection as connection:
            connection.execute("INSERT INTO balance VALUES (1)")
        assert connection is transaction.connection
        assert balance(path) == 0
        with pytest.raises(sqlite3.IntegrityError), connection:
            connection.execute("INSERT INTO balance VALUES (100)")
        connection.execute("INSERT INTO balance VALUES (2)")
        await transaction.commit()
        assert balance(path) == 2


async def test_a_handler_that_uses_the_usual_block_ends_with_its_effect_and_its_job(path: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        transaction = await store.begin()
        with transaction.connection as connection:
            connection.execute("INSERT INTO balance VALUES (1)")
        await transaction.settle(success(claim))
        await transaction.rollback()
        assert balance(path) == 0
        assert [view and view.state for view in await store.get([claim.job_id])] == [State.RUNNING]


async def test_savepoints_are_the_handlers_own(path: str) -> None:
    async with opened(path) as store:
        transaction = await store.begin()
        undo = "/* back */ ROLLBACK TRANSACTION /* only */ TO SAVEPOINT mine"
        for statement in ("SAVEPOINT mine", "INSERT INTO balance VALUES (1)", "ROLLBACK TO mine", undo, "RELEASE mine"):
            await transaction.execute(statement)
        await transaction.execute("INSERT INTO balance VALUES (2)")
        await transaction.commit()
        assert balance(path) == 1


async def test_a_transaction_that_a_conflict_has_undone_takes_no_more(path: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        transaction = await store.begin()
        await transaction.execute("INSERT INTO balance VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            await transaction.execute("INSERT OR ROLLBACK INTO balance VALUES (100)")
        for use in ("its own", "its connection's"):
            with pytest.raises(BadSetting, match="nothing is completed"):
                await (transaction.execute(WRITE) if use == "its own" else in_thread(lambda: write_to(transaction)))
        with pytest.raises(BadSetting, match="nothing is completed"):
            await transaction.settle(success(claim))
        with pytest.raises(BadSetting, match="nothing is completed"):
            await transaction.commit()
        assert balance(path) == 0
        assert await store.settle([success(claim)]) == [Settled.APPLIED], "the lease is still held"


@pytest.mark.parametrize("how", ["its own", "its connection's"])
async def test_a_statement_that_ends_the_transaction_all_the_same_is_told_of_at_once(path: str, how: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        transaction = await store.begin()
        connection = transaction.connection
        # nothing that the statement's text shows: a cursor behind the fence
        connection.create_function("ends", 0, lambda: sqlite3.Cursor(connection).execute("COMMIT").rowcount)
        with pytest.raises(BadSetting, match="its block alone ends it"):
            await (
                transaction.execute("SELECT ends()")
                if how == "its own"
                else in_thread(lambda: connection.execute("SELECT ends()"))
            )
        with pytest.raises(BadSetting, match="nothing is completed"):
            await transaction.settle(success(claim))
        await transaction.rollback()
        assert await store.settle([success(claim)]) == [Settled.APPLIED], "the lease is still held"


async def test_a_cancel_that_won_keeps_the_transaction_from_committing(path: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        await store.cancel([claim.job_id])
        transaction = await store.begin()
        await transaction.execute(WRITE)
        assert await transaction.settle(continued(claim)) is Settled.CANCELED
        with pytest.raises(Aborted, match="canceled"):
            await transaction.commit()
        assert balance(path) == 0
        assert [view and view.state for view in await store.get([claim.job_id])] == [State.RUNNING]


# -- the cap ---------------------------------------------------------------------------------------------------------------


def test_the_cap_is_five_seconds_and_others_wait_for_longer() -> None:
    store = SqliteStore("jobs.db", SystemEnvironment())
    assert (LONGEST, store._longest_transaction) == (5.0, 5.0)
    assert store._busy_timeout > LONGEST


USES: dict[str, Callable[[SqliteTransaction, Claimed], Awaitable[object]]] = {
    "execute": lambda transaction, _: transaction.execute("INSERT INTO balance VALUES (2)"),
    "enqueue": lambda transaction, _: transaction.enqueue([NewJob(id=uuid7(), task="t")]),
    "settle": lambda transaction, claim: transaction.settle(success(claim)),
    "prove": lambda transaction, claim: transaction.prove(claim.lease),
    "commit": lambda transaction, _: transaction.commit(),
    "its connection": lambda transaction, _: in_thread(
        lambda: transaction.connection.execute("INSERT INTO balance VALUES (2)")
    ),
    "its cursor": lambda transaction, _: in_thread(lambda: transaction.connection.cursor().execute("DELETE FROM balance")),
}


@pytest.mark.parametrize("use", USES)
async def test_nothing_stands_of_a_transaction_that_took_too_long(path: str, use: str) -> None:
    async with opened(path) as store:
        claim = await claimed(store)
        transaction = await store.begin()
        await transaction.execute("INSERT INTO balance VALUES (1)")
        await in_thread(transaction._run_out)  # as its timer does
        with pytest.raises(TransactionTooLong, match="more than 5 s and has been undone"):
            await USES[use](transaction, claim)
        if use != "commit":
            with pytest.raises(TransactionTooLong):
                await transaction.commit()
        assert balance(path) == 0
        assert await store.settle([success(claim)]) == [Settled.APPLIED], "the lease is still held"


async def test_a_blocked_event_loop_does_not_put_off_the_end(path: str) -> None:
    async with opened(path, longest_transaction=SHORT) as store:
        transaction = await store.begin()
        with closing(sqlite3.connect(path, timeout=20)) as other, other:  # on the loop itself, which so stands still
            other.execute("INSERT INTO balance VALUES (2)")
        with pytest.raises(TransactionTooLong):
            await transaction.commit()
        assert balance(path) == 1


@pytest.mark.parametrize("thread", ["the store's", "the handler's"])
async def test_a_statement_without_end_is_cut_off(path: str, thread: str) -> None:
    async with opened(path, longest_transaction=SHORT) as store:
        transaction = await store.begin()
        connection = transaction.connection
        running = (
            transaction.execute(ENDLESS)
            if thread == "the store's"
            else in_thread(lambda: connection.execute(ENDLESS).fetchall())
        )
        with pytest.raises(TransactionTooLong):
            await running
        await store.enqueue([NewJob(id=uuid7(), task="t")])
        await transaction.rollback()


async def test_a_write_that_was_waiting_goes_on_when_the_time_is_over(path: str) -> None:
    async with opened(path, longest_transaction=SHORT) as store:
        transaction = await store.begin()
        assert (await store.enqueue([NewJob(id=uuid7(), task="t")]))[0].status == "created"
        with pytest.raises(TransactionTooLong):
            await transaction.commit()


async def test_cursors_that_the_handler_kept_do_not_keep_the_file(path: str) -> None:
    async with opened(path) as store:
        transaction = await store.begin()
        for n in range(3):
            await transaction.execute("INSERT INTO balance VALUES (?)", n)
        kept = transaction.connection.execute("SELECT n FROM balance")
        assert kept.fetchone() is not None
        await transaction.rollback()
        begun = time.monotonic()
        await store.enqueue([NewJob(id=uuid7(), task="t")])
        assert time.monotonic() - begun < LONGEST, "it had to wait for the cap"


# -- turns, and the end of the store ---------------------------------------------------------------------------------------


async def test_handlers_of_one_store_take_turns(path: str) -> None:
    async with opened(path, busy_timeout=0.05) as store:

        async def add(n: int) -> None:
            transaction = await store.begin()
            await transaction.execute("INSERT INTO balance VALUES (?)", n)
            await asyncio.sleep(0.02)  # several of these are longer than the time-out
            await transaction.commit()

        await asyncio.gather(*(add(n) for n in range(10)))
        assert balance(path) == 10


async def test_a_handler_that_begins_twice_is_stopped_by_the_cap_not_for_ever(path: str) -> None:
    async with opened(path, longest_transaction=SHORT) as store:
        first = await store.begin()
        second = await store.begin()
        await second.rollback()
        with pytest.raises(TransactionTooLong):
            await first.commit()


async def test_somebody_elses_write_is_waited_for_until_the_time_out(path: str) -> None:
    async with opened(path, busy_timeout=0.05) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="did not finish in time"):
                await store.begin()
            other.execute("ROLLBACK")
        transaction = await store.begin()
        await transaction.rollback()


async def test_one_that_is_given_up_while_it_waits_leaves_nothing_behind(path: str) -> None:
    async with opened(path, busy_timeout=60.0) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.begin(), 0.05)
            assert time.monotonic() - begun < 30.0, "it went on waiting, and the event loop with it"
            other.execute("ROLLBACK")
        transaction = await store.begin()
        await transaction.rollback()


async def test_closing_the_store_undoes_what_is_open(path: str) -> None:
    async with opened(path) as store:
        before = threading.active_count()
        transaction = await store.begin()
        await transaction.execute("INSERT INTO balance VALUES (1)")
        await store.close()
        assert threading.active_count() < before
        assert balance(path) == 0
        with pytest.raises(BadSetting, match="has ended"):
            await transaction.execute("SELECT 1")
        with pytest.raises(BadSetting, match="has ended"):
            await transaction.commit()


async def test_whoever_waits_for_a_turn_when_the_store_is_closed_does_not_get_one(path: str) -> None:
    async with opened(path) as store:
        await store.begin()
        waiting = asyncio.ensure_future(store.begin())
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreUnavailable, match="not open"):
            await waiting


async def test_settled_waits_for_the_transaction_that_has_the_attempt_in_hand(path: str) -> None:
    async with opened(path) as store, opened(path) as other:
        claim = await claimed(store)
        transaction = await store.begin()
        await transaction.settle(success(claim))
        asking = asyncio.ensure_future(other.settled(claim.lease))
        assert (await store.stats()).live == 1  # answered by another thread: the question had its chance
        await transaction.commit()
        assert await asking is Event.SUCCEED
