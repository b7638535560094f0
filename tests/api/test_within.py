"""Enqueuing in a caller's own transaction: what the app does around it. The stacks themselves have tests of their own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import BadJob, BadSetting, Chain, Group, Holdfast, HoldfastError, KeyBusy
from holdfast.notify.port import Hint
from holdfast.store.port import Enqueue, Enqueued
from holdfast.tasks.options import Using
from tests.api.blocking import in_thread
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.job import NewJob


class Conn:
    """A connection of a stack that does not exist, with its transaction."""

    def __init__(self, *, blocking: bool = True, commits: bool = True, error: Exception | None = None) -> None:
        self.blocking = blocking
        self.commits = commits
        """Whether it can tell of commits."""
        self.error = error
        self.jobs: list[NewJob] = []
        self.caps: list[Mapping[str, int] | None] = []
        self.told: list[str] = []
        self.calls: list[Callable[[], None]] = []
        self.threads: set[int] = set()

    def commit(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class FakeCaller:
    """Does as a caller does, and writes it down."""

    def __init__(self, conn: Conn) -> None:
        self.connection = conn
        self.blocking = conn.blocking

    async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
        conn = self.connection
        if not conn.blocking:
            await asyncio.sleep(0)
        if conn.error is not None:
            raise conn.error
        conn.threads.add(threading.get_ident())
        conn.jobs += jobs
        conn.caps.append(caps)
        return [Enqueued(Enqueue.CREATED, job.id) for job in jobs]

    def after_commit(self, call: Callable[[], None]) -> bool:
        if self.connection.commits:
            self.connection.calls.append(call)
        return self.connection.commits

    async def tell(self, text: str) -> None:
        self.connection.told.append(text)


class Ears:
    """Hints that the app sends."""

    def __init__(self) -> None:
        self.heard: list[Hint] = []

    def hint(self, hint: Hint, *, told: bool = False) -> None:
        self.heard.append(hint)

    def with_commit(self, hint: Hint) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture
def ears(memory: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Ears:
    """An app that takes connections of the stack that does not exist."""
    ears = Ears()
    monkeypatch.setattr(memory._adapters, "caller", FakeCaller)
    monkeypatch.setattr(memory._adapters, "notifier", lambda: ears)
    return ears


def never(memory: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it fail when the app opens its own store."""

    def no_store() -> Any:
        raise AssertionError("the app opened its own store")

    monkeypatch.setattr(memory._adapters, "store", no_store)


async def test_jobs_go_through_the_callers_connection_and_nothing_else_is_opened(
    memory: Holdfast, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    @memory.task(queue="mail")
    async def welcome(user: int) -> str:
        return str(user)

    memory.queue("mail", max_depth=10)
    conn = Conn(blocking=False, commits=False)
    never(memory, monkeypatch)
    handle = await welcome.options(conn=conn).enqueue(1)
    handles = await memory.enqueue_many([welcome.call(2), welcome.call(3)], conn=conn)
    group = await memory.group([welcome.call(4)], conn=conn)
    chain = await welcome.options(conn=conn).start_chain(5)
    assert isinstance(group, Group)
    assert isinstance(chain, Chain)
    assert [job.id for job in conn.jobs] == [one.id for one in (handle, *handles, *group, chain)]
    assert conn.jobs[-1].chain_id == chain.id
    assert conn.caps == [{"mail": 10}] * 4
    assert [msgspec.json.decode(text, type=Hint) for text in conn.told] == [Hint(frozenset({"mail"}))] * 4
    assert ears.heard == []
    assert await memory.enqueue_many([], conn=conn) == []


async def test_a_hint_that_would_be_too_long_for_the_server_says_less(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note() -> None: ...

    conn = Conn(blocking=False, commits=False)
    calls = [note.options(queue=f"{'q' * 90}{number}").call() for number in range(100)]
    await memory.enqueue_many(calls, conn=conn)
    assert [msgspec.json.decode(text, type=Hint) for text in conn.told] == [Hint(anything=True)]


async def test_a_hint_follows_the_commit_where_the_stack_tells_of_it(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note(number: int) -> None: ...

    conn = Conn(blocking=False)
    blocker = memory.new_id()
    first, _ = await memory.enqueue_many([note.call(1), note.options(after=blocker, delay=5).call(2)], conn=conn)
    assert (ears.heard, conn.told) == ([], [])
    conn.commit()
    assert ears.heard == [Hint(frozenset({"default"}), later=True, anything=True, waiters=True, ready=(first.id,))]


async def test_a_notification_inside_the_transaction_can_be_left_out(ears: Ears) -> None:
    app = Holdfast("memory://", notify_in_transactions=False)
    app._adapters.caller = FakeCaller  # type: ignore[assignment, method-assign]

    @app.task()
    async def note() -> None: ...

    conn = Conn(blocking=False, commits=False)
    await note.options(conn=conn).enqueue()
    assert (len(conn.jobs), conn.told) == (1, [])


async def test_a_blocking_connection_is_used_in_the_thread_that_asks(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note(number: int) -> None: ...

    conn = Conn()

    def script() -> int:
        bound = note.options(conn=conn)
        bound.enqueue_sync(1)
        bound.start_chain_sync(2)
        memory.enqueue_many_sync([note.call(3)], conn=conn)
        memory.enqueue_many_sync([bound.call(4)])
        memory.group_sync([note.call(5)], conn=conn)
        assert not memory._portal.running, "no other thread was asked"
        conn.commit()
        return threading.get_ident()

    assert {await in_thread(script)} == conn.threads
    assert len(conn.jobs) == 5

    async def heard() -> bool:
        return len(ears.heard) == 5

    await until(heard)


async def test_a_blocking_connection_may_be_used_on_a_loop_too(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note(number: int) -> None: ...

    conn = Conn()
    await note.options(conn=conn).enqueue(1)
    note.options(conn=conn).enqueue_sync(2)
    conn.commit()
    assert (len(conn.jobs), len(ears.heard)) == (2, 2)


async def test_a_connection_that_has_to_be_awaited_is_refused_by_blocking_calls(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note() -> None: ...

    conn = Conn(blocking=False)
    for call, name in (
        (note.options(conn=conn).enqueue_sync, "enqueue"),
        (note.options(conn=conn).start_chain_sync, "start_chain"),
        (lambda: memory.enqueue_many_sync([note.call()], conn=conn), "enqueue_many"),
    ):
        with pytest.raises(BadSetting, match=rf"{name}_sync was given a connection that has to be awaited.* await ….{name}\("):
            await in_thread(call)
    assert conn.jobs == []


async def test_a_caller_that_lies_about_blocking_is_found_out(memory: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lying(FakeCaller):
        async def enqueue(self, jobs: Sequence[NewJob], *, caps: Mapping[str, int] | None = None) -> list[Enqueued]:
            await asyncio.sleep(0)
            return await super().enqueue(jobs, caps=caps)

    monkeypatch.setattr(memory._adapters, "caller", Lying)

    @memory.task()
    async def note() -> None: ...

    with pytest.raises(HoldfastError, match="no event loop"):
        await in_thread(note.options(conn=Conn()).enqueue_sync)


async def test_one_enqueue_belongs_to_one_transaction(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note(number: int) -> None: ...

    one, other = Conn(blocking=False), Conn(blocking=False)
    mixed: list[tuple[list[Any], Any]] = [
        ([note.options(conn=one).call(1), note.options(conn=other).call(2)], None),
        ([note.options(conn=one).call(1), note.call(2)], None),
        ([note.options(conn=one).call(1)], other),
        ([note.options(using="default").call(1), note.options(using="second").call(2)], None),
    ]
    for calls, conn in mixed:
        with pytest.raises(BadSetting, match="belong to different transactions"):
            await memory.enqueue_many(calls, conn=conn)
    assert one.jobs == other.jobs == []
    await memory.enqueue_many([note.options(conn=one).call(1), note.call(2)], conn=one)
    assert len(one.jobs) == 2


async def test_a_django_database_is_named_by_its_alias(memory: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    aliases: list[str] = []
    conn = Conn()

    def using(alias: str) -> FakeCaller:
        aliases.append(alias)
        return FakeCaller(conn)

    monkeypatch.setattr(memory._adapters, "caller_using", using)

    @memory.task()
    async def note() -> None: ...

    await memory.enqueue_many([note.options(using="second").call(), note.options(using="second").call()])
    assert (aliases, len(conn.jobs)) == (["second"], 2)
    assert Using("a") == Using("a")
    with pytest.raises(BadJob, match="give conn= or using=, not both"):
        note.options(using="default", conn=conn)
    wrong: Any = 7
    with pytest.raises(BadJob, match="must be the name of a Django database"):
        note.options(using=wrong)


async def test_a_transaction_of_a_job_brings_its_own_caller(memory: Holdfast, ears: Ears) -> None:
    class Transaction:
        caller = FakeCaller(Conn(blocking=False))

    @memory.task()
    async def note() -> None: ...

    await note.options(conn=Transaction()).enqueue()
    assert len(Transaction.caller.connection.jobs) == 1


async def test_a_refusal_reaches_the_caller_and_tells_nobody(memory: Holdfast, ears: Ears) -> None:
    @memory.task()
    async def note() -> None: ...

    conn = Conn(blocking=False, error=KeyBusy(["order"]))
    with pytest.raises(KeyBusy, match="'order' is being taken by a transaction that is still open"):
        await note.options(conn=conn).enqueue()
    assert (conn.calls, conn.told, ears.heard) == ([], [], [])


async def test_what_is_no_connection_is_refused(memory: Holdfast) -> None:
    @memory.task()
    async def note() -> None: ...

    with pytest.raises(BadSetting):
        await note.options(conn=object()).enqueue()
