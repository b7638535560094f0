"""Fifty producers want one unique key, again and again, while its holders are claimed, lapse, end and come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast.core.outcome import Failed
from holdfast.core.states import LIVE, Event, State
from holdfast.store.conformance.world import APPLIED, BOOM, LEASE, ONCE, World, ids
from holdfast.store.port import Answer, Enqueue, JobFilter
from tests.faults.racing import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from holdfast.store.port import Enqueued, Store

pytestmark = pytest.mark.row(35)

HANDLES = 5
PRODUCERS = 50
ROUNDS = 3
KEY = "wanted"


async def produced(world: World, stores: list[Store]) -> list[Enqueued]:
    """Have fifty producers, ten on each handle, ask for the key at the same moment."""
    calls = [stores[number % HANDLES].enqueue([world.job(key=KEY)]) for number in range(PRODUCERS)]
    return [answer for (answer,) in await asyncio.gather(*calls)]


async def reopened(stores: list[Store], jobs: list[UUID]) -> list[Answer]:
    """Bring jobs back at the same moment, each from a handle of its own."""
    calls = [store.reopen([job_id]) for store, job_id in zip(stores, jobs, strict=True)]
    return [answer for (answer,) in await asyncio.gather(*calls)]


def created(answers: list[Enqueued]) -> list[UUID]:
    return [answer.job_id for answer in answers if answer.status is Enqueue.CREATED]


async def live(world: World, store: Store | None = None) -> list[UUID]:
    page = await (store or world.store).find(JobFilter(key=KEY, states=frozenset(LIVE)), limit=100)
    assert page.searched_all
    return ids(page.jobs)


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[None]:
    """Look again and again, from a handle that does nothing else: at no moment are there two live jobs with the key."""
    store = await world.handle()
    stop = asyncio.Event()
    most = 0

    async def look() -> None:
        nonlocal most
        while not stop.is_set():
            most = max(most, len(await live(world, store)))
            await asyncio.sleep(0.001)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        stop.set()
        await looking
    assert most == 1, f"at some moment {most} live jobs had one key"


async def test_a_key_has_one_live_job_at_any_moment_whatever_its_holder_goes_through(url: str) -> None:
    async with opened(url) as world:
        stores = [await world.handle() for _ in range(HANDLES)]
        async with watched(world):
            for _ in range(ROUNDS):
                # nobody has it
                answers = await produced(world, stores)
                (holder,) = created(answers)
                assert {answer.job_id for answer in answers} == {holder}, "all are told who has it"
                # its holder's lease lapses, and is reaped while they ask
                await world.claim_only(holder)
                await world.lapse()
                answers, reaped = await asyncio.gather(produced(world, stores), world.store.reap(100))
                assert [one.job_id for one in reaped] == [holder], "the reaper goes on"
                assert Counter(answers) == {answers[0]: PRODUCERS}
                assert created(answers) == []
                # its holder ends while they ask: those who come before are told of it, and one of the others has the key
                claimed = await world.claim_only(holder)
                answers, settled = await asyncio.gather(produced(world, stores), world.succeed(claimed))
                assert settled in APPLIED
                heirs = created(answers)
                assert len(heirs) <= 1
                assert {answer.job_id for answer in answers} <= {holder, *heirs}
                assert await live(world) == heirs
                # nobody is left to hold it
                await world.store.cancel(heirs)
                assert await live(world) == []
        await world.check_counts()


async def test_of_jobs_brought_back_and_jobs_enqueued_with_one_key_one_is_live(url: str) -> None:
    async with opened(url) as world:
        stores = [await world.handle() for _ in range(HANDLES)]
        past = [await world.ended(State.FAILED, key=KEY) for _ in range(HANDLES)]
        async with watched(world):
            for _ in range(ROUNDS):
                answers, told = await asyncio.gather(produced(world, stores), reopened(stores, past))
                assert set(told) <= {Answer.DONE, Answer.KEY_TAKEN}
                back = [job_id for job_id, answer in zip(past, told, strict=True) if answer is Answer.DONE]
                (holder,) = [*back, *created(answers)]
                assert await live(world) == [holder]
                assert {answer.job_id for answer in answers} == {holder}
                for job_id in past:
                    expected = State.READY if job_id == holder else State.FAILED
                    assert await world.state(job_id) is expected
                    assert await world.replayed(job_id) is expected
                await world.end(await world.claim_only(holder), State.FAILED)
        await world.check_counts()


async def test_the_reaper_is_not_held_up_by_a_job_whose_key_is_somebody_elses_by_now(url: str) -> None:
    """A window has passed while its job ran: another has the key when the lease lapses, and when the job is brought back."""
    async with opened(url) as world:
        first = await world.claimed(key=KEY, window=LEASE, retry=ONCE)
        neighbours = world.jobs(20)
        await world.enqueue(*neighbours)
        assert len(await world.claim(20)) == 20
        await world.lapse()
        second = await world.create(key=KEY, window=10 * LEASE)
        assert second != first.job_id, "the window has passed: the key is free"
        reaped = await world.store.reap(100)
        assert {one.job_id for one in reaped} == {first.job_id, *ids(neighbours)}
        assert await world.attempts(first.job_id) == [(1, Event.EXPIRE_FAIL)]
        assert await world.store.reopen([first.job_id]) == [Answer.DONE], "with a window, a job that comes back needs no key"
        assert await world.states([first.job_id, second]) == [State.READY, State.READY]

        plain = await world.ended(State.FAILED, task="other", key=KEY, scope="other")
        holder = await world.create(task="other", key=KEY, scope="other")
        assert await world.store.reopen([plain]) == [Answer.KEY_TAKEN]
        running = await world.claim_only(holder, tasks=["other"])
        await world.lapse()
        assert holder in {one.job_id for one in await world.store.reap(100)}
        assert await world.store.reopen([plain]) == [Answer.KEY_TAKEN]
        again = await world.claim_only(holder, tasks=["other"])
        assert again.attempt == running.attempt + 1
        assert await world.settle(again, Failed(BOOM, fatal=True)) in APPLIED
        assert await world.store.reopen([plain]) == [Answer.DONE]
        await world.check_log(first.job_id, second, plain, holder)
