"""Signals: emitted once, and awaited without a slot. On every store."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import BadJob, Holdfast, Job, State
from tests.api.blocking import in_thread
from tests.support.until import until

WAIT = 30.0


async def test_a_job_that_waits_for_a_signal_goes_on_with_its_data(app: Holdfast) -> None:
    @app.task()
    async def pay(order: int, *, job: Job) -> Any:
        return await job.wait_for(f"paid:{order}")

    async with app.worker(concurrency=1):
        handle = await pay.enqueue(42)

        async def waits() -> bool:
            return await handle.state() is State.SCHEDULED

        await until(waits)
        other = await pay.enqueue(43)  # there is one slot only, so the first has given it back
        assert await app.signal("paid:43", None) is True
        assert await other.result(timeout=WAIT) is None
        assert await app.signal("paid:42", {"amount": 100}, by="bank") is True
        assert await handle.result(timeout=WAIT) == {"amount": 100}
    assert (await handle.view()).failures == 0


async def test_a_signal_is_emitted_once_and_the_first_stands(app: Holdfast) -> None:
    @app.task()
    async def read(*, job: Job) -> Any:
        return await job.wait_for("once")

    assert await app.signal("once", 1) is True
    assert await app.signal("once", 2) is False
    async with app.worker():
        assert await (await read.enqueue()).result(timeout=WAIT) == 1


async def test_a_signal_from_blocking_code(app: Holdfast) -> None:
    assert await in_thread(lambda: app.signal_sync("a", [1])) is True
    assert await in_thread(lambda: app.signal_sync("a")) is False


async def test_what_is_no_signal_is_refused(memory: Holdfast) -> None:
    with pytest.raises(BadJob, match="signal"):
        await memory.signal("")
    with pytest.raises(BadJob, match=r"data\.price"):
        await memory.signal("a", {"price": float("nan")})
    with pytest.raises(BadJob, match="data"):
        await memory.signal("a", object())
