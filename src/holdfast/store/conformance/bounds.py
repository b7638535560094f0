"""Odd and hostile requests: refused or cut the same way by every store, and two callers at the same keys and lanes."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from holdfast.core.job import NewJob, OnConflict
from holdfast.core.lease import Lease
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import LIVE, Event, State
from holdfast.errors import BadJob
from holdfast.store.conformance.world import HOUR, Subject, World
from holdfast.store.port import (
    TEXT_LIMIT,
    Answer,
    Beat,
    ClaimRequest,
    Firing,
    JobFilter,
    Retention,
    Schedule,
    StageMark,
    Worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001  that is the point
AWARE = datetime(2030, 1, 1, tzinfo=UTC)
HOSTILE = "nul \0, surrogate \ud800, " + "x" * 5 * TEXT_LIMIT
FIFO = "ledger"


class Bounds(Subject):
    """Limits, texts, and requests that make no sense."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Write(Event.RETRY_LATER, 1, delay=math.nan),
            lambda: Write(Event.RETRY_LATER, 1, delay=-1.0),
            lambda: Write(Event.RETRY_LATER, 2**40),
            lambda: Write(Event.RESCHEDULE_LATER, 0, run_at=NAIVE),
            lambda: Write(Event.FAIL, 1),
            lambda: Write(Event.SUCCEED, 0, result="nul \0"),
            lambda: Retention(succeeded=math.nan),
            lambda: Retention(failed=-1.0),
            lambda: JobFilter(key="nul \0"),
            lambda: JobFilter(created_from=NAIVE),
            lambda: NewJob(id=uuid4(), task="t", expires_in=math.inf),
            lambda: NewJob(id=uuid4(), task="t", expires_in=0.0),
            lambda: Worker(id=uuid4(), name="w", slots=-1),
            lambda: Worker(id=uuid4(), name="w", info="x" * 10_001),
            lambda: Worker(id=uuid4(), name="w", capabilities=("nul \0",)),
            lambda: Beat(worker=uuid4(), counters="nul \0"),
            lambda: StageMark(lease=Lease(uuid4(), uuid4()), name="s", event=Event.SUCCEED),
            lambda: Schedule(name="s", task="t", cron="* * * * *", timezone="UTC", next_at=NAIVE),
            lambda: Schedule(name="", task="t", cron="* * * * *", timezone="UTC", next_at=AWARE),
            lambda: Firing(name="s", slot=AWARE, next_at=AWARE, job=None),
            lambda: Firing(name="s", slot=NAIVE, next_at=AWARE, job=None),
        ],
    )
    def test_what_no_store_could_write_is_refused_before_it_reaches_one(self, make: Callable[[], Any]) -> None:
        with pytest.raises((BadJob, ValueError)):
            make()

    @pytest.mark.parametrize("limit", [0, -1, -(2**40)])
    async def test_limit_of_nothing_gives_nothing(self, world: World, limit: int) -> None:
        claimed = await world.claimed(lease=9 * HOUR)
        await world.log(claimed, "line")
        job_id = await world.create(expires_in=HOUR)
        worker = await world.worker()
        await world.store.rewind(2 * HOUR)
        before = await world.snapshot(job_id)

        assert await world.store.claim(ClaimRequest(worker=worker, tasks=frozenset({"t"}), limit=limit, look=True)) == []
        assert (await world.store.promote(limit)).count == 0
        assert await world.store.reap(limit) == []
        assert await world.store.unblock(limit) == 0
        assert await world.store.drop_overdue(limit) == 0
        assert (await world.store.prune(Retention(succeeded=0.0), limit=limit)).count == 0
        assert (await world.store.find(JobFilter(), limit=limit)).jobs == []
        assert await world.store.workers(limit=limit) == []
        assert await world.store.logs(claimed.job_id, limit=limit) == []
        before.check_unchanged(await world.snapshot(job_id), "a limit of nothing")

    async def test_limit_beyond_every_number_is_no_limit(self, world: World) -> None:
        claimed = await world.claimed()
        await world.log(claimed, "line")
        job_id = claimed.job_id
        await world.succeed(claimed)
        await world.store.rewind(60)

        assert [view.id for view in (await world.store.find(JobFilter(), limit=2**31)).jobs] == [job_id]
        assert (await world.store.promote(2**40)).count == 0
        assert await world.store.drop_overdue(2**40) == 0
        assert len(await world.store.workers(limit=2**40)) == 1
        assert len(await world.store.logs(job_id, limit=2**40)) == 1
        assert await world.store.logs(job_id, limit=1, after=2**40) == []
        assert (await world.store.prune(Retention(succeeded=0.0), limit=2**40)).count == 1

    async def test_hostile_words_of_people_are_cleaned_and_cut(self, world: World) -> None:
        done, running = await world.ended(State.FAILED), (await world.claimed()).job_id
        waiting = await world.create()

        assert await world.store.cancel([waiting, running], by=HOSTILE, reason=HOSTILE) == [Answer.DONE, Answer.REQUESTED]
        assert await world.store.complete({running: "null"}, by=HOSTILE) == [Answer.DONE]
        assert await world.store.reopen([done], by=HOSTILE) == [Answer.DONE]
        await world.store.pause("default", by=HOSTILE, reason=HOSTILE)
        await world.store.disable(await world.worker(), by=HOSTILE)

        for job_id in (waiting, running, done):
            for event in await world.store.events(job_id):
                assert len(event.actor) <= TEXT_LIMIT
                assert len(event.detail) <= TEXT_LIMIT
                assert "\0" not in event.actor + event.detail
        (queue,) = [queue for queue in await world.store.queues() if queue.name == "default"]
        assert len(queue.reason) <= TEXT_LIMIT
        assert 0 < len((await world.worker_view()).disabled_by) <= TEXT_LIMIT

    @pytest.mark.parametrize("name", ["", "nul \0", "\ud800", "x" * 201])
    async def test_queue_that_cannot_be_named_cannot_be_paused(self, world: World, name: str) -> None:
        with pytest.raises(BadJob):
            await world.store.pause(name)

    async def test_long_error_is_kept_whole_but_brief_in_the_log(self, world: World) -> None:
        claimed = await world.claimed()
        error = Error("LONG", "m" * 9_000)
        await world.fail(claimed, error, fatal=True)

        view = await world.view(claimed.job_id)

        assert view.error == error
        (last,) = (await world.store.events(claimed.job_id))[-1:]
        assert len(last.detail) == TEXT_LIMIT
        assert last.detail.startswith("LONG: mmm")
        assert last.detail.endswith(f"{TEXT_LIMIT} kept")

    async def test_producers_that_replace_the_same_keys_in_different_orders_all_get_through(self, world: World) -> None:
        handles = [world.store, *[await world.handle() for _ in range(3)]]
        keys = [f"k{number}" for number in range(6)]

        async def produce(number: int) -> None:
            for turn in range(5):
                order = keys[(number + turn) % 6 :] + keys[: (number + turn) % 6]
                jobs = [world.job(key=key, on_conflict=OnConflict.REPLACE) for key in (order if number % 2 else order[::-1])]
                await world.enqueue(*jobs, store=handles[number])

        await asyncio.gather(*(produce(number) for number in range(4)))

        live = [view for view in await world.all_jobs() if view.state in LIVE]
        assert sorted(view.key or "" for view in live) == keys, "each key has exactly one live job"
        await world.check_counts()

    async def test_two_claimers_do_not_pass_an_unknown_task_in_a_fifo_lane(self, world: World) -> None:
        other = await world.handle()
        one, two = await world.worker("one"), await world.worker("two")
        for _ in range(20):
            known, unknown, behind = (world.job(task=task, queue=FIFO, fifo=True) for task in ("known", "unknown", "known"))
            await world.enqueue(known, unknown, behind)
            requests = [
                ClaimRequest(worker=worker, tasks=frozenset({"known"}), queues=frozenset({FIFO}), limit=3, look=True)
                for worker in (one, two)
            ]

            claims = await asyncio.gather(world.store.claim(requests[0]), other.claim(requests[1]))

            assert [claimed.job_id for claim in claims for claimed in claim] == [known.id], "nothing passes an unknown task"
            assert await world.store.complete({job.id: "null" for job in (known, unknown, behind)}) == [Answer.DONE] * 3
