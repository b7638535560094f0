"""An app pointed at another store for a while."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast.runtime.client import Client
from holdfast.testing import FakeClock, assert_enqueued, drain, drain_sync, enqueued, override

if TYPE_CHECKING:
    from pathlib import Path

app = Holdfast("postgresql://nobody@localhost:1/nowhere")


@app.task(name="double")
async def double(n: int) -> int:
    return 2 * n


@app.task(name="halve")
def halve(n: int) -> int:
    double.enqueue_sync(n)
    return n // 2


async def test_a_module_level_app_goes_by_memory_meanwhile() -> None:
    before = dict(vars(app))
    async with override(app) as clock:
        assert app.url == "memory://"
        handle = await double.options(delay=60).enqueue(4)
        await drain(app, advance=True)
        assert await handle.result(timeout=5) == 8
        assert clock.monotonic() == 60
    assert vars(app) == before
    assert app.url.startswith("postgresql://")


def test_blocking_tests_override_too_and_leave_no_thread() -> None:
    threads = set(threading.enumerate())
    with override(app):
        handle = halve.enqueue_sync(4)
        assert [job.result for job in drain_sync(app)] == [2, 8]
        assert handle.result_sync(timeout=5) == 2
    assert not [thread for thread in threading.enumerate() if thread not in threads and "portal" in thread.name]


async def test_each_override_begins_empty() -> None:
    with override(app):
        await double.enqueue(1)
        assert_enqueued(app, double, count=1)
    with override(app):
        assert enqueued(app) == []


async def test_what_was_before_is_there_again_after_an_inner_one() -> None:
    with override(app):
        await double.enqueue(1)
        with override(app):
            assert enqueued(app) == []
        assert_enqueued(app, double, count=1)


async def test_it_is_restored_after_an_error() -> None:
    adapters = app._adapters
    with pytest.raises(LookupError), override(app):
        raise LookupError
    assert app._adapters is adapters


async def test_one_override_is_for_one_use_at_a_time() -> None:
    given = override(app)
    with given, pytest.raises(HoldfastError, match="in use already"):
        given.__enter__()
    with given:
        assert enqueued(app) == []


async def test_a_given_clock_is_used() -> None:
    clock = FakeClock(seed=3)
    with override(app, clock=clock) as given:
        assert given is clock


async def test_another_database_is_closed_by_async_with(tmp_path: Path) -> None:
    async with override(app, f"sqlite:///{tmp_path}/jobs.db"):
        handle = await halve.enqueue(4)
        assert len(await drain(app)) == 2
        assert await handle.result(timeout=5) == 2
        opened = app._clients
        assert len(opened) == 2  # of this event loop and of the thread for blocking calls
    assert len(opened) == 0


def test_what_a_finished_event_loop_left_open_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Client] = []
    close = Client.close

    async def noted(client: Client) -> None:
        closed.append(client)
        await close(client)

    monkeypatch.setattr(Client, "close", noted)
    loop = asyncio.new_event_loop()
    with override(app, f"sqlite:///{tmp_path}/jobs.db"):
        loop.run_until_complete(double.enqueue(1))
        opened = app._clients[loop]
    assert closed == [opened]
    loop.close()


async def test_what_cannot_be_closed_is_told(tmp_path: Path) -> None:
    given = override(app, f"sqlite:///{tmp_path}/jobs.db")
    given.__enter__()
    await double.enqueue(1)
    left = app._clients[asyncio.get_running_loop()]
    with pytest.raises(HoldfastError, match="Use: async with override"):
        given.__exit__(None, None, None)
    assert app.url.startswith("postgresql://")
    await left.close()


async def test_a_real_worker_runs_under_a_ticking_clock() -> None:
    async with override(app, clock=FakeClock(ticking=True)):
        handle = await double.enqueue(2)
        async with app.worker(concurrency=1):
            assert await handle.result(timeout=30) == 4
