"""Redis killed, flushed, frozen, slowed, evicting and full, telling twice and telling the wrong one: no job is lost by it."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.breaker import BREAKER, TRANSITIONS, Phase
from holdfast.notify.redis import counts as count
from holdfast.notify.redis.line import Line
from tests.faults.lagging import LaggingProxy
from tests.faults.support import chance, until
from tests.fleet_redis.support import EVERY, figures, fleet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from holdfast.notify.port import Hint
    from tests.fleet_redis.support import Fleet
    from tests.support.redis import RedisServer

pytestmark = pytest.mark.row(28)

ROUNDS = 3
"""Of everything that Redis can do, under load."""


@EVERY
async def test_redis_flushed_killed_restarted_and_frozen_under_load_costs_no_job_and_no_attempt(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="holdfast.notify")
    async with (
        fleet(database, redis_server.url, mode, tmp_path) as here,
        here.workers(1),
        here.app.worker(concurrency=4) as worker,
    ):
        async with here.load():
            await here.more()
            assert redis_server.ask("FLUSHALL") == "+OK"
            await until(lambda: groups(here, redis_server) == ["*1"] * 3, "somebody made streams and groups again")
            await here.more()
            redis_server.kill()
            await until(lambda: figures(worker)[BREAKER] == 2, "the breaker is open")
            await here.more()
            redis_server.restart()
            await until(lambda: figures(worker)[BREAKER] == 0, "the breaker is closed")
            await here.more()
            redis_server.freeze()
            await until(lambda: figures(worker)[BREAKER] == 2, "the breaker is open again")
            await here.more()
            redis_server.thaw()
            await until(lambda: worker._base.notifier.healthy, "hints arrive again")
            await here.more()
        await here.check()
        found = figures(worker)
        assert found[f"{TRANSITIONS}:open"] >= 2
        assert found[f"{TRANSITIONS}:half-open"] >= 2
        assert found[f"{TRANSITIONS}:closed"] >= 2
    said = [record.getMessage() for record in caplog.records if "breaker" in record.getMessage()]
    assert any("does not answer" in text for text in said)
    assert any("answers again" in text for text in said)


@EVERY
async def test_a_redis_that_has_become_slow_costs_no_job_and_no_attempt(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path
) -> None:
    async with (
        LaggingProxy(redis_server.url) as proxy,
        fleet(database, proxy.url, mode, tmp_path) as here,
        here.app.worker(concurrency=4) as worker,
    ):
        async with here.load():
            await here.more()
            proxy.delay = 0.05  # slower, and within what is waited for
            await here.more()
            proxy.delay = 3.0
            await until(lambda: figures(worker)[f"{TRANSITIONS}:open"] >= 1, "the breaker opened")
            await here.more()
            proxy.delay = 0.0
            await until(lambda: worker._base.notifier.healthy, "hints arrive again")
            await here.more()
        await here.check()


@EVERY
async def test_streams_that_redis_evicts_are_made_again_and_no_job_waits_longer_than_the_sweep(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path
) -> None:
    async with fleet(database, redis_server.url, mode, tmp_path) as here, here.app.worker(concurrency=4) as worker:
        async with here.load():
            await here.more()
            crowd = Crowd(redis_server)
            await until(lambda: crowd.grows() and figures(worker)[count.HEALED] >= 1, "a stream was evicted, and made again")
            crowd.goes()
            await until(lambda: groups(here, redis_server) == ["*1"] * 3, "every stream is there again, with its group")
            await until(lambda: worker._base.notifier.healthy, "hints arrive again")
            await here.more()
        await here.check()


@EVERY
async def test_while_redis_takes_nothing_more_jobs_in_other_processes_are_found_all_the_same(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path
) -> None:
    async with fleet(database, redis_server.url, mode, tmp_path) as here, here.workers(1):
        assert await (await here.note()).result(timeout=60) == 0  # it has started, and is told through Redis
        told = here.app.client().notifier.figures
        assert redis_server.ask("CONFIG SET maxmemory 1") == "+OK"
        async with here.load():
            await until(lambda: told()[BREAKER] == 2, "the breaker of who enqueues is open")
            await here.more()
        assert told()[count.FELL_BACK] >= 1
        await here.check()
        assert redis_server.ask("CONFIG SET maxmemory 0") == "+OK"
        before = told()[count.SENT]

        async def sent() -> bool:
            await here.note()
            return told()[BREAKER] == 0 and told()[count.SENT] > before

        await until(sent, "hints go through Redis again")
        await here.check()


async def test_a_job_whose_hint_redis_lost_is_found_within_the_sweep(
    redis_server: RedisServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(database, redis_server.url, "redis", tmp_path) as here, here.workers(1):
        assert await (await here.note()).result(timeout=60) == 0  # it has started, and idles
        notifier = here.app.client().notifier
        sent: list[Hint] = []
        monkeypatch.setattr(notifier, "hint", lambda hint, **_: sent.append(hint))
        assert await (await here.note()).result(timeout=60) == 1
        assert sent
        await here.check()


# -- told twice, and of what somebody runs -----------------------------------------------------------------------------------


@EVERY
@pytest.mark.row(29)
async def test_a_stream_that_is_replayed_while_its_jobs_run_costs_claims_and_no_second_run(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path
) -> None:
    async with (
        fleet(database, redis_server.url, mode, tmp_path) as here,
        here.app.worker(concurrency=4) as one,
        here.app.worker(concurrency=4) as other,
    ):
        ended = [await here.note() for _ in range(5)]
        assert [await handle.result(timeout=60) for handle in ended] == [0, 1, 2, 3, 4]
        held = [await here.hold(), await here.hold()]
        await until(lambda: len(here.runs()) == len(here.accepted), "both are held")
        assert replay(here, redis_server) == "+OK"

        def conflicts() -> int:
            return sum(worker.counters.snapshot().get("acquire_conflicts", 0) for worker in (one, other))

        await until(lambda: conflicts() >= 1, "a conflict is counted")
        await until(lambda: answered_for(here), "all that came again was answered for")
        assert {await handle.state() for handle in held} == {"running"}
        here.open_gate()
        await here.check()


@pytest.mark.row(29)
async def test_what_a_frozen_worker_was_told_of_another_runs_and_it_finds_nothing_when_it_wakes(
    redis_server: RedisServer, database: str, tmp_path: Path
) -> None:
    async with (
        fleet(database, redis_server.url, "redis", tmp_path) as here,
        here.workers(1) as processes,
        here.app.worker(concurrency=4) as worker,
    ):
        frozen = processes[0]

        async def taken_over() -> bool:
            """Freeze it in the midst of waiting: the next hint goes to one or the other. It may have been between two waits."""
            frozen.send_signal(signal.SIGSTOP)
            handles = [await here.note() for _ in range(4)]

            async def settled() -> bool:
                views = [await handle.view() for handle in handles]
                # a claim of its that was under way when it was frozen may have taken some
                left = [
                    view for view in views if view.finished_at is None and not str(view.worker_name).endswith(f":{frozen.pid}")
                ]
                return not left or figures(worker)[count.RECLAIMED] > 0

            await until(settled, "the one that works has seen to them")
            if figures(worker)[count.RECLAIMED]:
                return True
            frozen.send_signal(signal.SIGCONT)
            for handle in handles:
                await handle.result(timeout=60)
            return False

        await until(taken_over, "what it was told of was taken over")
        mine = {process for _, process in here.runs()}
        frozen.send_signal(signal.SIGCONT)

        async def works() -> bool:
            await here.note()
            return frozen.pid in {process for _, process in here.runs()}

        await until(works, f"the one that was frozen takes jobs again; so far those of {mine} did")
        await here.check()


# -- everything, for longer --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.row(29)
@pytest.mark.parametrize("mode", ["redis", "hybrid"])
@pytest.mark.parametrize("redis_server", ["redis", "valkey"], indirect=True)
async def test_whatever_redis_does_under_load_nothing_is_lost_or_run_twice_and_none_waits_for_long(
    redis_server: RedisServer, database: str, mode: str, tmp_path: Path
) -> None:
    draw = chance()
    async with (
        LaggingProxy(redis_server.url) as proxy,
        fleet(database, proxy.url, mode, tmp_path) as here,
        here.workers(2),
        here.app.worker(concurrency=4) as worker,
    ):
        storm = Storm(here, redis_server, proxy, worker)
        async with here.load(), here.load():
            for _ in range(ROUNDS):
                for fault in draw.sample(storm.faults, len(storm.faults)):
                    await fault()
                    await until(lambda: worker._base.notifier.healthy, f"hints arrive again after {fault.__name__}")
                    await here.more(draw.randrange(100))
        await here.check()
        for phase in Phase:  # at least when Redis was killed, frozen and slowed
            assert figures(worker)[f"{TRANSITIONS}:{phase}"] >= 3 * ROUNDS


class Storm:
    """Everything that Redis can do to a fleet, each until it was felt."""

    def __init__(self, here: Fleet, server: RedisServer, proxy: LaggingProxy, worker: Any) -> None:
        self._here = here
        self._server = server
        self._proxy = proxy
        self._worker = worker
        self.faults: tuple[Callable[[], Awaitable[None]], ...] = (
            self.flush,
            self.kill,
            self.freeze,
            self.slow,
            self.evict,
            self.fill,
            self.replay,
        )

    async def flush(self) -> None:
        """Redis forgets everything."""
        assert self._server.ask("FLUSHALL") == "+OK"
        await until(lambda: groups(self._here, self._server) == ["*1"] * 3, "somebody made streams and groups again")

    async def kill(self) -> None:
        """Redis crashes, and comes back empty."""
        self._server.kill()
        await self._open()
        self._server.restart()

    async def freeze(self) -> None:
        """Redis stands still."""
        self._server.freeze()
        await self._open()
        self._server.thaw()

    async def slow(self) -> None:
        """Redis answers after seconds."""
        self._proxy.delay = 3.0
        await self._open()
        self._proxy.delay = 0.0

    async def _open(self) -> None:
        await until(lambda: figures(self._worker)[BREAKER] == 2, "the breaker is open")
        await self._here.more()

    async def evict(self) -> None:
        """Redis throws out what it likes."""
        crowd, stream = Crowd(self._server), self._here.stream
        await until(lambda: crowd.grows() and self._server.ask(f"EXISTS {stream}") == ":0", "a stream was evicted")
        crowd.goes()

    async def fill(self) -> None:
        """Redis takes nothing more."""
        assert self._server.ask("CONFIG SET maxmemory 1") == "+OK"
        await self._here.more(100)
        assert self._server.ask("CONFIG SET maxmemory 0") == "+OK"

    async def replay(self) -> None:
        """Redis tells everything once more."""
        await until(lambda: replay(self._here, self._server) == "+OK", "there is a group")


class Crowd:
    """Others who put more into Redis than it has room for, so that it throws out what it likes."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._size = 0
        assert server.ask("CONFIG SET maxmemory-policy allkeys-random") == "+OK"
        assert server.ask("CONFIG SET maxmemory 4mb") == "+OK"

    def grows(self) -> bool:
        for _ in range(20):
            self._size += 1
            self._server.ask(f"SETRANGE crowd:{self._size} 200000 x")
        return True

    def goes(self) -> None:
        assert self._server.ask("CONFIG SET maxmemory 0") == "+OK"
        assert self._server.ask("CONFIG SET maxmemory-policy noeviction") == "+OK"


def groups(here: Fleet, server: RedisServer) -> list[str]:
    """Return how many groups read each stream, as Redis says it."""
    return [server.ask(f"XINFO GROUPS {stream}") for stream in here.streams]


def replay(here: Fleet, server: RedisServer) -> str:
    """Have every entry that is still in the stream delivered once more."""
    return server.ask(f"XGROUP SETID {here.stream} workers 0")


async def answered_for(here: Fleet) -> bool:
    """Tell whether every entry of the stream was read, and answered for."""
    async with await Line.open(here.redis_url, 5.0) as line:
        groups, stream = await line.call(("XINFO", "GROUPS", here.stream), ("XINFO", "STREAM", here.stream), timeout=5.0)
    group, whole = _named(groups[0]), _named(stream)
    return bool(group[b"pending"] == 0 and group[b"last-delivered-id"] == whole[b"last-generated-id"])


def _named(answer: list[Any]) -> dict[bytes, Any]:
    return dict(zip(answer[::2], answer[1::2], strict=True))
