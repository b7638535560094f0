"""Connections that carry nothing any more and do not say so, or carry it late: no lease is lost, no job waits for long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.faults import tasks
from tests.faults.lagging import LaggingProxy
from tests.faults.support import BUSY, WAIT, until
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.port import JobView
    from tests.faults.support import Fleet

IMPATIENT = "tests.faults.impatient"
LISTENING = "holdfast-notify"
"""The name that connections give themselves which hear of new jobs."""

pytestmark = pytest.mark.parametrize("url", [f"pg{MAJORS[-1]}"], indirect=True)


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[LaggingProxy]:
    async with LaggingProxy(url) as proxy:
        yield proxy


@pytest.mark.row(13)
@pytest.mark.parametrize(
    ("program", "lease"),
    [
        pytest.param(IMPATIENT, 8.0, id="impatient"),
        pytest.param("tests.faults.work", 60.0, id="usual", marks=pytest.mark.slow),
    ],
)
async def test_a_worker_whose_connections_are_silently_dead_replaces_them_and_keeps_its_jobs(
    fleet: Fleet, proxy: LaggingProxy, program: str, lease: float
) -> None:
    worker = await fleet.started("worker", program=program, url=proxy.url, concurrency=8)
    # so that every part of it has a connection at hand
    await fleet.succeeded(await fleet.enqueue(*[tasks.nap.call(0.01) for _ in range(40)]))
    short = await fleet.enqueue(*[tasks.wait_for.options(lease=lease).call("now") for _ in range(4)])
    long = await fleet.enqueue(*[tasks.wait_for.options(lease=lease).call("later") for _ in range(4)])
    await fleet.noted("began", [*short, *long])

    proxy.freeze()
    frozen_at = await fleet.now()
    fleet.open_gate("now")

    async def settled_and_extended() -> bool:
        assert await fleet.store.reap(1000) == [], "a lease lapsed whose worker could have had another connection"
        extended = await fleet.now() > frozen_at + timedelta(seconds=0.6 * lease)  # after a third, and then again
        return extended and all(view.finished_at is not None for view in await fleet.views(short))

    await until(settled_and_extended, "what has ended should be settled", 2 * lease + WAIT)
    for view in await fleet.succeeded(short):
        assert view.finished_at is not None
        assert view.finished_at - frozen_at < timedelta(seconds=lease + BUSY), "it was settled after more than a lease"
    fleet.open_gate("later")
    more = await fleet.enqueue(*[tasks.nap.call(0.0) for _ in range(4)])
    for view in await fleet.succeeded([*short, *long, *more]):
        assert (view.attempt, view.failures, view.late) == (1, 0, False)
    assert worker.said("the store does not answer"), "nobody would learn from the log what has happened"
    assert not worker.said("asked to stop"), "a handler was stopped although its lease was kept"


@pytest.mark.row(13)
@pytest.mark.slow
async def test_a_worker_whose_answers_become_late_keeps_its_leases(fleet: Fleet, proxy: LaggingProxy) -> None:
    worker = await fleet.started("worker", url=proxy.url, concurrency=10)
    # so that it has extended a lease: the driver asks the server a lot when it does something for the first time
    await fleet.succeeded(await fleet.enqueue(tasks.nap.options(lease=1.5).call(1.0)))
    lease = 10.0
    handles = await fleet.enqueue(*[tasks.nap.options(lease=lease).call(seconds) for seconds in [12.0] * 4 + [0.0] * 40])
    await fleet.noted("began", handles, times=4)

    proxy.delay = lease / 40

    async def reaped_until_ended() -> bool:
        assert await fleet.store.reap(1000) == [], "a lease lapsed though answers came"
        return len(fleet.notes("ended", handles)) == len(handles)

    await until(reaped_until_ended, "the handlers should come to their end")
    for view in await fleet.succeeded(handles):
        assert (view.attempt, view.failures, view.late) == (1, 0, False)
    assert set(fleet.runs(handles).values()) == {1}
    assert not worker.said("asked to stop"), "a handler was stopped although its lease was kept"


@pytest.mark.row(17)
async def test_a_worker_that_is_told_of_nothing_finds_new_jobs_when_it_looks(fleet: Fleet, proxy: LaggingProxy) -> None:
    await fleet.started("worker", url=proxy.url, concurrency=2, poll=1.0)
    assert proxy.silence(LISTENING) == 1

    for _ in range(2):  # the first may be found by the looks with which it starts, or that follow a hint
        (view,) = await fleet.succeeded(await fleet.enqueue(tasks.nap.call(0.0)))
        waited = await _waited(fleet, view)
        assert waited < 1.1 + BUSY, f"a job waited {waited:.1f} s for a worker that looks every second"


@pytest.mark.row(17)
async def test_a_listening_connection_that_is_silently_dead_is_told_of_and_replaced(fleet: Fleet, proxy: LaggingProxy) -> None:
    worker = await fleet.started("worker", program=IMPATIENT, url=proxy.url, concurrency=2, poll=60.0)
    await fleet.succeeded(await fleet.enqueue(tasks.nap.call(0.0)))
    assert proxy.silence(LISTENING) == 1
    unheard = await fleet.enqueue(tasks.nap.call(0.0))

    await until(lambda: worker.said("hints of other processes do not arrive"), "the log should say that no hints arrive")
    await until(lambda: worker.said("hints of other processes arrive through"), "the log should say that they do again")

    await fleet.succeeded(unheard)  # it looks for what it may have missed
    (view,) = await fleet.succeeded(await fleet.enqueue(tasks.nap.call(0.0)))
    waited = await _waited(fleet, view)
    assert waited < BUSY, f"the job waited {waited:.1f} s: the worker did not hear of it"


async def _waited(fleet: Fleet, view: JobView) -> float:
    """Return how many seconds a job was not claimed, by the store's clock."""
    (attempt,) = await fleet.store.attempts(view.id)
    return (attempt.claimed_at - view.created_at).total_seconds()
