"""A worker that is let go: it claims nothing and ends once nothing runs, unless it is needed before."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from holdfast.core.states import State
from holdfast.runtime.orders import ENDS, REST, THROUGH, WAKE
from tests.runtime.awaiting import WAIT, until, until_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Holdfast
    from holdfast.runtime.worker import RunningWorker


class Gated:
    """An app whose jobs end when the test lets them."""

    def __init__(self, app: Holdfast) -> None:
        self.open = asyncio.Event()

        @app.task()
        async def work() -> None:
            await self.open.wait()

        self.work = work


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The manager's end of a line that the next worker inherits."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    monkeypatch.setenv(THROUGH, str(theirs.detach()))
    with ours:
        yield ours


async def served(worker: RunningWorker) -> asyncio.Task[None]:
    serving = asyncio.create_task(worker.serve())
    await until(lambda: worker._vitals.stage.name == "WORKING")
    return serving


async def test_one_that_rests_claims_nothing_until_it_is_woken(app: Holdfast, line: socket.socket) -> None:
    gated = Gated(app)
    long = await gated.work.enqueue()
    worker = app.worker(concurrency=2)
    serving = await served(worker)
    await until_state(long, State.RUNNING)
    line.send(REST)
    await until(lambda: worker._claimer.rests)
    await until(lambda: not worker._claimer.asks)
    later = await gated.work.enqueue()
    store = app.client().store
    async with asyncio.timeout(WAIT):
        while not (await store.workers())[0].drains:  # noqa: ASYNC110  nobody here is told
            await asyncio.sleep(0.01)
    assert await later.state() is State.READY

    line.send(WAKE)
    await until_state(later, State.RUNNING)
    async with asyncio.timeout(WAIT):
        while (await store.workers())[0].drains:  # noqa: ASYNC110  nobody here is told
            await asyncio.sleep(0.01)
    gated.open.set()
    await later.result(timeout=WAIT)
    await long.result(timeout=WAIT)
    assert not serving.done(), "it was woken, and works on"
    with pytest.raises(BlockingIOError):
        line.recv(1)
    worker.finish()
    await asyncio.wait_for(serving, WAIT)
    assert line.recv(1) == ENDS


async def test_one_that_rests_ends_once_nothing_runs_and_says_so_first(app: Holdfast, line: socket.socket) -> None:
    gated = Gated(app)
    long = await gated.work.enqueue()
    serving = await served(app.worker(concurrency=2))
    await until_state(long, State.RUNNING)
    line.send(REST)
    gated.open.set()
    await asyncio.wait_for(serving, WAIT)
    assert line.recv(10) == ENDS
    assert await long.state() is State.SUCCEEDED
    assert line.recv(1) == b"", "it has hung up"


async def test_one_that_is_idle_ends_at_once_and_is_not_woken_any_more(memory_app: Holdfast, line: socket.socket) -> None:
    Gated(memory_app)
    worker = memory_app.worker()
    serving = await served(worker)
    worker.rest()
    await until(worker._stop_asked.is_set)
    worker.wake()
    await asyncio.wait_for(serving, WAIT)
    assert line.recv(10) == ENDS


async def test_of_orders_that_come_together_the_last_holds(memory_app: Holdfast, line: socket.socket) -> None:
    gated = Gated(memory_app)
    line.send(REST + WAKE + b"?" + REST + WAKE)  # what it does not know it does not heed
    worker = memory_app.worker(concurrency=1)
    serving = await served(worker)
    line.send(REST + WAKE + REST + WAKE + REST + WAKE)
    job = await gated.work.enqueue()
    await until_state(job, State.RUNNING)
    line.send(REST + WAKE + REST)
    await until(lambda: worker._claimer.rests)
    gated.open.set()
    await asyncio.wait_for(serving, WAIT)
    assert await job.state() is State.SUCCEEDED


async def test_one_that_rests_drains_for_good_when_it_is_asked_to_stop(memory_app: Holdfast, line: socket.socket) -> None:
    gated = Gated(memory_app)
    job = await gated.work.enqueue()
    worker = memory_app.worker(concurrency=2)
    serving = await served(worker)
    await until_state(job, State.RUNNING)
    line.send(REST)
    await until(lambda: worker._claimer.rests)
    worker.ask_to_stop()
    await until(lambda: worker._vitals.stage.name == "DRAINING")
    line.send(WAKE)
    later = await gated.work.enqueue()
    gated.open.set()
    await asyncio.wait_for(serving, WAIT)
    assert (await job.state(), await later.state()) == (State.SUCCEEDED, State.READY)


async def test_a_manager_that_is_gone_says_nothing_more(memory_app: Holdfast, line: socket.socket) -> None:
    gated = Gated(memory_app)
    worker = memory_app.worker()
    serving = await served(worker)
    assert THROUGH not in os.environ, "what its jobs start is nobody's worker"
    line.close()
    job = await gated.work.enqueue()
    gated.open.set()
    await job.result(timeout=WAIT)
    worker.finish()
    await asyncio.wait_for(serving, WAIT)


@pytest.mark.parametrize("number", ["nothing", "9999"])
async def test_a_line_that_is_none_keeps_no_worker_from_working(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv(THROUGH, number)
    gated = Gated(memory_app)
    worker = memory_app.worker()
    serving = await served(worker)
    job = await gated.work.enqueue()
    gated.open.set()
    await job.result(timeout=WAIT)
    worker.finish()
    await asyncio.wait_for(serving, WAIT)
