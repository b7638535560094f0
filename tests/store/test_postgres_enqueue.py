"""Enqueuing on PostgreSQL: the short way of plain jobs writes what the long one does, and connections are kept at hand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec
import pytest

from holdfast.core.job import NewJob, Policy, Unique
from holdfast.core.limits import LimitKey
from holdfast.core.retry import Retry
from holdfast.store.port import ClaimRequest, Enqueue, Notice, Worker
from holdfast.store.postgres import PostgresStore, connection, rendering
from holdfast.store.postgres.connection import Connections
from holdfast.system import SystemEnvironment
from tests.runtime.awaiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.postgres import GivenServer, PostgresServer

WORLD: Final = SystemEnvironment()
SENT_FOR_EACH: Final = {"id", "args", "tags", "trace"}
"""What plain jobs of one batch may differ in."""
OTHERS: Final[dict[str, Any]] = {
    "task": "another",
    "queue": "another",
    "priority": 6,
    "delay": 1.0,
    "run_at": datetime(2100, 1, 1, tzinfo=UTC),
    "lease": 61.0,
    "policy": Policy(Retry(max_attempts=7)),
    "unique": Unique(key="k", scope="s"),
    "requires": ("gpu",),
    "prefers": ("gpu",),
    "fifo": True,
    "chain_id": None,  # its own id: see below
    "after": (WORLD.job_id(),),
    "expires_in": 10.0,
    "limit": LimitKey("tenants", "a"),
}
SHAPE: Final = {"task", "queue", "priority", "lease", "policy", "requires", "prefers", "fifo"}
"""What is sent once for a batch."""


@pytest.fixture
async def store(postgres_url: str, schema: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, WORLD, schema=schema)
    await store.open()
    yield store
    await store.close()


def a_job(**fields: Any) -> NewJob:
    return NewJob(**{"id": WORLD.job_id(), "task": "t", **fields})


def with_other(field: str) -> NewJob:
    job_id = WORLD.job_id()
    return a_job(id=job_id, **{field: job_id if field == "chain_id" else OTHERS[field]})


def test_every_field_of_a_job_is_sent_or_keeps_it_from_being_plain() -> None:
    assert set(NewJob.__struct_fields__) - {"prefer_for"} == SENT_FOR_EACH | set(OTHERS), (
        "that one is a part of what is preferred"
    )
    for field in OTHERS:
        assert not rendering.alike([a_job(), with_other(field)]), field
        assert rendering.alike([with_other(field)]) is (field in SHAPE), field
    assert rendering.alike([a_job(), a_job(args='{"n":1}', tags=("x",), trace="00-1")])


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("field", [None, *sorted(SHAPE)])
async def test_the_short_way_writes_the_rows_of_the_long_one(
    postgres_url: str, schema: str, store: PostgresStore, field: str | None, number: int
) -> None:
    fields = {} if field is None else {field: OTHERS[field]}
    short = [a_job(args='{"n":1}', tags=("x", "y"), trace="00-1", **fields), a_job(**fields)][:number]
    long = [msgspec.structs.replace(job, id=WORLD.job_id()) for job in short]
    assert rendering.alike(short)
    await store.enqueue(short)
    # a cap is what takes the long way
    await store.enqueue(long, caps={short[0].queue: 1000})

    client = await asyncpg.connect(postgres_url)
    await client.execute(f"SET search_path TO {schema}")
    written = [await _rows_of(client, jobs) for jobs in (short, long)]
    tallies = [tuple(row)[1:] for row in await client.fetch("SELECT * FROM tally ORDER BY xid")]
    lanes = await client.fetchval("SELECT count(*) FROM lane")
    await client.close()
    assert written[0] == written[1]
    assert tallies[0] == tallies[1]
    assert lanes == 1


async def _rows_of(client: asyncpg.Connection[asyncpg.Record], jobs: list[NewJob]) -> list[dict[str, Any]]:
    """Return what is written of jobs, but for the names, places and times of each."""
    own = {"id", "job_id", "place", "created_at", "ready_at"}
    rows = await client.fetch(
        "SELECT * FROM job JOIN ready ON job_id = id WHERE id = ANY ($1) ORDER BY job.place", [job.id for job in jobs]
    )
    assert len(rows) == len(jobs)
    return [{name: value for name, value in row.items() if name not in own} for row in rows]


async def test_plain_jobs_are_claimed_in_the_order_of_the_batch(store: PostgresStore) -> None:
    worker = Worker(id=WORLD.token(), name="w")
    await store.register(worker)
    jobs = [a_job() for _ in range(50)]
    await store.enqueue(jobs[::-1])
    claimed = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=100, look=True))
    assert [one.job_id for one in claimed] == [job.id for job in jobs[::-1]]


async def test_a_plain_batch_with_a_job_that_is_there_creates_the_others(store: PostgresStore) -> None:
    there, first, last = a_job(), a_job(), a_job()
    await store.enqueue([there])
    answers = await store.enqueue([first, there, last])
    assert [answer.status for answer in answers] == [Enqueue.CREATED, Enqueue.REPEATED, Enqueue.CREATED]
    assert [view is not None for view in await store.get([there.id, first.id, last.id])] == [True] * 3


async def test_a_plain_job_named_twice_in_a_batch_is_created_once(store: PostgresStore) -> None:
    job = a_job()
    answers = await store.enqueue([job, a_job(), job])
    assert [answer.status for answer in answers] == [Enqueue.CREATED, Enqueue.CREATED, Enqueue.REPEATED]


class Asked:
    """A notice that is asked for, and how often."""

    def __init__(self, text: str | None) -> None:
        self.times = 0
        self._text = text
        self.notice = Notice(self._say)

    def _say(self) -> str | None:
        self.times += 1
        return self._text


@pytest.mark.parametrize("number", [1, 2])
async def test_a_notice_is_sent_with_the_commit_of_jobs_that_are_ready_then(
    postgres_url: str, store: PostgresStore, number: int
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    client = await asyncpg.connect(postgres_url)
    await client.add_listener(store._channel, lambda *said: heard.put_nowait(str(said[-1])))
    sent, unsent, later = Asked("something"), Asked(None), Asked("never")
    await store.enqueue([a_job() for _ in range(number)], notice=sent.notice)
    await store.enqueue([a_job() for _ in range(number)], notice=unsent.notice)
    await store.enqueue([a_job(delay=60.0) for _ in range(number)], notice=later.notice)
    assert await asyncio.wait_for(heard.get(), 10) == "something"
    assert (sent.notice.sent, unsent.notice.sent, later.notice.sent) == (True, False, False)
    assert (sent.times, unsent.times, later.times) == (1, 1, 0)
    await client.fetch("SELECT 1")
    assert heard.empty()
    await client.close()


async def test_a_notice_is_not_taken_for_sent_where_the_transaction_it_was_in_has_failed(store: PostgresStore) -> None:
    there, fresh = a_job(), a_job()
    await store.enqueue([there])
    asked = Asked("of nothing")
    assert [one.status for one in await store.enqueue([there, fresh], notice=asked.notice)] == [
        Enqueue.REPEATED,
        Enqueue.CREATED,
    ]
    assert not asked.notice.sent, "others would hear of the second job only when they look"


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_more_operations_than_connections_all_get_their_turn(postgres_url: str, size: int) -> None:
    connections = Connections(postgres_url, WORLD, size=size, connect_for=5.0, timeout=5.0, prepare=True)
    await connections.open()
    for _ in range(3):
        assert await asyncio.gather(*[connections.fetch_value("SELECT $1::int", n) for n in range(20)]) == list(range(20))
        assert await connections.fetch_value("SELECT 1") == 1
    await connections.close()


async def test_one_connection_serves_one_operation_after_the_other(postgres_url: str) -> None:
    connections = Connections(postgres_url, WORLD, size=4, connect_for=5.0, timeout=5.0, prepare=True)
    await connections.open()
    assert len({await connections.fetch_value("SELECT pg_backend_pid()") for _ in range(10)}) == 1
    await connections.close()


async def test_a_kept_connection_that_was_lost_is_not_used_again(postgres_url: str) -> None:
    connections = Connections(postgres_url, WORLD, size=1, connect_for=5.0, timeout=5.0, prepare=True)
    await connections.open()
    pid = await connections.fetch_value("SELECT pg_backend_pid()")
    client = await asyncpg.connect(postgres_url)
    await client.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
    await client.close()
    await until(lambda: not any(connection._usable(kept) for kept in connections._kept))
    assert await connections.fetch_value("SELECT pg_backend_pid()") != pid
    await connections.close()


async def test_a_connection_that_nobody_uses_for_long_is_closed(
    postgres_server: PostgresServer | GivenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.create_database()  # with nobody else in it
    monkeypatch.setattr(connection, "KEPT_SECONDS", 0.05)
    connections = Connections(url, WORLD, size=4, connect_for=5.0, timeout=5.0, prepare=True)
    await connections.open()
    await connections.fetch_value("SELECT 1")
    await until(lambda: not postgres_server.sessions(url))
    assert await connections.fetch_value("SELECT 1") == 1
    await connections.close()
    postgres_server.drop_database(url)
