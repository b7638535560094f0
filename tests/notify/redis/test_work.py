"""Work through streams: handed to one, answered for, handed on, reclaimed; and what Redis loses is made up for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.core.breaker import BREAKER, TRANSITIONS
from holdfast.notify.hub import Hub
from holdfast.notify.local import LocalNotifier
from holdfast.notify.port import SHOWN, Hint, Serving
from holdfast.notify.redis import RedisNotifier, streams
from holdfast.notify.redis import counts as count
from holdfast.notify.redis.line import Line
from holdfast.system import SystemEnvironment
from tests.notify.ear import Ear, eventually
from tests.notify.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.support.redis import RedisServer

WORLD = SystemEnvironment()
ALL = Serving()
NEVER = 3600.0
SOMETHING = Hint(anything=True)


def work(*queues: str, priority: int | None = None) -> Hint:
    return Hint(frozenset(queues), priority=priority)


@asynccontextmanager
async def handle(
    url: str, name: str, ear: Ear | None = None, serving: Serving | None = None, **options: Any
) -> AsyncIterator[RedisNotifier]:
    """A notifier as in a process of its own. It sweeps only where a test says so."""
    options = {"sweep": NEVER, "timeout": 5.0, **options}  # patient: a machine that is slow is no outage
    notifier = RedisNotifier(f"{url}?client_name={uuid4().hex}", WORLD, name=name, **options)
    try:
        if ear is not None:
            await notifier.listen(ear, serving)
        yield notifier
    finally:
        await notifier.close()


async def call(url: str, *command: str | bytes | int) -> Any:
    async with await Line.open(url, 5.0) as line:
        return (await line.call(command, timeout=5.0))[0]


# -- handed to one -----------------------------------------------------------------------------------------------------------


async def test_work_is_handed_to_one_of_those_who_claim_and_told_to_those_who_watch(
    redis_server: RedisServer, name: str
) -> None:
    first, second, watcher = Ear(), Ear(), Ear()
    url = redis_server.url
    async with (
        handle(url, name, first, ALL) as one,
        handle(url, name, second, ALL) as two,
        handle(url, name, watcher),
        handle(url, name) as sender,
    ):
        sender.hint(work("mail"))
        await watcher.hears(work("mail"))
        await eventually(lambda: bool(first.hints or second.hints))
        taker, ear, other = (one, first, second) if first.hints else (two, second, first)
        assert ear.said == work("mail")
        handed = taker.heed()
        assert handed.hint == work("mail")
        taker.answered(handed, more=False)
        sender.hint(Hint(later=True))  # told after it to everyone: had the work been told to all, it would be there
        await other.hears(Hint(later=True))
        assert other.said == Hint(later=True)
        assert not taker.heed()


async def test_nobody_is_handed_the_next_before_it_has_answered_for_the_last(redis_server: RedisServer, name: str) -> None:
    ear = Ear()
    async with handle(redis_server.url, name, ear, ALL) as taker, handle(redis_server.url, name) as sender:
        sender.hint(work("one"))
        await ear.hears(work("one"))
        sender.hint(work("two"))
        await eventually(lambda: sender.figures()[count.SENT] == 2)
        other = Ear()
        async with handle(redis_server.url, name, other, ALL) as idle:  # an idle one gets it
            await other.hears(work("two"))
            idle.answered(idle.heed(), more=False)
        assert ear.said == work("one")
        taker.answered(taker.heed(), more=False)


async def test_the_highest_band_is_read_first(redis_server: RedisServer, name: str) -> None:
    async with handle(redis_server.url, name) as sender:
        for queue, priority in (("low", 1), ("usual", None), ("high", 9)):
            sender.hint(work(queue, priority=priority))
            await eventually(lambda: sender._sender._task is None)
        for stream in sender._streams.names:
            assert await call(redis_server.url, "XLEN", stream) == 1
        got: list[Hint] = []

        class Noting(Ear):
            def __call__(self, hint: Hint) -> None:
                super().__call__(hint)
                got.append(hint)

        async with handle(redis_server.url, name, Noting(), ALL) as taker:
            await eventually(lambda: bool(got))
            assert got == [Hint(frozenset({"low", "usual", "high"}), priority=9)], "one read over all streams"
            taker.answered(taker.heed(), more=False)


async def test_entries_are_acknowledged_after_the_answer_and_not_before(redis_server: RedisServer, name: str) -> None:
    ear = Ear()
    async with handle(redis_server.url, name, ear, ALL) as taker:
        stream = taker._streams.names[1]
        taker.hint(work("mail"))
        await ear.hears(work("mail"))
        assert (await call(redis_server.url, "XPENDING", stream, streams.GROUP))[0] == 1
        taker.answered(taker.heed(), more=False)
        async with asyncio.timeout(30):
            while (await call(redis_server.url, "XPENDING", stream, streams.GROUP))[0]:  # noqa: ASYNC110  the server does it
                await asyncio.sleep(0.002)


async def test_streams_do_not_grow_without_bound(redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LONGEST", 50)
    async with handle(redis_server.url, name) as sender:
        commands = [sender._streams.add(work("mail")) for _ in range(1000)]
        async with await Line.open(redis_server.url, 5.0) as line:
            await line.call(*commands, timeout=5.0)
        assert await call(redis_server.url, "XLEN", sender._streams.names[1]) <= 200  # whole nodes are cut off


# -- handed on ---------------------------------------------------------------------------------------------------------------


async def test_what_one_finds_empty_or_too_much_all_others_hear_of(redis_server: RedisServer, name: str) -> None:
    first, second = Ear(), Ear()
    async with handle(redis_server.url, name, first, ALL) as one, handle(redis_server.url, name, second, ALL) as two:
        one.hint(work("mail"))
        await eventually(lambda: bool(first.hints or second.hints))
        taker, other = (one, second) if first.hints else (two, first)
        taker.answered(taker.heed(), more=True)
        await other.hears(work("mail"))
        assert taker.figures()[count.HANDED_ON] == 1
        assert not one.heed()
        assert not two.heed()


async def test_work_of_queues_that_it_does_not_serve_is_handed_on_at_once(redis_server: RedisServer, name: str) -> None:
    mail, video = Ear(), Ear()
    async with handle(redis_server.url, name, mail, Serving(frozenset({"mail"}))) as one:
        one.hint(work("video"))
        async with handle(redis_server.url, name, video, Serving(frozenset({"video"}))) as two:
            await eventually(lambda: one.figures()[count.HANDED_ON] + two.figures()[count.RECEIVED] > 0)
            one.hint(work("video"))
            await video.hears(work("video"))
            if handed := two.heed():
                two.answered(handed, more=False)
        assert mail.hints == []


async def test_work_in_the_hands_of_one_who_goes_is_heard_of_by_others(redis_server: RedisServer, name: str) -> None:
    first, second = Ear(), Ear()
    async with handle(redis_server.url, name, second, ALL) as two:
        async with handle(redis_server.url, name, first, ALL) as one:
            two.hint(work("mail"))
            await eventually(lambda: bool(first.hints or second.hints))
            if second.hints:
                return  # it came to the one who stays
            assert one.heed()
        await second.hears(work("mail"))


async def test_an_entry_that_nobody_answers_for_goes_to_another(
    redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "IDLE", 0.01)
    stuck, other = Ear(), Ear()
    async with handle(redis_server.url, name, stuck, ALL) as silent:
        silent.hint(work("mail"))
        await stuck.hears(work("mail"))
        async with handle(redis_server.url, name, other, ALL) as alive:
            await other.hears(work("mail"))
            assert alive.figures()[count.RECLAIMED] == 1
            alive.answered(alive.heed(), more=False)
        silent.answered(silent.heed(), more=False)


# -- what Redis loses --------------------------------------------------------------------------------------------------------


async def test_streams_and_groups_that_are_gone_are_made_again_and_the_worker_looks(
    redis_server: RedisServer, name: str
) -> None:
    ear = Ear()
    async with handle(redis_server.url, name, ear, ALL) as taker:
        assert redis_server.ask("FLUSHALL") == "+OK"
        await ear.hears(SOMETHING)
        assert taker.figures()[count.HEALED] >= 1
        taker.hint(work("mail"))
        await ear.hears(work("mail"))
        taker.answered(taker.heed(), more=False)
        assert taker.figures()[BREAKER] == 0
        assert taker.healthy


async def test_the_worker_looks_every_few_seconds_whatever_redis_says(redis_server: RedisServer, name: str) -> None:
    ear = Ear()
    async with handle(redis_server.url, name, ear, ALL, sweep=0.02) as taker:
        await ear.hears(SOMETHING)
        assert taker.figures()[count.SWEPT] >= 1
        assert taker.healthy


async def test_redis_that_goes_opens_the_breaker_and_one_that_comes_back_closes_it(
    redis_server: RedisServer, name: str
) -> None:
    ear = Ear()
    async with handle(redis_server.url, name, ear, ALL) as taker:
        await eventually(lambda: taker.healthy)
        redis_server.kill()
        try:
            await eventually(lambda: taker.figures()[BREAKER] == 2)
            assert not taker.healthy
            await ear.hears(SOMETHING)  # so that polling begins
            ear.hints.clear()
            taker.hint(work("mail"))
            await ear.hears(work("mail"))  # of its own process at least
            assert taker.figures()[count.FELL_BACK] >= 1
        finally:
            redis_server.restart()
        ear.hints.clear()
        await eventually(lambda: taker.healthy)
        await ear.hears(SOMETHING)
        figures = taker.figures()
        assert figures[BREAKER] == 0
        assert figures[f"{TRANSITIONS}:open"] >= 1
        assert figures[f"{TRANSITIONS}:half-open"] >= 1
        assert figures[f"{TRANSITIONS}:closed"] >= 1
        taker.hint(work("paper"))
        await ear.hears(work("paper"))
        await eventually(lambda: bool(taker.heed()))
        taker.answered(taker.heed(), more=False)


async def test_while_redis_is_away_the_fallback_carries_hints(redis_server: RedisServer, name: str) -> None:
    hub, far = Hub(), Ear()
    listening = LocalNotifier(hub)
    await listening.listen(far)
    redis_server.kill()
    try:
        async with handle(redis_server.url, name, Ear(), fallback=LocalNotifier(hub)) as notifier:
            notifier.hint(work("mail"))
            await far.hears(work("mail"))
            assert not notifier.healthy
    finally:
        redis_server.restart()
        await listening.close()


async def test_one_that_starts_while_redis_is_away_is_not_held_up_by_it(redis_server: RedisServer, name: str) -> None:
    redis_server.kill()
    try:
        async with handle(redis_server.url, name, Ear(), ALL) as notifier:
            assert not notifier.healthy
    finally:
        redis_server.restart()


async def test_sending_to_a_redis_that_stands_still_returns_at_once(redis_server: RedisServer, name: str) -> None:
    async with handle(redis_server.url, name, Ear(), ALL, timeout=0.05) as notifier:
        redis_server.freeze()
        try:
            notifier.hint(work("mail"))
            assert notifier.figures()[count.SENT] == 0, "nobody waited for it"
            await eventually(lambda: notifier.figures()[BREAKER] == 2)
        finally:
            redis_server.thaw()
        await eventually(lambda: notifier.healthy)
        if handed := notifier.heed():
            notifier.answered(handed, more=False)


async def test_connections_that_carry_nothing_any_more_are_noticed(redis_server: RedisServer, name: str) -> None:
    ear = Ear()
    async with (
        Proxy(redis_server.url) as proxy,
        handle(proxy.url, name, ear, timeout=0.5) as watcher,
        handle(redis_server.url, name) as sender,
    ):
        await eventually(lambda: watcher.healthy)
        proxy.freeze()
        await eventually(lambda: not watcher.healthy)
        await eventually(lambda: watcher.healthy)
        ear.hints.clear()
        sender.hint(work("mail"))
        await ear.hears(work("mail"))


# -- what only people look at ------------------------------------------------------------------------------------------------


async def test_what_only_people_look_at_reaches_those_who_watch_and_no_worker(redis_server: RedisServer, name: str) -> None:
    watcher, worker = Ear(), Ear()
    async with handle(redis_server.url, name, watcher), handle(redis_server.url, name, worker, ALL) as sender:
        sender.hint(SHOWN)
        await eventually(lambda: watcher.said.shown)
        assert worker.hints == []
