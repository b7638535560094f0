"""Jobs across processes, told of through Redis: while it works, and while it is killed, flushed, frozen and slowed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.core.breaker import BREAKER, TRANSITIONS
from holdfast.errors import BadSetting
from holdfast.notify.port import Hint
from holdfast.notify.redis import counts as count
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from tests.faults.lagging import LaggingProxy
from tests.faults.support import BUSY, until
from tests.fleet_redis.support import fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.fleet_redis.support import Fleet
    from tests.support.redis import RedisServer

SWEEP = 5.0
"""Seconds within which a worker finds what Redis has lost."""
QUICK = [("redis", "redis"), ("valkey", "hybrid")]
SLOW = [("redis", "hybrid"), ("valkey", "redis")]
EVERY = pytest.mark.parametrize(
    ("redis_server", "mode"),
    [*QUICK, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW)],
    indirect=["redis_server"],
)
"""On both servers in both modes; half of it when time is short."""


def figures(worker: Any) -> Mapping[str, int]:
    """Return what a worker in this process knows of its Redis."""
    found: Mapping[str, int] = worker._base.notifier.figures()
    return found


@asynccontextmanager
async def load(fleet: Fleet, every: float = 0.01) -> AsyncIterator[list[int]]:
    """Enqueue a job every few milliseconds; returns what grows by one for each that was accepted."""
    accepted: list[int] = []
    enough = asyncio.Event()

    async def enqueue() -> None:
        while not enough.is_set():
            await fleet.note.enqueue(len(accepted))
            accepted.append(1)
            await asyncio.sleep(every)

    task = asyncio.create_task(enqueue())
    try:
        yield accepted
    finally:
        enough.set()
        await task


async def more(accepted: list[int], jobs: int = 20) -> None:
    """Wait until some more jobs were accepted."""
    target = len(accepted) + jobs
    await until(lambda: len(accepted) >= target, "more jobs were accepted")


async def check(fleet: Fleet, jobs: int) -> None:
    """All ended, each was claimed once, and none waited longer than the sweep allows."""
    await fleet.ended(jobs)
    books = await fleet.books()
    assert books["succeeded"] == jobs
    assert books["attempt"] == 1
    assert books["waited"] <= SWEEP + BUSY


@EVERY
async def test_jobs_reach_workers_in_other_processes(redis_server: RedisServer, database: str, mode: str) -> None:
    async with fleet(database, redis_server.url, mode) as here, here.workers(2):
        for number in range(20):
            handle = await here.note.enqueue(number)
            assert await handle.result(timeout=60) == number
        given_back = await here.again.enqueue()
        assert await given_back.result(timeout=60) == 2
        assert here.app.client().notifier.figures()[count.SENT] >= 20


@EVERY
async def test_redis_flushed_killed_restarted_and_frozen_under_load_costs_no_job_and_no_attempt(
    redis_server: RedisServer, database: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="holdfast.notify")
    async with fleet(database, redis_server.url, mode) as here, here.workers(1), here.app.worker(concurrency=4) as worker:
        async with load(here) as accepted:
            await more(accepted)
            assert redis_server.ask("FLUSHALL") == "+OK"
            await until(lambda: redis_server.ask(f"XINFO GROUPS {here.stream}") == "*1", "somebody made the group again")
            await more(accepted)
            redis_server.kill()
            await until(lambda: figures(worker)[BREAKER] == 2, "the breaker is open")
            await more(accepted)
            redis_server.restart()
            await until(lambda: figures(worker)[BREAKER] == 0, "the breaker is closed")
            await more(accepted)
            redis_server.freeze()
            await until(lambda: figures(worker)[BREAKER] == 2, "the breaker is open again")
            await more(accepted)
            redis_server.thaw()
            await until(lambda: worker._base.notifier.healthy, "hints arrive again")
            await more(accepted)
        await check(here, len(accepted))
        found = figures(worker)
        assert found[f"{TRANSITIONS}:open"] >= 2
        assert found[f"{TRANSITIONS}:half-open"] >= 2
        assert found[f"{TRANSITIONS}:closed"] >= 2
    said = [record.getMessage() for record in caplog.records if "breaker" in record.getMessage()]
    assert any("does not answer" in text for text in said)
    assert any("answers again" in text for text in said)


@EVERY
async def test_a_redis_that_has_become_slow_costs_no_job_and_no_attempt(
    redis_server: RedisServer, database: str, mode: str
) -> None:
    async with (
        LaggingProxy(redis_server.url) as proxy,
        fleet(database, proxy.url, mode) as here,
        here.app.worker(concurrency=4) as worker,
    ):
        async with load(here) as accepted:
            await more(accepted)
            proxy.delay = 0.05  # slower, and within what is waited for
            await more(accepted)
            proxy.delay = 3.0
            await until(lambda: figures(worker)[f"{TRANSITIONS}:open"] >= 1, "the breaker opened")
            await more(accepted)
            proxy.delay = 0.0
            await until(lambda: worker._base.notifier.healthy, "hints arrive again")
            await more(accepted)
        await check(here, len(accepted))


async def test_a_job_whose_hint_redis_lost_is_found_within_the_sweep(
    redis_server: RedisServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(database, redis_server.url, "redis") as here, here.workers(1):
        assert await (await here.note.enqueue(0)).result(timeout=60) == 0  # it has started, and idles
        notifier = here.app.client().notifier
        sent: list[Hint] = []
        monkeypatch.setattr(notifier, "hint", lambda hint, **_: sent.append(hint))
        handle = await here.note.enqueue(1)
        assert await handle.result(timeout=60) == 1
        assert sent
        await check(here, 2)


async def test_an_entry_that_is_replayed_is_a_conflict_and_no_second_run(redis_server: RedisServer, database: str) -> None:
    async with fleet(database, redis_server.url, "redis") as here, here.app.worker(concurrency=4) as worker:
        for number in range(5):
            assert await (await here.note.enqueue(number)).result(timeout=60) == number
        for _ in range(5):
            here.app.client().notifier.hint(Hint(frozenset({"default"})))
            await asyncio.sleep(0.01)
        await until(lambda: worker.counters.snapshot().get("acquire_conflicts", 0) >= 1, "a conflict is counted")
        await check(here, 5)


async def test_the_server_is_ready_but_degraded_while_redis_is_away(redis_server: RedisServer, database: str) -> None:
    app = Holdfast(database, redis_url=redis_server.url, dispatch="redis")
    settings = ServerSettings(admin_secret="a secret of the tests")
    server = create_server(app, settings=settings)
    transport = httpx2.ASGITransport(app=server)
    headers = {"authorization": f"Bearer {settings.admin_secret}"}
    async with server.running(), httpx2.AsyncClient(transport=transport, base_url="http://server") as client:

        async def redis() -> dict[str, Any]:
            answer = await client.get("/health/ready")
            assert answer.status_code == 200
            found: dict[str, Any] = next(check for check in answer.json()["checks"] if check["name"] == "redis")
            return found

        async def degraded() -> bool:
            return bool((await redis()).get("degraded", False))

        assert not await degraded()
        redis_server.kill()
        await until(degraded, "it is degraded")
        assert "polling" in (await redis())["detail"]
        text = (await client.get("/metrics", headers=headers)).text
        assert 'holdfast_redis_breaker{worker="server"}' in text
        assert 'holdfast_redis_transitions_total{to="open",worker="server"}' in text
        redis_server.restart()

        async def well() -> bool:
            return not await degraded()

        await until(well, "it is well again")


async def test_progress_in_one_process_is_seen_by_a_server_in_another_at_once(redis_server: RedisServer, database: str) -> None:
    heard: list[Hint] = []
    async with fleet(database, redis_server.url, "redis") as here, here.workers(1):
        watcher = here.app._adapters.notifier()
        await watcher.listen(heard.append)
        try:
            await here.note.enqueue(1)
            await until(lambda: any(hint.shown for hint in heard), "the end of a job in another process is told")
        finally:
            await watcher.close()


@pytest.mark.parametrize("url", ["memory://", "sqlite:///jobs.db"])
async def test_redis_beside_another_store_is_refused_with_the_reason(url: str) -> None:
    app = Holdfast(url, redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(BadSetting, match="PostgreSQL"):
        app.client()


async def test_a_mode_without_redis_is_refused_with_what_to_set() -> None:
    app = Holdfast("postgresql://nobody@127.0.0.1:1/none", dispatch="redis")
    with pytest.raises(BadSetting, match="HOLDFAST_REDIS_URL"):
        app.client()
