"""What is special about jobs in a file: places where there is none, files that are busy, killed processes, forks."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.errors import BadUrl, SchemaError, StoreUnavailable
from holdfast.store.port import ClaimRequest, JobFilter, Worker
from holdfast.store.sqlite import SqliteStore, connection, database, known_flaws, producing
from holdfast.store.sqlite.connection import file_system, warn_of_network
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.store.sqlite.writing import Writing

WORLD = SystemEnvironment()
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@asynccontextmanager
async def opened(path: str, *, busy_timeout: float = 5.0, search_limit: int = 10_000) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, WORLD, busy_timeout=busy_timeout, search_limit=search_limit)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def jobs(count: int, task: str = "task", **fields: object) -> list[NewJob]:
    return [NewJob(**{"id": WORLD.job_id(), "task": task, **fields}) for _ in range(count)]  # type: ignore[arg-type]


def integrity(path: str) -> str:
    with closing(sqlite3.connect(path)) as file:
        return str(file.execute("PRAGMA integrity_check").fetchone()[0])


# -- places ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [":memory:", "", "file::memory:?cache=shared"])
def test_a_database_in_memory_is_refused(path: str) -> None:
    with pytest.raises(BadUrl, match="use memory://"):
        SqliteStore(path, WORLD)


async def test_a_missing_directory_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"mkdir -p .*nowhere") as caught:
        await SqliteStore(tmp_path / "nowhere" / "jobs.db", WORLD).open()
    assert caught.value.target == str(tmp_path / "nowhere" / "jobs.db")


async def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is a directory"):
        await SqliteStore(tmp_path, WORLD).open()


async def test_a_file_that_is_no_database_is_left_alone(path: str) -> None:
    Path(path).write_text("Dear diary, " * 100)  # noqa: ASYNC240  a test's own file
    with pytest.raises(SchemaError, match="not a SQLite database"):
        await SqliteStore(path, WORLD).open()


async def test_a_damaged_file_is_an_error_of_ours(path: str) -> None:
    async with opened(path) as store:
        await store.enqueue(jobs(2000, args='"' + "x" * 500 + '"'))
    _overwrite(path, offset=300_000, data=b"\xff" * 500_000)
    with pytest.raises(SchemaError, match=r"is damaged.*\.recover"):
        async with opened(path) as store:
            await store.find(JobFilter(task="other"), limit=10)


async def test_a_dropped_table_is_an_error_of_ours(path: str) -> None:
    async with opened(path) as store:
        with closing(sqlite3.connect(path)) as file:
            file.execute("DROP TABLE holdfast_job")
        with pytest.raises(SchemaError, match="no such table"):
            await store.enqueue(jobs(1))
        with pytest.raises(SchemaError, match="no such table"):
            await store.get([uuid4()])


def _overwrite(path: str, *, offset: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(offset)
        file.write(data)


async def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "jobs ?mode=ro#%41 é.db"
    async with opened(str(path)) as store:
        await store.enqueue(jobs(1))
    assert path.exists()


async def test_opening_and_closing_may_be_repeated(path: str) -> None:
    store = SqliteStore(path, WORLD)
    await store.close()
    await asyncio.gather(store.open(), store.open())
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.stats()
    await store.open()
    assert (await store.stats()).live == 0
    await store.close()


FORKING = """
import asyncio, os, sys, warnings
from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

warnings.simplefilter("ignore")  # about forking with threads, which is the point

async def use(store):
    await store.open()
    await store.stats()
    await store.close()

store = SqliteStore(sys.argv[1], SystemEnvironment())
loop = asyncio.new_event_loop()
if sys.argv[2] == "opened":
    loop.run_until_complete(store.open())
if not (child := os.fork()):
    try:
        asyncio.new_event_loop().run_until_complete(use(store))
    except StoreUnavailable as error:
        os._exit(7 if "open a store per process" in str(error) else 1)
    os._exit(0)
status = os.waitpid(child, 0)[1]
loop.run_until_complete(store.close())
loop.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.row(27)
@pytest.mark.parametrize(("when", "status"), [("opened", 7), ("made", 0)])
def test_a_forked_child_may_use_only_a_store_that_it_opened_itself(path: str, when: str, status: int) -> None:
    command = [sys.executable, "-c", FORKING, path, when]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as parent:
        try:
            assert parent.wait(30) == status
        finally:  # a child that hangs is of its session, and outlives it
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


# -- others at work --------------------------------------------------------------------------------------------------------


@pytest.fixture
def long_write(path: str) -> Iterator[sqlite3.Connection]:
    """Somebody's transaction that has written and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        yield file
        if file.in_transaction:
            file.execute("ROLLBACK")


def begin_writing(file: sqlite3.Connection) -> None:
    file.execute("BEGIN IMMEDIATE")
    file.execute("UPDATE holdfast_meta SET number = number + 1")


@pytest.mark.row(27)
async def test_a_busy_file_is_unavailable_after_the_time_out(path: str, long_write: sqlite3.Connection) -> None:
    async with opened(path, busy_timeout=0.05) as store:
        begin_writing(long_write)
        with pytest.raises(StoreUnavailable, match="did not finish in time") as caught:
            await store.enqueue(jobs(1))
        assert caught.value.target == path
        assert caught.value.waited >= 0.05
        long_write.execute("ROLLBACK")
        assert [answer.status for answer in await store.enqueue(jobs(1))] == ["created"]


@pytest.mark.row(27)
async def test_a_write_waits_for_the_one_before_it(path: str, long_write: sqlite3.Connection) -> None:
    async with opened(path) as store:
        begin_writing(long_write)
        waiting = asyncio.ensure_future(store.enqueue(jobs(1)))
        assert (await store.stats()).live == 0  # the answer of another thread: the write had its chance
        assert not waiting.done()
        long_write.execute("COMMIT")
        assert [answer.status for answer in await waiting] == ["created"]


async def test_looking_goes_on_during_a_long_write(path: str, long_write: sqlite3.Connection) -> None:
    async with opened(path, busy_timeout=0.05) as store:
        new = jobs(3)
        await store.enqueue(new)
        begin_writing(long_write)
        assert (await store.stats()).count(State.READY) == 3
        assert [view.id for view in (await store.find(JobFilter(), limit=10)).jobs] == [job.id for job in reversed(new)]


async def test_claims_go_on_during_a_long_look(path: str) -> None:
    async with opened(path) as store:
        await store.enqueue(jobs(3))
        worker = Worker(id=uuid4(), name="one")
        await store.register(worker)
        begun, end, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

        def look(file: sqlite3.Connection) -> tuple[int, int]:
            before = file.execute("SELECT count(*) FROM holdfast_ready").fetchone()[0]
            loop.call_soon_threadsafe(begun.set)
            end.wait(10)
            return before, file.execute("SELECT count(*) FROM holdfast_ready").fetchone()[0]

        looking = asyncio.ensure_future(store._read(look))
        await begun.wait()
        claimed = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"task"}), limit=2))
        end.set()
        assert len(claimed) == 2
        assert await looking == (3, 3), "a look sees one moment"


async def test_others_notice_a_commit_by_the_data_version(path: str) -> None:
    async with opened(path) as one, opened(path) as other:
        before = await other.data_version()
        assert await other.data_version() == before
        await one.enqueue(jobs(1))
        assert await other.data_version() != before


async def test_cancelling_the_wait_does_not_stop_the_write(path: str) -> None:
    async with opened(path) as store:
        new = jobs(1)
        begun, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

        def enqueue(writing: Writing) -> None:
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(10)
            producing.enqueue(writing, new, None)

        enqueuing = asyncio.ensure_future(store._write(enqueue))
        await begun.wait()
        enqueuing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueuing
        go_on.set()
        assert [answer.status for answer in await store.enqueue(new)] == ["repeated"]


async def test_an_error_inside_an_operation_rolls_all_of_it_back(path: str) -> None:
    async with opened(path) as store:
        new = jobs(1)

        def enqueue_and_fail(writing: Writing) -> None:
            producing.enqueue(writing, new, None)
            raise RuntimeError("in the middle")

        with pytest.raises(RuntimeError):
            await store._write(enqueue_and_fail)
        assert (await store.stats()).live == 0
        assert [answer.status for answer in await store.enqueue(new)] == ["created"]


async def test_the_log_is_brought_back_into_the_file_now_and_then(path: str) -> None:
    async with opened(path) as store:
        for _ in range(4 * database.CHECKPOINT_EVERY):
            await store.enqueue(jobs(1))
        after_some = Path(f"{path}-wal").stat().st_size  # noqa: ASYNC240  a test's own file
        for _ in range(8 * database.CHECKPOINT_EVERY):
            await store.enqueue(jobs(1))
        after_many = Path(f"{path}-wal").stat().st_size  # noqa: ASYNC240  as above
        assert after_many < 1.5 * after_some, "the log is used again from its start"


async def test_a_checkpoint_on_a_busy_file_does_not_fail_the_write(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_EVERY", 1)
    async with opened(path, busy_timeout=0.01) as store:
        writer = store._opened().writer
        checkpoint = writer._checkpoint

        def busy_checkpoint() -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                checkpoint()

        monkeypatch.setattr(writer, "_checkpoint", busy_checkpoint)
        assert [answer.status for answer in await store.enqueue(jobs(1))] == ["created"]


# -- a file that is no longer there -------------------------------------------------------------------------------------


def remove_database(path: str) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(path + suffix).unlink()


async def test_nothing_is_enqueued_into_a_deleted_file(path: str) -> None:
    async with opened(path) as store:
        await store.enqueue(jobs(1))
        remove_database(path)
        with pytest.raises(
            StoreUnavailable, match=r"jobs\.db: the file was deleted or moved away.*nothing was done\. Put it back"
        ):
            await store.enqueue(jobs(1))
        with pytest.raises(StoreUnavailable, match="deleted or moved away"):
            await store.stats()
    assert not Path(path).exists()  # noqa: ASYNC240  a test's own file


@pytest.mark.row(27)
async def test_a_replaced_file_is_noticed_and_the_new_one_left_unharmed(path: str) -> None:
    async with opened(path) as store:
        await store.enqueue(jobs(3))
        remove_database(path)
        async with opened(path) as other:
            await other.enqueue(jobs(1))
            with pytest.raises(StoreUnavailable, match="replaced by another one"):
                await store.enqueue(jobs(1))
            with pytest.raises(StoreUnavailable, match="replaced by another one"):
                await store.stats()
            await store.close()
            await other.enqueue(jobs(1))
            await store.open()
            assert (await store.stats()).live == 2, "opened anew it uses what is there now"
    assert integrity(path) == "ok"


async def test_a_file_that_was_put_back_is_used_again(path: str) -> None:
    async with opened(path) as store:
        await store.enqueue(jobs(1))
        Path(path).rename(path + ".away")  # noqa: ASYNC240  a test's own file
        with pytest.raises(StoreUnavailable):
            await store.enqueue(jobs(1))
        Path(path + ".away").rename(path)  # noqa: ASYNC240  as above
        await store.enqueue(jobs(1))
        assert (await store.stats()).live == 2


async def test_the_directory_of_the_process_may_change(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened("jobs.db") as store:
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        await store.enqueue(jobs(1))
        assert (await store.stats()).live == 1
        monkeypatch.chdir(tmp_path)


# -- kill -9 ---------------------------------------------------------------------------------------------------------------

WORKING = """
import asyncio, sys
from uuid import uuid4
from holdfast.core.job import NewJob
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

async def main():
    world = SystemEnvironment()
    store = SqliteStore(sys.argv[1], world)
    await store.open()
    worker = Worker(id=uuid4(), name="victim")
    await store.register(worker)
    request = ClaimRequest(worker=worker.id, tasks=frozenset({"task"}), limit=7)
    while True:
        new = [NewJob(id=world.job_id(), task="task", args='"' + "x" * 3000 + '"') for _ in range(10)]
        await store.enqueue(new)
        print("enqueued", *(job.id for job in new), flush=True)
        claims = await store.claim(request)
        await store.settle([Settlement(one.lease, Write(Event.SUCCEED, 0, result="1")) for one in claims])
        print("settled", *(one.job_id for one in claims), flush=True)

asyncio.run(main())
"""


@pytest.mark.row(27)
@pytest.mark.parametrize("lines", [1, 2, 9, 40])
async def test_what_a_killed_process_was_told_is_there(path: str, lines: int) -> None:
    enqueued, settled = _killed_after(path, lines)
    assert integrity(path) == "ok"
    async with opened(path) as store:
        views = {view.id: view for view in await store.get([*enqueued]) if view is not None}
        assert set(views) == enqueued
        assert {job_id for job_id, view in views.items() if view.state is State.SUCCEEDED} >= settled
        listed = (await store.find(JobFilter(), limit=10_000)).jobs
        stats = await store.stats()
        assert {state: stats.count(state) for state in State} == {
            state: sum(view.state is state for view in listed) for state in State
        }
        await store.rewind(3600)
        await store.reap(100)
        assert (await store.stats()).count(State.RUNNING) == 0


def _killed_after(path: str, lines: int) -> tuple[set[UUID], set[UUID]]:
    """Let a process work and kill it after some lines of output. Returns what it had been told."""
    told: dict[str, set[UUID]] = {"enqueued": set(), "settled": set()}
    with subprocess.Popen([sys.executable, "-c", WORKING, path], stdout=subprocess.PIPE, text=True, cwd=ROOT) as victim:
        assert victim.stdout is not None
        for number, line in enumerate(victim.stdout, start=1):
            word, *ids = line.split()
            told[word] |= set(map(UUID, ids))
            if number == lines:
                victim.send_signal(signal.SIGKILL)
    return told["enqueued"], told["settled"]


IN_THE_MIDDLE = """
import sys, time
from holdfast.store.sqlite.database import Writer
from holdfast.system import SystemEnvironment

INSERT = "INSERT INTO holdfast_part VALUES (?, 'p', 0, 'pending', 0, 0, ?, '', 0, 0)"

def operation(writing):
    for number in range(20_000):  # more than the page cache holds, so that a part has reached the log
        writing.connection.execute(INSERT, (str(number), "x" * 200))
    print("in the middle", flush=True)
    time.sleep(60)

writer = Writer(sys.argv[1], SystemEnvironment(), busy_timeout=5)
writer.open(create=True)
writer.write(operation)
"""


@pytest.mark.row(27)
async def test_a_process_killed_inside_a_write_leaves_nothing_of_it_and_no_lock(path: str) -> None:
    _killed_in_the_middle(path)
    async with opened(path, busy_timeout=0.5) as store:
        assert [answer.status for answer in await store.enqueue(jobs(1))] == ["created"]
        assert await store._read(lambda file: file.execute("SELECT count(*) FROM holdfast_part").fetchone()) == (0,)
    assert integrity(path) == "ok"


def _killed_in_the_middle(path: str) -> None:
    with subprocess.Popen([sys.executable, "-c", IN_THE_MIDDLE, path], stdout=subprocess.PIPE, text=True, cwd=ROOT) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "in the middle\n"
        victim.send_signal(signal.SIGKILL)


# -- lists -----------------------------------------------------------------------------------------------------------------


async def test_a_search_stops_at_its_bound_says_so_and_goes_on_from_there(path: str) -> None:
    async with opened(path, search_limit=10) as store:
        rare = jobs(1, task="rare")
        await store.enqueue([*rare, *jobs(24)])
        pages, after = [], None
        while True:
            page = await store.find(JobFilter(task="rare"), limit=5, after=after)
            pages.append((len(page.jobs), page.searched_all))
            if (after := page.after) is None:
                break
        assert pages == [(0, False), (0, False), (1, True)]


async def test_a_search_by_state_looks_at_no_other_jobs(path: str) -> None:
    async with opened(path, search_limit=10) as store:
        wanted = jobs(2, delay=3600.0)
        await store.enqueue([*wanted, *jobs(50)])
        page = await store.find(JobFilter(states=frozenset({State.SCHEDULED, State.FAILED, State.RUNNING})), limit=5)
        assert ([view.id for view in page.jobs], page.searched_all) == ([wanted[1].id, wanted[0].id], True)


# -- the machine -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "flawed"),
    [
        ((3, 40, 1), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_versions_with_the_wal_reset_bug_are_known(version: tuple[int, int, int], *, flawed: bool) -> None:
    assert bool(known_flaws(version)) is flawed


def test_a_network_file_system_is_recognised_and_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = tmp_path / "my share"
    (share / "local").mkdir(parents=True)
    mounts = tmp_path / "mounts"
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nhost:/b {escaped} nfs4 rw 0 0\n/dev/c {escaped}/local ext4 rw 0 0\n")
    assert file_system(share / "jobs.db", mounts) == "nfs4"
    assert file_system(share / "local" / "jobs.db", mounts) == "ext4"
    assert file_system(tmp_path / "my share2" / "jobs.db", mounts) == "ext4"
    assert file_system(share, tmp_path / "nowhere") is None
    monkeypatch.setattr(connection, "MOUNTS", mounts)
    warn_of_network(str(share / "local" / "jobs.db"))
    with pytest.warns(RuntimeWarning, match=r"network file system \(nfs4\).*use PostgreSQL"):
        warn_of_network(str(share / "jobs.db"))


async def test_an_old_sqlite_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(StoreUnavailable, match=r"needs 3\.35\.0 or newer"):
        await SqliteStore(path, WORLD).open()


async def test_a_directory_that_is_not_writable_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(StoreUnavailable, match="not writable for this user"):
        await SqliteStore(path, WORLD).open()
