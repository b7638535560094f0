"""The control plane on PostgreSQL: what its statements cost, and that a change and the line about it stand or fall together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, Unique
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.errors import HoldfastError
from holdfast.store.port import Action, Audit, Beat, ClaimRequest, Key, Retention, Role, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment
from tests.support.probe import Probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.core.lease import Claimed

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
MANY = 200_000
NEWEST = 50
KEY = Key(id="0" * 12, name="k", role=Role.VIEWER, digest="0" * 64)
STEERED = ("ready", "lease", "archive", "job", "chain", "event", "attempt", "signal", "queue", "worker", "key", "audit")


class Place:
    """A schema of its own, with a worker."""

    def __init__(self, url: str) -> None:
        self.schema = f"s{uuid4().hex}"
        self.url = url
        self.store = PostgresStore(url, SystemEnvironment(), schema=self.schema, pool_size=1)
        self.worker = uuid4()
        self.waiting = uuid7()

    async def open(self) -> None:
        await self.store.open()
        self.admin = await asyncpg.connect(self.url, server_settings={"search_path": self.schema})
        await self.store.register(Worker(id=self.worker, name="w"))

    async def close(self) -> None:
        await self.admin.execute(f"DROP SCHEMA {self.schema} CASCADE")
        await self.admin.close()
        await self.store.close()

    async def fill(self) -> None:
        """Put something into it that each operation can change."""
        held, _ = await self.claimed(2)
        await self.store.settle([Settlement(held.lease, Write(Event.SUCCEED, 0))])
        await self.store.emit("old", "1")
        await self.store.enqueue([NewJob(id=self.waiting, task="other", chain_id=self.waiting)])
        await self.store.pause("q")
        await self.store.disable(self.worker)
        await self.store.add_key(KEY)

    async def picture(self) -> dict[str, list[asyncpg.Record]]:
        """Return what the tables hold that are steered."""
        return {table: await self.admin.fetch(f"SELECT * FROM {table} ORDER BY 1") for table in STEERED}

    async def claimed(self, count: int) -> list[Claimed]:
        await self.store.enqueue([NewJob(id=uuid7(), task="t") for _ in range(count)])
        return await self.store.claim(ClaimRequest(worker=self.worker, tasks=frozenset({"t"}), limit=count, look=True))


@pytest_asyncio.fixture
async def place(postgres_url: str) -> AsyncIterator[Place]:
    place = Place(postgres_url)
    await place.open()
    yield place
    await place.close()


async def test_the_newest_failures_are_read_by_their_index_however_many_there_are(place: Place) -> None:
    store, admin = place.store, place.admin
    await admin.execute("ALTER TABLE attempt SET (autovacuum_enabled = off)")
    async with Probe(store) as early, Probe(store) as late, Probe(store) as informed:
        with early.watch("failures"):
            assert await store.failures(since=LONG_AGO, limit=NEWEST) == []
        await admin.execute(
            "INSERT INTO attempt (job_id, attempt, event, claimed_at, ended_at, worker, late, code) "
            "SELECT gen_random_uuid(), 1, 'failed', now(), now() - n * interval '1 s', 1, false, "
            "CASE WHEN n % 2 = 0 THEN 'OLD' END FROM generate_series(1, $1::int) AS n",
            MANY,
        )
        fails = Write(Event.FAIL, 1, error=Error("BOOM", "it broke"))
        await store.settle([Settlement(one.lease, fails) for one in await place.claimed(NEWEST)])
        # three levels of the index on `attempt`, a page of it for each row at worst, and three levels of `job` for each
        most = 3 + NEWEST * (1 + 3 + 1) + 10
        for probe in (early, late):
            with probe.watch("failures"):
                found = await store.failures(since=LONG_AGO, limit=NEWEST)
            assert {one.error.code for one in found} == {"BOOM"}
            assert len(found) == NEWEST
            assert probe.buffers("failures") <= most
        await admin.execute("ANALYZE")
        with informed.watch("failures"):
            await store.failures(since=LONG_AGO, limit=NEWEST)
        assert informed.buffers("failures") <= most


async def test_the_living_are_listed_by_an_index_however_many_are_gone(place: Place) -> None:
    store, admin = place.store, place.admin
    await admin.execute("ALTER TABLE worker SET (autovacuum_enabled = off)")
    async with Probe(store) as early, Probe(store) as late, Probe(store) as informed:
        with early.watch("workers"):
            await store.workers(limit=NEWEST)
        await admin.execute(
            "INSERT INTO worker (id, name, info, kind, version, slots, capabilities, registered_at, offline_at) "
            "SELECT gen_random_uuid(), 'gone', '{}', 'local', '', 1, '[]', now(), now() FROM generate_series(1, $1::int)",
            MANY,
        )
        # three levels of the index, and a page of it and one of the table for each row at worst
        most = 3 + NEWEST * 2 + 10
        for probe in (early, late, informed):
            if probe is informed:
                await admin.execute("ANALYZE worker")
            with probe.watch("workers"):
                found = await store.workers(limit=NEWEST)
            assert [view.worker.id for view in found if view.offline_at is None] == [place.worker]
            assert len(found) == NEWEST
            assert probe.buffers("workers") <= most
            with probe.watch("one"):
                assert len(await store.workers(ids=[place.worker])) == 1
            assert probe.buffers("one") <= 10
            with probe.watch("signs of life"):
                await store.beat(Beat(worker=place.worker))
                assert await store.mark_offline(60.0) == []
            assert probe.buffers("signs of life") <= 40


@pytest.mark.parametrize("change", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_lines_of_the_audit_log_stand_whoever_is_connected(place: Place, change: str) -> None:
    await place.store.pause("mail", by="ann")
    await place.store.rewind(60)
    with pytest.raises(asyncpg.RaiseError, match="lines of the audit log"):
        await place.admin.execute(change)
    assert [line.actor for line in await place.store.audits(limit=5)] == ["ann"]


async def test_a_role_that_owns_no_table_works_and_gets_no_further_than_the_log(place: Place) -> None:
    """Servers and workers may connect as such a one: what the guide of the dashboard says of it is so."""
    role = f"r{uuid4().hex}"
    await place.admin.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {place.schema} TO {role}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place.schema} TO {role}; "
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {place.schema} TO {role}"
    )
    url = urlsplit(place.url)
    own = url._replace(netloc=f"{role}@{url.netloc.rpartition('@')[2]}").geturl()
    store = PostgresStore(own, SystemEnvironment(), schema=place.schema, pool_size=1)
    await store.open()
    worker = Worker(id=uuid4(), name="w")
    await store.register(worker)
    await store.enqueue([NewJob(id=uuid7(), task="t")], audit=Audit(by="ann"))
    (held,) = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=1, look=True))
    await store.settle([Settlement(held.lease, Write(Event.SUCCEED, 0))])
    await store.pause("q", by="ann")
    await store.prune(Retention(), limit=10)
    await store.close()
    connection = await asyncpg.connect(own, server_settings={"search_path": place.schema})
    for change in (
        "TRUNCATE audit",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "DROP TABLE audit",
        "DROP TRIGGER audit_stays ON audit",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(change)
    await connection.close()
    await place.admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def a_job(**fields: Any) -> NewJob:
    return NewJob(id=uuid7(), task="u", **fields)


def operations(place: Place, by: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return what may be done to the one job that waits, and to all else."""
    store, job_id, worker = place.store, place.waiting, place.worker
    return {
        "enqueue_one": lambda: store.enqueue([a_job()], audit=Audit(by=by)),
        "enqueue_alike": lambda: store.enqueue([a_job(), a_job()], audit=Audit(by=by)),
        "enqueue_keyed": lambda: store.enqueue([a_job(unique=Unique(key="k", scope="s"))], audit=Audit(by=by)),
        "enqueue_capped": lambda: store.enqueue([a_job()], caps={"default": 9}, audit=Audit(by=by)),
        "add_key": lambda: store.add_key(msgspec.structs.replace(KEY, id="1" * 12), by=by),
        "prune": lambda: store.prune(Retention(succeeded=0.0, signals=0.0), limit=10, by=by),
        "cancel": lambda: store.cancel([job_id], by=by),
        "complete": lambda: store.complete({job_id: "1"}, by=by),
        "fail": lambda: store.fail({job_id: Error("BOOM")}, by=by),
        "delete": lambda: store.delete([job_id], by=by),
        "delete_chains": lambda: store.delete_chains([job_id], by=by),
        "emit": lambda: store.emit("s", "1", by=by),
        "pause": lambda: store.pause("other", by=by),
        "resume": lambda: store.resume("q", by=by),
        "disable": lambda: store.disable(worker, by=by),
        "enable": lambda: store.enable(worker, by=by),
        "drain": lambda: store.drain(worker, by=by),
        "revoke": lambda: store.revoke(worker, by=by),
        "expire_key": lambda: store.expire_key(KEY.id, 1.0, by=by),
        "rotate_key": lambda: store.rotate_key(KEY.id, msgspec.structs.replace(KEY, id="1" * 12), 1.0, by=by),
        "revoke_key": lambda: store.revoke_key(KEY.id, by=by),
    }


OPERATIONS = (
    *(
        "enqueue_one",
        "enqueue_alike",
        "enqueue_keyed",
        "cancel",
        "complete",
        "fail",
        "delete",
        "delete_chains",
        "emit",
        "pause",
        "resume",
        "disable",
        "enable",
        "drain",
    ),
    *("revoke", "expire_key", "revoke_key"),
)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_names_nobody_is_one_statement(place: Place, operation: str) -> None:
    await place.fill()
    async with Probe(place.store) as probe:
        with probe.watch(operation):
            await operations(place, "")[operation]()
    assert probe.statements(operation) == 1
    assert await place.store.audits(limit=5) == []


@pytest.mark.parametrize("operation", ["enqueue_one", "enqueue_alike"])
async def test_a_plain_enqueue_and_its_line_are_one_statement(place: Place, operation: str) -> None:
    async with Probe(place.store) as probe:
        with probe.watch(operation):
            await operations(place, "ann")[operation]()
    assert probe.statements(operation) == 1
    assert [line.actor for line in await place.store.audits(limit=5)] == ["ann"]


async def test_lines_of_people_and_old_ones_of_machines_are_found_by_their_indexes(place: Place) -> None:
    await place.admin.execute("ALTER TABLE audit SET (autovacuum_enabled = off)")
    await place.store.pause("mail", by="ann")
    await place.admin.execute(
        "INSERT INTO audit (at, actor, action, targets, count, detail) SELECT clock_timestamp() - n * interval '1 h', "
        "'shop', 'enqueue', '[]', 1, '' FROM generate_series($1::int, 1, -1) AS n",
        MANY,
    )
    for informed in (False, True):
        if informed:
            await place.admin.execute("ANALYZE audit")
        async with Probe(place.store) as probe:
            with probe.watch("audits"):
                assert len(await place.store.audits(limit=5, action=Action.PAUSE)) == 1
                assert len(await place.store.audits(limit=5, actor="ann")) == 1
                assert await place.store.audits(limit=5, actor="ann", action=Action.SCALE) == []
                assert len(await place.store.audits(limit=5, action=Action.ENQUEUE)) == 5
            assert probe.buffers("audits") < 60
    async with Probe(place.store) as probe:
        with probe.watch("prune"):
            await place.store.prune(Retention(enqueues=3600.0 * (MANY - 9.5)), limit=0)
        assert probe.buffers("prune") < 200
    assert len(await place.store.audits(limit=2 * MANY)) == 1 + MANY - 10
    await place.store.prune(Retention(enqueues=0.0), limit=0)
    assert [line.actor for line in await place.store.audits(limit=5)] == ["ann"]


@pytest.mark.parametrize("operation", [*OPERATIONS, "enqueue_capped", "add_key", "prune"])
async def test_nothing_is_changed_where_the_line_about_it_cannot_be_written(place: Place, operation: str) -> None:
    await place.fill()
    await place.admin.execute("ALTER TABLE audit ADD CHECK (actor <> 'eve')")
    before = await place.picture()
    with pytest.raises(HoldfastError):
        await operations(place, "eve")[operation]()
    assert await place.picture() == before
    await operations(place, "ann")[operation]()
    assert [line.actor for line in await place.store.audits(limit=5)] == ["ann"]
