"""Jobs across processes, told of through Redis, and what a server shows of it. What Redis does wrong is in test_faults.py."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.core.states import State
from holdfast.errors import BadSetting
from holdfast.notify.redis import counts as count
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from holdfast.server.ui import live
from tests.faults.support import until
from tests.fleet_redis.support import EVERY, fleet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.notify.port import Hint
    from holdfast.server.ui.live import Mailbox, Snapshot
    from tests.support.redis import RedisServer


@EVERY
async def test_jobs_reach_workers_in_other_processes(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path
) -> None:
    async with fleet(database, redis_server.url, mode, tmp_path) as here, here.workers(2):
        for number in range(20):
            assert await (await here.note()).result(timeout=60) == number
        given_back = await here.tasks.again.enqueue()
        assert await given_back.result(timeout=60) == 2
        told = int(redis_server.ask(f"XLEN {here.stream}").removeprefix(":"))
        assert told >= 22, "each job was told of, and the one that was given back once more when its time had come"
        assert here.app.client().notifier.figures()[count.SENT] >= 20


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


async def test_progress_in_one_process_is_seen_by_a_server_in_another_at_once(
    redis_server: RedisServer, database: str, tmp_path: Path
) -> None:
    heard: list[Hint] = []
    async with fleet(database, redis_server.url, "redis", tmp_path) as here, here.workers(1):
        watcher = here.app._adapters.notifier()
        await watcher.listen(heard.append)
        try:
            await here.note()
            await until(lambda: any(hint.shown for hint in heard), "the end of a job in another process is told")
        finally:
            await watcher.close()


@pytest.mark.parametrize("mode", ["redis", "database"])
async def test_the_dashboards_of_several_servers_see_what_happens_in_other_processes(
    redis_server: RedisServer, database: str, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Redis because they are told, and no look of their own would show it; without because they look every second."""
    if mode == "redis":
        monkeypatch.setattr(live, "LONGEST", 3600.0)
    settings = ServerSettings(admin_secret="a secret of the tests")
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(fleet(database, redis_server.url, mode, tmp_path))
        seen = []
        for _ in range(2):
            server = create_server(
                Holdfast(database, redis_url=redis_server.url, dispatch=mode), settings=settings, housekeeping=False
            )
            await stack.enter_async_context(server.running())
            seen.append(Seen(await stack.enter_async_context(server.dashboard.live.watch())))
        await stack.enter_async_context(here.workers(1))
        for one in seen:
            await one.until(lambda snapshot: len(snapshot.workers) == 1)
        await here.note()
        for one in seen:
            await one.until(lambda snapshot: snapshot.stats is not None and snapshot.stats.count(State.SUCCEEDED) == 1)


class Seen:
    """What a dashboard shows, as it is told of it."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def until(self, shows: Callable[[Snapshot], bool]) -> None:
        """Wait until it shows something."""

        async def look() -> bool:
            snapshot = await self._mailbox.take(0.1)
            return snapshot is not None and shows(snapshot)

        await until(look, "a dashboard shows it")


@pytest.mark.parametrize("url", ["memory://", "sqlite:///jobs.db"])
async def test_redis_beside_another_store_is_refused_with_the_reason(url: str) -> None:
    app = Holdfast(url, redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(BadSetting, match="PostgreSQL"):
        app.client()


async def test_a_mode_without_redis_is_refused_with_what_to_set() -> None:
    app = Holdfast("postgresql://nobody@127.0.0.1:1/none", dispatch="redis")
    with pytest.raises(BadSetting, match="HOLDFAST_REDIS_URL"):
        app.client()
