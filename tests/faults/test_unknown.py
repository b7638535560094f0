"""Answers that are lost on their way: the server did what it was asked, and who asked does not know. Nothing is doubled."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.core.states import Event
from tests.faults import bank, tasks
from tests.faults.cutting import CuttingProxy
from tests.faults.support import WAIT, chance, until
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.faults.support import Fleet, WorkerProcess

LEASE = 300.0
"""Seconds: nothing here may be put right by waiting for a lease to lapse."""
SHORT_LEASE = 6.0
MARKED = 0.0123456789
"""Seconds that no other nap takes: the proxy knows the answer to a claim by it."""

pytestmark = [pytest.mark.row(11), pytest.mark.parametrize("url", [f"pg{MAJORS[-1]}"], indirect=True)]


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(url) as proxy:
        yield proxy


@pytest.mark.parametrize("load", [0, 300], ids=["idle", "under load"])
async def test_a_claim_whose_answer_was_lost_is_given_back_at_no_cost(fleet: Fleet, proxy: CuttingProxy, load: int) -> None:
    # under load the rest of the worker goes on: for it the outage is over before the claimer asks again
    rng = chance()
    naps = [*[rng.uniform(0.0, 0.1) for _ in range(load)], *[MARKED for _ in range(5)], *[0.1 for _ in range(load // 3)]]
    handles = await fleet.enqueue(*[tasks.nap.options(lease=LEASE).call(seconds) for seconds in naps])
    proxy.cut_the_answer_with(str(MARKED))

    worker = await fleet.started("worker", url=proxy.url, concurrency=10)

    await until(lambda: proxy.cuts, "the answer to a claim should be lost")
    views = await fleet.succeeded(handles)
    assert {view.failures for view in views} == {0}, "a lost answer has spent the budget of a job"
    lost = [view for view in views if view.attempt > 1]
    assert lost, "no job was in the claim whose answer was lost: the fault did not happen"
    for view in lost:
        assert (await fleet.store.attempts(view.id))[0].event is Event.RELEASE
    assert set(fleet.runs(handles).values()) == {1}, "a job that was claimed unheard was run, and then again"
    assert len(worker.said("the store does not answer")) == 1


async def test_a_settlement_whose_answer_was_lost_is_repeated_and_counts_once(fleet: Fleet, proxy: CuttingProxy) -> None:
    worker = await fleet.started("worker", url=proxy.url, concurrency=5)
    proxy.cut_the_answer_to("an outcome that is known here only!")
    handles = await fleet.enqueue(
        *[tasks.echo.options(lease=LEASE).call(f"an outcome that is known here {word}") for word in ("only", "too")]
    )

    await until(lambda: proxy.cuts, "the answer to a settlement should be lost")
    for view in await fleet.succeeded(handles):
        assert (view.attempt, view.failures) == (1, 0), "an outcome that was written was not taken for written"
    await fleet.succeeded(await fleet.enqueue(*[tasks.nap.call(0.0) for _ in range(10)]))  # its slots are free again
    await _assert_nothing_stale(fleet, worker)
    assert (await fleet.counters(worker))["settled_jobs:succeeded"] == 12
    assert set(fleet.runs(handles).values()) == {1}


async def test_an_enqueue_whose_answer_was_lost_may_be_repeated(fleet: Fleet, proxy: CuttingProxy) -> None:
    call = tasks.echo.call("said once")
    async with Holdfast(proxy.url) as app:
        proxy.cut_the_answer_to("said once")
        with pytest.raises(StoreUnavailable):
            await app.enqueue_many([call])
        assert proxy.cuts == 1

        (handle,) = await app.enqueue_many([call])

    fleet.jobs.append(handle.id)
    await fleet.started("worker")
    await fleet.succeeded([handle])
    assert (await fleet.store.stats()).count() == 1, "the enqueue and its repetition have made two jobs"
    assert fleet.runs([handle]) == {str(handle.id): 1}


async def test_a_continuation_whose_answer_was_lost_makes_one_next_step(fleet: Fleet, proxy: CuttingProxy) -> None:
    worker = await fleet.started("worker", url=proxy.url, concurrency=2)
    proxy.cut_the_answer_to_the_commit_of("the text of the next step")
    (first,) = await fleet.enqueue(tasks.hand_on.options(lease=LEASE).call("the text of the", "next step"))

    await until(lambda: proxy.cuts, "the answer to a settlement should be lost")

    assert await first.result(timeout=WAIT) == "the text of the next step!"
    steps = await fleet.app.chain(first.id).steps()
    assert [step.task for step in steps] == [tasks.hand_on.name, tasks.echo.name]
    for step in steps:
        assert (step.attempt, step.failures) == (1, 0), f"{step.task} was not spared"
    assert set(fleet.runs([fleet.app.job(step.id) for step in steps]).values()) == {1}
    await _assert_nothing_stale(fleet, worker)


@pytest.mark.parametrize("report", ["progress", "checkpoint"])
async def test_a_report_whose_answer_was_lost_is_repeated_and_costs_nothing(
    fleet: Fleet, proxy: CuttingProxy, report: str
) -> None:
    worker = await fleet.started("worker", url=proxy.url, concurrency=2)
    proxy.cut_the_answer_to("the word of this job")  # one statement, which is its own transaction
    (handle,) = await fleet.enqueue(tasks.report.options(lease=LEASE).call(report, "the word of", "this job"))

    await until(lambda: proxy.cuts, f"the answer to a {report} should be lost")

    (view,) = await fleet.succeeded([handle])
    assert (view.attempt, view.failures) == (1, 0)
    if report == "progress":
        assert (view.progress, view.message) == (50, "the word of this job")
    else:
        (part,) = await fleet.store.parts(handle.id)
        assert part.data == '"the word of this job"'
    await _assert_nothing_stale(fleet, worker)


@pytest.mark.slow
async def test_an_extension_whose_answer_was_lost_is_asked_for_again_before_the_lease_ends(
    fleet: Fleet, proxy: CuttingProxy
) -> None:
    (handle,) = await fleet.enqueue(tasks.wait_for.options(lease=SHORT_LEASE).call("end"))
    worker = await fleet.started("worker", url=proxy.url, concurrency=2)
    await fleet.noted("began", [handle])
    proxy.cut_the_answer_to(handle.id)  # while it waits, nothing else is written about it

    await until(lambda: proxy.cuts, "the answer to an extension should be lost")
    lost_at = await fleet.now()

    async def held_for_another() -> bool:
        assert await fleet.store.reap(1000) == [], "an answer that was lost has cost the lease"
        return await fleet.now() > lost_at + timedelta(seconds=SHORT_LEASE)

    await until(held_for_another, "the lease should be kept for as long again")
    fleet.open_gate("end")
    (view,) = await fleet.succeeded([handle])
    assert (view.attempt, view.failures, view.late) == (1, 0, False)
    await _assert_nothing_stale(fleet, worker)


async def test_a_transaction_of_a_handler_whose_commit_was_not_answered_stands_and_counts_once(
    fleet: Fleet, proxy: CuttingProxy
) -> None:
    await bank.open_accounts(fleet.url)
    worker = await fleet.started("teller", module="tests.faults.bank", url=proxy.url, concurrency=2)
    proxy.cut_the_answer_to_the_commit_of("UPDATE balance")
    handles = await fleet.enqueue(*[bank.deposit.options(lease=LEASE).call(account) for account in range(3)])

    await until(lambda: proxy.cuts, "the answer to a COMMIT should be lost")

    for view in await fleet.succeeded(handles):
        assert (view.attempt, view.failures) == (1, 0)
    assert await bank.total(fleet.url) == len(handles)
    assert len(worker.said("the answer to its COMMIT was lost, but it was committed")) == 1
    await _assert_nothing_stale(fleet, worker)


async def _assert_nothing_stale(fleet: Fleet, worker: WorkerProcess) -> None:
    """Have a worker come to its end, which has nothing to tell of writes that were refused."""
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0, worker.log
    counters = await fleet.counters(worker)
    assert not [name for name in counters if name.startswith("stale_writes")], f"a repetition was called stale: {counters}"
