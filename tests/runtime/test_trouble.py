"""A worker in trouble: stores that fail or lag for a moment, forks, closed apps. Each of these once cost somebody a job."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, HoldfastError, Job, JobCanceled, Retry, State, StoreUnavailable
from holdfast.core.lease import Extended, Hold
from holdfast.runtime import heartbeat, housekeeping
from holdfast.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT = 20.0


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def test_a_short_outage_does_not_cost_a_short_lease(memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    app = memory_app
    go = asyncio.Event()
    runs: list[int] = []

    @app.task(lease=5.0)
    async def work(number: int) -> None:
        runs.append(number)
        await go.wait()

    handles = await app.enqueue_many([work.call(number) for number in range(3)])
    async with app.worker(concurrency=5):
        await until(lambda: len(runs) == 3)
        away = True

        def gone(method: Any) -> Any:
            async def call(self: MemoryStore, *args: Any, **kwargs: Any) -> Any:
                if away:
                    raise StoreUnavailable("db", 0.0, "connection refused")
                return await method(self, *args, **kwargs)

            return call

        for name in ("claim", "extend", "promote", "reap", "beat", "drop_overdue", "unblock", "settle"):
            monkeypatch.setattr(MemoryStore, name, gone(getattr(MemoryStore, name)))
        await asyncio.sleep(1.2)  # the outage itself
        away = False
        await asyncio.sleep(5.0)  # longer than the lease: it must have been extended since
        go.set()
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert sorted(runs) == [0, 1, 2], "an outage of a second made them run again"


@pytest.mark.row("11b", 25)
async def test_leases_that_lapse_in_an_outage_are_not_reaped_before_their_holders_had_their_turn(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = memory_app
    monkeypatch.setattr(housekeeping.Reaper, "interval", 0.1)
    runs: list[int] = []
    reaps: list[Any] = []
    away = True

    @app.task(lease=3)
    async def work(*, job: Job) -> None:
        runs.append(job.attempt)
        await asyncio.sleep(3600 if job.attempt == 1 else 0)

    def gone(name: str, method: Any) -> Any:
        async def call(self: MemoryStore, *args: Any, **kwargs: Any) -> Any:
            # at its end the reaper is the first whom the store answers
            if away or (name != "reap" and not reaps):
                raise StoreUnavailable("db", 0.0, "the disk is full")
            answer = await method(self, *args, **kwargs)
            if name == "reap":
                reaps.append(answer)
            return answer

        return call

    handle = await work.enqueue()
    async with app.worker():
        await until(lambda: runs)
        for name in ("claim", "extend", "promote", "reap", "beat", "drop_overdue", "unblock", "settle"):
            monkeypatch.setattr(MemoryStore, name, gone(name, getattr(MemoryStore, name)))
        await asyncio.sleep(4)  # the outage itself: longer than the lease
        away = False
        await handle.result(timeout=WAIT)
    view = await handle.view()
    assert reaps[0] == [], "the lease lapsed because of the outage, and its holder has not been asked"
    assert (view.attempt, view.failures) == (2, 0), "the outage has spent the budget of a job"


@pytest.mark.row(11)
async def test_a_claim_whose_answer_was_lost_is_given_back(memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    app = memory_app
    claim = MemoryStore.claim
    lost = threading.Event()

    async def loses_one_answer(self: MemoryStore, request: Any) -> Any:
        claimed = await claim(self, request)
        if claimed and not lost.is_set():
            lost.set()
            raise StoreUnavailable("db", 0.0, "connection reset")
        return claimed

    @app.task(retry=1, lease=3600)
    async def work() -> str:
        return "done"

    monkeypatch.setattr(MemoryStore, "claim", loses_one_answer)
    handle = await work.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"
    view = await handle.view()
    assert (lost.is_set(), view.failures, view.attempt) == (True, 0, 2)


async def test_leases_are_extended_though_the_sign_of_life_hangs(memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    app = memory_app
    monkeypatch.setattr(heartbeat, "BEAT", 0.2)
    runs: list[int] = []

    async def hangs(self: MemoryStore, beat: Any) -> Any:
        await asyncio.sleep(3600)

    @app.task(lease=1.0)
    async def work() -> None:
        runs.append(1)
        await asyncio.sleep(2.5)

    handle = await work.enqueue()
    async with app.worker():
        await until(lambda: runs)
        monkeypatch.setattr(MemoryStore, "beat", hangs)
        await handle.result(timeout=WAIT)
        monkeypatch.undo()
    assert len(runs) == 1


async def test_a_lease_that_is_gone_is_not_asked_for_again_and_again(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = memory_app
    asked: list[int] = []
    settle = MemoryStore.settle

    async def busy(self: MemoryStore, leases: Any) -> Any:
        asked.append(len(leases))
        return [Extended(Hold.SETTLING) for _ in leases]

    async def slow(self: MemoryStore, settlements: Any) -> Any:
        await asyncio.sleep(1.0)
        return await settle(self, settlements)

    @app.task(lease=0.6)
    async def work() -> None: ...

    monkeypatch.setattr(MemoryStore, "extend", busy)
    monkeypatch.setattr(MemoryStore, "settle", slow)
    handle = await work.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)
    assert len(asked) < 30, "the heartbeat spins"


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_cancel_that_comes_while_checkpoints_are_read_cancels(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    app = memory_app
    reading, ran = asyncio.Event(), threading.Event()

    async def slowly(self: MemoryStore, job_id: Any) -> Any:
        reading.set()
        await asyncio.sleep(0.5)
        return []

    def body(job: Job) -> None:
        if job.attempt > 1:
            ran.set()
        raise RuntimeError("the first attempt")

    if executor == "async":

        @app.task(retry=Retry(max_attempts=2, initial=0.0))
        async def work(*, job: Job) -> None:
            body(job)
    else:

        @app.task(retry=Retry(max_attempts=2, initial=0.0))
        def work(*, job: Job) -> None:
            body(job)

    monkeypatch.setattr(MemoryStore, "parts", slowly)
    handle = await work.enqueue()
    async with app.worker():
        await asyncio.wait_for(reading.wait(), WAIT)
        await handle.cancel()
        with pytest.raises(JobCanceled):
            await handle.result(timeout=WAIT)
    assert not ran.is_set()


async def test_one_schedule_that_cannot_be_fired_does_not_hold_up_the_others(memory_app: Holdfast) -> None:
    app = memory_app
    fired: list[int] = []
    broken = False

    def key() -> str:
        if broken:
            raise RuntimeError("the tenant service is away")
        return "k"

    @app.task(name="a_broken", cron="* * * * *", key=key)
    async def a_broken() -> None: ...

    @app.task(name="b_fine", cron="* * * * *")
    async def b_fine() -> None:
        fired.append(1)

    async with app.worker():
        store = app.client().store
        while len(await store.schedules()) < 2:  # noqa: ASYNC110  until the worker has made them known
            await asyncio.sleep(0.01)
    broken = True
    await store.rewind(120)
    async with app.worker():
        await until(lambda: fired)


def test_blocking_calls_work_in_a_forked_child(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task()
    def work() -> None: ...

    work.enqueue_sync()
    child = os.fork()
    if child == 0:  # pragma: no cover  in the child
        code = 1
        try:
            work.enqueue_sync()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + WAIT
    done, status = os.waitpid(child, os.WNOHANG)
    while not done and time.monotonic() < deadline:
        time.sleep(0.02)
        done, status = os.waitpid(child, os.WNOHANG)
    if not done:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert (done, status) == (child, 0), "the child hung or failed"
    assert app.stats_sync()["ready"] == 2
    app.close_sync()


def test_closing_does_not_strand_those_who_are_inside_a_blocking_call(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    answers: list[str] = []
    stop = threading.Event()

    @app.task()
    def work() -> None: ...

    def produce() -> None:
        while not stop.is_set():
            try:
                work.enqueue_sync()
                answers.append("ok")
            except HoldfastError as error:
                answers.append(str(error))

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        time.sleep(0.02)
        app.close_sync()
    stop.set()
    for thread in threads:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in threads), "a call was left hanging"
    assert "ok" in answers
    app.close_sync()


def test_loops_that_end_without_closing_the_app_leave_nothing_behind(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task()
    def work() -> None: ...

    before = threading.active_count()
    for _ in range(20):
        asyncio.run(work.enqueue())
    few = before + 4  # of the last loop, whose end nobody has noticed yet
    deadline = time.monotonic() + WAIT
    while threading.active_count() > few and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= few

    async def count() -> dict[str, Any]:
        async with app:
            return await app.stats()

    assert asyncio.run(count())[State.READY] == 20
    deadline = time.monotonic() + WAIT
    while any(thread.name == "holdfast-bury" for thread in threading.enumerate()):  # the last of them
        assert time.monotonic() < deadline
        time.sleep(0.02)
