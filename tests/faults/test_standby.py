"""A standby takes over that lacks the tail, and a standby that somebody connects to: two real servers, one following the other.

What the primary wrote after the standby was cut off is lost, as the database's own promise says, and nothing else is. Whoever
holds something of that tail is refused, and repeats what it can: by id, by token.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from holdfast import Holdfast, Job, State, StoreUnavailable, connect
from holdfast.core.lease import Hold
from holdfast.core.outcome import Succeeded
from holdfast.store.conformance.world import World, ids, settlement_of
from holdfast.store.port import Checkpoint, Enqueue, Part, PartState, Progress, Settled
from holdfast.store.replay import replay
from tests.faults.racing import opened
from tests.faults.support import until
from tests.support.majors import NEWEST
from tests.support.postgres import PostgresServer, database_of
from tests.support.standby import Standby

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from holdfast.core.lease import Claimed, Lease

REPLICA = "read-only replica: connect to the primary"
WAIT = 60.0


@dataclass
class Pair:
    """A primary, its standby, and the addresses of one database on them."""

    primary: PostgresServer
    standby: Standby
    name: str

    @property
    def first(self) -> str:
        return self.primary.url(self.name)

    @property
    def second(self) -> str:
        return self.standby.url(self.name)

    @property
    def both(self) -> str:
        """The address that leads to whichever of the two is the primary."""
        ports = [str(urlsplit(url).port) for url in (self.first, self.second)]
        who = f"user={urlsplit(self.first).username}&target_session_attrs=primary"
        return f"postgresql:///{self.name}?{who}&host=127.0.0.1,127.0.0.1&port={','.join(ports)}"

    def fail_over(self) -> None:
        """Lose the primary at once, and go on with the standby."""
        self.primary.stop()
        self.standby.promote()


@pytest.fixture(params=NEWEST)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair of the test's own: one of them will be lost."""
    with PostgresServer(request.param) as primary, Standby(primary) as standby:
        yield Pair(primary, standby, database_of(primary.create_database()))


@pytest.fixture(scope="module", params=NEWEST)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[PostgresServer, Standby]]:
    with PostgresServer(request.param) as primary, Standby(primary) as standby:
        yield primary, standby


@pytest.fixture
def following(servers: tuple[PostgresServer, Standby]) -> Pair:
    """An empty database on a pair that outlives the test."""
    return Pair(*servers, database_of(servers[0].create_database()))


def leases(claims: Sequence[Claimed]) -> list[Lease]:
    return [claim.lease for claim in claims]


async def settled(world: World, claims: Sequence[Claimed]) -> list[Settled]:
    return await world.store.settle([settlement_of(claim.lease, Succeeded('"old"')) for claim in claims])


# -- row 12 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.row(12)
async def test_a_standby_that_takes_over_lacks_the_tail_and_nothing_else(pair: Pair) -> None:
    async with opened(pair.first) as old:
        jobs = old.jobs(40)
        await old.enqueue(*jobs)
        ended = await old.claim(10)
        assert await settled(old, ended) == [Settled.APPLIED] * 10
        held, finished_late = await old.claim(5), await old.claim(5)
        waiting = ids(jobs)[20:]
        pair.standby.follow()
        pair.standby.cut_off()
        # the tail: acknowledged by the old primary, unknown to the new one
        unknown = old.jobs(10)
        await old.enqueue(*unknown)
        assert await settled(old, finished_late) == [Settled.APPLIED] * 5
        taken = await old.claim(10)
        assert await settled(old, taken[:5]) == [Settled.APPLIED] * 5
        await old.store.delete(waiting[15:])
    pair.fail_over()

    async with opened(pair.second) as new:
        new.workers |= old.workers
        # lost is what was created in the tail; everything else stands as it did before it
        assert await new.states(ids(unknown)) == [None] * 10
        assert await new.states(ids(ended)) == [State.SUCCEEDED] * 10
        assert await new.states(ids(held) + ids(finished_late)) == [State.RUNNING] * 10
        assert await new.states(waiting) == [State.READY] * 20, "what was taken or deleted in the tail waits again"
        # what is repeated by its token or its id is done once
        assert await settled(new, ended) == [Settled.REPEATED] * 10
        assert await settled(new, finished_late) == [Settled.APPLIED] * 5
        assert await settled(new, finished_late) == [Settled.REPEATED] * 5
        assert {one.hold for one in await new.store.extend(leases(held))} == {Hold.HELD}
        for status in (Enqueue.CREATED, Enqueue.REPEATED):
            assert {answer.status for answer in await new.enqueue(*unknown)} == {status}
        assert {answer.status for answer in await new.enqueue(*jobs)} == {Enqueue.REPEATED}
        # who took a job in the tail has nothing in hand here, before and after somebody else takes it
        await refused(new, taken)
        again = {claim.job_id: claim for claim in await new.claim(10)}
        assert set(again) == set(ids(taken)), "what was taken in the tail comes first again"
        assert [again[claim.job_id].attempt for claim in taken] == [claim.attempt for claim in taken], "a fence is repeated"
        assert not {claim.token for claim in taken} & {claim.token for claim in again.values()}, "a token is not"
        await refused(new, taken)
        assert await settled(new, list(again.values())) == [Settled.APPLIED] * 10
        assert await settled(new, held) == [Settled.APPLIED] * 5
        rest = await new.claim(100)
        assert set(ids(rest)) == {*waiting[10:], *ids(unknown)}, "every number drawn in the tail is drawn again without harm"
        assert await settled(new, rest) == [Settled.APPLIED] * 20
        await new.check_log(*ids(jobs), *ids(unknown))
        assert (await new.store.stats()).count(State.SUCCEEDED) == 50


async def refused(world: World, claims: Sequence[Claimed]) -> None:
    """Check that leases of the lost tail can change nothing."""
    before = await world.snapshot(*ids(claims))
    assert set(await settled(world, claims)) == {Settled.STALE}
    assert {one.hold for one in await world.store.extend(leases(claims))} <= {Hold.RETURNED, Hold.TAKEN}
    assert set(await world.store.progress([Progress(one.lease, 50) for one in claims])) == {Settled.STALE}
    part = Part("p", PartState.COMPLETED)
    assert set(await world.store.checkpoint([Checkpoint(one.lease, part) for one in claims])) == {Settled.STALE}
    before.check_unchanged(await world.snapshot(*ids(claims)), "a lease of the lost tail")


@pytest.mark.row(12)
async def test_workers_go_on_at_the_standby_with_what_it_knows(pair: Pair) -> None:
    """One worker's claim is known there, the other has begun, and taken its job, in the tail."""
    app = Holdfast(pair.both)
    ran: list[UUID] = []
    gate = asyncio.Event()

    @app.task(name="wait")
    async def wait(*, job: Job) -> None:
        ran.append(job.id)
        await gate.wait()

    seen, taken_late = await wait.enqueue(), await wait.options(queue="late").enqueue()
    async with app.worker(name="known", queues=["default"]):
        await until(lambda: seen.id in ran, "the first worker should begin its job")
        pair.standby.follow()
        pair.standby.cut_off()
        async with app.worker(name="unknown", queues=["late"]):
            await until(lambda: taken_late.id in ran, "the second worker should begin its job")
            lost = await wait.enqueue()
            pair.fail_over()
            gate.set()
            store = connect(pair.second)
            await store.open()
            try:

                async def ended() -> bool:
                    views = await store.get([seen.id, taken_late.id])
                    return all(view is not None and view.state is State.SUCCEEDED for view in views)

                await until(ended, "both jobs that the standby knows should succeed there")
                first, second, third = await store.get([seen.id, taken_late.id, lost.id])
                assert first is not None
                assert second is not None
                assert (first.failures, second.failures, third) == (0, 0, None)
                assert (ran.count(seen.id), ran.count(taken_late.id)) == (1, 2), "only what was taken in the tail is run again"
                for job in (first, second):
                    assert replay(await store.events(job.id)) is State.SUCCEEDED
            finally:
                await store.close()
    await app.close()


# -- row 42 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.row(42)
async def test_a_standby_refuses_every_write_and_says_what_to_do(following: Pair) -> None:
    async with opened(following.first) as there:
        await there.enqueue(*there.jobs(3))
        (claimed,) = await there.claim(1)
        following.standby.follow()
        async with opened(following.second) as here:
            here.workers |= there.workers
            assert (await here.store.stats()).count(State.READY) == 2, "looking is allowed"
            assert await here.state(claimed.job_id) is State.RUNNING
            for write in (
                here.enqueue(here.job()),
                here.claim(1),
                here.succeed(claimed),
                here.store.extend([claimed.lease]),
                here.store.cancel([claimed.job_id]),
                here.store.promote(10),
                here.store.pause("default"),
            ):
                with pytest.raises(StoreUnavailable, match=REPLICA):
                    await write
        assert await there.succeed(claimed) is Settled.APPLIED


@pytest.mark.row(42)
async def test_a_worker_and_a_producer_on_a_standby_are_told_at_once(following: Pair) -> None:
    async with opened(following.first):
        following.standby.follow()
    app = Holdfast(following.second)

    @app.task(name="t")
    async def task() -> None: ...

    with pytest.raises(StoreUnavailable, match=REPLICA):
        await task.enqueue()
    with pytest.raises(StoreUnavailable, match=REPLICA):
        async with asyncio.timeout(WAIT), app.worker():
            pytest.fail("a worker has begun to serve on a standby")
    await app.close()


@pytest.mark.row(42)
async def test_a_standby_without_a_schema_is_named_as_such_too(following: Pair) -> None:
    following.standby.follow()
    with pytest.raises(StoreUnavailable, match=REPLICA):
        await connect(following.second).open()
