"""The job for unit tests of handlers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import Aborted, AbortReason, BadSetting, Holdfast, Job
from holdfast.core.states import Event
from holdfast.store.port import Part, PartState
from holdfast.tasks.continuing import Continue
from holdfast.testing import fake_job

app = Holdfast("memory://")


@app.task(name="render", queue="video", lease=30)
async def render(pages: int, *, job: Job) -> list[str]:
    made = []
    for page in range(pages):
        job.abort.check()
        name = f"page-{page}"
        if job.done(name):
            made.append(str(job.data(name, "nothing")))
            continue
        with job.stage(name):
            await job.checkpoint(name, data=page)
        job.progress(100 * (page + 1) / pages, name)
        job.log.info("made %s", name, width=3)
        made.append(name)
    return made


async def test_it_keeps_what_the_handler_says() -> None:
    job = fake_job(render)
    assert await render(2, job=job) == ["page-0", "page-1"]
    records = job.records
    assert records.progress == [(50.0, "page-0"), (100.0, "page-1")]
    assert records.stages[:2] == [("page-0", Event.STAGE_ENTER), ("page-0", Event.STAGE_LEAVE)]
    assert records.lines == [("info", "made page-0"), ("info", "made page-1")]
    assert [(part.name, part.state, part.data) for part in records.checkpoints] == [
        ("page-0", PartState.COMPLETED, "0"),
        ("page-1", PartState.COMPLETED, "1"),
    ]


def test_every_report_of_progress_is_kept_however_close() -> None:
    job = fake_job()
    for _ in range(3):
        job.progress(10.1)
    assert len(job.records.progress) == 3


def test_lines_are_kept_whatever_the_level_and_pass_on(caplog: pytest.LogCaptureFixture) -> None:
    job = fake_job()
    with caplog.at_level(logging.WARNING, "holdfast.job"):
        job.log.debug("fine")
        job.log.warning("100% sure")
        job.log.error("no %d", 7)
    assert job.records.lines == [("debug", "fine"), ("warning", "100% sure"), ("error", "no 7")]
    assert [record.message for record in caplog.records] == ["100% sure", "no 7"]


async def test_a_later_attempt_knows_what_is_done() -> None:
    job = fake_job(render, attempt=2, parts=["page-0"])
    assert (job.attempt, job.fence, job.failures) == (2, 2, 1)
    assert await render(2, job=job) == ["nothing", "page-1"]
    parts = {"page-0": "data", "page-1": Part("page-1", PartState.IN_PROGRESS)}
    assert await render(2, job=fake_job(render, attempt=2, parts=parts)) == ["data", "page-1"]


async def test_a_handler_can_be_asked_to_stop() -> None:
    job = fake_job(render, abort=AbortReason.SHUTDOWN)
    with pytest.raises(Aborted, match="shutdown"):
        await render(2, job=job)
    later = fake_job()
    assert not later.abort.is_set()
    later.abort.set(AbortReason.TIMEOUT)
    assert later.abort.reason is AbortReason.TIMEOUT


def test_it_is_a_job_of_its_task() -> None:
    job = fake_job(render, failures=0, attempt=3)
    assert isinstance(job, Job)
    assert (job.task, job.queue, job.failures) == ("render", "video", 0)
    assert fake_job().id != fake_job().id


@app.task(name="ship")
async def ship(number: int) -> str:
    return f"shipped {number}"


@app.task(name="order")
async def order(number: int, *, job: Job) -> str:
    await job.step("charge", charge, number)
    await job.sleep(3600)
    paid = await job.wait_for(f"paid:{number}", timeout=60, type=int)
    return job.continue_with(ship.options(priority=8), paid)


def charge(number: int) -> int:
    return 10 * number


async def test_a_continuation_can_be_looked_at() -> None:
    job = fake_job(order, signals={"paid:4": 40})
    given: Any = await order(4, job=job)
    assert isinstance(given, Continue)
    assert given.call is not None
    assert given.call.task is ship
    assert (given.job.args, given.job.priority) == ('{"number":40}', 8)


async def test_steps_run_and_waits_are_over_at_once() -> None:
    job = fake_job(order, signals={"paid:4": 40})
    await order(4, job=job)
    assert [part.name for part in job.records.checkpoints] == ["step:charge", "sleep:1", "wait:paid:4"]
    slept, waited = job.records.suspensions
    assert (slept.signal, waited.signal) == (None, "paid:4")
    assert job.data("step:charge") == 40


async def test_a_signal_that_is_not_given_is_a_time_out_or_a_mistake() -> None:
    with pytest.raises(TimeoutError, match="paid:4"):
        await order(4, job=fake_job(order))
    with pytest.raises(BadSetting, match=r"fake_job\(signals="):
        await fake_job().wait_for("paid")


async def test_a_step_that_an_earlier_attempt_stored_is_recalled() -> None:
    job = fake_job(order, parts={"step:charge": 7}, attempt=2)
    assert await job.step("charge", charge, 4) == 7


def test_results_of_blockers_are_given() -> None:
    job = fake_job(after=[(ship, "one"), (ship, "two")])
    assert job.results(ship, ship) == ("one", "two")
    assert job.results_of(ship) == ["one", "two"]
    assert [view.task for view in job.blockers] == ["ship", "ship"]


async def test_a_transaction_needs_a_store() -> None:
    with pytest.raises(BadSetting, match="a fake job has no store"):
        async with fake_job().transaction():
            pass
