"""What a worker counts, and that it counts it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Retry, StoreUnavailable
from holdfast.notify.local import LocalNotifier
from holdfast.runtime import counters as count
from holdfast.runtime.counters import MemoryCounters
from holdfast.store.memory import MemoryStore
from holdfast.store.port import ClaimRequest, Worker

if TYPE_CHECKING:
    from holdfast import Holdfast

WAIT = 20.0


async def counted(counters: MemoryCounters, name: str, least: int = 1) -> dict[str, int]:
    deadline = time.monotonic() + WAIT
    while counters.total(name) < least:
        assert time.monotonic() < deadline, f"{name} was not counted: {counters.snapshot()}"
        await asyncio.sleep(0.01)
    return counters.snapshot()


async def test_leases_that_lapsed_are_counted_as_recovered(memory_app: Holdfast) -> None:
    app = memory_app

    @app.task(retry=Retry(max_attempts=2, initial=0.0))
    async def work() -> None: ...

    handle = await work.enqueue()
    store = app.client().store
    dead = Worker(id=app.new_id(), name="dead")
    await store.register(dead)
    await store.claim(ClaimRequest(worker=dead.id, tasks=frozenset({work.name}), limit=1, look=True))
    await store.rewind(3600)
    counters = MemoryCounters()
    async with app.worker(counters=counters):
        await handle.result(timeout=WAIT)
        assert (await counted(counters, count.RECOVERED))["recovered_jobs:requeued:stale"] == 1


async def test_heartbeats_and_their_failures_are_counted(memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    app = memory_app
    extend = MemoryStore.extend
    failed: list[int] = []

    async def fails_once(self: MemoryStore, leases: Any) -> Any:
        if not failed:
            failed.append(1)
            raise StoreUnavailable("db", 0.0, "connection reset")
        return await extend(self, leases)

    @app.task(lease=1.0)
    async def work() -> None:
        await asyncio.sleep(1.5)

    monkeypatch.setattr(MemoryStore, "extend", fails_once)
    counters = MemoryCounters()
    handle = await work.enqueue()
    async with app.worker(counters=counters):
        await handle.result(timeout=WAIT)
    assert counters.total(count.HEARTBEAT_FAILURES) == 1
    assert counters.total(count.HEARTBEATS) >= 1


@pytest.mark.row(17)
@pytest.mark.parametrize("healthy", [True, False])
async def test_whether_hints_arrive_is_told_with_every_beat(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch, *, healthy: bool
) -> None:
    app = memory_app

    @app.task()
    async def work() -> None: ...

    monkeypatch.setattr(LocalNotifier, "healthy", healthy)
    async with app.worker():
        deadline = time.monotonic() + WAIT
        told: dict[str, int] = {}
        while "hints_arrive" not in told:
            assert time.monotonic() < deadline, f"it was not told with the first beat: {told}"
            (view,) = await app.client().store.workers()
            told = json.loads(view.counters or "{}")
            await asyncio.sleep(0.01)
    assert told["hints_arrive"] == int(healthy)


async def test_a_claim_that_another_worker_was_faster_at_is_counted_as_a_conflict(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = memory_app
    claim = MemoryStore.claim

    async def too_late(self: MemoryStore, request: Any) -> Any:
        return []

    @app.task()
    async def work() -> None: ...

    counters = MemoryCounters()
    async with app.worker(counters=counters):
        monkeypatch.setattr(MemoryStore, "claim", too_late)
        handle = await work.enqueue()
        await counted(counters, count.CONFLICTS)
        monkeypatch.setattr(MemoryStore, "claim", claim)
        await handle.result(timeout=WAIT)  # and it looks again before long, though nobody hints
