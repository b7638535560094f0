"""Durable steps, sleeps and signals as a worker runs them: once across attempts, and without a slot while waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast import Holdfast, Job, JobFailed, Retry, State
from holdfast.errors import BadJob, BadResult
from holdfast.store.port import PartState
from tests.runtime import chains_for_children
from tests.runtime.awaiting import WAIT, until_state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


SOON = Retry(max_attempts=5, initial=0.01, max=0.01)


@pytest.fixture
async def children(url: str) -> AsyncIterator[Holdfast]:
    """The app that child processes import, on the store."""
    with chains_for_children.app.override(url) as app:
        yield app
        await app.close()


# -- steps -----------------------------------------------------------------------------------------------------------------


async def test_a_step_runs_once_across_attempts_and_gives_its_stored_result_typed(app: Holdfast) -> None:
    runs: list[str] = []

    async def charge(amount: int) -> datetime:
        runs.append(f"charge {amount}")
        return datetime.fromisoformat("2026-01-02T03:04:05+00:00") + timedelta(days=amount)

    def note(text: str, *, times: int = 1) -> list[str]:
        runs.append(f"note {text}")
        return [text] * times

    given: list[Any] = []

    @app.task(retry=SOON)
    async def order(*, job: Job) -> str:
        at = await job.step("charge", charge, 1)
        words = await job.step("note", note, "sent", times=2)
        given.append((at, words))
        if job.failures < 2:
            raise ValueError("not yet")
        return at.isoformat()

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "2026-01-03T03:04:05+00:00"
    assert runs == ["charge 1", "note sent"]
    assert given == [given[0]] * 3


async def test_a_step_that_raises_is_not_stored(app: Holdfast) -> None:
    runs: list[int] = []

    def flaky() -> int:
        runs.append(1)
        if len(runs) < 3:
            raise ValueError("not yet")
        return len(runs)

    @app.task(retry=SOON)
    def order(*, job: Job) -> int:
        return job.step_sync("flaky", flaky)

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 3


async def test_a_step_is_stored_before_its_result_is_given(app: Holdfast) -> None:
    seen: list[Any] = []

    @app.task()
    async def order(*, job: Job) -> None:
        await job.step("charge", lambda: 5)
        seen.extend(await app.client().store.parts(job.id))

    handle = await order.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)
    assert [(part.name, part.state, part.data) for part in seen] == [("step:charge", PartState.COMPLETED, "5")]


async def test_a_name_means_one_call(memory_app: Holdfast) -> None:
    refusals: list[str] = []

    def double(number: int) -> int:
        return 2 * number

    @memory_app.task()
    async def order(*, job: Job) -> list[int]:
        values = [await job.step("double", double, 1), await job.step("double", double, 1)]
        for function, number in ((double, 2), (lambda number: number, 1)):
            try:
                await job.step("double", function, number)
            except BadJob as error:
                refusals.append(str(error))
        return values

    handle = await order.enqueue()
    async with memory_app.worker():
        assert await handle.result(timeout=WAIT) == [2, 2]
    assert len(refusals) == 2
    assert all("'double' was called before in this attempt with another function or other args" in one for one in refusals)


async def test_a_step_under_way_is_not_run_a_second_time_beside_it(memory_app: Holdfast) -> None:
    runs: list[int] = []

    async def slow() -> int:
        runs.append(1)
        await asyncio.sleep(0.01)
        return 1

    @memory_app.task(retry=1)
    async def order(*, job: Job) -> str:
        steps = job.step("slow", slow), job.step("slow", slow)
        return str((await asyncio.gather(*steps, return_exceptions=True))[1])

    handle = await order.enqueue()
    async with memory_app.worker():
        assert "under way already" in await handle.result(timeout=WAIT)
    assert runs == [1]


async def test_what_a_step_gives_must_come_back_as_it_is(memory_app: Holdfast) -> None:
    def unannotated():  # type: ignore[no-untyped-def]  # noqa: ANN202  that is the point
        return datetime.now().astimezone()

    @memory_app.task(retry=1)
    async def order(*, job: Job) -> None:
        with pytest.raises(BadResult, match="step when"):
            await job.step("when", unannotated)
        with pytest.raises(BadJob, match="its result cannot be stored"):
            await job.step("object", _an_object)
        with pytest.raises(BadJob, match="characters, the limit is 195"):
            await job.step("x" * 196, _an_object)

    handle = await order.enqueue()
    async with memory_app.worker():
        await handle.result(timeout=WAIT)


def _an_object() -> object:
    return object()


async def test_blocking_forms_are_refused_on_the_event_loop(memory_app: Holdfast) -> None:
    @memory_app.task(retry=1)
    async def order(*, job: Job) -> int:
        return job.step_sync("double", lambda: 1)

    handle = await order.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match=r"step_sync was called inside a running event loop.* await ….step"):
            await handle.result(timeout=WAIT)


async def test_a_step_whose_lease_is_lost_is_not_stored_and_its_result_not_given(app: Holdfast) -> None:
    given: list[Any] = []
    taken = asyncio.Event()

    @app.task(retry=1)
    async def order(*, job: Job) -> None:
        try:
            await job.step("charge", _ended_from_outside, app, job)
        finally:
            taken.set()
        given.append("it went on")

    handle = await order.enqueue()
    async with app.worker():
        async with asyncio.timeout(WAIT):
            await taken.wait()
        await handle.result(timeout=WAIT)
    assert not given
    assert await app.client().store.parts(handle.id) == []


async def _ended_from_outside(app: Holdfast, job: Job) -> int:
    await app.complete(job.id, None, by="anna")
    return 1


# -- sleeping --------------------------------------------------------------------------------------------------------------


async def test_a_sleeping_job_gives_its_slot_back_and_goes_on_afterwards(app: Holdfast) -> None:
    @app.task()
    async def order(*, job: Job) -> list[int]:
        first = await job.step("first", lambda: job.attempt)
        await job.sleep(0.4)
        await job.sleep(timedelta(milliseconds=1))
        return [first, job.attempt, job.failures]

    @app.task()
    async def other() -> str:
        return "ran meanwhile"

    handle = await order.enqueue()
    async with app.worker(concurrency=1):
        await until_state(handle, State.SCHEDULED)
        assert await (await other.enqueue()).result(timeout=WAIT) == "ran meanwhile"
        first, attempts, failures = await handle.result(timeout=WAIT)
    assert first == 1
    assert attempts >= 3
    assert failures == 0
    parts = {part.name: part.state for part in await app.client().store.parts(handle.id)}
    assert parts == dict.fromkeys(("step:first", "sleep:1", "sleep:2"), PartState.COMPLETED)


async def test_a_sleep_is_as_long_as_it_was_first_meant_whatever_fails_meanwhile(app: Holdfast) -> None:
    @app.task(retry=SOON)
    async def order(*, job: Job) -> float:
        begun = await job.step("begun", time.time)
        if job.attempt == 2:
            raise ValueError("woken, and fails")
        await job.sleep(3600, name="long")
        return time.time() - begun

    handle = await order.enqueue()
    async with app.worker():
        await until_state(handle, State.SCHEDULED)
        store = app.client().store
        await store.rewind(1800.0)
        view = (await store.get([handle.id]))[0]
        assert view is not None
        assert view.run_at is not None
        left = (view.run_at - await store.now()).total_seconds()
        assert 1700 < left < 1801
        await store.rewind(1801.0)
        assert await handle.result(timeout=WAIT) < 60  # by the clock of this machine nothing has passed
    assert (await handle.view()).failures == 1


async def test_sleeps_of_one_name_are_refused(memory_app: Holdfast) -> None:
    @memory_app.task(retry=1)
    async def order(*, job: Job) -> None:
        await job.sleep(0, name="nap")
        await job.sleep(0, name="nap")

    handle = await order.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match="two sleeps named 'nap'"):
            await handle.result(timeout=WAIT)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", True])
async def test_a_sleep_that_is_no_time_is_refused(memory_app: Holdfast, seconds: Any) -> None:
    @memory_app.task(retry=1)
    async def order(*, job: Job) -> None:
        await job.sleep(seconds)

    handle = await order.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match="must be a number of seconds"):
            await handle.result(timeout=WAIT)


async def test_except_exception_does_not_catch_a_suspension_and_finally_blocks_run(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[int] = []

    @app.task()
    async def order(*, job: Job) -> str:
        try:
            await job.sleep(0.02)
        except Exception:  # noqa: BLE001  that is the point
            return "caught"
        finally:
            left.append(job.attempt)
        return "slept"

    handle = await order.enqueue()
    with caplog.at_level(logging.WARNING):
        async with app.worker():
            assert await handle.result(timeout=WAIT) == "slept"
    assert left == [1, 2]
    assert "caught what suspends its job" not in caplog.text


async def test_a_suspension_passes_through_a_task_group(app: Holdfast) -> None:
    @app.task(retry=1)
    async def order(*, job: Job) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(job.sleep(0.02))
        return "slept"

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "slept"


async def test_a_function_that_swallows_its_suspension_is_suspended_all_the_same(
    memory_app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @memory_app.task()
    async def order(*, job: Job) -> str:
        try:
            await job.sleep(0.02)
        except BaseException:  # noqa: BLE001  that is the point
            return "too early"
        return "slept"

    handle = await order.enqueue()
    with caplog.at_level(logging.WARNING):
        async with memory_app.worker():
            assert await handle.result(timeout=WAIT) == "slept"
    assert "caught what suspends its job" in caplog.text


# -- signals ---------------------------------------------------------------------------------------------------------------


async def test_a_signal_wakes_the_job_that_waits_for_it_with_its_data(app: Holdfast) -> None:
    @app.task()
    async def order(number: int, *, job: Job) -> list[Any]:
        paid = await job.wait_for(f"paid:{number}", timeout=3600, type=dict[str, int])
        return [paid["amount"], job.failures]

    handle = await order.enqueue(42)
    async with app.worker(concurrency=1):
        await until_state(handle, State.SCHEDULED)
        assert await app.signal("paid:42", {"amount": 7}) is True
        assert await app.signal("paid:42", {"amount": 8}) is False
        assert await handle.result(timeout=WAIT) == [7, 0]


async def test_a_signal_that_was_emitted_before_is_not_waited_for(app: Holdfast) -> None:
    @app.task()
    def order(*, job: Job) -> Any:
        return job.wait_for_sync("paid")

    await app.signal("paid", None)
    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) is None


async def test_a_wait_that_timed_out_stays_so_for_later_attempts(app: Holdfast) -> None:
    ends: list[str] = []

    @app.task(retry=SOON)
    async def order(*, job: Job) -> str:
        try:
            await job.wait_for("paid", timeout=0.05)
        except TimeoutError as error:
            ends.append(str(error))
            await app.signal("paid", 1)
        if len(ends) < 2:
            raise ValueError("once more")
        return ends[0]

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "the signal 'paid' was not emitted in time"
    assert len(ends) == 2


async def test_what_a_signal_carried_stays_the_same_for_later_attempts(app: Holdfast) -> None:
    seen: list[int] = []

    @app.task(retry=SOON)
    async def order(*, job: Job) -> int:
        seen.append(await job.wait_for("paid", type=int))
        if len(seen) < 3:
            raise ValueError("once more")
        return seen[-1]

    handle = await order.enqueue()
    async with app.worker():
        await until_state(handle, State.SCHEDULED)
        await app.signal("paid", 5)
        assert await handle.result(timeout=WAIT) == 5
    assert seen == [5, 5, 5]


async def test_data_of_another_type_than_asked_for_is_named(app: Holdfast) -> None:
    @app.task(retry=1)
    async def order(*, job: Job) -> int:
        return await job.wait_for("paid", type=int)

    await app.signal("paid", "seven")
    handle = await order.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match=r"signal 'paid'.*not of the type"):
            await handle.result(timeout=WAIT)


# -- in processes ----------------------------------------------------------------------------------------------------------


async def test_steps_sleeps_and_signals_work_in_a_process(children: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "effects"
    handle = await chains_for_children.steps_in_a_process.enqueue(str(path))
    async with children.worker(concurrency=1):
        await children.signal("go", [1, 2])
        assert await handle.result(timeout=WAIT) == [True, [1, 2]]
    assert path.read_text() == "effect\n"
    assert (await handle.view()).failures == 1


async def test_a_function_that_awaits_in_a_process_sleeps_without_it(children: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "effects"
    handle = await chains_for_children.awaits_in_a_process.enqueue(str(path))
    async with children.worker(concurrency=1):
        assert await handle.result(timeout=WAIT) == 2
    assert path.read_text() == "effect\n"


async def test_a_step_that_was_called_already_is_refused_with_the_line_to_write(memory_app: Holdfast) -> None:
    async def charge() -> int:
        return 1

    @memory_app.task(retry=1)
    async def hasty(*, job: Job) -> int:
        return cast("int", await job.step("charge", cast("Any", charge())))

    handle = await hasty.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match=r"needs a function and its args, as in job\.step\('charge', function, 1\)"):
            await handle.result(timeout=WAIT)


async def test_what_ends_the_attempt_is_refused_beside_other_steps_and_waits(memory_app: Holdfast) -> None:
    async def charge() -> int:
        await asyncio.sleep(0)
        return 1

    beside: dict[str, Callable[[Job], list[Awaitable[Any]]]] = {
        "a step and a sleep": lambda job: [job.step("charge", charge), job.sleep(9)],
        "a sleep and a step": lambda job: [job.sleep(9), job.step("charge", charge)],
        "two waits": lambda job: [job.wait_for("a"), job.wait_for("b", timeout=1)],
        "a wait and a sleep": lambda job: [job.wait_for("a"), job.sleep(9)],
    }

    @memory_app.task(retry=1)
    async def hasty(what: str, *, job: Job) -> None:
        await asyncio.gather(*beside[what](job))

    @memory_app.task()
    async def patient(*, job: Job) -> list[int]:
        return list(await asyncio.gather(job.step("one", charge), job.step("two", charge)))

    async with memory_app.worker():
        for what in beside:
            with pytest.raises(JobFailed, match="beside"):
                await (await hasty.enqueue(what)).result(timeout=WAIT)
        assert await (await patient.enqueue()).result(timeout=WAIT) == [1, 1], "steps may run side by side"
