"""A job's transaction as a worker runs it: all or nothing, under the fence, whatever is cut or asked meanwhile."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from holdfast import (
    AbortReason,
    Command,
    Fatal,
    Holdfast,
    Job,
    JobCanceled,
    JobFailed,
    NotAllowed,
    Reschedule,
    Retry,
    StaleLease,
    State,
)
from holdfast.core.states import Event
from holdfast.errors import BadResult, BadSetting
from holdfast.runtime import slots as slots_module
from holdfast.runtime.attempt import Commit
from holdfast.runtime.counters import SETTLED, STALE, MemoryCounters
from holdfast.runtime.transacting import BrokenTransaction
from holdfast.store.port import Answer, Settled
from holdfast.tasks.transaction import CommitUnknown, NotCommitted
from tests.runtime import chains_for_children
from tests.runtime.awaiting import WAIT, until
from tests.runtime.flaky import Flaky, lost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.tasks.task import Task

SOON = Retry(max_attempts=5, initial=0.01, max=0.01)


@pytest.fixture
def receipt(app: Holdfast) -> Task[[int], None]:
    """A task whose jobs are the effect of others, on every store: nobody runs them."""

    @app.task(name="receipt", executor="outside")
    def receipt(number: int) -> None: ...

    return receipt


async def receipts(app: Holdfast) -> int:
    return int((await app.stats())["tasks"].get("receipt", {}).get("ready", 0))


@pytest.fixture
def flaky(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Flaky:
    """Workers of the app have transactions that a test can make fail."""
    return Flaky(app, monkeypatch)


# -- all or nothing --------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_job_and_what_it_enqueued_commit_together(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task()
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            handle = await receipt.options(conn=tx).enqueue(42)
            assert await app.client().store.get([handle.id]) == [None]
            return tx.complete("done")

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"
    assert await receipts(app) == 1


@pytest.mark.parametrize("url", ["memory", "postgres"], indirect=True)
async def test_workers_are_told_of_jobs_enqueued_in_the_transaction_once_it_has_committed(app: Holdfast, flaky: Flaky) -> None:
    """SQLite has no such hints: there everybody sees that the file has changed."""
    held = Held(flaky)
    queues: set[str] = set()

    @app.task(queue="another", executor="outside")
    def follow(number: int) -> None: ...

    @app.task()
    async def order(*, job: Job) -> None:
        async with job.transaction() as tx:
            await follow.options(conn=tx).enqueue(7)
            tx.complete(None)

    notifier = app.world().make_notifier()
    try:
        await notifier.listen(lambda hint: queues.update(hint.queues))
        handle = await order.enqueue()
        async with app.worker():
            await held.begun()
            assert "another" not in queues
            held.go_on.set()
            await handle.result(timeout=WAIT)
            await until(lambda: "another" in queues)
    finally:
        await notifier.close()


async def test_an_end_that_is_somebody_elses_is_not_taken_for_ones_own(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None]
) -> None:
    """The same token has settled the attempt before: the store calls it repeated, and the handler's writes must not stand."""
    flaky.answer = Settled.REPEATED
    raised: list[BaseException] = []

    @app.task(retry=1)
    async def order(*, job: Job) -> str:
        try:
            async with job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(1)
                return tx.complete("done")
        except BaseException as error:
            raised.append(error)
            raise

    await order.enqueue()
    async with app.worker():
        await until(lambda: raised)
    assert isinstance(raised[0], StaleLease)
    assert await receipts(app) == 0


async def test_an_error_after_complete_undoes_it(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(retry=SOON)
    async def order(*, job: Job) -> int:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            tx.complete(job.attempt)
            if job.failures < 2:
                raise ValueError("after complete")
        return 0

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 3
    assert await receipts(app) == 1
    assert (await handle.view()).failures == 2


async def test_a_job_is_failed_for_good_with_what_its_transaction_wrote(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(retry=SOON)
    async def awaits(*, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            tx.fail("the account is closed", code="CLOSED")
        return "of no interest"

    @app.task(retry=SOON)
    def blocks(*, job: Job) -> str:
        with job.transaction_sync() as tx:
            receipt.options(conn=tx).enqueue_sync(1)
            tx.fail("the account is closed", code="CLOSED")
        return "of no interest"

    @app.task(retry=SOON, atomic=True)
    async def whole(*, job: Job) -> str:
        await receipt.options(conn=job.tx).enqueue(1)
        job.tx.fail("the account is closed", code="CLOSED")
        return "of no interest"

    counters = MemoryCounters()
    handles = [await task.enqueue() for task in (awaits, blocks, whole)]
    async with app.worker(counters=counters):
        for handle in handles:
            with pytest.raises(JobFailed, match="the account is closed") as failed:
                await handle.result(timeout=WAIT)
            assert failed.value.code == "CLOSED"
    assert await receipts(app) == 3
    views = [await handle.view() for handle in handles]
    assert [(view.state, view.attempt, view.failures) for view in views] == [(State.FAILED, 1, 1)] * 3
    assert counters.snapshot()[f"{SETTLED}:failed"] == 3


async def test_the_error_that_failed_a_job_in_its_transaction_may_be_raised_on(
    app: Holdfast, receipt: Task[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    class ClosedError(Exception):
        code = "CLOSED"

    def refuse() -> None:
        raise ClosedError("the password is password=hunter2")

    @app.task(retry=SOON)
    async def order(*, job: Job) -> str:
        try:
            refuse()
        except ClosedError as error:
            async with job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(1)
                tx.fail(error)
            raise
        return ""

    handle = await order.enqueue()
    with caplog.at_level(logging.WARNING):
        async with app.worker():
            with pytest.raises(JobFailed):
                await handle.result(timeout=WAIT)
    error = (await handle.view()).error
    assert error is not None
    assert error.code == "CLOSED"
    assert "ClosedError" in error.traceback
    assert "hunter2" not in error.message + error.traceback
    assert "which changes nothing" not in caplog.text, "it is told already"
    assert await receipts(app) == 1


async def test_an_error_after_fail_undoes_it_and_is_an_error_like_any_other(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(retry=SOON)
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            if job.failures < 2:
                tx.fail("for good")
                raise ValueError("after fail")
            with pytest.raises(NotAllowed, match="ends its job already"):
                tx.fail(tx.complete("succeeded"))
        return "succeeded"

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "succeeded"
    assert await receipts(app) == 1
    assert (await handle.view()).failures == 2


@pytest.mark.row(32)
async def test_a_result_that_cannot_be_stored_is_refused_inside_the_block(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task()
    async def order(*, job: Job) -> int:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            with pytest.raises(BadResult):
                tx.complete("seven")
            return tx.complete(7)

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 7
    assert await receipts(app) == 1


async def test_a_transaction_continues_the_chain(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(name="second")
    async def second(number: int) -> int:
        return number

    @app.task(continues_with=["second"])
    async def first(number: int, *, job: Job) -> int:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            return tx.continue_with(second, number + 1)

    chain = await first.start_chain(1)
    async with app.worker():
        assert await chain.result(timeout=WAIT) == 2
    assert len(await chain.steps()) == 2
    assert await receipts(app) == 1


async def test_a_taken_key_of_the_next_step_undoes_everything_and_fails_the_attempt(
    app: Holdfast, receipt: Task[[int], None]
) -> None:
    @app.task(name="single", executor="outside")
    def single() -> None: ...

    @app.task(retry=2)
    async def first(*, job: Job) -> None:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            return tx.continue_with(single.options(key="only"))

    await single.options(key="only").enqueue()
    chain = await first.options(retry=1).start_chain()
    async with app.worker():
        with pytest.raises(JobFailed, match=r"KEY_TAKEN.*'only'"):
            await chain.result(timeout=WAIT)
    assert await receipts(app) == 0


async def test_without_completion_it_is_a_fenced_write_and_the_job_goes_on(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task()
    async def order(*, job: Job) -> str:
        for number in range(3):
            async with job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(number)
        return f"{await receipts(app)} before the end"

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "3 before the end"


@pytest.mark.parametrize("end", ["complete", "fail", "none"])
@pytest.mark.parametrize(
    ("url", "when"),
    [
        ("memory", "before it begins"),
        ("sqlite", "before it begins"),  # and once it is open, nobody else writes there
        ("postgres", "before it begins"),
        ("memory", "while it is open"),
        ("postgres", "while it is open"),
    ],
    indirect=["url"],
)
async def test_a_transaction_whose_lease_is_lost_cannot_commit(
    app: Holdfast, receipt: Task[[int], None], *, end: str, when: str
) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    raised: list[BaseException] = []

    def pause() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(WAIT)

    @app.task()
    def order(*, job: Job) -> str:
        if when == "before it begins":
            pause()
        try:
            with job.transaction_sync() as tx:
                receipt.options(conn=tx).enqueue_sync(1)
                if end == "complete":
                    tx.complete("by the worker")
                elif end == "fail":
                    tx.fail("by the worker")
                if when == "while it is open":
                    pause()
        except BaseException as error:
            raised.append(error)
            raise
        return "by the worker"

    handle = await order.enqueue()
    async with app.worker():
        await asyncio.wait_for(begun.wait(), WAIT)
        await app.complete(handle.id, "from outside", by="anna")
        go_on.set()
        await until(lambda: raised)
        assert await handle.result(timeout=WAIT) == "from outside"
    assert isinstance(raised[0], StaleLease)
    assert await receipts(app) == 0


async def test_a_function_in_a_thread_has_transactions_too(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(retry=SOON)
    def order(*, job: Job) -> str:
        with job.transaction_sync() as tx:
            receipt.options(conn=tx).enqueue_sync(1)
            with pytest.raises(BadSetting, match="belongs to the worker's event loop"):
                _ = tx.connection
            value = tx.complete(f"attempt {job.attempt}")
            if job.attempt == 1:
                raise ValueError("undo it")
        return value

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "attempt 2"
    assert await receipts(app) == 1


async def test_what_follows_a_completing_transaction_changes_nothing(
    app: Holdfast, receipt: Task[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task()
    async def order(kind: str, *, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            tx.complete("completed")
        if kind == "raises":
            raise Fatal("too late")
        if kind == "reschedules":
            raise Reschedule(after=1)
        with pytest.raises(NotAllowed, match="has ended this job already"):
            async with job.transaction():
                pass
        with pytest.raises(StaleLease):
            await job.checkpoint("late")
        return None if kind == "returns nothing" else "another value"  # type: ignore[return-value]

    counters = MemoryCounters()
    handles = [await order.enqueue(kind) for kind in ("raises", "reschedules", "returns", "returns nothing")]
    with caplog.at_level(logging.WARNING):
        async with app.worker(counters=counters):
            assert [await handle.result(timeout=WAIT) for handle in handles] == ["completed"] * 4
    assert "raised Fatal after its transaction had settled it, which changes nothing: too late" in caplog.text
    assert "BadResult" not in caplog.text
    assert await receipts(app) == 4
    assert [(await handle.view()).attempt for handle in handles] == [1, 1, 1, 1]
    settled = {name: number for name, number in counters.snapshot().items() if name.startswith((SETTLED, STALE))}
    assert settled == {f"{SETTLED}:succeeded": 4}


async def test_transactions_come_one_after_another(memory_app: Holdfast) -> None:
    @memory_app.task(retry=1)
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            with pytest.raises(NotAllowed, match="open transaction already"):
                async with job.transaction():
                    pass
            with pytest.raises(NotAllowed, match=r"job.step inside the job's transaction"):
                await job.step("inside", lambda: 1)
            with pytest.raises(NotAllowed, match=r"job.sleep inside"):
                await job.sleep(1)
            assert job.tx is tx
            tx.complete("first")
            with pytest.raises(NotAllowed, match="ends its job already"):
                tx.complete("second")
        with pytest.raises(BadSetting, match="there is no transaction"):
            _ = job.tx
        with pytest.raises(NotAllowed, match="is not open"):
            _ = tx.connection
        return "first"

    handle = await order.enqueue()
    async with memory_app.worker():
        assert await handle.result(timeout=WAIT) == "first"


async def test_processes_and_commands_have_no_transaction(memory_app: Holdfast) -> None:
    @memory_app.task(executor="command", retry=1)
    def command(*, job: Job) -> Command:
        with job.transaction_sync():
            return Command("true")

    handle = await command.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match="executor='command' has no transaction"):
            await handle.result(timeout=WAIT)
    with chains_for_children.app.override("memory://") as app:
        other = await chains_for_children.wants_a_transaction.enqueue()
        async with app.worker(concurrency=1):
            with pytest.raises(JobFailed, match="executor='process' has no transaction"):
                await other.result(timeout=WAIT)
        await app.close()


async def test_the_blocking_form_is_refused_on_the_event_loop(memory_app: Holdfast) -> None:
    @memory_app.task(retry=1)
    async def order(*, job: Job) -> None:
        with job.transaction_sync():
            pass

    handle = await order.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match=r"transaction_sync was called inside a running event loop"):
            await handle.result(timeout=WAIT)


# -- whole attempts --------------------------------------------------------------------------------------------------------


async def test_an_atomic_task_is_one_transaction_which_its_result_completes(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(atomic=True, retry=SOON)
    async def awaits(*, job: Job) -> int:
        await receipt.options(conn=job.tx).enqueue(1)
        if job.attempt < 3:
            raise ValueError("undo it")
        return job.attempt

    @app.task(atomic=True, retry=SOON)
    def blocks(*, job: Job) -> int:
        receipt.options(conn=job.tx_sync).enqueue_sync(1)
        if job.attempt < 3:
            raise ValueError("undo it")
        return job.attempt

    @app.task(atomic=True)
    async def continues(*, job: Job) -> int:
        await receipt.options(conn=job.tx).enqueue(1)
        return job.continue_with(awaits)

    handles = [await awaits.enqueue(), await blocks.enqueue(), await continues.enqueue()]
    async with app.worker(concurrency=1):
        assert [await handle.result(timeout=WAIT) for handle in handles] == [3, 3, 3]
    assert await receipts(app) == 4


@pytest.mark.row(32)
async def test_an_atomic_task_whose_result_cannot_be_stored_is_undone(app: Holdfast, receipt: Task[[int], None]) -> None:
    @app.task(atomic=True)
    async def order(*, job: Job) -> int:
        await receipt.options(conn=job.tx).enqueue(1)
        return "seven"  # type: ignore[return-value]

    handle = await order.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=WAIT)
    assert failed.value.code == "BAD_RESULT"
    assert await receipts(app) == 0


# -- the answer to COMMIT is lost ------------------------------------------------------------------------------------------


@pytest.mark.row(11)
async def test_a_commit_whose_answer_is_lost_stands_when_it_was_committed(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None]
) -> None:
    after: list[str] = []

    @app.task()
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            value = tx.complete("done")
        after.append("the function goes on")
        return value

    async def commit(real: Callable[[], Awaitable[None]]) -> None:
        await real()
        raise lost()

    flaky.commit = commit
    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"
        await until(lambda: after)
    assert flaky.asked == 1
    assert await receipts(app) == 1
    assert (await handle.view()).attempt == 1


@pytest.mark.row(11)
async def test_a_commit_that_never_happened_runs_the_job_again_at_no_cost(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None]
) -> None:
    raised: list[BaseException] = []

    @app.task(retry=1)
    async def order(*, job: Job) -> str:
        try:
            async with job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(1)
                return tx.complete(f"attempt {job.attempt}")
        except BaseException as error:
            raised.append(error)
            raise

    async def commit(real: Callable[[], Awaitable[None]]) -> None:
        if not raised:
            raise lost()
        await real()

    flaky.commit = commit
    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "attempt 2"
    assert type(raised[0]) is NotCommitted
    assert await receipts(app) == 1
    assert (await handle.view()).failures == 0


@pytest.mark.row(11)
async def test_an_attempt_whose_commit_stays_unknown_is_left_to_its_lease(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None]
) -> None:
    raised: list[BaseException] = []

    @app.task(retry=SOON, lease=1.0)
    async def order(*, job: Job) -> str:
        try:
            async with job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(1)
                return tx.complete(f"attempt {job.attempt}")
        except BaseException as error:
            raised.append(error)
            raise

    async def commit(real: Callable[[], Awaitable[None]]) -> None:
        if not raised:
            raise lost()
        await real()

    def unreachable() -> None:
        if not raised:
            raise lost()

    flaky.commit, flaky.settled, flaky.extended = commit, unreachable, unreachable
    handle = await order.enqueue()
    async with app.worker():
        await until(lambda: raised)
        assert isinstance(raised[0], CommitUnknown)
        assert flaky.asked > 1
        await app.client().store.rewind(10.0)
        assert await handle.result(timeout=WAIT) == "attempt 2"
    happened = [event.event for event in await handle.events()]
    assert Event.EXPIRE in happened  # nobody had settled the first attempt
    assert await receipts(app) == 1


# -- asked to stop while it commits ----------------------------------------------------------------------------------------


class Held:
    """A commit that a test holds back, before or after it has really happened."""

    def __init__(self, flaky: Flaky, *, after: bool = False) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._after = after
        flaky.commit = self._commit

    async def begun(self) -> None:
        """Wait until it is held back."""
        await asyncio.wait_for(self.reached.wait(), WAIT)

    async def _commit(self, real: Callable[[], Awaitable[None]]) -> None:
        if self._after:
            await real()
        self.reached.set()
        await self.go_on.wait()
        if not self._after:
            await real()


async def test_a_cancel_while_it_commits_comes_too_late(app: Holdfast, flaky: Flaky, receipt: Task[[int], None]) -> None:
    held = Held(flaky)
    aborted: list[bool] = []

    @app.task()
    async def order(*, job: Job) -> str:
        try:
            async with job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(1)
                tx.complete("done")
        except asyncio.CancelledError:
            aborted.append(job.abort.is_set())
            raise
        return "done"

    handle = await order.enqueue()
    async with app.worker() as worker:
        await held.begun()
        (attempt,) = worker._slots.held.values()
        worker._slots.abort(attempt, AbortReason.CANCELED)
        await asyncio.sleep(0)
        held.go_on.set()
        assert await handle.result(timeout=WAIT) == "done"
        await until(lambda: aborted)
    assert await receipts(app) == 1
    assert await handle.state() is State.SUCCEEDED


async def test_a_time_out_of_the_handlers_own_does_not_cut_a_commit(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None]
) -> None:
    held = Held(flaky)
    limit = asyncio.timeout(None)
    timed_out: list[str] = []

    @app.task()
    async def order(*, job: Job) -> str:
        try:
            async with limit, job.transaction() as tx:
                await receipt.options(conn=tx).enqueue(1)
                tx.complete("done")
        except TimeoutError:
            timed_out.append("too late")
        return "done"

    handle = await order.enqueue()
    async with app.worker() as worker:
        await held.begun()
        (attempt,) = worker._slots.held.values()
        runner = attempt.runner
        assert runner is not None
        limit.reschedule(asyncio.get_running_loop().time())
        await until(runner.cancelling)
        held.go_on.set()
        assert await handle.result(timeout=WAIT) == "done"
        await until(lambda: timed_out)
    assert await receipts(app) == 1


@pytest.mark.parametrize("url", ["memory", "postgres"], indirect=True)
async def test_a_worker_that_stops_lets_a_commit_end(app: Holdfast, flaky: Flaky, receipt: Task[[int], None]) -> None:
    """Not on SQLite, where the claim that a stopping worker waits for waits for the commit in turn."""
    held = Held(flaky)

    @app.task()
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            return tx.complete("done")

    handle = await order.enqueue()
    async with app.worker() as worker:
        await held.begun()
        stopping = asyncio.create_task(worker.stop(timeout=0.0))
        (attempt,) = worker._slots.held.values()
        await until(attempt.abort.is_set)
        held.go_on.set()
        await stopping
    assert await handle.result(timeout=WAIT) == "done"
    assert await receipts(app) == 1


async def test_a_commit_that_outlasts_the_workers_patience_is_unknown_and_nothing_is_settled_beside_it(
    memory_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.transacting.GRACE", 0.05)
    held = Held(Flaky(memory_app, monkeypatch))

    @memory_app.task()
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            return tx.complete("done")

    handle = await order.enqueue()
    async with memory_app.worker() as worker:
        await held.begun()
        (attempt,) = worker._slots.held.values()
        await worker.stop(timeout=0.0)
        assert attempt.commit is Commit.UNKNOWN
    assert await handle.state() is State.RUNNING


async def test_a_time_out_while_a_thread_commits_settles_nothing_beside_it(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "STOP_GRACE", 0.05)
    held = Held(flaky)

    @app.task(retry=1)
    def order(*, job: Job) -> str:
        with job.transaction_sync() as tx:
            receipt.options(conn=tx).enqueue_sync(1)
            tx.complete("done")
        return "done"

    handle = await order.enqueue()
    async with app.worker() as worker:
        await held.begun()
        (attempt,) = worker._slots.held.values()
        worker._slots.abort(attempt, AbortReason.TIMEOUT)
        await asyncio.sleep(0.2)  # long enough for the worker to lose its patience
        assert not attempt.submitted
        held.go_on.set()
        assert await handle.result(timeout=WAIT) == "done"
    assert await receipts(app) == 1
    assert (await handle.view()).failures == 0


async def test_a_transaction_after_the_worker_has_settled_the_job_cannot_commit(
    app: Holdfast, receipt: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that does not stop at its time-out: its job has failed, and what it writes later must not stand."""
    monkeypatch.setattr(slots_module, "STOP_GRACE", 0.05)
    raised: list[BaseException] = []
    go_on = threading.Event()

    @app.task(retry=1, timeout=0.1)
    def order(*, job: Job) -> str:
        assert go_on.wait(WAIT)
        try:
            with job.transaction_sync() as tx:
                receipt.options(conn=tx).enqueue_sync(1)
                return tx.complete("done")
        except BaseException as error:
            raised.append(error)
            raise

    handle = await order.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="time-out"):
            await handle.result(timeout=WAIT)
        go_on.set()
        await until(lambda: raised)
    assert isinstance(raised[0], StaleLease)
    assert await receipts(app) == 0


async def test_the_heartbeat_does_not_take_a_lease_that_was_just_committed_for_lost(
    app: Holdfast, flaky: Flaky, receipt: Task[[int], None]
) -> None:
    held = Held(flaky, after=True)
    counters = MemoryCounters()
    went_on: list[bool] = []

    @app.task(lease=1.0)
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            tx.complete("done")
        went_on.append(job.abort.is_set())
        return "done"

    handle = await order.enqueue()
    async with app.worker(counters=counters) as worker:
        await held.begun()
        (attempt,) = worker._slots.held.values()
        worker._heartbeat.hurry()
        await until(lambda: attempt.lost)  # the heartbeat has heard that the lease is gone
        held.go_on.set()
        assert await handle.result(timeout=WAIT) == "done"
        await until(lambda: went_on)
    assert went_on == [False]
    assert f"{STALE}:extend" not in counters.snapshot()


async def test_a_handler_at_work_after_its_transaction_is_waited_for_and_then_stopped(app: Holdfast) -> None:
    ends: list[str] = []

    @app.task()
    async def order(seconds: float, *, job: Job) -> str:
        async with job.transaction() as tx:
            tx.complete("done")
        try:
            await asyncio.sleep(seconds)
            ends.append("ended")
        except asyncio.CancelledError:
            ends.append("stopped")
            raise
        return "done"

    handles = [await order.enqueue(seconds) for seconds in (0.3, 3600.0)]
    async with app.worker(concurrency=2) as worker:
        for handle in handles:
            assert await handle.result(timeout=WAIT) == "done"
        assert worker._slots.room() == 0
        await until(lambda: ends)
        await worker.stop(timeout=0.0)
        assert ends == ["ended", "stopped"]


# -- in the database's own words -------------------------------------------------------------------------------------------


WITH_SQL = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@WITH_SQL
async def test_the_handlers_own_statements_commit_with_the_job(app: Holdfast, url: str) -> None:
    one = "$1" if url.startswith("postgresql") else "?"

    @app.task(retry=SOON)
    async def deposit(amount: int, *, job: Job) -> str:
        async with job.transaction() as tx:
            await tx.execute("CREATE TABLE IF NOT EXISTS balance (amount integer)")
            await tx.execute(f"INSERT INTO balance VALUES ({one})", amount)
            if job.attempt == 1:
                raise ValueError("undo it")
            assert tx.connection is not None
            rows = await tx.execute("SELECT sum(amount) FROM balance")
            return tx.complete(str(rows[0][0]))

    first, second = await deposit.enqueue(1), await deposit.enqueue(10)
    async with app.worker(concurrency=1):
        results = [await first.result(timeout=WAIT), await second.result(timeout=WAIT)]
    assert max(map(int, results)) == 11


@WITH_SQL
async def test_a_poisoned_transaction_fails_its_attempt_and_nobody_else(app: Holdfast, url: str) -> None:
    poisons = url.startswith("postgresql")

    @app.task(retry=1)
    async def careless(*, job: Job) -> str:
        async with job.transaction() as tx:
            try:
                await tx.execute("SELECT * FROM no_such_table")
            except Exception:  # noqa: BLE001  that is the point
                job.log.info("swallowed")
            tx.complete("done")
        return "done"

    @app.task()
    async def careful(*, job: Job) -> str:
        async with job.transaction() as tx:
            return tx.complete(str((await tx.execute("SELECT 1"))[0][0]))

    async with app.worker(concurrency=1):
        handle = await careless.enqueue()
        if poisons:
            with pytest.raises(JobFailed, match=f"{BrokenTransaction.code}.*use a savepoint"):
                await handle.result(timeout=WAIT)
        else:
            assert await handle.result(timeout=WAIT) == "done"
        for _ in range(3):
            assert await (await careful.enqueue()).result(timeout=WAIT) == "1"


@pytest.mark.parametrize("url", ["memory", "postgres"], indirect=True)
async def test_lines_logged_inside_a_completing_transaction_are_kept(app: Holdfast) -> None:
    """Not on SQLite, where the transaction keeps every other writer waiting."""

    @app.task()
    async def order(*, job: Job) -> None:
        job.log.info("before")
        async with job.transaction() as tx:
            job.log.info("inside")
            tx.complete(None)
        job.log.info("after")

    handle = await order.enqueue()
    async with app.worker():
        await handle.result(timeout=WAIT)
    assert [line.message for line in await handle.logs()] == ["before", "inside"]


# -- on a connection of the handler's own ----------------------------------------------------------------------------------


@WITH_SQL
@pytest.mark.parametrize("completes", [True, False])
async def test_a_transaction_runs_on_a_blocking_connection_of_the_handlers_own(
    app: Holdfast, url: str, receipt: Task[[int], None], *, completes: bool
) -> None:
    effect = f"effect_{uuid4().hex}"

    @app.task(retry=SOON)
    def order(*, job: Job) -> str:
        with closing(blocking_connection(url)) as connection:
            with job.transaction_sync(conn=connection) as tx:
                assert tx.connection is connection
                receipt.options(conn=tx).enqueue_sync(1)
                with pytest.raises(BadSetting, match="run statements through that"):
                    tx.execute("SELECT 1")
                connection.execute(f"CREATE TABLE {effect} (number integer)")
                if completes:
                    tx.complete("done")
                if job.attempt == 1:
                    raise ValueError("undo it")
            return "done"

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"
    assert await receipts(app) == 1
    assert (await handle.view()).attempt == 2


def blocking_connection(url: str) -> Any:
    if url.startswith("postgresql"):
        return psycopg.connect(url.partition("?")[0])
    return sqlite3.connect(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_transaction_runs_on_an_async_connection_of_the_handlers_own(
    app: Holdfast, url: str, receipt: Task[[int], None]
) -> None:
    @app.task(retry=SOON)
    async def order(*, job: Job) -> str:
        connection = await asyncpg.connect(url.partition("?")[0])
        try:
            async with job.transaction(conn=connection) as tx:
                await receipt.options(conn=tx).enqueue(1)
                await connection.execute("CREATE TEMPORARY TABLE effect (number integer)")
                tx.complete("done")
                if job.attempt == 1:
                    raise ValueError("undo it")
        finally:
            await connection.close()
        return "done"

    @app.task(retry=1)
    def blocking(*, job: Job) -> None:
        with job.transaction_sync(conn=shared):
            pass

    handle, refused = await order.enqueue(), await blocking.enqueue()
    async with app.worker(), job_connection(app) as shared:
        assert await handle.result(timeout=WAIT) == "done"
        with pytest.raises(JobFailed, match="needs an event loop"):
            await refused.result(timeout=WAIT)
    assert await receipts(app) == 1


@WITH_SQL
async def test_a_commit_inside_the_block_is_told_and_completes_nothing(app: Holdfast, url: str) -> None:
    @app.task(retry=1)
    def order(*, job: Job) -> str:
        with closing(blocking_connection(url)) as connection, job.transaction_sync(conn=connection) as tx:
            connection.execute("CREATE TABLE " + f"effect_{uuid4().hex} (number integer)")
            connection.commit()
            return tx.complete("done")

    handle = await order.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="committed or rolled back inside the block"):
            await handle.result(timeout=WAIT)


async def test_what_is_no_connection_is_refused(memory_app: Holdfast) -> None:
    @memory_app.task(retry=1)
    async def order(*, job: Job) -> None:
        async with job.transaction(conn="a connection"):
            pass

    handle = await order.enqueue()
    async with memory_app.worker():
        with pytest.raises(JobFailed, match="conn= was given the text"):
            await handle.result(timeout=WAIT)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("shows", ["at the settle", "at its own statement", "at a statement of the driver's"])
async def test_a_connection_that_is_killed_before_the_commit_costs_the_job_nothing(
    app: Holdfast, receipt: Task[[int], None], shows: str
) -> None:
    @app.task(retry=1)
    async def order(*, job: Job) -> int:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            if job.attempt == 1:
                pid = (await tx.execute("SELECT pg_backend_pid()"))[0][0]
                async with job_connection(app) as other:
                    await other.execute("SELECT pg_terminate_backend($1)", pid)
            if shows == "at its own statement":
                await tx.execute("SELECT 1")
            elif shows == "at a statement of the driver's":
                await tx.connection.fetch("SELECT 1")
            return tx.complete(job.attempt)

    handle = await order.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 2
    assert await receipts(app) == 1
    assert (await handle.view()).failures == 0


@asynccontextmanager
async def job_connection(app: Holdfast) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(app.url.partition("?")[0])
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("swallowed", [False, True], ids=["raised in the block", "met by the last statement"])
async def test_a_conflict_with_another_transaction_costs_no_failure(app: Holdfast, *, swallowed: bool) -> None:
    conflict = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'a conflict'; END $$"
    deferred = (
        "CREATE TEMP TABLE t (n int) ON COMMIT DROP; "
        "CREATE FUNCTION pg_temp.conflict() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'a conflict'; END $$; "
        "CREATE CONSTRAINT TRIGGER c AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION pg_temp.conflict(); "
        "INSERT INTO t VALUES (1)"
    )

    @app.task(retry=1)
    async def pays(*, job: Job) -> int:
        async with job.transaction() as tx:
            if job.attempt == 1:
                if swallowed:
                    await tx.connection.execute(deferred)
                else:
                    await tx.execute(conflict)
            return tx.complete(job.attempt)

    handle = await pays.enqueue()
    async with app.worker():
        assert await handle.result(timeout=WAIT) == 2
    assert (await handle.view()).failures == 0


async def test_a_cancel_undoes_what_a_transaction_wrote_for_a_continuation_that_will_not_be(
    app: Holdfast, receipt: Task[[int], None]
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.task(name="second")
    async def second() -> int:
        return 2

    @app.task()
    async def first(*, job: Job) -> int:
        entered.set()
        await go_on.wait()
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue(1)
            return tx.continue_with(second)

    chain = await first.start_chain()
    async with app.worker():
        await entered.wait()
        # through the store, so that the worker has not heard of it when the handler commits
        assert await app.client().store.cancel([chain.id]) == [Answer.REQUESTED]
        go_on.set()
        with pytest.raises(JobCanceled):
            await chain.result(timeout=WAIT)
        assert (await chain.view()).steps == 1
        assert await receipts(app) == 0, "what it wrote stands, and what should follow it does not"
