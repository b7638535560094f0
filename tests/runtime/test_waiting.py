"""Waiting for the end of jobs, and the portal through which blocking code waits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from holdfast import HoldfastError, JobNotFound, State, StoreUnavailable
from holdfast.core.job import Policy
from holdfast.runtime.portal import Portal
from holdfast.runtime.waiting import BATCH, Waiter
from holdfast.store.port import ChainView, JobView
from holdfast.system import SystemEnvironment
from holdfast.tasks.blocking import BlockingCallOnLoop
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

WAIT = 20.0
world = SystemEnvironment()


def a_job() -> JobView:
    return JobView(
        id=world.job_id(),
        task="note",
        queue="mail",
        priority=5,
        state=State.RUNNING,
        args="{}",
        attempt=1,
        failures=0,
        created_at=world.now(),
        lease_seconds=60.0,
        policy=Policy(),
    )


class Jobs:
    """A store that knows jobs, and may fail at first."""

    def __init__(self, *jobs: JobView, errors: Sequence[Exception] = ()) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.errors = list(errors)
        self.looks: list[int] = []
        self.chained: dict[UUID, list[UUID]] = {}
        self.chain_looks: list[int] = []

    def end(self, *ids: UUID) -> None:
        for job_id in ids:
            self.jobs[job_id] = msgspec.structs.replace(self.jobs[job_id], state=State.SUCCEEDED)

    async def get(self, ids: Sequence[UUID]) -> list[JobView | None]:
        self.looks.append(len(ids))
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        return [self.jobs.get(job_id) for job_id in ids]

    def go_on(self, job_id: UUID) -> UUID:
        """Have the last step of a job's chain continue; returns the next one."""
        chain = self.chained.get(job_id, [job_id])
        step = a_job()
        self.jobs[chain[-1]] = msgspec.structs.replace(
            self.jobs[chain[-1]], state=State.SUCCEEDED, continued_by=step.id, chain_id=job_id
        )
        self.jobs[step.id] = msgspec.structs.replace(step, chain_id=job_id)
        self.chained[job_id] = [*chain, step.id]
        return step.id

    async def chains(self, ids: Sequence[UUID]) -> list[ChainView | None]:
        self.chain_looks.append(len(ids))
        await asyncio.sleep(0)
        return [self._chain(job_id) if job_id in self.jobs else None for job_id in ids]

    def _chain(self, job_id: UUID) -> ChainView:
        steps = self.chained[job_id]
        first, last = self.jobs[job_id], self.jobs[steps[-1]]
        return ChainView(
            id=job_id,
            task=first.task,
            queue=first.queue,
            created_at=first.created_at,
            steps=len(steps),
            step=last.id,
            step_task=last.task,
            state=last.state,
        )

    async def looked(self, times: int) -> None:
        """Wait until somebody has looked so often."""

        async def enough() -> bool:
            return len(self.looks) >= times

        await until(enough)

    async def looked_at_chains(self, times: int) -> None:
        """Wait until somebody has looked at chains so often."""

        async def enough() -> bool:
            return len(self.chain_looks) >= times

        await until(enough)

    def waiter(self) -> Waiter:
        return Waiter(cast("Any", self), world)


async def test_one_look_serves_all_who_wait() -> None:
    jobs = [a_job() for _ in range(BATCH + 10)]
    store = Jobs(*jobs)
    waiter = store.waiter()
    waits = [asyncio.create_task(waiter.wait(job.id, WAIT)) for job in [*jobs, jobs[0]]]
    await store.looked(4)
    assert store.looks[:2] == [BATCH, 10]
    store.end(*store.jobs)
    assert {view.state for view in await asyncio.gather(*waits)} == {State.SUCCEEDED}
    looks = len(store.looks)
    await asyncio.sleep(0.02)
    assert len(store.looks) == looks, "nobody waits, so nobody looks"


async def test_a_job_that_vanishes_is_heard_of() -> None:
    job = a_job()
    store = Jobs(job)
    waiter = store.waiter()
    waiting = asyncio.create_task(waiter.wait(job.id, WAIT))
    await store.looked(1)
    store.jobs.clear()
    with pytest.raises(JobNotFound):
        await waiting


async def test_a_job_that_continued_is_awaited_until_its_chain_has_ended() -> None:
    jobs = [a_job() for _ in range(BATCH + 1)]
    store = Jobs(*jobs)
    waiter = store.waiter()
    for job in jobs:
        for _ in range(3):
            store.go_on(job.id)
    waits = [asyncio.create_task(waiter.wait(job.id, WAIT)) for job in jobs]
    await store.looked_at_chains(4)
    assert store.chain_looks[:2] == [BATCH, 1], "one look for many"
    assert store.looks == [BATCH, 1], "what has continued is not looked at as a job again, and its steps are not walked"
    last = store.go_on(jobs[0].id)
    store.end(*(steps[-1] for steps in store.chained.values()))
    views = await asyncio.gather(*waits)
    assert views[0].id == last
    assert [view.id for view in views] == [store.chained[job.id][-1] for job in jobs]
    assert waiter._chains == {}


async def test_a_chain_that_vanishes_is_heard_of_by_its_first_job() -> None:
    job = a_job()
    store = Jobs(job)
    store.go_on(job.id)
    waiter = store.waiter()
    waiting = asyncio.create_task(waiter.wait(job.id, WAIT))
    await store.looked_at_chains(1)
    store.jobs.clear()
    with pytest.raises(JobNotFound, match=str(job.id)):
        await waiting


async def test_a_chain_that_is_brought_back_between_two_looks_is_awaited_further() -> None:
    job = a_job()
    store = Jobs(job)
    last = store.go_on(job.id)
    store.end(last)
    ended = store.jobs[last]
    brought_back = msgspec.structs.replace(ended, state=State.READY)
    chains = store.chains

    async def reopened(ids: Sequence[UUID]) -> list[ChainView | None]:
        views = await chains(ids)
        store.jobs[last] = brought_back if len(store.chain_looks) == 1 else ended
        return views

    store.chains = reopened  # type: ignore[method-assign]
    assert (await store.waiter().wait(job.id, WAIT)).state is State.SUCCEEDED
    assert len(store.chain_looks) > 1


async def test_an_outage_does_not_end_the_wait() -> None:
    job = a_job()
    store = Jobs(job, errors=[StoreUnavailable("db", 0.1, "gone")])
    store.end(job.id)
    assert (await store.waiter().wait(job.id, WAIT)).state is State.SUCCEEDED


@pytest.mark.parametrize("error", [ValueError("a bug"), TimeoutError("a bug")], ids=repr)
async def test_an_unexpected_error_reaches_all_who_wait(error: Exception) -> None:
    jobs = [a_job(), a_job()]
    waiter = Jobs(*jobs, errors=[error]).waiter()
    answers = await asyncio.gather(*(waiter.wait(job.id, None) for job in jobs), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["a bug"] * 2
    assert {type(answer) for answer in answers} == {type(error)}


async def test_a_wait_that_is_over_in_time_leaves_the_others_waiting() -> None:
    job = a_job()
    store = Jobs(job)
    waiter = store.waiter()
    patient = asyncio.create_task(waiter.wait(job.id, WAIT))
    with pytest.raises(TimeoutError, match=r"within 0\.01 s; it goes on"):
        await waiter.wait(job.id, 0.01)
    store.end(job.id)
    assert (await patient).id == job.id


async def test_closing_tells_those_who_still_wait() -> None:
    job = a_job()
    waiter = Jobs(job).waiter()
    waiting = asyncio.create_task(waiter.wait(job.id, None))
    await asyncio.sleep(0)
    await waiter.close()
    with pytest.raises(HoldfastError, match="closed"):
        await waiting


# the portal


async def thread_name() -> str:
    return threading.current_thread().name


def test_the_portal_starts_when_used_ends_when_closed_and_starts_again() -> None:
    portal = Portal()
    portal.close()
    for _ in range(2):
        assert (portal.run(thread_name()), portal.running) == ("holdfast-portal", True)
        portal.close()
        portal.close()
        assert (portal.running,) == (False,)
    assert "holdfast-portal" not in {thread.name for thread in threading.enumerate()}


def test_many_threads_share_one_portal() -> None:
    portal = Portal()

    async def identity() -> int:
        await asyncio.sleep(0.001)
        return threading.get_ident()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: portal.run(identity()), range(40)))) == 1
    portal.close()


def test_an_error_comes_out_of_the_portal_as_it_is() -> None:
    async def broken() -> None:
        raise ValueError("inside")

    portal = Portal()
    with pytest.raises(ValueError, match="inside"):
        portal.run(broken())
    portal.close()


async def test_the_portal_is_refused_where_a_loop_runs_and_starts_nothing() -> None:
    async def stats() -> None: ...

    portal = Portal()
    with pytest.raises(BlockingCallOnLoop, match=r"stats_sync was called inside a running event loop.* await ….stats\(…\)"):
        portal.run(stats())
    assert not portal.running
