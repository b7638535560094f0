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
from holdfast.runtime.portal import BlockingCallOnLoop, Portal
from holdfast.runtime.waiting import BATCH, Waiter
from holdfast.store.port import JobView
from holdfast.system import SystemEnvironment
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

    def end(self, *ids: UUID) -> None:
        for job_id in ids:
            self.jobs[job_id] = msgspec.structs.replace(self.jobs[job_id], state=State.SUCCEEDED)

    async def get(self, ids: Sequence[UUID]) -> list[JobView | None]:
        self.looks.append(len(ids))
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        return [self.jobs.get(job_id) for job_id in ids]

    async def looked(self, times: int) -> None:
        """Wait until somebody has looked so often."""

        async def enough() -> bool:
            return len(self.looks) >= times

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
