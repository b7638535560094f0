"""The health of a worker: what makes it look dead, and what does not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Signal
from tests.notify.proxy import Proxy
from tests.support.until import until

if TYPE_CHECKING:
    from holdfast.core.health import Health, WorkerHealth
    from holdfast.runtime.worker import RunningWorker


def failing(health: Health) -> dict[str, str]:
    """Return the checks that fail, with their details."""
    assert health.ok == all(check.ok for check in health.checks)
    return {check.name: check.detail for check in health.checks if not check.ok}


async def test_a_worker_that_serves_is_live_and_ready(memory_app: Holdfast) -> None:
    worker = memory_app.worker(prefetch=5)
    before = worker.health()
    assert failing(before.ready).keys() == {"registered", "store", "claims"}
    assert before.live.ok

    async with worker:
        health = worker.health()
        assert (health.live.ok, health.ready.ok) == (True, True)
        loops = {"claimer", "settler", "reporter", "heartbeat", "guard", "reaper", "promoter", "prefetch"}
        assert loops | {"event_loop"} <= {check.name for check in health.live.checks}

    after = worker.health()
    assert after.live.ok
    assert failing(after.ready) == {"claims": "it has stopped"}


async def test_a_worker_without_a_free_slot_or_that_is_disabled_or_draining_is_alive(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.vitals.BOUND", 0.0)  # whatever a claimer that waits may take, it is not late
    begun, gate = asyncio.Event(), asyncio.Event()

    @memory_app.task(name="hold")
    async def hold() -> None:
        begun.set()
        await gate.wait()

    def claimer(health: WorkerHealth) -> bool:
        return next(check.ok for check in health.live.checks if check.name == "claimer")

    async with memory_app.worker(concurrency=1) as worker:
        await hold.enqueue()
        await begun.wait()

        async def waits() -> bool:
            return worker._claimer.pulse.rest == float("inf")

        await until(waits)
        assert claimer(worker.health())
        worker._heed(Signal(disabled=True))
        assert "disabled" in next(check.detail for check in worker.health().ready.checks if check.name == "claims")
        assert worker.health().ready.ok
        worker._heed(Signal(disabled=False))

        stopping = asyncio.create_task(worker.stop())

        async def drains() -> bool:
            return not worker.health().ready.ok

        await until(drains)
        assert failing(worker.health().ready) == {"claims": "it is asked to stop, and finishes what it has"}
        assert claimer(worker.health())
        gate.set()
        await stopping


@pytest.mark.parametrize(
    ("loop", "operation"),
    [("claimer", "claim"), ("settler", "settle"), ("reporter", "log"), ("reaper", "reap"), ("sweeper", "unblock")],
)
async def test_a_loop_that_is_stuck_is_named_until_it_moves_again(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch, loop: str, operation: str
) -> None:
    monkeypatch.setattr("holdfast.runtime.vitals.BOUND", 0.05)
    gate = asyncio.Event()
    real: Any = getattr(MemoryStore, operation)

    async def stuck(*args: Any, **kwargs: Any) -> Any:
        await gate.wait()
        return await real(*args, **kwargs)

    @memory_app.task(name="speak")
    async def speak(*, job: Job) -> None:
        job.log.info("spoken")

    monkeypatch.setattr(MemoryStore, operation, stuck)
    async with memory_app.worker() as worker:
        handle = await speak.enqueue()

        async def is_named() -> bool:
            return "should have moved" in failing(worker.health().live).get(loop, "")

        async def is_well() -> bool:
            return loop not in failing(worker.health().live)

        await until(is_named)
        gate.set()
        await until(is_well)
        await handle.result(timeout=20)


async def test_a_heartbeat_whose_thread_has_ended_is_found_at_once(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Heartbeat, store: object) -> None:
        raise ArithmeticError("not foreseen")

    monkeypatch.setattr(Heartbeat, "_guards", broken)
    worker = memory_app.worker()
    with pytest.raises(ExceptionGroup) as raised:
        await _until_dead(worker)
    assert raised.group_contains(ArithmeticError)


async def _until_dead(worker: RunningWorker) -> None:
    async with worker:

        async def dead() -> bool:
            return failing(worker.health().live).get("heartbeat") == "its thread has ended"

        await until(dead)


async def test_another_thread_sees_that_the_event_loop_is_blocked_and_that_it_is_not(memory_app: Holdfast) -> None:
    seen: list[WorkerHealth] = []
    async with memory_app.worker() as worker:

        def look() -> None:
            seen.append(worker.health())

        blocked = threading.Thread(target=look)
        blocked.start()
        blocked.join()  # on the event loop: nothing else turns meanwhile
        assert failing(seen[0].live)["event_loop"].startswith("has been blocked for ")
        assert worker.health().live.ok

        async def is_well() -> bool:
            await asyncio.get_running_loop().run_in_executor(elsewhere, look)
            return seen[-1].live.ok

        with ThreadPoolExecutor(1) as elsewhere:
            await until(is_well)


async def test_a_worker_whose_store_is_away_lives_and_is_not_ready_until_it_is_back(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with Proxy(postgres_url) as proxy:
            app = Holdfast(f"{proxy.url}{'&' if '?' in proxy.url else '?'}schema=away")
            stack.push_async_callback(app.close)
            worker = await stack.enter_async_context(app.worker())
            assert worker.health().ready.ok

        async def unready() -> bool:
            assert worker.health().live.ok
            return failing(worker.health().ready) == {"store": "it does not answer"}

        async def ready() -> bool:
            assert worker.health().live.ok
            return worker.health().ready.ok

        await until(unready, 60)
        async with Proxy(postgres_url, port=proxy.port):
            await until(ready, 60)
            await stack.aclose()
