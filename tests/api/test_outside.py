"""Completion from outside: jobs that a person or another service ends. On every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast import AbortReason, BadResult, BadTask, Completion, Holdfast, Job, JobFailed, JobNotFound, State
from tests.support.until import until

WAIT = 30.0


def approvals(app: Holdfast) -> Any:
    """Declare a task that nobody runs."""

    @app.task(name="approve", executor="outside")
    async def approve(order: int) -> dict[str, bool]:
        """Wait until somebody has looked at the order."""
        raise NotImplementedError

    return approve


async def test_a_job_that_nobody_runs_waits_until_it_is_completed(app: Holdfast) -> None:
    approve = approvals(app)

    @app.task()
    async def ship(order: int, *, job: Job) -> str:
        (answer,) = job.results(approve)
        return f"{order}: {answer}"

    @app.task()
    async def probe() -> None: ...

    approval = await approve.enqueue(42)
    shipped = await ship.options(after=approval).enqueue(42)
    async with app.worker():
        await (await probe.enqueue()).result(timeout=WAIT)  # so the worker has looked for what it can run
        assert await approval.state() is State.READY
        done = await app.complete(approval.id, {"approved": True}, by="anna")
        assert (done.applied, done.state, done.by) == (True, State.SUCCEEDED, "anna")
        assert await approval.result(timeout=WAIT) == {"approved": True}
        assert await shipped.result(timeout=WAIT) == "42: {'approved': True}"
    assert (await approval.view()).attempt == 0, "no worker has claimed it"


async def test_a_second_completion_says_who_was_first(app: Holdfast) -> None:
    approve = approvals(app)
    approval = await approve.enqueue(1)
    assert (await app.fail(approval.id, "out of stock", code="STOCK", by="anna")).applied
    again = await app.complete(str(approval.id), {"approved": True}, by="bert")
    assert isinstance(again, Completion)
    assert (again.applied, again.state, again.by) == (False, State.FAILED, "anna")
    assert abs(again.at - datetime.now(UTC)) < timedelta(minutes=5)
    with pytest.raises(JobFailed, match="out of stock") as failed:
        await approval.result(timeout=WAIT)
    assert failed.value.code == "STOCK"


async def test_a_worker_that_was_first_is_named_too(app: Holdfast) -> None:
    @app.task()
    async def note() -> int:
        return 1

    handle = await note.enqueue()
    async with app.worker(name="carl"):
        await handle.result(timeout=WAIT)
    late = await app.complete(handle.id, 2, by="anna")
    assert (late.applied, late.state, late.by) == (False, State.SUCCEEDED, "carl")
    assert await handle.result(timeout=0) == 1


async def test_a_handler_whose_job_is_completed_hears_so_at_once(app: Holdfast) -> None:
    reasons: list[AbortReason | None] = []

    @app.task(lease=60)
    async def slow(*, job: Job) -> str:
        try:
            await asyncio.sleep(WAIT)
        finally:
            reasons.append(job.abort.reason)
        return "too late"

    async with app.worker():
        handle = await slow.enqueue()

        async def runs() -> bool:
            return await handle.state() is State.RUNNING

        await until(runs)
        assert (await app.complete(handle.id, "by hand", by="anna")).applied

        async def heard() -> bool:
            return bool(reasons)

        await until(heard)
        assert await handle.result(timeout=WAIT) == "by hand"
    assert reasons == [AbortReason.ALREADY_COMPLETED]


@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["ready", "scheduled"])
async def test_any_live_job_may_be_completed(app: Holdfast, options: Any) -> None:
    approve = approvals(app)
    approval = await approve.options(**options).enqueue(1)
    assert (await app.complete(approval.id, {})).applied
    blocked = await approve.options(after=await approve.enqueue(2)).enqueue(3)
    assert (await app.complete(blocked.id, {})).applied


async def test_a_result_that_the_task_would_not_give_is_refused_with_field_and_task(app: Holdfast) -> None:
    approve = approvals(app)
    approval = await approve.enqueue(1)
    with pytest.raises(BadResult, match=r"approve.*refused at result\.approved") as refused:
        await app.complete(approval.id, {"approved": "yes"})
    assert (refused.value.path, refused.value.task) == ("result.approved", "approve")
    assert await approval.state() is State.READY


async def test_the_task_may_be_declared_elsewhere(memory: Holdfast) -> None:
    approval = await approvals(memory).enqueue(1)
    other = Holdfast("memory://")
    other._adapters = memory._adapters
    assert (await other.complete(approval.id, ["anything"])).applied
    with pytest.raises(BadResult):
        await other.complete(approval.id, object())
    await other.close()


async def test_a_job_that_is_not_there_cannot_be_completed(app: Holdfast) -> None:
    missing = uuid4()
    with pytest.raises(JobNotFound, match=str(missing)):
        await app.complete(missing, 1)
    with pytest.raises(JobNotFound, match=str(missing)):
        await app.fail(missing, "no")


async def test_the_step_of_a_chain_that_waits_for_somebody_is_completed_through_the_chain(app: Holdfast) -> None:
    approve = approvals(app)

    @app.task()
    async def first(*, job: Job) -> dict[str, bool]:
        answer: dict[str, bool] = job.continue_with(approve, 7)
        return answer

    async with app.worker():
        chain = await first.start_chain()

        async def waits() -> bool:
            return (await chain.view()).step_task == "approve"

        await until(waits)
        done = await chain.complete({"approved": False}, by="anna")
        assert done.applied
        assert await chain.result(timeout=WAIT) == {"approved": False}
        assert (await chain.fail("no", by="bert")).by == "anna"


async def test_a_task_that_nobody_runs_is_no_workers_business(memory: Holdfast) -> None:
    approve = approvals(memory)

    @memory.task(executor="outside")
    def blocking(order: int) -> int:
        return order

    assert await approve.enqueue(1)
    assert blocking(7) == 7
    world = memory.world()
    assert (dict(world.tasks), world.outside) == ({}, frozenset({"approve", blocking.name}))
    with pytest.raises(BadTask, match="has cron= and executor='outside'"):
        memory.task(name="weekly", executor="outside", cron="0 9 * * 1")(lambda: None)
    with pytest.raises(BadTask, match="has atomic=True, but executor='outside'"):
        memory.task(name="atomic", executor="outside", atomic=True)(lambda: None)


async def test_a_job_is_completed_by_its_handle_and_found_by_the_word_for_its_state(app: Holdfast) -> None:
    approve = approvals(app)
    first, second = await approve.start_chain(1), await approve.start_chain(2)
    assert {chain.id for chain in (await app.chains(states="live")).chains} == {first.id, second.id}
    page = await app.chains(states=["waiting", State.FAILED], limit=1)
    assert [chain.id for chain in page.chains] == [second.id]
    assert [chain.id for chain in (await app.chains(after=str(page.after))).chains] == [first.id]
    assert (await app.complete(first, {"approved": True})).applied
    assert (await app.fail(second, "no")).applied
    assert not (await app.chains(states=["live"])).chains
    assert len((await app.chains(states="ended")).chains) == 2
