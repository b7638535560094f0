"""Answers that are lost on their way: the server did what it was asked, and who asked does not know. Nothing is doubled."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.core.states import Event
from tests.faults import tasks
from tests.faults.cutting import CuttingProxy
from tests.faults.support import chance, until
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.faults.support import Fleet

LEASE = 300.0
"""Seconds: nothing here may be put right by waiting for a lease to lapse."""
MARKED = 0.0123456789
"""Seconds that no other nap takes: the proxy knows the answer to a claim by it."""

pytestmark = pytest.mark.parametrize("url", [f"pg{MAJORS[-1]}"], indirect=True)


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
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0
    counters = await fleet.counters(worker)
    assert not [name for name in counters if name.startswith("stale_writes")], f"a repetition was called stale: {counters}"
    assert counters["settled_jobs:succeeded"] == 12
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
