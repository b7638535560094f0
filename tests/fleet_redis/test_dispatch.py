"""Jobs across processes, told of through Redis, and what a server shows of it. What Redis does wrong is in test_faults.py."""

from __future__ import annotations

import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.core.states import State
from holdfast.errors import BadSetting
from holdfast.notify.redis import counts as count
from holdfast.notify.redis.line import Line
from holdfast.runtime import heartbeat
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings
from holdfast.server.ui import live
from tests.faults.support import until
from tests.fleet_redis.support import EVERY, fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from uuid import UUID

    from holdfast.server.ui.live import Live, Mailbox, Snapshot
    from tests.fleet_redis.support import Fleet
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


async def test_an_entry_names_the_jobs_it_tells_of_and_who_is_told_of_one_that_is_gone_says_so(
    redis_server: RedisServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Holdfast(database, redis_url=redis_server.url, dispatch="redis")

    @app.task()
    async def greet() -> None: ...

    async with app, await Line.open(redis_server.url, 5.0) as line:
        held = await greet.options(delay=3600).enqueue()
        there = [await greet.enqueue() for _ in range(3)]

        async def told() -> str:
            (streams,) = await line.call(("KEYS", "*:normal"), timeout=5.0)
            entries = [(await line.call(("XRANGE", stream, "-", "+"), timeout=5.0))[0] for stream in streams]
            return str(entries)

        async def all_told() -> bool:
            found = await told()
            return all(str(handle.id) in found for handle in there)

        await until(all_told, "the stream names each job that is ready")
        assert str(held.id) not in await told(), "it is not ready"
        for handle in there:
            await handle.cancel()
        with caplog.at_level(logging.DEBUG, "holdfast"):
            async with app.worker():
                said = await until(
                    lambda: [record.getMessage() for record in caplog.records if "had been told of" in record.getMessage()],
                    "a worker that claims in vain says what it was told of",
                )
        assert any(str(handle.id) in said[0] for handle in there)


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
        own = f'id="{server.context.id}"'
        assert f'holdfast_redis_breaker{{{own},worker="server"}}' in text
        assert f'holdfast_redis_transitions_total{{{own},to="open",worker="server"}}' in text
        redis_server.restart()

        async def well() -> bool:
            return not await degraded()

        await until(well, "it is well again")


async def test_the_page_of_the_workers_tells_within_seconds_that_redis_is_lost_and_back_for_workers_and_the_server_itself(
    redis_server: RedisServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 3600.0)  # what is seen came with a sign of life for this alone
    async with fleet(database, redis_server.url, "redis", tmp_path) as here, here.app.worker():
        app = Holdfast(database, redis_url=redis_server.url, dispatch="redis")
        server = create_server(app, settings=ServerSettings(open=True), housekeeping=False)
        transport = httpx2.ASGITransport(app=server)
        async with (
            server.running(),
            server.dashboard.live.watch(),  # an open page: the server listens
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):

            async def said() -> tuple[str, ...]:
                """Return what is said of the server, and of the worker in its row."""
                answer = await client.get("/workers")
                assert answer.status_code == 200
                return tuple(re.findall(r"Redis: ([a-z-]+)", answer.text))

            async def all_say(phases: set[str]) -> bool:
                phrases = await said()
                return len(phrases) >= 2 and set(phrases) <= phases

            await until(lambda: all_say({"closed"}), "both say that all is well")
            redis_server.kill()
            await until(lambda: all_say({"open", "half-open"}), "both say that it is lost")
            assert "opened" in (await client.get("/workers")).text
            redis_server.restart()
            await until(lambda: all_say({"closed"}), "both say that it is back")


@pytest.mark.parametrize("mode", ["redis", "database"])
async def test_the_dashboards_of_several_servers_see_what_happens_in_other_processes(
    redis_server: RedisServer, database: str, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Redis because they are told, and no look of their own would show it; without because they look every second."""
    if mode == "redis":
        monkeypatch.setattr(live, "LONGEST", 3600.0)
    async with fleet(database, redis_server.url, mode, tmp_path) as here, servers(here, 2) as seen, here.workers(1):
        for one in seen:
            await one.until(lambda snapshot: len(snapshot.workers) == 1)
        await here.note()
        for one in seen:
            await one.until(lambda snapshot: snapshot.stats is not None and snapshot.stats.count(State.SUCCEEDED) == 1)


@pytest.mark.parametrize("mode", ["redis", "database"])
async def test_the_dashboards_of_several_servers_see_the_progress_of_a_job_that_goes_on(
    redis_server: RedisServer, database: str, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks anew when its stream tells it to: what counts is what it is shown then, with no look of the server's own."""
    if mode == "redis":
        monkeypatch.setattr(live, "LONGEST", 3600.0)
    begin, end = tmp_path / "begin", tmp_path / "end"
    async with fleet(database, redis_server.url, mode, tmp_path) as here, servers(here, 2) as seen, here.workers(1):
        job = await here.tasks.report.enqueue(str(begin), str(end))
        for one in seen:
            await one.until(lambda snapshot: snapshot.stats is not None and snapshot.stats.count(State.RUNNING) == 1)
            assert (await one.ask(job.id)).get("progress") is None
        begin.touch()
        for one in seen:
            await one.until_page(job.id, lambda shown: shown.get("progress") == 42)
            assert (await one.ask(job.id))["state"] == "running"
        end.touch()
        await job.result(timeout=60)


async def test_without_redis_what_happens_elsewhere_is_on_the_pages_of_every_server_with_its_next_look(
    redis_server: RedisServer, database: str, tmp_path: Path
) -> None:
    assert live.LONGEST <= 1.0, "within a second"
    begin, end = tmp_path / "begin", tmp_path / "end"
    async with fleet(database, redis_server.url, "database", tmp_path) as here, servers(here, 2) as seen:

        async def in_time(shows: Callable[[Snapshot], bool]) -> None:
            """What is committed by now is shown by the second look at the latest: the first may be under way."""
            for one in seen:
                looks = one.looks
                await one.until(shows)
                assert one.looks <= looks + 2

        async with here.workers(1):
            await in_time(lambda snapshot: len(snapshot.workers) == 1)
            job = await here.tasks.report.enqueue(str(begin), str(end))
            begin.touch()

            async def reported() -> bool:
                return bool((await job.view()).progress == 42)

            await until(reported, "it has reported")
            for one in seen:
                looks = one.looks
                await one.until_page(job.id, lambda shown: shown.get("progress") == 42)
                assert one.looks <= looks + 2
            end.touch()
            await job.result(timeout=60)
            await in_time(lambda snapshot: snapshot.stats is not None and snapshot.stats.count(State.SUCCEEDED) == 1)


@asynccontextmanager
async def servers(here: Fleet, number: int) -> AsyncIterator[list[Seen]]:
    """Run servers on the store of a fleet, and watch the dashboard of each."""
    settings = ServerSettings(admin_secret="a secret of the tests")
    headers = {"authorization": f"Bearer {settings.admin_secret}"}
    async with AsyncExitStack() as stack:
        seen = []
        for _ in range(number):
            app = Holdfast(here.url, redis_url=here.redis_url, dispatch=here.mode)
            server = create_server(app, settings=settings, housekeeping=False)
            await stack.enter_async_context(server.running())
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=server), base_url="http://server", headers=headers)
            await stack.enter_async_context(client)
            watched = server.dashboard.live
            seen.append(Seen(await stack.enter_async_context(watched.watch()), client, watched))
        yield seen


class Seen:
    """What a dashboard shows, as it is told of it."""

    def __init__(self, mailbox: Mailbox, client: httpx2.AsyncClient, watched: Live) -> None:
        self._mailbox = mailbox
        self._client = client
        self._watched = watched

    @property
    def looks(self) -> int:
        """How often its server has looked at the store."""
        return self._watched.looks

    async def until(self, shows: Callable[[Snapshot], bool]) -> None:
        """Wait until it shows something."""

        async def look() -> bool:
            snapshot = await self._mailbox.take(0.1)
            return snapshot is not None and shows(snapshot)

        await until(look, "a dashboard shows it")

    async def until_page(self, job: UUID, shows: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until it shows something of a job, asking anew whenever it is told to and at no other time."""

        async def look() -> bool:
            return await self._mailbox.take(0.1) is not None and shows(await self.ask(job))

        await until(look, "a dashboard was told, and shows it")

    async def ask(self, job: UUID) -> dict[str, Any]:
        """Return what the server tells of a job."""
        found: dict[str, Any] = (await self._client.get(f"/api/v1/jobs/{job}")).json()
        return found


@pytest.mark.parametrize("url", ["memory://", "sqlite:///jobs.db"])
async def test_redis_beside_another_store_is_refused_with_the_reason(url: str) -> None:
    app = Holdfast(url, redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(BadSetting, match="PostgreSQL"):
        app.client()


async def test_a_mode_without_redis_is_refused_with_what_to_set() -> None:
    app = Holdfast("postgresql://nobody@127.0.0.1:1/none", dispatch="redis")
    with pytest.raises(BadSetting, match="HOLDFAST_REDIS_URL"):
        app.client()
