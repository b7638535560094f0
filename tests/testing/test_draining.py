"""Draining: jobs run inline, by the rules of a worker."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import (
    BadSetting,
    Cancel,
    Command,
    Fatal,
    Holdfast,
    HoldfastError,
    Job,
    JobFailed,
    Reschedule,
    Retry,
    State,
)
from holdfast.store.port import PartState
from holdfast.tasks.blocking import BlockingCallOnLoop
from holdfast.testing import DrainLimit, FakeClock, drain, drain_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START, seed=1)


@pytest.fixture
def app(clock: FakeClock) -> Holdfast:
    return Holdfast("memory://", environment=clock)


@pytest.fixture(autouse=True)
async def closed(app: Holdfast) -> AsyncIterator[None]:
    yield
    await app.close()


# -- running ---------------------------------------------------------------------------------------------------------------


async def test_ready_jobs_run_and_their_results_are_returned(app: Holdfast) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    handles = [await double.enqueue(n) for n in range(3)]
    drained = await drain(app)
    assert [job.result for job in drained] == [0, 2, 4]
    assert [job.id for job in drained] == [handle.id for handle in handles]
    assert await handles[2].result(timeout=5) == 4
    assert list(await drain(app)) == []


async def test_jobs_that_jobs_enqueue_run_too(app: Holdfast) -> None:
    @app.task(name="child")
    async def child(n: int) -> int:
        return n

    @app.task(name="parent")
    async def parent() -> None:
        await app.enqueue_many([child.call(n) for n in range(2)])

    await parent.enqueue()
    drained = await drain(app)
    assert [job.task for job in drained] == ["parent", "child", "child"]
    assert [job.result for job in drained.of(child)] == [0, 1]


async def test_jobs_run_in_the_order_of_claims(app: Holdfast) -> None:
    @app.task(name="note")
    async def note(text: str) -> str:
        return text

    await note.options(priority="low").enqueue("low")
    await note.enqueue("first")
    await note.enqueue("second")
    await note.options(priority="high").enqueue("high")
    assert [job.result for job in await drain(app)] == ["high", "first", "second", "low"]


async def test_blocking_functions_run_in_a_thread_and_may_enqueue(app: Holdfast) -> None:
    @app.task(name="child")
    def child() -> bool:
        return threading.current_thread() is threading.main_thread()

    @app.task(name="parent")
    def parent(*, job: Job) -> int:
        job.progress(50, "half")
        child.enqueue_sync()
        return asyncio.run(_seven())  # a thread has no event loop

    handle = await parent.enqueue()
    drained = await drain(app)
    assert [job.result for job in drained] == [7, False]
    assert (await handle.view()).progress == 50
    await app.close()


async def _seven() -> int:
    return 7


def pid_of_child() -> int:
    """At the top of a module, as tasks for processes must be."""
    return threading.get_ident()


async def test_functions_for_processes_run_in_this_process(app: Holdfast) -> None:
    task = app.task(name="pid", executor="process")(pid_of_child)
    await task.enqueue()
    (job,) = await drain(app)
    assert job.state is State.SUCCEEDED
    assert job.result != threading.get_ident()


async def test_commands_are_run(app: Holdfast) -> None:
    @app.task(name="hello", executor="command")
    def hello() -> Command:
        return Command([sys.executable, "-c", "print('hello')"])

    handle = await hello.enqueue()
    (job,) = await drain(app)
    assert job.state is State.SUCCEEDED
    assert [line.message for line in await handle.logs()] == ["hello"]


async def test_middlewares_and_lifespans_take_part(app: Holdfast) -> None:
    seen: list[str] = []

    @app.middleware
    async def noted(job: Job, call_next: Any) -> Any:
        seen.append(f"before {job.task}")
        return await call_next(job)

    @app.lifespan
    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        seen.append("opened")
        yield
        seen.append("closed")

    @app.task(name="work")
    async def work() -> None:
        seen.append("ran")

    await work.enqueue()
    await drain(app)
    assert seen == ["opened", "before work", "ran", "closed"]


async def test_reports_of_a_job_are_kept(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("holdfast.job"), "level", logging.NOTSET)

    @app.task(name="work")
    async def work(*, job: Job) -> None:
        with job.stage("render"):
            job.log.info("rendering %s", "page", width=3)
        await job.checkpoint("page-1", data=[1])
        job.progress(30, "a third")

    handle = await work.enqueue()
    await drain(app)
    report = await handle.report()
    assert [line.message for line in await handle.logs()] == ["rendering page"]
    assert [(part.name, part.state) for part in report.parts] == [("page-1", PartState.COMPLETED)]
    assert (await handle.view()).message == "a third"
    assert logging.getLogger("holdfast.job").level == logging.NOTSET


async def test_only_the_queues_asked_for_are_drained(app: Holdfast) -> None:
    @app.task(name="work")
    async def work() -> None:
        return

    mail = await work.options(queue="mail").enqueue()
    other = await work.enqueue()
    assert [job.id for job in await drain(app, queues=["mail"])] == [mail.id]
    assert await other.state() is State.READY
    with pytest.raises(BadSetting, match="queues takes a list"):
        await drain(app, queues="mail")


async def test_paused_queues_and_undeclared_tasks_are_left_alone(app: Holdfast) -> None:
    @app.task(name="work")
    async def work() -> None:
        return

    handle = await work.enqueue()
    await app.pause("default")
    assert list(await drain(app)) == []
    assert await handle.state() is State.READY


async def test_jobs_without_an_end_are_stopped_at_a_limit(app: Holdfast) -> None:
    @app.task(name="again")
    async def again() -> None:
        await again.enqueue()

    await again.enqueue()
    with pytest.raises(DrainLimit, match=r"20 attempts.*next would be again"):
        await drain(app, max_jobs=20)
    stats = await app.stats()
    assert (stats["succeeded"], stats["ready"], stats["running"]) == (20, 1, 0)


# -- failing ---------------------------------------------------------------------------------------------------------------


async def test_failures_and_cancellations_are_settled_as_a_worker_does(app: Holdfast) -> None:
    @app.task(name="work")
    async def work(how: str) -> None:
        if how == "fatal":
            raise Fatal("no use", code="NO_USE")
        if how == "cancel":
            raise Cancel("not wanted")
        if how == "reschedule":
            raise Reschedule(after=60)
        raise ValueError("once more")

    for how in ("fatal", "cancel", "reschedule", "retry"):
        await work.enqueue(how)
    fatal, cancel, reschedule, retry = drained = await drain(app)
    assert [job.state for job in drained] == [State.FAILED, State.CANCELED, State.SCHEDULED, State.SCHEDULED]
    assert fatal.error is not None
    assert fatal.error.code == "NO_USE"
    assert drained.failed == [fatal]
    assert drained.canceled == [cancel]
    assert drained.waiting == [reschedule, retry]
    assert isinstance(retry.exception, ValueError)
    assert "work failed NO_USE" in repr(drained)


async def test_the_first_error_is_raised_on_request_with_its_traceback(app: Holdfast) -> None:
    @app.task(name="broken")
    async def broken() -> None:
        raise LookupError("the very one")

    @app.task(name="broken_thread")
    def broken_thread() -> None:
        raise LookupError("the very one")

    for task in (broken, broken_thread):
        handle = await task.enqueue()
        with pytest.raises(LookupError, match="the very one") as caught:
            await drain(app, raises=True)
        assert caught.traceback[-1].name in {"broken", "broken_thread"}
        assert await handle.state() is State.SCHEDULED


async def test_what_is_no_failure_is_not_raised(app: Holdfast) -> None:
    @app.task(name="work")
    async def work(how: str) -> None:
        raise Cancel("not wanted") if how == "cancel" else Reschedule(after=60)

    await work.enqueue("cancel")
    await work.enqueue("reschedule")
    assert len(await drain(app, raises=True)) == 2


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_errors_that_would_end_the_test_run_are_raised_as_a_failed_job(app: Holdfast, kind: type[BaseException]) -> None:
    @app.task(name="work")
    async def work() -> None:
        raise kind

    await work.enqueue()
    with pytest.raises(JobFailed, match=kind.__name__):
        await drain(app, raises=True)


async def test_a_handler_that_cancels_its_own_task_fails_alone(app: Holdfast) -> None:
    @app.task(name="work", retry=1)
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await work.enqueue()
    (job,) = await drain(app)
    assert job.state is State.FAILED


async def test_args_that_no_longer_fit_are_told(app: Holdfast) -> None:
    @app.task(name="work")
    async def work(n: int) -> None:
        return

    other = Holdfast("memory://")
    other._adapters = app._adapters

    @other.task(name="work")
    async def older(name: str) -> None:
        return

    await older.enqueue("x")
    with pytest.raises(HoldfastError, match="args of task 'work' refused"):
        await drain(app, raises=True)
    await older.enqueue("x")
    (job,) = await drain(app)
    assert job.state is State.SCHEDULED
    assert job.exception is not None
    await other.close()


# -- time ------------------------------------------------------------------------------------------------------------------


async def test_what_is_not_due_stays_until_the_clock_is_moved(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="work")
    async def work() -> None:
        return

    handle = await work.options(delay=3600).enqueue()
    assert len(await drain(app)) == 0
    clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
    assert len(await drain(app)) == 0
    clock.advance(timedelta(microseconds=1))
    assert len(await drain(app)) == 1
    assert await handle.state() is State.SUCCEEDED


async def test_advancing_runs_schedules_and_retries_in_their_order(app: Holdfast, clock: FakeClock) -> None:
    ran: list[tuple[str, float]] = []

    @app.task(name="flaky", retry=Retry(max_attempts=3, initial=10, factor=2, jitter=0))
    async def flaky(*, job: Job) -> str:
        ran.append(("flaky", clock.monotonic()))
        if job.attempt < 3:
            raise ConnectionError("not yet")
        return "at last"

    @app.task(name="later")
    async def later() -> None:
        ran.append(("later", clock.monotonic()))

    await flaky.enqueue()
    await later.options(delay=20).enqueue()
    drained = await drain(app, advance=True)
    assert ran == [("flaky", 0.0), ("flaky", 10.0), ("later", 20.0), ("flaky", 30.0)]
    assert [(job.task, job.state, job.attempts) for job in drained] == [
        ("flaky", State.SUCCEEDED, 3),
        ("later", State.SUCCEEDED, 1),
    ]
    assert clock.now() == START + timedelta(seconds=30)


async def test_a_spent_budget_ends_the_job(app: Holdfast) -> None:
    @app.task(name="broken", retry=2)
    async def broken() -> None:
        raise ConnectionError("never")

    await broken.enqueue()
    (job,) = await drain(app, advance=True)
    assert (job.state, job.attempts) == (State.FAILED, 2)
    assert job.error is not None
    assert job.error.code == "RETRIES_EXHAUSTED"


async def test_periodic_tasks_fire_on_the_way_to_a_given_time(app: Holdfast, clock: FakeClock) -> None:
    fired: list[datetime] = []

    @app.task(name="nightly", cron="0 3 * * *")
    async def nightly() -> None:
        fired.append(clock.now())

    await drain(app, until=timedelta(days=2))
    assert fired == [START + timedelta(hours=3), START + timedelta(days=1, hours=3)]
    assert clock.now() == START + timedelta(days=2)


async def test_periodic_tasks_do_not_fire_unasked(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="hourly", cron="0 * * * *")
    async def hourly() -> None:
        return

    @app.task(name="work")
    async def work() -> None:
        return

    await work.options(delay=86_400).enqueue()
    assert len(await drain(app)) == 0
    assert [job.task for job in await drain(app, advance=True)] == ["work"]
    clock.advance(86_400)
    assert len(await drain(app)) == 0


async def test_what_is_due_after_the_given_time_stays(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="work")
    async def work(n: int) -> int:
        return n

    await work.options(delay=60).enqueue(1)
    await work.options(delay=61).enqueue(2)
    assert [job.result for job in await drain(app, until=START + timedelta(seconds=60))] == [1]
    assert clock.now() == START + timedelta(seconds=60)


async def test_jobs_that_waited_too_long_are_dropped(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="work", expires_in=60)
    async def work() -> None:
        return

    handle = await work.enqueue()
    clock.advance(61)
    assert len(await drain(app)) == 0
    assert await handle.state() is State.CANCELED


async def test_a_lease_that_lapsed_is_reaped(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="work", retry=Retry(jitter=0))
    async def work() -> str:
        return "done"

    handle = await work.enqueue()
    store = app._adapters.store()
    from holdfast.store.port import ClaimRequest, Worker  # noqa: PLC0415  only here

    await store.register(Worker(id=clock.job_id(), name="gone"))
    (gone,) = await store.workers()
    await store.claim(ClaimRequest(worker=gone.worker.id, tasks=frozenset({"work"}), limit=1))
    assert len(await drain(app, advance=True)) == 0
    clock.advance(61)
    await drain(app, advance=True)
    assert await handle.result(timeout=5) == "done"


async def test_the_machines_clock_cannot_be_moved() -> None:
    with pytest.raises(BadSetting, match="FakeClock"):
        await drain(Holdfast("memory://"), advance=True)


async def test_a_time_out_strikes_when_the_clock_passes_it(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="slow", timeout=30, retry=1)
    async def slow() -> None:
        clock.advance(31)
        await asyncio.sleep(3600)

    @app.task(name="slow_thread", timeout=30, retry=1)
    def slow_thread(*, job: Job) -> None:
        clock.advance(31)
        job.abort.check()

    await slow.enqueue()
    await slow_thread.enqueue()
    drained = await drain(app)
    assert [job.state for job in drained] == [State.FAILED, State.FAILED]
    assert ["TIMEOUT" in (job.error.message if job.error else "") for job in drained] == [True, True]
    await slow.enqueue()
    with pytest.raises(JobFailed, match="TIMEOUT"):
        await drain(app, raises=True)


async def test_a_handler_that_is_done_when_its_time_out_strikes_has_succeeded(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="just_done", timeout=30, retry=1)
    async def just_done() -> None:
        clock.advance(31)

    await just_done.enqueue()
    (job,) = await drain(app)
    assert job.state is State.SUCCEEDED


async def test_a_time_out_strikes_by_the_machines_clock_too(app: Holdfast) -> None:
    @app.task(name="slow", timeout=0.01, retry=1)
    async def slow() -> None:
        await asyncio.sleep(3600)

    await slow.enqueue()
    (job,) = await drain(app)
    assert job.state is State.FAILED


# -- where -----------------------------------------------------------------------------------------------------------------


def test_blocking_tests_drain_too(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="child")
    async def child() -> str:
        return "child"

    @app.task(name="parent")
    def parent() -> str:
        child.options(delay=60).enqueue_sync()
        return "parent"

    parent.enqueue_sync()
    assert [job.result for job in drain_sync(app, advance=True)] == ["parent", "child"]
    assert clock.monotonic() == 60
    app.close_sync()


async def test_the_blocking_twin_is_refused_on_an_event_loop(app: Holdfast) -> None:
    with pytest.raises(BlockingCallOnLoop, match="drain_sync"):
        drain_sync(app)


async def test_a_test_that_is_cancelled_leaves_nothing_running(app: Holdfast) -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    @app.task(name="work")
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await work.enqueue()
    draining = asyncio.ensure_future(drain(app))
    await started.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert ended.is_set()


# -- chains, steps and transactions ----------------------------------------------------------------------------------------


async def test_chains_and_waiters_run_to_their_end(app: Holdfast) -> None:
    @app.task(name="second")
    async def second(n: int) -> int:
        return n

    @app.task(name="first")
    async def first(n: int, *, job: Job) -> int:
        return job.continue_with(second.options(delay=60), n + 1)

    @app.task(name="join")
    def join(*, job: Job) -> list[int]:
        return job.results_of(second)

    chains = [await first.start_chain(n) for n in (1, 2)]
    await join.options(after=chains).enqueue()
    drained = await drain(app, advance=True)
    assert [job.task for job in drained] == ["first", "first", "second", "second", "join"]
    assert [job.result for job in drained] == [None, None, 2, 3, [2, 3]]
    assert [job.state for job in drained] == [State.SUCCEEDED] * 5


async def test_a_taken_key_of_the_next_step_fails_the_attempt(app: Holdfast) -> None:
    @app.task(name="single", executor="outside")
    def single() -> None: ...

    @app.task(name="first", retry=1)
    async def first(*, job: Job) -> None:
        return job.continue_with(single.options(key="only"))

    await single.options(key="only").enqueue()
    chain = await first.start_chain()
    (job,) = await drain(app)
    assert job.state is State.FAILED
    assert job.error is not None
    assert "KEY_TAKEN" in job.error.message
    assert (await chain.view()).steps == 1


async def test_sleeps_pass_with_the_clock_and_signals_are_waited_for(app: Holdfast, clock: FakeClock) -> None:
    await _sleeps(app, clock)


async def _sleeps(app: Holdfast, clock: FakeClock) -> None:
    steps: list[int] = []

    @app.task(name="order")
    async def order(*, job: Job) -> Any:
        await job.step("once", lambda: steps.append(1))
        await job.sleep(timedelta(days=1))
        try:
            await job.wait_for("never", timeout=3600)
        except TimeoutError:
            return await job.wait_for("paid")

    begun = clock.monotonic()
    await order.enqueue()
    (job,) = await drain(app, advance=True)
    assert job.state is State.SCHEDULED  # it waits for the signal alone: no time that passes wakes it
    assert clock.monotonic() - begun == pytest.approx(86400 + 3600, abs=60)
    await app.signal("paid", {"amount": 7})
    (job,) = await drain(app)
    assert (job.state, job.result) == (State.SUCCEEDED, {"amount": 7})
    assert steps == [1]


async def test_transactions_commit_with_the_job_or_not_at_all(app: Holdfast) -> None:
    @app.task(name="receipt")
    async def receipt() -> None: ...

    @app.task(name="order", retry=Retry(max_attempts=2, initial=0.0))
    async def order(*, job: Job) -> str:
        async with job.transaction() as tx:
            await receipt.options(conn=tx).enqueue()
            tx.complete("completed")
            if job.attempt == 1:
                raise ValueError("undo it")
        raise ValueError("too late")

    @app.task(name="atomic", atomic=True)
    def atomic(*, job: Job) -> int:
        receipt.options(conn=job.tx_sync).enqueue_sync()
        return job.attempt

    await order.enqueue()
    await atomic.enqueue()
    drained = await drain(app)
    assert {job.task: job.result for job in drained} == {"order": "completed", "atomic": 1, "receipt": None}
    assert len(drained.of(receipt)) == 2


async def test_tasks_that_nobody_runs_are_left_alone(app: Holdfast) -> None:
    @app.task(executor="outside")
    def approval() -> None: ...

    handle = await approval.enqueue()
    assert not await drain(app)
    assert await handle.state() is State.READY


async def test_sqlite_is_drained_with_the_same_clock(tmp_path: Path, clock: FakeClock) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db", environment=clock)
    await _travels(app, clock)


async def test_a_database_with_a_clock_of_its_own_is_made_older(postgres_url: str, clock: FakeClock) -> None:
    app = Holdfast(postgres_url, environment=clock)
    await _travels(app, clock)


async def _travels(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="flaky", retry=Retry(jitter=0))
    async def flaky(*, job: Job) -> int:
        if job.attempt == 1:
            raise ConnectionError("not yet")
        return job.attempt

    async with app:
        await flaky.options(delay=3600).enqueue()
        (job,) = await drain(app, advance=True)
        assert (job.state, job.result, job.attempts) == (State.SUCCEEDED, 2, 2)
        assert clock.monotonic() == pytest.approx(3610, abs=60)
        await drain(app, until=timedelta(hours=1))
        assert clock.monotonic() == pytest.approx(7210, abs=60)


async def test_sleeps_pass_on_sqlite_too(tmp_path: Path, clock: FakeClock) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db", environment=clock) as app:
        await _sleeps(app, clock)


async def test_sleeps_pass_on_a_database_with_a_clock_of_its_own(postgres_url: str, clock: FakeClock) -> None:
    # a schema of its own: the clock's seed gives the same ids to every test
    async with Holdfast(f"{postgres_url}?schema=sleeps", environment=clock) as app:
        await _sleeps(app, clock)
