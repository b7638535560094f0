"""Groups: jobs enqueued together, awaited together, waited for together. On every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import BadArgs, BadJob, Fatal, Group, Handle, Holdfast, Job, JobFailed, State
from tests.api.blocking import in_thread
from tests.support.until import until

WAIT = 30.0


async def test_results_come_in_the_order_of_the_calls(app: Holdfast) -> None:
    @app.task()
    async def square(number: int) -> int:
        await asyncio.sleep(0.02 * (5 - number))
        return number * number

    async with app.worker():
        group = await app.group([square.call(number) for number in range(5)])
        assert await group.results(timeout=WAIT) == [0, 1, 4, 9, 16]
    assert await group.states() == [State.SUCCEEDED] * 5
    assert (len(group), isinstance(group[0], Handle), repr(group)) == (5, True, "<Group of 5>")
    assert [handle.id for handle in group[1:3]] == [group[1].id, group[2].id]


async def test_a_group_fans_out_and_a_waiter_fans_in(app: Holdfast) -> None:
    @app.task()
    async def count(text: str) -> int:
        return len(text)

    @app.task()
    async def total(*, job: Job) -> int:
        return sum(job.results_of(count))

    group = await app.group([count.call(text) for text in ("a", "bb", "ccc")])
    waiter = await total.options(after=group).enqueue()
    async with app.worker():
        assert await waiter.result(timeout=WAIT) == 6


async def test_one_that_fails_is_heard_of_while_others_go_on(app: Holdfast) -> None:
    release = asyncio.Event()

    @app.task()
    async def work(kind: str) -> str:
        if kind == "bad":
            raise Fatal("bad", code="BAD")
        await release.wait()
        return kind

    async with app.worker():
        group = await app.group([work.call("slow"), work.call("bad")])
        with pytest.raises(JobFailed, match="bad") as failed:
            await asyncio.wait_for(group.results(), WAIT)
        assert failed.value.job_id == group[1].id
        release.set()
        assert await group[0].result(timeout=WAIT) == "slow"
    assert await group.states() == [State.SUCCEEDED, State.FAILED]


async def test_one_time_out_holds_for_all_and_changes_nothing(app: Holdfast) -> None:
    @app.task()
    async def work(number: int) -> int:
        return number

    group = await app.group([work.call(number) for number in range(3)])
    with pytest.raises(TimeoutError, match="it goes on"):
        await group.results(timeout=0.05)
    async with app.worker():
        assert await group.results(timeout=WAIT) == [0, 1, 2]


async def test_states_and_cancel_follow_those_that_continued(app: Holdfast) -> None:
    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second.options(delay=60))

    @app.task()
    async def second() -> str:
        return "late"

    @app.task()
    async def quick() -> str:
        return "quick"

    async with app.worker():
        group = await app.group([first.call(), quick.call()])
        await group[1].result(timeout=WAIT)

        async def goes_on() -> bool:
            return await group.states() == [State.SCHEDULED, State.SUCCEEDED]

        await until(goes_on)
    assert await group.cancel("not needed") == 1
    assert await group.states() == [State.CANCELED, State.SUCCEEDED]
    assert await group.cancel() == 0


async def test_an_empty_group_has_no_results_and_holds_nobody_back(app: Holdfast) -> None:
    @app.task()
    async def alone() -> int:
        return 1

    group: Group[int] = await app.group([])
    assert (await group.results(), await group.states(), await group.cancel()) == ([], [], 0)
    assert await (await alone.options(after=[group]).enqueue()).state() is State.READY


async def test_a_group_is_all_or_none(memory: Holdfast) -> None:
    @memory.task()
    async def work(number: int) -> int:
        return number

    wrong: Any = [work.call(1), "work"]
    with pytest.raises(BadArgs, match=r"calls\[1\]"):
        await memory.group(wrong)
    assert (await memory.stats())["live"] == 0


async def test_every_method_of_a_group_has_a_blocking_twin(app: Holdfast) -> None:
    @app.task()
    async def work(number: int) -> int:
        return number

    def script() -> None:
        group = app.group_sync([work.call(1), work.call(2)])
        assert group.states_sync() == [State.READY] * 2
        with pytest.raises(TimeoutError):
            group.results_sync(timeout=0.01)
        assert group.cancel_sync() == 2

    await in_thread(script)


async def test_a_job_that_a_key_gave_to_a_group_twice_is_waited_for_once(memory: Holdfast) -> None:
    @memory.task()
    async def work(number: int) -> int:
        return number

    group = await memory.group([work.options(key="same").call(1), work.options(key="same").call(2), work.call(3)])
    assert group[0].id == group[1].id
    waiter = await work.options(after=[group]).enqueue(4)
    assert (await waiter.view()).after == (group[0].id, group[2].id)
    with pytest.raises(BadJob, match=rf"after\[2\].*{group[0].id} is named twice"):
        await work.options(after=[group, group[0]]).enqueue(5)
