"""Chains and blockers as a worker runs them: continuations, what keeps one from being created, results in order."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from holdfast import (
    AbortReason,
    BadArgs,
    Holdfast,
    Job,
    JobCanceled,
    JobFailed,
    JobNotFound,
    NotAllowed,
    Retry,
    State,
)
from holdfast.core.outcome import BAD_CONTINUATION, KEY_TAKEN
from holdfast.runtime.counters import SETTLED, MemoryCounters
from holdfast.tasks.continuing import Continue
from tests.runtime import chains_for_children
from tests.runtime.awaiting import WAIT, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.runtime.entry import CallNext

SOON = Retry(max_attempts=5, initial=0.01, max=0.01)


# -- continuations ---------------------------------------------------------------------------------------------------------


async def test_a_chain_goes_from_step_to_step_and_gives_the_result_of_the_last(app: Holdfast) -> None:
    @app.task(queue="later")
    async def second(number: int) -> str:
        return f"second {number}"

    @app.task()
    async def first(number: int, *, job: Job) -> str:
        return job.continue_with(second, number + 1)

    chain = await first.start_chain(1)
    async with app.worker(concurrency=2):
        assert await chain.result(timeout=WAIT) == "second 2"
    assert [step.task for step in await chain.steps()] == [first.name, second.name]


async def test_a_plain_job_that_continues_becomes_a_chain_and_its_handle_follows_it(app: Holdfast) -> None:
    @app.task()
    async def last() -> int:
        return 7

    @app.task()
    async def plain(*, job: Job) -> int:
        return job.continue_with(last)

    handle = await plain.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 7


async def test_a_loop_branches_and_delays_with_the_options_of_the_next_step(app: Holdfast) -> None:
    @app.task()
    async def end(total: int) -> int:
        return total

    @app.task()
    async def count(number: int, *, job: Job) -> int:
        if number == 3:
            return job.continue_with(end.options(delay=0.05, tags=["end"]), number * 10)
        return job.continue_with(count, number + 1)

    chain = await count.start_chain(0)
    async with app.worker():
        assert await chain.result(timeout=WAIT) == 30
    steps = await chain.steps()
    assert [step.task for step in steps] == [count.name] * 4 + [end.name]
    assert steps[-1].tags == ("end",)


@pytest.fixture
async def children(url: str) -> AsyncIterator[Holdfast]:
    """The app that child processes import, on the store."""
    with chains_for_children.app.override(url) as app:
        yield app
        await app.close()


async def test_functions_in_threads_and_processes_continue_as_well(children: Holdfast) -> None:
    chain = await chains_for_children.in_a_thread.start_chain(1)
    async with children.worker(concurrency=2):
        pid, number = await chain.result(timeout=WAIT)
    assert number == 3
    assert pid != os.getpid()


async def test_a_process_that_forgets_its_continuation_fails_and_is_told_why(children: Holdfast) -> None:
    handle = await chains_for_children.forgets.enqueue()
    async with children.worker(concurrency=1):
        with pytest.raises(JobFailed, match=r"write `return job.continue_with") as failed:
            await handle.result(timeout=WAIT)
    assert failed.value.code == "BAD_CONTINUATION"


async def test_args_the_next_task_does_not_take_are_refused_with_field_and_task(app: Holdfast) -> None:
    @app.task(name="strict")
    async def strict(number: int) -> None: ...

    refusals: list[BadArgs] = []

    @app.task(retry=1)
    async def first(*, job: Job) -> None:
        try:
            return job.continue_with(strict, cast("int", "seven"))
        except BadArgs as error:
            refusals.append(error)
            raise

    handle = await first.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="of task 'strict' refused at number"):
            await handle.result(timeout=WAIT)
    assert refusals[0].path == "number"


async def test_a_task_continues_only_with_what_it_was_declared_with(app: Holdfast) -> None:
    @app.task(name="allowed")
    async def allowed() -> str:
        return "allowed"

    @app.task(name="other")
    async def other() -> str:
        return "other"

    @app.task(name="first", continues_with=["allowed"])
    async def first(*, wrong: bool, job: Job) -> str:
        return job.continue_with(other if wrong else allowed)

    good, bad = await first.start_chain(wrong=False), await first.start_chain(wrong=True)
    async with app.worker():
        assert await good.result(timeout=WAIT) == "allowed"
        with pytest.raises(JobFailed, match="'first' continued with 'other'") as failed:
            await bad.result(timeout=WAIT)
    assert failed.value.code == BAD_CONTINUATION
    assert (await bad.view()).steps == 1


async def test_a_continuation_that_is_not_returned_creates_nothing_and_fails_the_step(app: Holdfast) -> None:
    @app.task(name="second")
    async def second() -> int:
        return 2

    @app.task()
    async def forgetful(*, job: Job) -> int:
        job.continue_with(second)
        return 1

    chain = await forgetful.start_chain()
    async with app.worker():
        with pytest.raises(JobFailed, match=r"named 'second' as the next step and returned something else") as failed:
            await chain.result(timeout=WAIT)
    assert failed.value.code == "BAD_CONTINUATION"
    (step,) = await chain.steps()
    assert step.failures == 1, "another attempt would not help"


@pytest.mark.parametrize("next_step", ["second", len, None])
async def test_continuing_with_what_is_no_task_says_so(memory_app: Holdfast, next_step: Any) -> None:
    @memory_app.task(retry=1)
    async def wrong(*, job: Job) -> int:
        return cast("int", job.continue_with(next_step))

    chain = await wrong.start_chain()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match=r"must be a task declared with @app\.task"):
            await chain.result(timeout=WAIT)


async def test_middlewares_see_the_continuation(app: Holdfast) -> None:
    seen: list[Any] = []

    @app.middleware
    async def watch(job: Job, call_next: CallNext) -> Any:
        value = await call_next(job)
        seen.append(value)
        return value

    @app.task()
    async def second() -> int:
        return 2

    @app.task()
    async def first(*, job: Job) -> int:
        return job.continue_with(second)

    chain = await first.start_chain()
    async with app.worker():
        await chain.result(timeout=WAIT)
    assert isinstance(seen[0], Continue)
    assert seen[0].job.task == second.name
    assert seen[1] == 2


async def test_a_key_of_the_next_step_that_is_taken_fails_the_attempt_until_it_is_free(app: Holdfast) -> None:
    release = asyncio.Event()

    @app.task(name="single")
    async def single(*, wait: bool) -> str:
        if wait:
            await release.wait()
        return "single"

    attempts: list[int] = []

    @app.task(retry=Retry(max_attempts=None, initial=0.02, max=0.02))
    async def first(*, job: Job) -> str:
        attempts.append(job.failures)
        if len(attempts) == 3:
            release.set()
        return job.continue_with(single.options(key="only"), wait=False)

    await single.options(key="only").enqueue(wait=True)
    async with app.worker(concurrency=3):
        chain = await first.start_chain()
        assert await chain.result(timeout=WAIT) == "single"
    report = await app.job(chain.id).report()
    codes = [attempt.error.code for attempt in report.attempts if attempt.error is not None]
    assert codes[:2] == [KEY_TAKEN, KEY_TAKEN]
    assert "'only'" in next(attempt.error.message for attempt in report.attempts if attempt.error is not None)
    assert attempts[:3] == [0, 1, 2]


async def test_a_next_step_that_cannot_be_created_fails_its_step_and_harms_no_neighbour(app: Holdfast) -> None:
    gone = UUID("01900000-0000-7000-8000-000000000001")

    @app.task()
    async def second() -> int:
        return 2

    @app.task()
    async def first(number: int, *, job: Job) -> int:
        return job.continue_with(second.options(after=[gone]) if number == 2 else second)

    chains = [await first.start_chain(number) for number in range(5)]
    async with app.worker(concurrency=5):
        for number, chain in enumerate(chains):
            if number == 2:
                with pytest.raises(JobFailed, match="cannot continue with") as failed:
                    await chain.result(timeout=WAIT)
                assert failed.value.code == BAD_CONTINUATION
            else:
                assert await chain.result(timeout=WAIT) == 2


async def test_a_next_step_with_the_id_of_its_own_step_is_refused(app: Holdfast) -> None:
    @app.task()
    async def first(*, job: Job) -> int:
        return job.continue_with(first.options(id=job.id))

    chain = await first.start_chain()
    async with app.worker():
        with pytest.raises(JobFailed) as failed:
            await chain.result(timeout=WAIT)
    assert failed.value.code == BAD_CONTINUATION


async def test_a_canceled_chain_does_not_continue(app: Holdfast) -> None:
    @app.task()
    async def second() -> int:
        return 2

    begun = asyncio.Event()

    @app.task()
    def first(*, job: Job) -> int:
        loop.call_soon_threadsafe(begun.set)
        job.abort.wait()  # and goes on all the same
        return job.continue_with(second)

    loop = asyncio.get_running_loop()
    chain = await first.start_chain()
    async with app.worker():
        await asyncio.wait_for(begun.wait(), WAIT)
        assert await chain.cancel("enough")
        with pytest.raises(JobCanceled):
            await chain.result(timeout=WAIT)
    assert len(await chain.steps()) == 1


async def test_the_running_handler_of_a_deleted_chain_learns_that_it_is_not_found(app: Holdfast) -> None:
    reasons: list[AbortReason | None] = []
    begun = asyncio.Event()

    @app.task()
    async def second(*, job: Job) -> int:
        begun.set()
        try:
            await asyncio.sleep(WAIT)
        finally:
            reasons.append(job.abort.reason)
        return 2

    @app.task()
    async def first(*, job: Job) -> int:
        return job.continue_with(second)

    chain = await first.start_chain()
    async with app.worker():
        await asyncio.wait_for(begun.wait(), WAIT)
        await chain.delete()
        await until(lambda: reasons)
    assert reasons == [AbortReason.NOT_FOUND]


async def test_a_continuation_is_counted_by_its_own_name(memory_app: Holdfast) -> None:
    @memory_app.task()
    async def second() -> int:
        return 2

    @memory_app.task()
    async def first(*, job: Job) -> int:
        return job.continue_with(second)

    counters = MemoryCounters()
    async with memory_app.worker(counters=counters):
        await (await first.start_chain()).result(timeout=WAIT)
    counts = counters.snapshot()
    assert counts[f"{SETTLED}:continued"] == 1
    assert counts[f"{SETTLED}:succeeded"] == 1


async def test_an_outside_step_waits_until_somebody_completes_it(app: Holdfast) -> None:
    @app.task(executor="outside")
    def approval(amount: int) -> str:
        raise NotImplementedError(amount)

    @app.task()
    async def request(*, job: Job) -> str:
        return job.continue_with(approval, 100)

    chain = await request.start_chain()
    async with app.worker():
        async with asyncio.timeout(WAIT):
            while (await chain.view()).steps < 2:  # noqa: ASYNC110  nobody here is told
                await asyncio.sleep(0.01)
        assert await chain.state() is State.READY
        await chain.complete("approved", by="anna")
        assert await chain.result(timeout=WAIT) == "approved"


# -- blockers --------------------------------------------------------------------------------------------------------------


async def test_results_of_blockers_reach_the_handler_typed_and_in_order(app: Holdfast) -> None:
    @app.task()
    async def number() -> int:
        return 1

    @app.task()
    async def words() -> list[str]:
        return ["a", "b"]

    @app.task()
    async def first(*, job: Job) -> list[str]:
        return job.continue_with(words)

    @app.task()
    async def join(*, job: Job) -> str:
        left, right, third = job.results(number, first, number)
        assert [view.state for view in job.blockers] == [State.SUCCEEDED] * 3
        return f"{left} {right} {third} {job.results_of(number)}"

    blockers = [await number.enqueue(), await first.start_chain(), await number.enqueue()]
    waiter = await join.options(after=blockers).enqueue()
    async with app.worker(concurrency=3):
        assert await waiter.result(timeout=WAIT) == "1 ['a', 'b'] 1 [1, 1]"


async def test_a_waiter_starts_soon_after_its_last_blocker_has_ended(app: Holdfast) -> None:
    """Long before a worker that is told of nothing would look by itself, which is after a minute."""

    @app.task()
    async def part(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @app.task(queue="another")
    async def total(*, job: Job) -> float:
        return sum(job.results_of(part))

    async with app.worker(concurrency=5):
        group = await app.group([part.call(0.3), part.call(0.2)])
        waiter = await total.options(after=group).enqueue()
        assert await waiter.result(timeout=WAIT) == pytest.approx(0.5)


async def test_a_blocker_that_failed_shows_when_its_result_is_asked_for(app: Holdfast) -> None:
    @app.task(retry=1)
    async def broken() -> int:
        raise ValueError("no")

    @app.task()
    async def fine() -> int:
        return 1

    @app.task()
    async def after(*, job: Job) -> list[str]:
        said = [str(view.state) for view in job.blockers]
        for task in (broken, fine):
            try:
                said.append(str(job.results_of(task)))
            except JobFailed as error:
                said.append(error.code)
        try:
            job.results(broken)
        except BadArgs as error:
            said.append(str(error.path))
        return said

    blockers = [await fine.enqueue(), await broken.enqueue()]
    waiter = await after.options(after=blockers, on_blocker_failure="run").enqueue()
    async with app.worker():
        assert await waiter.result(timeout=WAIT) == ["succeeded", "failed", "RETRIES_EXHAUSTED", "[1]", "results"]


async def test_results_that_are_gone_or_of_another_type_are_named(app: Holdfast) -> None:
    @app.task(name="words")
    async def words() -> str:
        return "no number"

    @app.task(name="number")
    async def number() -> int:
        return 1

    @app.task()
    async def after(*, job: Job) -> list[str]:
        said = []
        with pytest.raises(BadArgs, match=r"after\[0\] is a chain of 'words', not of 'number'"):
            job.results(number)
        with pytest.raises(BadArgs, match="no chain of task 'number'; it waited for a chain of 'words'"):
            job.results_of(number)
        said.append(str(job.results(words)[0]))
        return said

    waiter = await after.options(after=[await words.enqueue()]).enqueue()
    async with app.worker():
        assert await waiter.result(timeout=WAIT) == ["no number"]


async def test_a_chain_that_ended_with_another_type_than_its_first_step_promised_is_named(app: Holdfast) -> None:
    @app.task(name="words")
    async def words() -> str:
        return "no number"

    @app.task(name="number")
    async def number(*, job: Job) -> int:
        return cast("int", job.continue_with(words))

    @app.task(retry=1)
    async def after(*, job: Job) -> list[int]:
        return job.results_of(number)

    waiter = await after.options(after=[await number.enqueue()]).enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match=r"of task 'number'.*blocker .*ended with task 'words'"):
            await waiter.result(timeout=WAIT)


async def test_a_waiter_for_nobody_has_no_results(app: Holdfast) -> None:
    @app.task()
    async def number() -> int:
        return 1

    @app.task()
    async def total(*, job: Job) -> int:
        return sum(job.results_of(number))

    waiter = await total.options(after=await app.group([])).enqueue()
    async with app.worker():
        assert await waiter.result(timeout=WAIT) == 0


async def test_a_process_gets_the_results_of_blockers(children: Holdfast) -> None:
    blocker = await chains_for_children.number.enqueue()
    waiter = await chains_for_children.doubles_its_blocker.options(after=[blocker]).enqueue()
    async with children.worker(concurrency=2):
        assert await waiter.result(timeout=WAIT) == 40


def test_a_gone_or_reopened_blocker_has_no_result(memory_app: Holdfast) -> None:
    from holdfast.store.port import BlockerView  # noqa: PLC0415  only here
    from holdfast.testing import fake_job  # noqa: PLC0415  as above

    @memory_app.task()
    async def number() -> int:
        return 1

    chain_id = UUID("01900000-0000-7000-8000-000000000002")
    gone = fake_job(after=[BlockerView(chain_id=chain_id, state=None)])
    with pytest.raises(JobNotFound, match=str(chain_id)):
        gone.results(number)
    reopened = fake_job(after=[BlockerView(chain_id=chain_id, state=State.READY, task=number.name)])
    with pytest.raises(NotAllowed, match="brought back"):
        reopened.results(number)
