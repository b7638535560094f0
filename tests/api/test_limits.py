"""`Limit`: at most so many at once, so often, and in turns. On every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import BadArgs, BadJob, BadSetting, BadTask, Holdfast, Limit, Retry, State
from holdfast.core.limits import LimitKey, LimitKind, LimitName, LimitRule

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 30.0


class Overlap:
    """Counts who runs at the same time."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    async def pass_through(self, name: str) -> None:
        self.running[name] += 1
        self.most[name] = max(self.most[name], self.running[name])
        await asyncio.sleep(0.005)
        self.running[name] -= 1
        self.done[name] += 1


async def test_no_more_run_at_once_than_a_task_says_whoever_runs_them(app: Holdfast, make_app: Callable[[], Holdfast]) -> None:
    seen = Overlap()
    apps = [app, make_app()]
    for one in apps:

        @one.task(name="report", limit=Limit(2))
        async def report(number: int) -> None:
            await seen.pass_through("report")

    handles = await app.enqueue_many([app.tasks["report"].call(number) for number in range(20)])
    async with apps[0].worker(concurrency=10), apps[1].worker(concurrency=10):
        await asyncio.gather(*(handle.result(timeout=WAIT) for handle in handles))
    assert seen.most["report"] <= 2
    assert seen.done["report"] == 20


async def test_each_key_has_its_own_limit_and_all_of_them_end(app: Holdfast) -> None:
    seen = Overlap()

    @app.task(limit=Limit(1, key="tenant:{tenant}"))
    async def sync(tenant: str, page: int) -> None:
        await seen.pass_through(tenant)

    handles = await app.enqueue_many([sync.call(tenant, page) for tenant in "abc" for page in range(5)])
    async with app.worker(concurrency=10, prefetch=5):
        await asyncio.gather(*(handle.result(timeout=WAIT) for handle in handles))
    assert dict(seen.most) == {"a": 1, "b": 1, "c": 1}
    assert dict(seen.done) == {"a": 5, "b": 5, "c": 5}


async def test_a_queue_has_a_limit_for_all_its_tasks(app: Holdfast) -> None:
    seen = Overlap()
    app.queue("gpu", limit=Limit(1))

    @app.task(queue="gpu")
    async def encode() -> None:
        await seen.pass_through("gpu")

    @app.task(queue="gpu")
    async def scale() -> None:
        await seen.pass_through("gpu")

    handles = await app.enqueue_many([task.call() for task in (encode, scale) for _ in range(5)])
    async with app.worker(concurrency=10):
        await asyncio.gather(*(handle.result(timeout=WAIT) for handle in handles))
    assert seen.most["gpu"] == 1


async def test_a_rate_is_kept(app: Holdfast) -> None:
    @app.task(limit=Limit(rate=20, burst=1))
    async def call() -> float:
        return asyncio.get_running_loop().time()

    handles = await app.enqueue_many([call.call() for _ in range(5)])
    async with app.worker():
        times = sorted(await asyncio.gather(*(handle.result(timeout=WAIT) for handle in handles)))
    assert times[-1] - times[0] >= 4 / 20 - 0.05


async def test_key_cost_and_weight_come_from_the_args(memory: Holdfast) -> None:
    @memory.task(
        limit=Limit(
            rate=100,
            per=timedelta(minutes=1),
            key=lambda tenant, **_: f"t{tenant}",
            cost=lambda size, **_: size,
            weight=lambda **_: 2,
        )
    )
    async def send(tenant: int, size: int) -> None: ...

    job = send.call(7, 5).job
    assert job.limit == LimitKey(send.name, "t7", 2.0)
    assert job.policy.cost == 5.0
    rule = memory.world().limits[LimitName(LimitKind.KEY, send.name)]
    assert rule.rate == pytest.approx(100 / 60)


async def test_tasks_that_name_a_scope_share_its_keys(app: Holdfast) -> None:
    seen = Overlap()

    @app.task(limit=Limit(1, key="{host}", scope="hosts"))
    async def fetch(host: str) -> None:
        await seen.pass_through(host)

    @app.task(limit=Limit(1, key="{host}", scope="hosts"))
    async def push(host: str) -> None:
        await seen.pass_through(host)

    handles = await app.enqueue_many([task.call(host) for task in (fetch, push) for host in "ab" for _ in range(3)])
    async with app.worker(concurrency=10):
        await asyncio.gather(*(handle.result(timeout=WAIT) for handle in handles))
    assert dict(seen.most) == {"a": 1, "b": 1}


async def test_a_limit_that_is_no_longer_declared_holds_no_longer(app: Holdfast, make_app: Callable[[], Holdfast]) -> None:
    if app.url.startswith("memory"):  # such a store is its app's own
        return

    @app.task(name="t", limit=Limit(0))
    async def never() -> None: ...

    handle = await never.enqueue()
    async with app.worker(name="old"):
        assert await handle.state() is State.READY
    newer = make_app()

    @newer.task(name="t")
    async def now() -> None: ...

    async with newer.worker(name="new"):
        await handle.result(timeout=WAIT)


async def test_a_failing_job_makes_room_and_comes_back(app: Holdfast) -> None:
    tried: list[int] = []

    @app.task(limit=Limit(1, key="{name}"), retry=Retry(initial=0, jitter=0))
    async def flaky(name: str, number: int) -> None:
        tried.append(number)
        if tried.count(number) == 1:
            raise RuntimeError("not yet")

    first, second = await flaky.enqueue("a", 1), await flaky.enqueue("a", 2)
    async with app.worker():
        await asyncio.gather(first.result(timeout=WAIT), second.result(timeout=WAIT))
    assert sorted(tried) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit, "limits nothing"),
        (lambda: Limit(-1), "whole number"),
        (lambda: Limit(rate=1, per=0), "seconds"),
        (lambda: Limit(rate=-1), "number"),
        (lambda: Limit(1, burst=3), "rate"),
        (lambda: Limit(1, weight=2), "key="),
        (lambda: Limit(1, cost=0), "number"),
        (lambda: Limit(1, key=3), "text or a function"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limit: Callable[[], Limit], said: str) -> None:
    with pytest.raises(BadJob, match=said):
        limit()


def test_a_task_says_each_kind_of_limit_once(memory: Holdfast) -> None:
    with pytest.raises(BadTask, match="one limit for all of its jobs"):

        @memory.task(limit=[Limit(1), Limit(2)])
        async def two() -> None: ...

    with pytest.raises(BadTask, match=r"names no parameter with .tenant"):

        @memory.task(limit=Limit(1, key="{tenant}"))
        async def unknown(user: int) -> None: ...

    with pytest.raises(BadTask, match="must be a Limit"):

        @memory.task(limit=4)  # type: ignore[arg-type]
        async def number() -> None: ...


def test_a_job_has_one_cost_for_all_of_its_limits(memory: Holdfast) -> None:
    with pytest.raises(BadTask, match="2 and 5: a job has one cost"):

        @memory.task(limit=[Limit(rate=9, cost=2), Limit(rate=9, key="{a}", cost=5)])
        async def two(a: int) -> None: ...

    with pytest.raises(BadTask, match="a function and 5: a job has one cost"):

        @memory.task(limit=[Limit(rate=9, cost=lambda a: a), Limit(rate=9, key="{a}", cost=5)])
        async def function(a: int) -> None: ...

    @memory.task(limit=[Limit(rate=9, cost=5), Limit(rate=9, key="{a}", cost=5.0)])
    async def same(a: int) -> None: ...

    @memory.task(limit=[Limit(20), Limit(rate=9, key="{a}", cost=5)])
    async def once(a: int) -> None: ...

    assert [task.call(1).job.policy.cost for task in (same, once)] == [5.0, 5.0]


def test_tasks_that_share_a_scope_say_the_same_of_it(memory: Holdfast) -> None:
    @memory.task(limit=Limit(1, key="{a}", scope="s"))
    async def one(a: int) -> None: ...

    @memory.task(limit=Limit(2, key="{a}", scope="s"))
    async def two(a: int) -> None: ...

    with pytest.raises(BadTask, match="they share its limits"):
        memory.worker()


def test_keys_belong_to_tasks_and_not_to_queues(memory: Holdfast) -> None:
    with pytest.raises(BadSetting, match="without a key"):
        memory.queue("q", limit=Limit(1, key="{a}"))


async def test_a_key_that_cannot_be_made_of_the_args_is_refused_with_its_name(memory: Holdfast) -> None:
    @memory.task(limit=Limit(1, key="{user.name}"))
    async def greet(user: str) -> None: ...

    with pytest.raises(BadArgs, match="cannot be filled in"):
        await greet.enqueue("ada")

    @memory.task(limit=Limit(1, key=lambda **_: 3))  # type: ignore[arg-type]
    async def wrong(user: str) -> None: ...

    with pytest.raises(BadJob, match="must give a string"):
        await wrong.enqueue("ada")


def test_a_key_in_a_fifo_queue_is_refused(memory: Holdfast) -> None:
    memory.queue("ledger", fifo=True)

    @memory.task(queue="ledger", limit=Limit(1, key="{account}"))
    async def book(account: str) -> None: ...

    with pytest.raises(BadJob, match="fifo"):
        book.call("a")


def test_a_worker_declares_that_nothing_is_limited_too(memory: Holdfast) -> None:
    @memory.task(name="free")
    async def free() -> None: ...

    assert memory.world().limits[LimitName(LimitKind.TASK, "free")] == LimitRule()
