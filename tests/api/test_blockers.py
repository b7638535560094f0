"""Blockers: jobs that wait for others, and are handed what those gave. On every store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from holdfast import BadJob, Fatal, Holdfast, Job, JobCanceled, JobFailed, State
from tests.support.until import until

if TYPE_CHECKING:
    from holdfast import Handle

WAIT = 30.0


def numbers(app: Holdfast) -> Any:
    """Declare a task that gives its number, and fails for a negative one."""

    @app.task(name="number")
    async def number(value: int) -> int:
        if value < 0:
            raise Fatal("negative", code="NEGATIVE")
        return value

    return number


async def test_a_waiter_is_blocked_until_all_have_ended_and_gets_their_results_in_order(app: Holdfast) -> None:
    number = numbers(app)

    @app.task()
    async def text() -> str:
        return "text"

    @app.task()
    async def both(*, job: Job) -> tuple[int, str, int]:
        left, middle, right = job.results(number, text, number)
        return left, middle, right

    one, other = await number.enqueue(1), await number.options(delay=0.1).start_chain(2)
    waiter = await both.options(after=[other, await text.enqueue(), one.id]).enqueue()
    assert await waiter.state() is State.BLOCKED
    assert len((await waiter.view()).waits_for) == 3
    async with app.worker():
        assert await waiter.result(timeout=WAIT) == (2, "text", 1)


async def test_a_waiter_of_what_has_ended_runs_at_once(app: Holdfast) -> None:
    number = numbers(app)

    @app.task()
    async def double(*, job: Job) -> int:
        (given,) = job.results(number)
        return int(given) * 2

    async with app.worker():
        done = await number.enqueue(4)
        await done.result(timeout=WAIT)
        waiter = await double.options(after=done).enqueue()
        assert await waiter.result(timeout=WAIT) == 8
    assert (await waiter.view()).after == (done.id,)


async def test_a_waiter_waits_for_the_end_of_a_chain_not_of_its_first_step(app: Holdfast) -> None:
    release = asyncio.Event()

    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second)

    @app.task()
    async def second() -> str:
        await release.wait()
        return "second"

    @app.task()
    async def waiting(*, job: Job) -> list[str]:
        return job.results_of(second)

    async with app.worker():
        chain = await first.start_chain()
        waiter = await waiting.options(after=[chain]).enqueue()

        async def goes_on() -> bool:
            return (await chain.view()).steps == 2

        await until(goes_on)
        assert await waiter.state() is State.BLOCKED
        release.set()
        assert await waiter.result(timeout=WAIT) == ["second"]


async def test_a_later_step_cannot_be_waited_for(app: Holdfast) -> None:
    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second)

    @app.task()
    async def second() -> str:
        return "second"

    async with app.worker():
        chain = await first.start_chain()
        await chain.result(timeout=WAIT)
    step = (await chain.steps())[1]
    with pytest.raises(BadJob, match=str(chain.id)):
        await second.options(after=step.id).enqueue()


@pytest.mark.parametrize(
    ("policy", "state", "code"),
    [
        ("fail", State.FAILED, "BLOCKER_FAILED"),
        ("cancel", State.CANCELED, "BLOCKER_CANCELED"),
        (None, State.FAILED, "BLOCKER_FAILED"),
    ],
)
async def test_a_failed_blocker_ends_its_waiter_as_the_policy_says(
    app: Holdfast, policy: str | None, state: State, code: str
) -> None:
    number = numbers(app)
    blocker = await number.enqueue(-1)
    options: Any = {} if policy is None else {"on_blocker_failure": policy}
    waiter = await number.options(after=blocker, **options).enqueue(1)
    async with app.worker():
        with pytest.raises((JobFailed, JobCanceled)) as ended:
            await waiter.result(timeout=WAIT)
    assert await waiter.state() is state
    error: Any = ended.value
    assert error.code == code
    assert str(blocker.id) in str(error), "the blocker is named"


async def test_a_waiter_that_runs_all_the_same_sees_how_its_blockers_ended(app: Holdfast) -> None:
    number = numbers(app)

    @app.task()
    async def tidy(*, job: Job) -> list[str]:
        with pytest.raises(JobFailed, match="negative"):
            job.results(number, number, number)
        return [str(one.state) for one in job.blockers]

    canceled = await number.options(delay=60).enqueue(2)
    waiter = await tidy.options(
        after=[await number.enqueue(1), await number.enqueue(-1), canceled], on_blocker_failure="run"
    ).enqueue()
    assert await canceled.cancel()
    async with app.worker():
        assert await waiter.result(timeout=WAIT) == ["succeeded", "failed", "canceled"]


async def test_a_diamond_runs_each_job_once_and_in_order(app: Holdfast) -> None:
    ran: list[str] = []

    @app.task()
    async def node(name: str) -> str:
        ran.append(name)
        return name

    @app.task()
    async def join(*, job: Job) -> list[str]:
        ran.append("bottom")
        return job.results_of(node)

    top = await node.enqueue("top")
    left = await node.options(after=top).enqueue("left")
    right = await node.options(after=top).enqueue("right")
    bottom = await join.options(after=[left, right]).enqueue()
    async with app.worker():
        assert await bottom.result(timeout=WAIT) == ["left", "right"]
    assert (ran[0], sorted(ran[1:3]), ran[3:]) == ("top", ["left", "right"], ["bottom"])


async def test_nested_lists_are_taken_flat_and_in_order(memory: Holdfast) -> None:
    number = numbers(memory)
    group = await memory.group([number.call(1), number.call(2)])
    chain = await number.start_chain(3)
    handles: list[Handle[int]] = [chain, *group]
    waiter = await number.options(after=(chain, [group])).enqueue(4)
    assert (await waiter.view()).after == tuple(handle.id for handle in handles)


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ("nonsense", "nonsense is no job id"),
        ([7], "must be handles, chains, groups or ids of jobs, not 7"),
        (None, "must be handles, chains, groups or ids of jobs, not None"),
    ],
)
async def test_what_cannot_be_waited_for_is_refused(memory: Holdfast, after: Any, says: str) -> None:
    with pytest.raises(BadJob, match=says):
        numbers(memory).options(after=after)


async def test_a_call_that_was_not_enqueued_a_blocker_twice_and_one_that_is_not_there_are_refused(memory: Holdfast) -> None:
    number = numbers(memory)
    with pytest.raises(BadJob, match="enqueue it first, and name its handle"):
        number.options(after=[number.call(1)])
    blocker = await number.enqueue(1)
    with pytest.raises(BadJob, match="waits for each chain once"):
        await number.options(after=[blocker, [blocker.id]]).enqueue(2)
    missing = uuid4()
    with pytest.raises(BadJob, match=str(missing)):
        await number.options(after=missing).enqueue(2)
    with pytest.raises(BadJob, match="on_blocker_failure: says something about blockers, and there are none: give after= too"):
        number.options(on_blocker_failure="run")
    with pytest.raises(BadJob, match="'ignore' is none of fail, cancel, run"):
        number.options(after=blocker, on_blocker_failure="ignore")
