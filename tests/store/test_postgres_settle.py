"""Settling on PostgreSQL: one success alone takes a short way, and it writes and answers what a batch does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from holdfast.core.job import NewJob, Unique
from holdfast.core.lease import Lease
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settled, Settlement, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.system import SystemEnvironment
from tests.support.majors import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.core.lease import Claimed
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

WORLD: Final = SystemEnvironment()
TABLES: Final = (
    *("archive", "attempt", "blocked", "blocker", "chain", "deadline", "doubt", "event", "lease", "ready", "scheduled"),
    "unique_key",
)
COUNTS: Final = (
    "SELECT lane, sum(blocked), sum(scheduled), sum(ready), sum(running), sum(succeeded), sum(failed), sum(canceled) "
    "FROM tally GROUP BY lane ORDER BY lane"
)
DRAWN: Final = {"no", "place", "entered", "turn"}
"""Columns of numbers that a sequence gives."""


class Side:
    """A schema with a worker, in which ids, tokens and times are known by names that are the same in every other."""

    def __init__(self, url: str) -> None:
        self.schema = f"s{WORLD.token().hex}"
        self.store = PostgresStore(url, WORLD, schema=self.schema)
        self.short: list[Settled | None] = []
        """What the short way answered, each time it was taken."""
        self._worker = Worker(id=WORLD.token(), name="w")
        self._names: dict[object, str] = {}
        settle_one = self.store._settle_one

        async def spied(settlement: Settlement) -> Settled | None:
            self.short.append(await settle_one(settlement))
            return self.short[-1]

        self.store._settle_one = spied  # type: ignore[method-assign]

    async def open(self) -> None:
        await self.store.open()
        await self.store.register(self._worker)

    def new(self, task: str = "t", **fields: Any) -> NewJob:
        job = NewJob(**{"id": WORLD.job_id(), "task": task, **fields})
        self._names[job.id] = f"job {len(self._names)}"
        return job

    async def claimed(self) -> Claimed:
        """Claim the one job that is ready."""
        [job] = await self.store.claim(
            ClaimRequest(worker=self._worker.id, tasks=frozenset({"t", "company"}), limit=10, look=True)
        )
        self._names[job.token] = f"token {len(self._names)}"
        self._names[job.claimed_at] = f"claim {len(self._names)}"
        return job

    async def running(self, task: str = "t", **fields: Any) -> Claimed:
        await self.store.enqueue([self.new(task, **fields)])
        return await self.claimed()

    async def picture(self, client: asyncpg.Connection[asyncpg.Record]) -> dict[str, list[Any]]:
        """Return all that is written of jobs, but for what each schema draws and tells for itself."""
        await client.execute(f"SET search_path TO {self.schema}")
        seen: dict[str, list[Any]] = {table: sorted(await self._rows(client, table), key=str) for table in TABLES}
        return seen | {"counts": [tuple(row) for row in await client.fetch(COUNTS)]}

    async def _rows(self, client: asyncpg.Connection[asyncpg.Record], table: str) -> list[dict[str, object]]:
        rows = await client.fetch(f"SELECT * FROM {table}")
        return [{name: self._shown(value) for name, value in row.items() if name not in DRAWN} for row in rows]

    def _shown(self, value: object) -> object:
        own = isinstance(value, UUID | datetime)
        return self._names.get(value, type(value).__name__) if own else value


Case: TypeAlias = Callable[[Side], Awaitable[Settlement]]


def succeeds(claimed: Claimed, result: str | None = None) -> Settlement:
    return Settlement(claimed.lease, Write(Event.SUCCEED, 0, result=result))


async def plain(side: Side) -> Settlement:
    return succeeds(await side.running())


async def with_a_result(side: Side) -> Settlement:
    return succeeds(await side.running(), '{"n": 1}')


async def keyed(side: Side) -> Settlement:
    return succeeds(await side.running(unique=Unique(key="k", scope="s")))


async def keyed_for_a_window(side: Side) -> Settlement:
    return succeeds(await side.running(unique=Unique(key="k", scope="s", window=3600.0)))


async def in_the_second_attempt(side: Side) -> Settlement:
    first = await side.running()
    again = Write(Event.RETRY, 1, error=Error("E", "once more"))
    await side.store.settle([Settlement(first.lease, again)])
    return succeeds(await side.claimed())


async def first_step_of_a_chain(side: Side) -> Settlement:
    job_id = WORLD.job_id()
    return succeeds(await side.running(id=job_id, chain_id=job_id))


async def last_step_of_a_chain(side: Side) -> Settlement:
    """Both steps have a key: the first one's is held until the chain ends."""
    first = await side.running(unique=Unique(key="k", scope="s"))
    then = side.new(unique=Unique(key="l", scope="s"))
    await side.store.settle([Settlement(first.lease, Write(Event.CONTINUE, 0), then)])
    return succeeds(await side.claimed())


async def last_step_of_a_chain_with_a_waiter(side: Side) -> Settlement:
    first = await side.running()
    await side.store.enqueue([side.new("waiter", after=(first.job_id,))])
    await side.store.settle([Settlement(first.lease, Write(Event.CONTINUE, 0), side.new())])
    return succeeds(await side.claimed())


async def with_a_waiter(side: Side) -> Settlement:
    blocker = await side.running()
    await side.store.enqueue([side.new("waiter", after=(blocker.job_id,))])
    return succeeds(blocker)


async def with_a_waiter_for_later(side: Side) -> Settlement:
    blocker = await side.running()
    await side.store.enqueue([side.new("waiter", after=(blocker.job_id,), delay=3600.0)])
    return succeeds(blocker)


async def with_a_waiter_that_waits_on(side: Side) -> Settlement:
    blocker, other = await side.running(), side.new("other")
    await side.store.enqueue([other])
    await side.store.enqueue([side.new("waiter", after=(blocker.job_id, other.id), expires_in=3600.0)])
    return succeeds(blocker)


async def with_a_deadline(side: Side) -> Settlement:
    return succeeds(await side.running(expires_in=3600.0))


async def with_a_cancel_asked_for(side: Side) -> Settlement:
    running = await side.running()
    await side.store.cancel([running.job_id], by="a test", reason="enough")
    return succeeds(running)


async def late(side: Side) -> Settlement:
    running = await side.running(lease=60.0, unique=Unique(key="k", scope="s"))
    await side.store.enqueue([side.new("waiter", after=(running.job_id,))])
    await side.store.rewind(120.0)
    return succeeds(running)


async def late_with_nobody_waiting(side: Side) -> Settlement:
    running = await side.running(lease=60.0)
    await side.store.rewind(120.0)
    return succeeds(running)


async def under_a_stale_token(side: Side) -> Settlement:
    running = await side.running()
    return Settlement(Lease(running.job_id, WORLD.token()), Write(Event.SUCCEED, 0))


async def once_more(side: Side) -> Settlement:
    done = succeeds(await side.running())
    assert await side.store.settle([done]) == [Settled.APPLIED]
    side.short.clear()
    return done


ANSWERS: Final[dict[Case, Settled]] = {
    plain: Settled.APPLIED,
    with_a_result: Settled.APPLIED,
    keyed: Settled.APPLIED,
    keyed_for_a_window: Settled.APPLIED,
    in_the_second_attempt: Settled.APPLIED,
    first_step_of_a_chain: Settled.APPLIED,
    last_step_of_a_chain: Settled.APPLIED,
    last_step_of_a_chain_with_a_waiter: Settled.FREED,
    with_a_waiter: Settled.FREED,
    with_a_waiter_for_later: Settled.FREED,
    with_a_waiter_that_waits_on: Settled.APPLIED,
    with_a_deadline: Settled.APPLIED,
    with_a_cancel_asked_for: Settled.APPLIED,
    late: Settled.FREED,
    late_with_nobody_waiting: Settled.LATE,
    under_a_stale_token: Settled.STALE,
    once_more: Settled.REPEATED,
}
LEFT_TO_THE_LONG_WAY: Final = {late, late_with_nobody_waiting, under_a_stale_token, once_more}


@pytest.fixture(scope="module", params=NEWEST)
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of the newest version; the older one with `--slow`: two ways are compared, not versions."""
    return postgres_servers[request.param]


@pytest.fixture
async def sides(postgres_url: str) -> AsyncIterator[tuple[Side, Side]]:
    alone, together = Side(postgres_url), Side(postgres_url)
    await alone.open()
    await together.open()
    yield alone, together
    await alone.store.close()
    await together.store.close()


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.__name__)
async def test_the_short_way_writes_and_answers_what_the_long_one_does(
    postgres_url: str, sides: tuple[Side, Side], case: Case
) -> None:
    """The same two jobs are settled one after the other, and as a batch."""
    alone, together = sides
    one, other = await case(alone), succeeds(await alone.running("company"))
    apart = [*await alone.store.settle([one]), *await alone.store.settle([other])]
    batch = [await case(together), succeeds(await together.running("company"))]
    assert await together.store.settle(batch) == apart == [ANSWERS[case], Settled.APPLIED]
    assert alone.short == [None if case in LEFT_TO_THE_LONG_WAY else ANSWERS[case], Settled.APPLIED]
    assert together.short == []

    client = await asyncpg.connect(postgres_url)
    written = [await side.picture(client) for side in sides]
    await client.close()
    assert written[0] == written[1]
