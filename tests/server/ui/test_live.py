"""What keeps pages live: looks that are taken for all, mailboxes of one slot, and the stream as browsers read it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import tracemalloc
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.responses import HTMLResponse

from holdfast.connect import Adapters
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.errors import StoreUnavailable
from holdfast.notify.port import Hint
from holdfast.server.settings import ServerSettings
from holdfast.server.ui import live as looking
from holdfast.server.ui import sharing, streaming
from holdfast.server.ui.live import SHORTEST, Live, Mailbox, Snapshot
from holdfast.server.ui.sharing import PACE, Shared
from holdfast.store.port import ClaimRequest, Role, Stats, TaskCounts, Worker
from holdfast.system import SystemEnvironment
from tests.server.ui.serving import SECRET, Served, new_key, served
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.responses import Response

WORLD = SystemEnvironment()


@asynccontextmanager
async def hub() -> AsyncIterator[tuple[Live, Any, Any]]:
    adapters = Adapters("memory://")
    store, notifier = adapters.store(), adapters.notifier()
    await store.open()
    try:
        yield Live(store, notifier, WORLD), store, notifier
    finally:
        await notifier.close()
        await store.close()


def job() -> NewJob:
    return NewJob(id=WORLD.job_id(), task="t")


# -- looks -----------------------------------------------------------------------------------------------------------------


async def test_nobody_watches_and_nothing_is_looked_at() -> None:
    async with hub() as (live, _, notifier):
        async with live.watch() as mailbox:
            assert await mailbox.take(5) is not None
        looks = live.looks
        notifier.hint(Hint(anything=True))
        await asyncio.sleep(0.05)
        assert (live.looks, live.watchers) == (looks, 0)


async def test_whoever_comes_is_told_how_things_stand_first() -> None:
    async with hub() as (live, store, _):
        await store.enqueue([job()])
        async with live.watch() as first, live.watch() as second:
            for mailbox in (first, second):
                snapshot = await mailbox.take(5)
                assert snapshot is not None
                assert snapshot.stats is not None
                assert snapshot.stats.count(State.READY) == 1
        async with live.watch() as third:
            assert await third.take(5) is not None


async def test_a_hint_brings_a_look_at_once_and_many_bring_four_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LONGEST", 3600.0)  # so that it looks when it is told, and not by itself
    async with hub() as (live, store, notifier), live.watch() as mailbox:
        await mailbox.take(5)
        await asyncio.sleep(SHORTEST)
        await store.enqueue([job()])
        notifier.hint(Hint(anything=True))
        snapshot = await mailbox.take(60)
        assert snapshot is not None
        assert snapshot.stats is not None
        assert snapshot.stats.count(State.READY) == 1
        looks, begun = live.looks, time.monotonic()
        while time.monotonic() - begun < 1.0:
            notifier.hint(Hint(anything=True))
            await asyncio.sleep(0.005)
        assert live.looks - looks <= (time.monotonic() - begun) / SHORTEST + 1


async def test_where_very_many_watch_each_is_told_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_TOLD", 8)
    async with AsyncExitStack() as stack:
        live, _, notifier = await stack.enter_async_context(hub())
        mailboxes = [await stack.enter_async_context(live.watch()) for _ in range(8)]
        for mailbox in mailboxes:
            await mailbox.take(60)
        looks, begun = live.looks, time.monotonic()
        while time.monotonic() - begun < 2.0:
            notifier.hint(Hint(anything=True))
            await asyncio.sleep(0.005)
        assert live.looks - looks <= (time.monotonic() - begun) / 1.0 + 1
        snapshot = await mailboxes[0].take(60)
        assert snapshot is not None, "a hint is still heard"


async def test_nothing_is_told_where_nothing_is_newer() -> None:
    async with hub() as (live, _, _):
        async with live.watch() as mailbox:
            snapshot = await mailbox.take(5)
            assert snapshot is not None
        async with live.watch(seen=snapshot.version) as again:
            assert await again.take(1.5) is None


async def test_pages_hear_that_a_manager_has_fallen_silent_though_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hub() as (live, store, _):
        manager = Worker(id=WORLD.job_id(), name="manager m", slots=0)
        await store.register(manager)
        async with live.watch() as mailbox:
            snapshot = await mailbox.take(5)
            assert snapshot is not None
            assert not snapshot.silent
            moment: datetime = await store.now()

            async def later() -> datetime:
                return moment + timedelta(seconds=20)

            monkeypatch.setattr(store, "now", later)
            snapshot = await mailbox.take(5)
            assert snapshot is not None
            assert snapshot.silent == {manager.id}
            assert await mailbox.take(1.5) is None, "once"


async def test_versions_of_another_server_are_not_taken_for_ones_own() -> None:
    async with hub() as (live, _, _):
        assert live.seen(f"{live.epoch}-7") == 7
        for other in ("0123456789ab-7", "7", "", None, f"{live.epoch}-x", f"{live.epoch}-²"):
            assert live.seen(other) is None


async def test_a_store_that_is_away_is_told_once_and_its_return_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hub() as (live, store, _), live.watch() as mailbox:
        await mailbox.take(5)
        whole = store.stats

        async def away() -> Stats:
            raise StoreUnavailable("db", 0.0, "gone")

        monkeypatch.setattr(store, "stats", away)
        snapshot = await mailbox.take(5)
        assert snapshot is not None
        assert snapshot.stats is None
        assert "does not answer" in snapshot.summary()
        monkeypatch.setattr(store, "stats", whole)
        snapshot = await mailbox.take(5)
        assert snapshot is not None
        assert snapshot.stats is not None


async def test_a_mailbox_holds_the_latest_alone() -> None:
    mailbox = Mailbox()
    for version in range(1000):
        mailbox.put(Snapshot(version=version, stats=None))
    snapshot = await mailbox.take(1)
    assert snapshot is not None
    assert snapshot.version == 999
    assert await mailbox.take(0.01) is None


async def test_five_hundred_stalled_streams_keep_one_snapshot_between_them() -> None:
    """Each has an event that nobody reads; of two thousand that follow, the latest is kept."""
    others = asyncio.all_tasks()
    async with hub() as (live, _, _):
        unread = 0

        async def send(message: Any) -> None:
            nonlocal unread
            if message["type"] == "http.response.body":
                unread += 1
                await asyncio.Event().wait()

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def anyone(_: Any) -> bool:
            return True

        context = SimpleNamespace(door=SimpleNamespace(principal=anyone))
        visit: Any = SimpleNamespace(
            ui=SimpleNamespace(live=live, context=context),
            request=SimpleNamespace(headers={}),
            who=SimpleNamespace(queues=None),
        )
        responses: list[Any] = [await streaming.live(visit) for _ in range(500)]
        streams = {asyncio.create_task(response({"type": "http", "method": "GET"}, receive, send)) for response in responses}

        async def all_stalled() -> bool:
            return live.watchers == unread == 500

        await until(all_stalled)
        tracemalloc.start()
        try:
            for version in range(2000):
                tasks = [TaskCounts(f"queue {version}", f"task {number}", {State.READY: version}) for number in range(50)]
                live._publish(Snapshot(version=0, stats=Stats(tasks=tasks)), hinted=True)
            assert tracemalloc.get_traced_memory()[0] < 1_000_000
        finally:
            tracemalloc.stop()
        assert unread == 500
        streams |= asyncio.all_tasks() - others  # also sse-starlette's own
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        assert live.watchers == 0


# -- the stream ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def serving() -> Iterator[Served]:
    with served("memory://", ServerSettings(admin_secret=SECRET)) as one:
        yield one


@asynccontextmanager
async def logged_in(serving: Served, secret: str = SECRET) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=serving.url, headers={"Sec-Fetch-Site": "same-origin"}, timeout=30) as client:
        answer = await client.post("/login", data={"secret": secret})
        assert answer.status_code == 303
        yield client
    await asyncio.sleep(0.02)  # a transport closes in a later turn of the loop


async def events(client: httpx.AsyncClient, **headers: str) -> AsyncIterator[dict[str, str]]:
    async with client.stream("GET", "/live", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif event:
                yield event
                event = {}


async def test_the_stream_begins_with_a_snapshot_and_goes_on_with_changes(serving: Served) -> None:
    async with logged_in(serving) as client:
        stream = events(client)
        first = await anext(stream)
        assert first["event"] == "changed"
        assert first["retry"] == "3000"
        assert json.loads(first["data"])["summary"].startswith("0 ready")
        serving.run(serving.store.enqueue([job()]))
        second = await anext(stream)
        assert json.loads(second["data"])["summary"].startswith("1 ready")
        assert second["id"] != first["id"]
        await stream.aclose()  # type: ignore[attr-defined]


async def test_who_comes_again_is_told_only_what_is_newer(serving: Served) -> None:
    async with logged_in(serving) as client:
        stream = events(client)
        first = await anext(stream)
        again = events(client, **{"Last-Event-ID": first["id"]})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.2):
                await anext(again)
        old = events(client, **{"Last-Event-ID": "0123456789ab-99"})
        assert (await anext(old))["event"] == "changed"
        for one in (stream, old):
            await one.aclose()  # type: ignore[attr-defined]


async def test_the_stream_of_a_revoked_key_ends(serving: Served) -> None:
    key = serving.run(new_key(serving.store, "ada", Role.VIEWER))
    async with logged_in(serving, key) as client:
        stream = events(client)
        await anext(stream)
        serving.run(serving.store.revoke_key(key.split("_")[1], by="admin"))
        begun = time.monotonic()
        assert [one async for one in stream if one["event"] != "changed"] == []
        assert time.monotonic() - begun < 3.0


async def test_a_server_that_stops_ends_its_streams(serving: Served) -> None:
    async with logged_in(serving) as client:
        stream = events(client)
        await anext(stream)
        serving.loop.call_soon_threadsafe(serving.server.close)
        async with asyncio.timeout(5):
            assert [one async for one in stream if one["event"] != "changed"] == []


async def test_five_hundred_clients_that_read_nothing_cost_one_slot_each(serving: Served) -> None:
    """They are told of many changes, and read none: the server looks no more often, and keeps the latest for each."""
    async with logged_in(serving) as client:
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    address = ("127.0.0.1", int(serving.url.rpartition(":")[2]))
    request = f"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode()
    live = serving.server.dashboard.live
    sockets: list[socket.socket] = []
    try:
        for _ in range(500):
            one = socket.create_connection(address)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            one.sendall(request)
            sockets.append(one)

        async def all_watch() -> bool:
            return live.watchers == 500

        await until(all_watch, 60)
        looks, begun = live.looks, time.monotonic()
        for _ in range(20):
            serving.run(serving.store.enqueue([job()]))
            serving.server.context.notifier.hint(Hint(anything=True))
            await asyncio.sleep(0.05)
        assert live.looks - looks <= 4 * (time.monotonic() - begun) + 2
        assert live.watchers == 500
    finally:
        for one in sockets:
            one.close()

    async def none_watches() -> bool:
        return live.watchers == 0

    await until(none_watches, 60)


async def test_a_page_is_told_of_a_running_job_every_second(serving: Served) -> None:
    """Progress and logs bring no hint: while something runs, the page asks anew each second."""
    async with logged_in(serving) as client, AsyncExitStack() as stack:
        serving.run(_running(serving))
        stream = events(client)
        stack.push_async_callback(stream.aclose)  # type: ignore[attr-defined]
        for _ in range(3):
            async with asyncio.timeout(5):
                await anext(stream)


# -- pages that are shared -------------------------------------------------------------------------------------------------


FRAGMENT = {"HX-Request": "true"}


async def test_twenty_viewers_of_a_page_ask_the_store_no_more_than_one(
    serving: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[str]()

    def counted(name: str, operation: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            asked[name] += 1
            return await operation(*args, **options)

        return call

    for name in ("failures", "running", "figures", "queues"):  # what a page asks for, and the look for all pages does not
        monkeypatch.setattr(serving.store, name, counted(name, getattr(serving.store, name)))
    async with logged_in(serving) as client, AsyncExitStack() as stack:
        stream = events(client)
        stack.push_async_callback(stream.aclose)  # type: ignore[attr-defined]
        await anext(stream)  # nothing changes from here on
        counts = []
        for viewers, window in ((1, "15m"), (20, "6h")):
            asked.clear()
            answers = await asyncio.gather(*(client.get(f"/?window={window}", headers=FRAGMENT) for _ in range(viewers)))
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.text for answer in answers}) == 1
            counts.append(dict(asked))
        assert counts[0] == counts[1]


async def test_a_stream_is_nobody_elses(serving: Served) -> None:
    async with logged_in(serving) as client, AsyncExitStack() as stack:
        for _ in range(2):
            stream = events(client, **FRAGMENT)
            stack.push_async_callback(stream.aclose)  # type: ignore[attr-defined]
            assert (await anext(stream))["event"] == "changed"


async def test_a_page_is_shared_by_those_alone_who_may_see_the_same(serving: Served) -> None:
    store = serving.store
    serving.run(store.enqueue([NewJob(id=WORLD.job_id(), task="t", queue=queue) for queue in ("a", "b")]))
    viewer, narrow = (
        serving.run(new_key(store, name, Role.VIEWER, queues=queues)) for name, queues in (("one", None), ("two", ("a",)))
    )
    async with AsyncExitStack() as stack:
        admin, whole, own = [await stack.enter_async_context(logged_in(serving, key)) for key in (SECRET, viewer, narrow)]
        stream = events(admin)
        stack.push_async_callback(stream.aclose)  # type: ignore[attr-defined]
        await anext(stream)
        pages = [(await client.get("/queues", headers=FRAGMENT)).text for client in (admin, whole, own)]
        assert ["Pause" in page for page in pages] == [True, False, False]
        assert [">b</a>" in page for page in pages] == [True, True, False]
        assert (await admin.get("/queues?x=1", headers=FRAGMENT)).text.count("Pause") == 2


@dataclass
class Turns:
    """A shared page whose every making takes a second, on a clock that moves by itself."""

    version: int | None = 1
    time: float = 0.0
    waited: list[float] = field(default_factory=list)
    made: int = 0
    cost: float = 1.0
    status: int = 200

    def __post_init__(self) -> None:
        self.shared = Shared(lambda: self.version, lambda: self.time, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.time += seconds

    async def make(self) -> Response:
        self.made += 1
        self.time += self.cost
        return HTMLResponse(f"{self.made}", status_code=self.status)

    async def get(self) -> str:
        return bytes((await self.shared.get("/", self.make)).body).decode()


async def test_a_page_is_made_again_when_something_has_changed_and_a_costly_one_takes_its_time() -> None:
    turns = Turns(cost=0.1)
    assert [await turns.get(), await turns.get()] == ["1", "1"]
    turns.version = 2
    assert await turns.get() == "2"
    assert turns.waited == [pytest.approx(PACE * 0.1)]
    turns.time += 60
    turns.version = 3
    assert await turns.get() == "3"
    assert len(turns.waited) == 1
    turns.version, turns.cost = 4, 10.0
    await turns.get()
    turns.version = 5
    await turns.get()
    assert max(turns.waited) == sharing.LONGEST


async def test_who_has_loaded_a_page_whole_is_not_shown_an_older_one() -> None:
    turns = Turns()
    await turns.get()
    turns.shared.seen("/")
    assert await turns.get() == "2"
    assert await turns.get() == "2"


async def test_what_went_wrong_is_not_shared_nor_is_anything_while_nobody_looks() -> None:
    turns = Turns(status=503)
    assert [await turns.get(), await turns.get()] == ["1", "2"]
    turns.status, turns.version = 200, None
    assert [await turns.get(), await turns.get()] == ["3", "4"]


async def test_of_many_pages_those_are_kept_that_were_asked_for_last() -> None:
    turns = Turns(cost=0.0)
    for number in range(sharing.MOST + 5):
        await turns.shared.get(number, turns.make)
    made = turns.made
    await turns.shared.get(sharing.MOST, turns.make)
    assert turns.made == made
    await turns.shared.get(0, turns.make)
    assert turns.made == made + 1


async def _running(serving: Served) -> None:
    store = serving.store
    worker = Worker(id=WORLD.job_id(), name="w")
    await store.register(worker)
    await store.enqueue([job()])
    await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=1, look=True))
