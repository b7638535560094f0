"""Limits while workers fetch ahead: what ran when is noted by the handlers, and a sweep over it finds how much ran at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Job, QueueFull, connect
from holdfast.core.states import WAITING
from tests.faults.support import WAIT, chance
from tests.runtime.conftest import make_app, postgres_database, postgres_schemas, url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from holdfast.tasks.task import Task

__all__ = ["make_app", "postgres_database", "postgres_schemas", "url"]

pytestmark = pytest.mark.row(36)

SLOTS = 3
WORKERS = 3
AHEAD = 20
JOBS = 90
CAP = 10


@dataclass
class Notes:
    """When each job began and ended, by a clock that all workers of this process share."""

    began: dict[UUID, float] = field(default_factory=dict)
    ended: dict[UUID, float] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    """What was begun, in order."""

    def most_at_once(self, jobs: Iterable[UUID]) -> int:
        """Sweep over the intervals of these jobs. One that ends at the very moment another begins counts with it."""
        moments = sorted([(self.began[job], 0, 1) for job in jobs] + [(self.ended[job], 1, -1) for job in jobs])
        running = most = 0
        for _, _, change in moments:
            running += change
            most = max(most, running)
        return most


async def by_worker(app: Holdfast, jobs: Iterable[UUID]) -> dict[str, list[UUID]]:
    """Return which worker ran which jobs."""
    ran: defaultdict[str, list[UUID]] = defaultdict(list)
    for job_id in jobs:
        # one that was fetched ahead and waited too long was given back: who had it last has run it
        last = (await app.job(job_id).report()).attempts[-1]
        ran[last.worker or ""].append(job_id)
    return dict(ran)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_workers_that_fetch_ahead_run_no_more_at_once_than_they_have_slots(
    make_app: Callable[..., Holdfast], executor: str
) -> None:
    app, notes, luck = make_app(), Notes(), chance()
    all_slots, full = WORKERS * SLOTS, threading.Event()
    lock = threading.Lock()

    def begin(job: Job) -> None:
        with lock:
            notes.began[job.id] = time.monotonic()
            if len(notes.began) >= all_slots:  # nobody ends before every slot is in use: else nothing would be shown
                full.set()

    @app.task(name="async")
    async def on_the_loop(seconds: float, *, job: Job) -> None:
        begin(job)
        while not full.is_set():  # noqa: ASYNC110  threads set it too
            await asyncio.sleep(0.001)
        await asyncio.sleep(seconds)
        notes.ended[job.id] = time.monotonic()

    @app.task(name="thread")
    def in_a_thread(seconds: float, *, job: Job) -> None:
        begin(job)
        full.wait(WAIT)
        time.sleep(seconds)
        notes.ended[job.id] = time.monotonic()

    task = on_the_loop if executor == "async" else in_a_thread
    handles = await app.enqueue_many([task.call(luck.random() * 0.004) for _ in range(JOBS)])
    async with AsyncExitStack() as stack:
        for number in range(WORKERS):
            await stack.enter_async_context(app.worker(name=f"worker-{number}", concurrency=SLOTS, prefetch=AHEAD))
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert notes.most_at_once(notes.began) == all_slots
    ran = await by_worker(app, notes.began)
    assert {name: notes.most_at_once(jobs) for name, jobs in ran.items()} == {
        f"worker-{number}": SLOTS for number in range(WORKERS)
    }


async def test_a_fifo_queue_served_by_one_slot_runs_one_at_a_time_in_order_also_from_worker_to_worker(
    make_app: Callable[..., Holdfast],
) -> None:
    app, notes = make_app(), Notes()
    app.queue("ledger", fifo=True)

    async def book(number: int, job: Job) -> None:
        notes.began[job.id] = time.monotonic()
        notes.numbers.append(number)
        await asyncio.sleep(0)
        notes.ended[job.id] = time.monotonic()

    @app.task(queue="ledger")
    async def credit(number: int, *, job: Job) -> None:
        await book(number, job)

    @app.task(queue="ledger")
    async def debit(number: int, *, job: Job) -> None:
        await book(number, job)

    @app.task(queue="other")
    async def neighbour() -> None:
        await asyncio.sleep(0.001)

    calls = [(credit if number % 3 else debit).call(number) for number in range(60)]
    handles = await app.enqueue_many(calls)
    await app.enqueue_many([neighbour.call() for _ in range(60)])
    async with app.worker(name="beside", queues=["other"], concurrency=SLOTS, prefetch=AHEAD):
        for shift in range(3):  # each gives back what it had fetched ahead when it leaves
            async with app.worker(name=f"shift-{shift}", queues=["ledger"], concurrency=1, prefetch=AHEAD):
                await handles[20 * shift + 10].result(timeout=WAIT)
        async with app.worker(name="last", queues=["ledger"], concurrency=1, prefetch=AHEAD):
            await handles[-1].result(timeout=WAIT)
    assert notes.numbers == list(range(60))
    assert notes.most_at_once(notes.began) == 1


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_no_more_wait_in_a_queue_than_it_takes_however_many_producers_come_at_once(
    make_app: Callable[..., Holdfast], url: str
) -> None:
    apps = [make_app() for _ in range(4)]
    tasks = [narrow(app) for app in apps]
    full = 0

    async def produce(number: int, *, once: bool = False) -> int:
        """Enqueue one job, trying again while the queue is full unless told otherwise; returns how many were created."""
        nonlocal full
        while True:
            try:
                await tasks[number % len(tasks)].enqueue()
            except QueueFull:
                full += 1
                if once:
                    return 0
                await asyncio.sleep(0.001)
            else:
                return 1

    store = connect(url)
    await store.open()
    stop, most = asyncio.Event(), 0

    async def look() -> None:
        nonlocal most
        while not stop.is_set():
            most = max(most, (await store.stats()).count(*WAITING, queue="narrow"))

    looking = asyncio.create_task(look())
    try:
        at_once = await asyncio.gather(*(produce(number, once=True) for number in range(5 * CAP)))
        assert (sum(at_once), full) == (CAP, 4 * CAP), "nobody works yet: ten find room"
        async with apps[0].worker(concurrency=2, prefetch=3), apps[1].worker(concurrency=2, prefetch=3):
            made = await asyncio.gather(*(produce(number) for number in range(10 * CAP)))
            assert sum(made) == 10 * CAP
    finally:
        stop.set()
        await looking
        await store.close()
    assert most <= CAP, f"at some moment {most} jobs waited, and the queue takes {CAP}"


def narrow(app: Holdfast) -> Task[[], None]:
    app.queue("narrow", max_depth=CAP)

    @app.task(name="note", queue="narrow")
    async def note() -> None: ...

    return note
