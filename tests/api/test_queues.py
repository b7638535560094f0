"""What is said about queues: order, depth, pause. On every store."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from holdfast import BadJob, Holdfast, HoldfastError, QueueFull, State

WAIT = 20.0


@pytest.mark.row(36)
async def test_a_fifo_queue_keeps_one_order_across_tasks(app: Holdfast) -> None:
    app.queue("ledger", fifo=True)
    ran: list[str] = []

    @app.task(queue="ledger")
    async def credit(number: int) -> None:
        ran.append(f"credit {number}")

    @app.task(queue="ledger")
    async def debit(number: int) -> None:
        ran.append(f"debit {number}")

    calls = [(credit if number % 3 else debit).call(number) for number in range(40)]
    handles = await app.enqueue_many(calls)
    async with app.worker(concurrency=8):  # claims eight at once: lane by lane, were it not for the one order
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert ran == [f"{'credit' if number % 3 else 'debit'} {number}" for number in range(40)]


@pytest.mark.row(36)
async def test_a_full_queue_refuses_the_whole_call_and_says_how_full(app: Holdfast) -> None:
    app.queue("narrow", max_depth=3)

    @app.task(queue="narrow")
    async def note(number: int) -> None: ...

    await app.enqueue_many([note.call(1), note.call(2)])
    with pytest.raises(QueueFull, match=re.escape("queue 'narrow' is full")) as full:
        await app.enqueue_many([note.call(3), note.call(4)])
    assert (full.value.queue, full.value.max_depth, full.value.depth) == ("narrow", 3, 4)
    assert "raise max_depth" in str(full.value)
    assert (await app.stats())["live"] == 2
    await note.options(queue="elsewhere").enqueue(5)
    third = await note.enqueue(3)
    with pytest.raises(QueueFull):
        await note.enqueue(4)
    await third.cancel()
    await note.enqueue(4)


async def test_one_callers_full_queue_does_not_fail_its_neighbours(app: Holdfast) -> None:
    app.queue("narrow", max_depth=2)

    @app.task()
    async def note(number: int) -> None: ...

    await app.stats()  # the store is open, so that all of these share a commit
    asked = [note.options(queue="narrow" if number % 2 else "wide").enqueue(number) for number in range(20)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    wide = answers[::2]
    narrow = answers[1::2]
    assert not [one for one in wide if isinstance(one, BaseException)]
    assert [type(one).__name__ for one in narrow] == ["Handle"] * 2 + ["QueueFull"] * 8
    stats = await app.stats()
    assert (stats["queues"]["wide"]["ready"], stats["queues"]["narrow"]["ready"]) == (10, 2)


async def test_a_paused_queue_waits_until_it_is_resumed(app: Holdfast) -> None:
    @app.task()
    async def note() -> str:
        return "done"

    await app.pause("mail", reason="the relay is down")
    held = await note.options(queue="mail").enqueue()
    free = await note.enqueue()
    async with app.worker():
        await free.result(timeout=WAIT)
        view = await held.view()
        assert (view.state, view.shown) == (State.READY, "paused")
        await app.resume("mail")
        assert await held.result(timeout=WAIT) == "done"


async def test_a_worker_serves_the_queues_it_is_told_to(app: Holdfast) -> None:
    @app.task()
    async def note() -> None: ...

    other = await note.options(queue="other").enqueue()
    mine = await note.options(queue="mail").enqueue()
    async with app.worker(queues=["mail"]):
        await mine.result(timeout=WAIT)
    assert await other.state() is State.READY


async def test_stats_count_by_state_queue_and_task(app: Holdfast) -> None:
    @app.task(name="note")
    async def note() -> None: ...

    assert (await app.stats())["live"] == 0
    done = await note.enqueue()
    async with app.worker():
        await done.result(timeout=WAIT)
    await note.options(queue="mail").enqueue()
    await note.options(queue="mail", delay=60).enqueue()
    stats = await app.stats()
    assert set(stats) == {*map(str, State), "live", "queues", "tasks", "oldest_waiting"}
    assert (stats["ready"], stats["scheduled"], stats["succeeded"], stats["live"]) == (1, 1, 1, 2)
    assert stats["queues"]["mail"]["ready"] == 1
    assert stats["tasks"]["note"]["succeeded"] == 1
    assert stats["oldest_waiting"]["mail"] >= 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": 0}, "weight must be above 0, not 0"),
        ({"weight": -1}, "weight must be above 0"),
        ({"weight": float("nan")}, "weight must be above 0"),
        ({"weight": float("inf")}, "weight must be above 0"),
        ({"weight": "heavy"}, "weight must be above 0"),
        ({"max_depth": 0}, "max_depth must be a whole number from 1, not 0"),
        ({"max_depth": 2.5}, "max_depth must be a whole number from 1"),
    ],
)
def test_a_queue_that_could_not_work_is_refused(memory: Holdfast, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HoldfastError, match=f"mail.*{words}"):
        memory.queue("mail", **options)


def test_a_queue_needs_a_name(memory: Holdfast) -> None:
    with pytest.raises(BadJob, match="queue: must not be empty"):
        memory.queue("")
