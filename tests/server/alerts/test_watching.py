"""What is told, to whom, and how often: a real store, real workers, a real receiver."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, patch
from uuid import UUID

import msgspec
import pytest
from standardwebhooks import Webhook

from holdfast import Fatal, Holdfast, State
from holdfast.core.outcome import RETRIES_EXHAUSTED, Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.server.alerts.delivering import QUEUE, TASK, deliveries
from holdfast.server.alerts.detecting import exhausted, lapses, pattern
from holdfast.server.alerts.kinds import AlertKind
from holdfast.server.alerts.target import Target
from holdfast.server.alerts.watching import LAG, Watcher
from holdfast.server.metrics import exposition
from holdfast.store.port import ClaimRequest, FailureView, JobFilter, Settled, Settlement, Worker
from tests.server.alerts.hook import Hook
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from holdfast.store.port import JobView

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
LEASE = 60.0
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("memory://")


@pytest.fixture(autouse=True)
async def ended(app: Holdfast) -> AsyncIterator[None]:
    yield
    await app.close()
    await asyncio.get_running_loop().shutdown_default_executor()


class Server:
    """What a server does about alerts, apart from the loop that calls it."""

    def __init__(self, app: Holdfast, *targets: Target) -> None:
        self.app = app
        self.targets = targets
        self._deliver = app.tasks.get(TASK) or deliveries(app, {one.name: one for one in targets}, "test")
        self.watcher = self.started_anew()

    def started_anew(self) -> Watcher:
        self.watcher = Watcher(self.app.client().store, self.targets, self._deliver)
        return self.watcher

    async def look(self) -> None:
        """Look, once what has happened is old enough to be told."""
        await self.app.client().open()
        await self.app.client().store.rewind(LAG)
        await self.watcher.tick()

    async def deliveries(self) -> list[JobView]:
        page = await self.app.client().store.find(JobFilter(task=TASK, queue=QUEUE), limit=100)
        return list(reversed(page.jobs))

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        async with self.app.worker(queues=[QUEUE], name="server"):
            yield


def target(url: str = "http://127.0.0.1:1/", *kinds: AlertKind, **more: Any) -> Target:
    about: dict[str, Any] = {"name": "ops", "url": url, "secret": SECRET, "allow_private": True}
    return Target(**about | ({"events": kinds} if kinds else {}) | more)


async def looks(servers: Iterable[Server]) -> None:
    """Have all of them look at the same time."""
    await asyncio.gather(*[server.look() for server in servers])


async def failed(app: Holdfast, times: int = 1, *, task: str = "work") -> None:
    """Have so many jobs fail for good, in a worker that is gone afterwards."""
    if task not in app.tasks:

        @app.task(name=task, retry=1)
        async def work() -> None:
            raise ValueError("no use")

    handles = await app.enqueue_many([app.tasks[task].call() for _ in range(times)])
    async with app.worker(queues=["default"], name="worker"):
        for handle in handles:

            async def there(handle: Any = handle) -> bool:
                return await handle.state() is State.FAILED

            await until(there)


async def test_a_job_that_failed_for_good_is_told_by_a_signed_webhook(app: Holdfast) -> None:
    async with Hook() as hook:
        server = Server(app, target(hook.url, AlertKind.JOB_MAX_RETRIES_EXCEEDED))
        await failed(app)
        await server.look()
        async with server.delivering():

            async def delivered() -> bool:
                return [view.state for view in await server.deliveries()] == [State.SUCCEEDED]

            await until(delivered)

    (received,) = hook.received
    body = msgspec.json.decode(received.body)
    assert body["type"] == "job_max_retries_exceeded"
    assert body["data"]["count"] == 1
    (about,) = body["data"]["about"]
    assert (about["task"], about["code"]) == ("work", "RETRIES_EXHAUSTED")
    assert "no use" in about["message"]
    (view,) = await server.deliveries()
    assert msgspec.json.decode(view.result or "")["status"] == 204


async def lapsed(app: Holdfast) -> None:
    """Have a worker freeze with a job in its hands, and the reaper of another take it from there."""

    @app.task(name="work", retry=3)
    async def work() -> None: ...

    handle = await work.enqueue()
    store = app.client().store
    frozen = Worker(id=UUID(int=7), name="frozen")
    await store.register(frozen)
    (claimed,) = await store.claim(ClaimRequest(worker=frozen.id, tasks=frozenset({"work"}), limit=1, look=True))
    await store.rewind(2 * LEASE)
    async with app.worker(queues=["elsewhere"], name="reaps"):

        async def reaped() -> bool:
            return await handle.state() is not State.RUNNING

        await until(reaped)
    late = Settlement(lease=claimed.lease, write=Write(event=Event.SUCCEED, failures=0, result="null"))
    assert await store.settle([late]) == [Settled.STALE]


async def failed_thrice(app: Holdfast) -> None:
    await failed(app, 3)


@pytest.mark.parametrize(
    ("kind", "cause", "says"),
    [
        (AlertKind.STALE_JOB_RECOVERED, lapsed, r"job [\w-]+ \(work\) lost its worker and was taken care of"),
        (AlertKind.JOB_MAX_RETRIES_EXCEEDED, failed, r"job [\w-]+ \(work\) has failed for good, with its budget spent"),
        (AlertKind.JOB_FAILED_PATTERN, failed_thrice, "work failed 3 times in 10 minutes"),
        (AlertKind.WORKER_STARTUP, failed, "worker worker has started"),
        (AlertKind.WORKER_SHUTDOWN, failed, "worker worker has stopped, or was not heard of any more"),
    ],
)
async def test_what_happens_to_real_workers_arrives_as_a_signed_webhook(
    app: Holdfast, kind: AlertKind, cause: Callable[[Holdfast], Awaitable[None]], says: str
) -> None:
    async with Hook() as hook:
        server = Server(app, target(hook.url, kind))
        await server.look()
        await cause(app)
        await server.look()
        async with server.delivering():

            async def delivered() -> bool:
                return [view.state for view in await server.deliveries()] == [State.SUCCEEDED]

            await until(delivered)

    (received,) = hook.received
    body = Webhook(SECRET).verify(received.body.decode(), received.headers)
    assert body["type"] == kind
    assert re.fullmatch(says, body["data"]["text"])
    assert body["data"]["count"] == 1


async def test_a_delivery_that_fails_is_tried_again_with_the_same_id(app: Holdfast) -> None:
    async with Hook(503, 200) as hook:
        server = Server(app, target(hook.url, AlertKind.WORKER_STARTUP))
        async with server.delivering(), app.worker(queues=["default"], name="night shift"):
            await server.look()

            async def refused() -> bool:
                return [view.failures for view in await server.deliveries()] == [1]

            await until(refused)
            (view,) = await server.deliveries()
            (attempt,) = await app.client().store.attempts(view.id)
            assert attempt.error is not None
            assert attempt.error.code == "HTTP_503"
            await app.client().store.rewind(3600)

            async def delivered() -> bool:
                return [view.state for view in await server.deliveries()] == [State.SUCCEEDED]

            await until(delivered)

    first, second = hook.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


async def test_a_kind_is_told_once_in_its_cooldown_and_what_came_meanwhile_afterwards(app: Holdfast) -> None:
    server = Server(app, target(events=(AlertKind.JOB_MAX_RETRIES_EXCEEDED,)))
    await failed(app)
    for _ in range(3):
        await server.look()
    assert len(await server.deliveries()) == 1
    await failed(app, 2)
    await server.look()
    assert len(await server.deliveries()) == 1, "it was told again within the cooldown"

    await app.client().store.rewind(301)
    await server.look()

    first, second = [msgspec.json.decode(view.args) for view in await server.deliveries()]
    assert [str(args).count("RETRIES_EXHAUSTED") for args in (first, second)] == [1, 2]
    await app.client().store.rewind(301)
    await server.look()
    assert len(await server.deliveries()) == 2, "nothing new has happened"


async def test_a_server_that_starts_anew_tells_nothing_twice_and_what_it_had_missed(app: Holdfast) -> None:
    server = Server(app, target(events=(AlertKind.JOB_MAX_RETRIES_EXCEEDED,)))
    await failed(app)
    await server.look()
    await app.client().store.rewind(301)
    server.started_anew()
    await server.look()
    assert len(await server.deliveries()) == 1, "a server that starts anew has told of something again"

    await failed(app)
    server.started_anew()
    await server.look()
    assert len(await server.deliveries()) == 2


@pytest.mark.parametrize("kind", [AlertKind.JOB_MAX_RETRIES_EXCEEDED, AlertKind.WORKER_STARTUP, AlertKind.WORKER_SHUTDOWN])
@pytest.mark.parametrize("cooldown", [0, 300])
async def test_several_servers_on_one_store_tell_everything_once(app: Holdfast, kind: AlertKind, cooldown: float) -> None:
    servers = [Server(app, target(events=(kind,), cooldown=cooldown)) for _ in range(3)]
    await looks(servers)
    await failed(app)
    await looks(servers)
    assert len(await servers[0].deliveries()) == 1

    for _ in range(2):
        await app.client().store.rewind(301)
        await looks(servers)
        assert len(await servers[0].deliveries()) == 1, "what one server has told is told again by another"

    await failed(app)
    await looks(reversed(servers))
    counts = [msgspec.json.decode(view.args)["alert"]["count"] for view in await servers[0].deliveries()]
    assert counts == [1, 1], "what happened later is told once, and with nothing else"


async def test_a_pattern_is_told_once_by_several_servers_and_again_when_it_goes_on(app: Holdfast) -> None:
    servers = [Server(app, target(events=(AlertKind.JOB_FAILED_PATTERN,))) for _ in range(3)]
    await looks(servers)
    await failed(app, 3)
    await looks(servers)
    await app.client().store.rewind(301)
    await looks(servers)
    assert len(await servers[0].deliveries()) == 1

    await failed(app)
    await looks(servers)
    told = [msgspec.json.decode(view.args)["alert"]["about"] for view in await servers[0].deliveries()]
    assert told == [[{"task": "work", "failures": 3}], [{"task": "work", "failures": 4}]]


async def test_what_happens_while_another_server_tells_is_lost_by_none(app: Holdfast) -> None:
    one, other = (Server(app, target(events=(AlertKind.JOB_MAX_RETRIES_EXCEEDED,))) for _ in range(2))
    await looks([one, other])
    await failed(app)
    await one.look()
    await failed(app, 2)
    await looks([other, one])
    await app.client().store.rewind(301)
    await looks([other, one])

    counts = [msgspec.json.decode(view.args)["alert"]["count"] for view in await one.deliveries()]
    assert counts == [1, 2]


async def test_what_was_written_first_and_is_seen_last_is_told_too(app: Holdfast) -> None:
    """Of two failures the newer one is committed first, and a server looks in between."""
    store = app.client().store
    one, other = (Server(app, target(events=(AlertKind.JOB_MAX_RETRIES_EXCEEDED,))) for _ in range(2))
    await looks([one, other])
    await failed(app, 2)
    newest_alone = AsyncMock(side_effect=(await store.failures(since=NOON, limit=1),))
    with patch.object(store, "failures", newest_alone):
        await one.watcher.tick()
    await other.look()
    await store.rewind(301)
    await looks([other, one])

    counts = [msgspec.json.decode(view.args)["alert"]["count"] for view in await one.deliveries()]
    assert sum(counts) == 2


async def test_a_cooldown_of_hours_keeps_what_happens_in_it(app: Holdfast) -> None:
    kinds = (AlertKind.JOB_MAX_RETRIES_EXCEEDED, AlertKind.JOB_FAILED_PATTERN)
    server = Server(app, target(events=kinds, cooldown=7200))
    await failed(app, 3)
    await server.look()
    await app.client().store.rewind(60)
    await failed(app, 4)
    await app.client().store.rewind(7200)
    server.started_anew()
    await server.look()

    texts = [msgspec.json.decode(view.args)["alert"]["text"] for view in await server.deliveries()]
    assert [text.endswith("and so have 2 more") for text in texts[::2]] == [True, False]
    assert texts[2].endswith("and so have 3 more")
    assert [text.startswith("work failed") for text in texts] == [False, True, False, True]


async def test_a_pattern_is_not_told_again_because_something_else_fails(app: Holdfast) -> None:
    server = Server(app, target(events=(AlertKind.JOB_FAILED_PATTERN,), cooldown=0))
    await failed(app, 3)
    await server.look()
    await failed(app, task="other")
    await server.look()

    assert len(await server.deliveries()) == 1


async def test_workers_that_start_and_stop_are_told_of(app: Holdfast) -> None:
    server = Server(app, target(events=(AlertKind.WORKER_STARTUP, AlertKind.WORKER_SHUTDOWN), cooldown=0))
    async with app.worker(queues=["default"], name="night shift"):
        await server.look()
    await server.look()
    await server.look()

    told = [msgspec.json.decode(view.args) for view in await server.deliveries()]
    assert [str(args).count("night shift has started") for args in told] == [1, 0]
    assert [str(args).count("night shift has stopped") for args in told] == [0, 1]


async def test_the_worker_that_delivers_is_neither_told_of_nor_counted(app: Holdfast) -> None:
    server = Server(app, target(events=(AlertKind.WORKER_STARTUP,)))
    async with app.worker(queues=[QUEUE], name="alerts"):
        await server.look()
        text, _ = await exposition(app.client().store)
    assert await server.deliveries() == []
    assert b'holdfast_workers{state="idle"} 0.0' in text


async def test_each_target_hears_of_what_it_asked_for(app: Holdfast) -> None:
    server = Server(
        app,
        target(events=(AlertKind.JOB_MAX_RETRIES_EXCEEDED,)),
        target(events=(AlertKind.JOB_FAILED_PATTERN,), name="night"),
    )
    await failed(app, 3)
    await server.look()

    told = sorted(str(msgspec.json.decode(view.args)) for view in await server.deliveries())
    assert len(told) == 2
    assert sum("work failed 3 times in 10 minutes" in one and "night" in one for one in told) == 1


async def test_a_delivery_that_fails_for_good_is_not_told_of_itself(app: Holdfast) -> None:
    async with Hook(410) as hook:
        server = Server(app, target(hook.url, cooldown=0, events=(AlertKind.WORKER_STARTUP, *list(AlertKind)[:3])))
        async with server.delivering(), app.worker(queues=["default"], name="night shift"):
            await server.look()

            async def gone() -> bool:
                return [view.state for view in await server.deliveries()] == [State.FAILED]

            await until(gone)
            for _ in range(3):
                await server.look()

    assert len(await server.deliveries()) == 1


async def test_an_alert_for_a_target_that_is_gone_fails_and_says_where_to_look(app: Holdfast) -> None:
    server = Server(app, target(events=(AlertKind.WORKER_STARTUP,)))
    async with app.worker(queues=["default"]):
        await server.look()
    later = Holdfast("memory://")
    deliver = deliveries(later, {}, "test")
    args = msgspec.json.decode((await server.deliveries())[0].args)
    with pytest.raises(Fatal, match=r"\[alerts\.ops\]"):
        await deliver.function("ops", *([None] * (len(args) - 1)), job=None)


# -- what is worth telling -----------------------------------------------------------------------------------------------------


def failure(number: int = 0, *, event: Event = Event.RETRY_LATER, code: str = "ValueError", **more: Any) -> FailureView:
    fields: dict[str, Any] = {"task": "t", "queue": "q", "key": None, "attempt": 1, "at": NOON}
    return FailureView(**fields | {"job_id": UUID(int=number), "event": event, "error": Error(code, "why")} | more)


@pytest.mark.parametrize("event", [Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL, Event.EXPIRE_CANCEL])
def test_a_lapsed_lease_is_a_recovery(event: Event) -> None:
    alert = lapses([failure(7, event=event), failure(8)])
    assert alert is not None
    assert (alert.count, alert.about[0]["job_id"]) == (1, str(UUID(int=7)))


def test_what_is_given_back_or_tried_again_is_no_recovery_and_no_end() -> None:
    some = [failure(event=event) for event in (Event.RELEASE, Event.ABORT, Event.RETRY, Event.RESCHEDULE, Event.STOP)]
    assert lapses(some) is None
    assert exhausted(some) is None
    assert pattern(some) is None


def test_of_many_jobs_some_are_named_and_all_are_counted() -> None:
    alert = exhausted([failure(number, code=RETRIES_EXHAUSTED, event=Event.FAIL) for number in range(25)])
    assert alert is not None
    assert (alert.count, len(alert.about)) == (25, 10)
    assert alert.text.endswith("and so have 24 more")


def test_secrets_do_not_leave_with_an_alert() -> None:
    """Also those of errors that an older worker, or somebody's own program, wrote to the store as they were."""
    error = Error(RETRIES_EXHAUSTED, f"cannot log in with password=hunter2 and {SECRET}")
    alert = exhausted([failure(event=Event.FAIL, error=error)])
    of_a_key = pattern([failure(number, task=f"t{number}", key=SECRET) for number in range(3)])
    assert alert is not None
    assert alert.about[0]["message"] == "cannot log in with password=[redacted] and [redacted]"
    assert SECRET not in str(of_a_key)


@pytest.mark.parametrize(("count", "told"), [(2, False), (3, True)])
def test_three_failures_of_a_task_or_a_key_are_a_pattern(count: int, told: bool) -> None:  # noqa: FBT001
    of_a_task = pattern([failure(number) for number in range(count)])
    of_a_key = pattern([failure(number, task=f"t{number}", key="k") for number in range(count)])
    assert (of_a_task is not None and of_a_task.text == "t failed 3 times in 10 minutes") is told
    assert (of_a_key is not None and of_a_key.text == "what has the key k failed 3 times in 10 minutes") is told


def test_what_fails_for_different_reasons_is_no_pattern() -> None:
    assert pattern([failure(0, task="a"), failure(1, task="b"), failure(2, task="c")]) is None
