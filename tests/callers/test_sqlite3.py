"""Jobs in a transaction on somebody's own sqlite3 connection: they stand or fall with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, OnConflict, Unique
from holdfast.core.outcome import Continued, Succeeded
from holdfast.core.settle import settle
from holdfast.core.states import State
from holdfast.errors import Aborted, BadJob, BadSetting, QueueFull, SchemaError, SchemaMissing, StaleLease, StoreUnavailable
from holdfast.notify.sqlite import SqliteNotifier
from holdfast.store.port import ClaimRequest, Enqueue, Enqueued, JobFilter, Settled, Settlement, Worker
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.caller import SqliteCaller
from holdfast.system import SystemEnvironment
from tests.notify.ear import Ear, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

    from holdfast.core.lease import Claimed

T = TypeVar("T")
WORLD = SystemEnvironment()
WORKER = Worker(id=uuid4(), name="w")
EVERYTHING = JobFilter()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest_asyncio.fixture
async def store(path: str) -> AsyncIterator[SqliteStore]:
    """The jobs' own store, beside a table of an application."""
    store = SqliteStore(path, WORLD)
    await store.open()
    await store.register(WORKER)
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE orders (n INTEGER)")
    yield store
    await store.close()


@pytest.fixture
def connection(path: str, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """The application's connection, as `sqlite3.connect` makes it."""
    assert store.path == path
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what never suspends, as blocking code does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it was suspended")


def on(connection: sqlite3.Connection, path: str) -> SqliteCaller:
    return SqliteCaller.on(connection, path, WORLD)


def job(**fields: Any) -> NewJob:
    return NewJob(**{"id": uuid7(), "task": "t", **fields})


def unique(key: str, on_conflict: OnConflict = OnConflict.SKIP) -> Unique:
    return Unique(scope="t", key=key, on_conflict=on_conflict)


def enqueue(connection: sqlite3.Connection, path: str, *jobs: NewJob, **options: Any) -> list[Enqueued]:
    return now(on(connection, path).enqueue(jobs, **options))


def orders(path: str) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT count(*) FROM orders").fetchone()[0])


async def states(store: SqliteStore, *jobs: NewJob) -> list[State | None]:
    return [None if view is None else view.state for view in await store.get([job.id for job in jobs])]


async def claim(store: SqliteStore, limit: int = 100) -> list[Claimed]:
    return await store.claim(ClaimRequest(worker=WORKER.id, tasks=frozenset({"t"}), limit=limit))


def success(claimed: Claimed) -> Settlement:
    write = settle(Succeeded("1"), claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
    return Settlement(claimed.lease, write)


# -- commit, or never ------------------------------------------------------------------------------------------------------


async def test_jobs_exist_with_the_commit_and_a_worker_takes_them(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")
    one = job()
    assert enqueue(connection, path, one) == [Enqueued(Enqueue.CREATED, one.id)]
    assert await states(store, one) == [None]
    connection.commit()
    assert [claimed.job_id for claimed in await claim(store)] == [one.id]
    assert orders(path) == 1


async def test_the_first_thing_of_a_transaction_may_be_a_job(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    one = job()
    enqueue(connection, path, one)
    assert connection.in_transaction
    connection.execute("INSERT INTO orders VALUES (1)")
    assert (orders(path), await states(store, one)) == (0, [None])
    connection.commit()
    assert (orders(path), await states(store, one)) == (1, [State.READY])


async def _roll_back(connection: sqlite3.Connection) -> None:
    connection.rollback()


async def _close(connection: sqlite3.Connection) -> None:
    connection.close()


async def _raise(connection: sqlite3.Connection) -> None:
    with pytest.raises(KeyError), connection:
        raise KeyError("anything")


@pytest.mark.parametrize("end", [_roll_back, _close, _raise])
async def test_jobs_never_were_when_the_transaction_is_not_committed(
    store: SqliteStore,
    connection: sqlite3.Connection,
    path: str,
    end: Callable[[sqlite3.Connection], Coroutine[Any, Any, None]],
) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")
    one = job(unique=unique("k"))
    enqueue(connection, path, one)
    await end(connection)
    assert (orders(path), await states(store, one)) == (0, [None])
    assert (await store.enqueue([job(unique=unique("k"))]))[0].status is Enqueue.CREATED, "it left its key behind"
    assert (await store.stats()).live == 1


async def test_a_savepoint_takes_its_jobs_back(store: SqliteStore, connection: sqlite3.Connection, path: str) -> None:
    kept, dropped = job(), job()
    connection.execute("BEGIN")
    enqueue(connection, path, kept)
    connection.execute("SAVEPOINT mine")
    enqueue(connection, path, dropped)
    connection.execute("ROLLBACK TO mine")
    connection.commit()
    assert await states(store, kept, dropped) == [State.READY, None]


CHILD = """
import sqlite3, sys
from uuid import UUID
from holdfast.core.job import NewJob
from holdfast.store.sqlite.caller import SqliteCaller
from holdfast.system import SystemEnvironment

path, *ids = sys.argv[1:]
connection = sqlite3.connect(path)
connection.execute("INSERT INTO orders VALUES (1)")
try:
    SqliteCaller.on(connection, path, SystemEnvironment()).enqueue([NewJob(id=UUID(i), task="t") for i in ids]).send(None)
except StopIteration as end:
    print(len(end.value), flush=True)
sys.stdin.readline()
connection.commit()
print("committed", flush=True)
sys.stdin.readline()
"""


def started(path: str, jobs: list[NewJob]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, path, *(str(one.id) for one in jobs)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("committed", [False, True])
async def test_a_process_that_is_killed_leaves_what_it_had_committed(store: SqliteStore, path: str, *, committed: bool) -> None:
    jobs = [job() for _ in range(3)]
    with started(path, jobs) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "3\n"
        if committed:
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "committed\n"
        os.kill(child.pid, signal.SIGKILL)
    assert orders(path) == int(committed)
    assert await states(store, *jobs) == [State.READY if committed else None] * 3
    await store.enqueue([job()])


# -- what is enqueued --------------------------------------------------------------------------------------------------------


async def test_many_jobs_keep_their_order(store: SqliteStore, connection: sqlite3.Connection, path: str) -> None:
    jobs = [job() for _ in range(1_000)]
    assert {answer.status for answer in enqueue(connection, path, *jobs)} == {Enqueue.CREATED}
    connection.commit()
    assert [claimed.job_id for claimed in await claim(store, 2_000)] == [one.id for one in jobs]


async def test_keys_are_answered_as_the_transaction_sees_them(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    before = job(unique=unique("a"))
    await store.enqueue([before])
    first, again = job(unique=unique("b")), job(unique=unique("b"))
    taken, instead = job(unique=unique("a")), job(unique=unique("a", OnConflict.REPLACE))
    answers = enqueue(connection, path, first, again, taken)
    answers += enqueue(connection, path, instead, first)
    connection.commit()
    assert answers == [
        Enqueued(Enqueue.CREATED, first.id),
        Enqueued(Enqueue.EXISTING, first.id),
        Enqueued(Enqueue.EXISTING, before.id),
        Enqueued(Enqueue.CREATED, instead.id),
        Enqueued(Enqueue.REPEATED, first.id),
    ]
    assert await states(store, before, first, instead) == [State.CANCELED, State.READY, State.READY]


async def test_waiters_find_their_blockers_wherever_those_are(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    outside, inside = job(), job()
    await store.enqueue([outside])
    waiter = job(after=(outside.id, inside.id))
    enqueue(connection, path, inside, waiter)
    connection.commit()
    assert await states(store, waiter) == [State.BLOCKED]
    answers = await store.settle([success(claimed) for claimed in await claim(store)])
    assert sorted(answers) == [Settled.APPLIED, Settled.FREED]
    assert await states(store, waiter) == [State.READY]
    assert await store.unblock(10) == 0


@pytest.mark.parametrize("began", [True, False])
async def test_what_is_refused_leaves_the_transaction_as_it_was(
    store: SqliteStore, connection: sqlite3.Connection, path: str, *, began: bool
) -> None:
    good = job()
    if began:
        connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(QueueFull):
        enqueue(connection, path, job(), job(), caps={"default": 1})
    with pytest.raises(BadJob, match="there is no job"):
        enqueue(connection, path, job(), job(after=(uuid7(),)))
    assert connection.in_transaction is began, "nobody would know that the file is locked"
    enqueue(connection, path, good)
    connection.commit()
    assert orders(path) == int(began)
    assert [view.id for view in (await store.find(EVERYTHING, limit=10)).jobs] == [good.id]


# -- the connection ----------------------------------------------------------------------------------------------------------


async def test_what_the_owner_has_set_on_the_connection_does_not_matter(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    for factory in (sqlite3.Row, as_dict):
        connection.row_factory = factory
        enqueue(connection, path, job(unique=unique("k")), job(unique=unique("k")))
    assert connection.row_factory is as_dict
    connection.commit()
    assert (await store.stats()).live == 1


async def test_another_kind_of_text_is_refused(connection: sqlite3.Connection, path: str) -> None:
    connection.text_factory = bytes
    with pytest.raises(BadSetting, match="text_factory=<class 'bytes'>"):
        on(connection, path)


async def test_a_connection_to_another_file_is_refused_with_both_names(path: str, store: SqliteStore, tmp_path: Path) -> None:
    assert store.path == path
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as file, pytest.raises(BadSetting) as caught:
        enqueue(file, path, job())
    assert str(other) in str(caught.value)
    assert path in str(caught.value)
    with closing(sqlite3.connect(":memory:")) as memory, pytest.raises(BadSetting, match="open on a database in memory"):
        enqueue(memory, path, job())


async def test_one_file_may_have_several_names(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for name, file in ((link, path), (path, str(link)), (path, "jobs.db")):
        with closing(sqlite3.connect(name)) as connection:
            enqueue(connection, file, job())
            connection.commit()
    assert (await store.stats()).live == 3


def test_a_file_without_our_tables_says_how_to_make_them(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (n INTEGER)")
        for _ in ("outside of a transaction", "inside"):
            with pytest.raises(SchemaMissing, match="holdfast migrate sqlite:///"):
                enqueue(connection, path, job())
            connection.execute("INSERT INTO orders VALUES (1)")


async def test_autocommit_is_refused_with_the_line_to_write(store: SqliteStore, path: str) -> None:
    one = job()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(BadSetting, match=r'connection\.execute\("BEGIN IMMEDIATE"\)'):
            enqueue(connection, path, one)
        connection.execute("BEGIN IMMEDIATE")
        enqueue(connection, path, one)
        connection.execute("COMMIT")
    assert await states(store, one) == [State.READY]


class Newer(sqlite3.Connection):
    """What a connection with `autocommit=True` is from Python 3.12 on, as far as it matters here."""

    autocommit = True

    def commit(self) -> None:
        """Do nothing, as there."""

    def rollback(self) -> None:
        """Do nothing, as there."""


async def test_the_newer_form_of_autocommit_is_heeded(store: SqliteStore, path: str) -> None:
    one, other = job(), job()
    options: dict[str, Any] = {"factory": Newer} if sys.version_info < (3, 12) else {"autocommit": True}
    with closing(sqlite3.connect(path, **options)) as connection:
        with pytest.raises(BadSetting, match="BEGIN IMMEDIATE"):
            enqueue(connection, path, one)
        caller = on(connection, path)
        now(caller.begin())
        now(caller.enqueue([one]))
        now(caller.commit())
        now(caller.begin())
        now(caller.enqueue([other]))
        now(caller.rollback())
    assert await states(store, one, other) == [State.READY, None]


async def test_a_transaction_that_cannot_write_any_more_is_told_to_begin_otherwise(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM orders").fetchall()
    await store.enqueue([job()])
    with pytest.raises(StoreUnavailable, match=r'somebody else has written since.*connection\.execute\("BEGIN IMMEDIATE"\)'):
        enqueue(connection, path, job())
    assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(0,)], "the transaction can still be read in"
    connection.rollback()
    enqueue(connection, path, job())
    connection.commit()
    assert (await store.stats()).live == 2


async def test_a_transaction_that_has_not_read_yet_is_not_made_to(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:

        def write(_: str) -> None:
            with suppress(sqlite3.OperationalError):  # from the moment on in which the transaction has the write lock
                other.execute("INSERT INTO orders VALUES (1)")

        connection.execute("BEGIN")
        connection.set_trace_callback(write)  # called before every statement
        enqueue(connection, path, job())
        connection.set_trace_callback(None)
    connection.commit()
    assert orders(path) > 0
    assert (await store.stats()).live == 1


@pytest.mark.parametrize("began", [True, False])
def test_tables_of_our_name_that_are_not_ours_are_said_to_be_so(path: str, *, began: bool) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE holdfast_meta (theirs)")
        if began:
            connection.execute("BEGIN")
        with pytest.raises(SchemaError, match="holdfast_meta that is not Holdfast's"):
            enqueue(connection, path, job())


async def test_a_file_that_somebody_else_writes_to_is_busy(store: SqliteStore, path: str) -> None:
    transaction = await store.begin()
    with closing(sqlite3.connect(path, timeout=0.05)) as connection:
        with pytest.raises(StoreUnavailable, match="did not finish in time"):
            enqueue(connection, path, job())
        assert not connection.in_transaction
    await transaction.rollback()


# -- the job's own end -----------------------------------------------------------------------------------------------------


async def test_a_handler_may_end_its_job_in_its_own_transaction(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    one = job()
    await store.enqueue([one])
    (claimed,) = await claim(store)
    caller = on(connection, path)
    now(caller.begin())
    connection.execute("INSERT INTO orders VALUES (1)")
    assert now(caller.prove(claimed.lease)) is Settled.APPLIED
    assert now(caller.settle(success(claimed))) is Settled.APPLIED
    now(caller.commit())
    assert (orders(path), await states(store, one)) == (1, [State.SUCCEEDED])
    assert (caller.connection, caller.blocking) == (connection, True)


@pytest.mark.parametrize("how", ["settle", "prove"])
async def test_a_lost_lease_keeps_the_transaction_from_committing(
    store: SqliteStore, connection: sqlite3.Connection, path: str, how: str
) -> None:
    await store.enqueue([job()])
    (claimed,) = await claim(store)
    await store.complete({claimed.job_id: "2"})
    caller = on(connection, path)
    now(caller.begin())
    connection.execute("INSERT INTO orders VALUES (1)")
    assert now(caller.prove(claimed.lease) if how == "prove" else caller.settle(success(claimed))) is Settled.STALE
    with pytest.raises(StaleLease):
        now(caller.commit())
    now(caller.rollback())
    assert orders(path) == 0


@pytest.mark.parametrize("how", ["with", "commit", "rollback"])
async def test_what_the_owner_ends_before_the_jobs_end_is_theirs_and_completes_nothing(
    store: SqliteStore, connection: sqlite3.Connection, path: str, how: str
) -> None:
    one, child = job(), job(task="child")
    await store.enqueue([one])
    (claimed,) = await claim(store)
    caller = on(connection, path)
    now(caller.begin())
    connection.execute("INSERT INTO orders VALUES (1)")
    if how == "with":
        with connection:
            now(caller.enqueue([child]))
    else:
        now(caller.enqueue([child]))
        getattr(connection, how)()
    stands = int(how != "rollback")
    assert (orders(path), await states(store, child)) == (stands, [State.READY if stands else None])
    connection.execute("INSERT INTO orders VALUES (2)")  # another transaction, which sqlite3 begins by itself
    with pytest.raises(BadSetting, match="nothing was completed"):
        now(caller.settle(success(claimed)))
    now(caller.rollback())
    assert (orders(path), await states(store, one)) == (stands, [State.RUNNING])


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_a_transaction_that_its_owner_has_ended_is_not_said_to_be_committed(
    store: SqliteStore, connection: sqlite3.Connection, path: str, how: str
) -> None:
    await store.enqueue([job()])
    (claimed,) = await claim(store)
    caller = on(connection, path)
    now(caller.begin())
    assert now(caller.settle(success(claimed))) is Settled.APPLIED
    getattr(connection, how)()
    with pytest.raises(BadSetting, match="has been ended"):
        now(caller.commit())
    expected = Settled.REPEATED if how == "commit" else Settled.APPLIED
    assert await store.settle([success(claimed)]) == [expected], "the attempt can still be ended, once"


async def test_a_cancel_that_won_keeps_the_transaction_from_committing(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    one, then = job(), job(task="next")
    await store.enqueue([one])
    (claimed,) = await claim(store)
    await store.cancel([one.id])
    caller = on(connection, path)
    now(caller.begin())
    connection.execute("INSERT INTO orders VALUES (1)")
    write = settle(Continued(then), claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
    assert now(caller.settle(Settlement(claimed.lease, write, then=then))) is Settled.CANCELED
    with pytest.raises(Aborted, match="canceled"):
        now(caller.commit())
    now(caller.rollback())
    assert (orders(path), await states(store, one, then)) == (0, [State.RUNNING, None])


async def test_begin_works_in_autocommit_mode_too(store: SqliteStore, path: str) -> None:
    one, other = job(), job()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        caller = on(connection, path)
        now(caller.begin())
        now(caller.begin())
        now(caller.enqueue([one]))
        now(caller.commit())
        now(caller.begin())
        now(caller.enqueue([other]))
        now(caller.rollback())
        now(caller.rollback())
    assert await states(store, one, other) == [State.READY, None]


# -- who hears of it -------------------------------------------------------------------------------------------------------


async def test_a_worker_of_the_same_process_is_woken_by_the_commit_itself(
    store: SqliteStore, connection: sqlite3.Connection, path: str
) -> None:
    assert store.path == path
    ear, notifier = Ear(), SqliteNotifier(path, WORLD)
    await notifier.listen(ear)
    try:
        await asyncio.sleep(0)
        caller = on(connection, path)
        heard = len(ear.hints)
        now(caller.enqueue([job()]))
        now(caller.tell("anything"))
        assert caller.after_commit(lambda: None) is False
        assert len(ear.hints) == heard, "there is nothing to be seen before the commit"
        connection.commit()
        await eventually(lambda: any(hint.anything for hint in ear.hints[heard:]))
    finally:
        await notifier.close()
