"""Deploys: workers are asked to stop and others take over, under load, at no cost to any job."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.states import Event, State
from tests.faults import tasks
from tests.faults.support import BUSY, chance, until

if TYPE_CHECKING:
    from tests.faults.support import Fleet

ROUNDS = 2
SHUTDOWN = 10.0


@pytest.mark.row(41)
async def test_a_deploy_costs_nothing(fleet: Fleet) -> None:
    rng = chance()
    handles = await fleet.enqueue(*[tasks.nap.options(lease=10).call(rng.uniform(0.0, 0.5)) for _ in range(160)])
    options: dict[str, Any] = {"concurrency": 5, "prefetch": 5, "shutdown_timeout": SHUTDOWN}
    workers = [fleet.start(f"{name}-0", **options) for name in ("first", "second")]
    await fleet.working(*workers)

    for number in range(1, ROUNDS + 1):
        before = len(fleet.notes("began"))
        await until(lambda before=before: len(fleet.notes("began")) > before + 15, "the old ones should work")  # type: ignore[misc]
        for worker in workers:
            worker.send(signal.SIGTERM)
        old, workers = workers, [fleet.start(f"{name}-{number}", **options) for name in ("first", "second")]
        for worker in old:
            assert await worker.exited(within=SHUTDOWN + BUSY) == 0, f"{worker.name} did not end well:\n{worker.log}"
        live = [view for view in await fleet.views(handles) if view.state is State.RUNNING]
        left = {view.worker_name for view in live} & {worker.name for worker in old}
        assert not left, f"stopped workers still hold jobs: {left}"
        await fleet.working(*workers)
    assert (await fleet.store.stats()).live, "the load was over before the last deploy"

    views = await fleet.succeeded(handles)
    assert {view.failures for view in views} == {0}, "a deploy has spent somebody's budget"
    runs = fleet.runs(handles)
    assert set(runs.values()) == {1}, f"jobs were begun more than once: { {job: n for job, n in runs.items() if n > 1} }"
    events = [event.event for view in views if view.attempt > 1 for event in await fleet.store.events(view.id)]
    assert set(events) <= {Event.ENQUEUE, Event.CLAIM, Event.RELEASE, Event.SUCCEED}, f"other things happened: {set(events)}"


@pytest.mark.row(41)
async def test_a_second_signal_aborts_what_runs_and_gives_it_back(fleet: Fleet) -> None:
    handles = await fleet.enqueue(
        *[tasks.wait_first.options(lease=20).call() for _ in range(3)], tasks.toil.options(lease=20).call(3600)
    )
    worker = await fleet.started("worker", concurrency=4, shutdown_timeout=3600)
    await fleet.noted("began", handles)

    worker.send(signal.SIGTERM)
    await until(lambda: fleet.notes("worker_stopping"), "the first signal should be heard")
    assert worker.process.poll() is None, "the first signal lets jobs finish"
    worker.send(signal.SIGTERM)

    assert await worker.exited() == 0
    for view in await fleet.views(handles):
        assert (view.state, view.attempt, view.failures) == (State.READY, 1, 0), f"{view.task}: {view.error}"
        events = [event.event for event in await fleet.store.events(view.id)]
        assert events == [Event.ENQUEUE, Event.CLAIM, Event.ABORT], f"{view.task}: {events}"
    assert str(Event.ABORT) == "aborted:shutdown"
    await fleet.started("next", concurrency=4)
    for view in await fleet.succeeded(handles[:3]):
        assert (view.attempt, view.failures) == (2, 0)


@pytest.mark.row(41)
async def test_a_deadline_aborts_what_runs_and_gives_it_back(fleet: Fleet) -> None:
    handles = await fleet.enqueue(*[tasks.wait_first.options(lease=20).call() for _ in range(3)])
    worker = await fleet.started("worker", concurrency=3, shutdown_timeout=0.5)
    await fleet.noted("began", handles)

    worker.send(signal.SIGTERM)

    assert await worker.exited(within=0.5 + 2 * BUSY) == 0
    for view in await fleet.views(handles):
        assert (view.state, view.attempt, view.failures) == (State.READY, 1, 0)
        assert [event.event for event in await fleet.store.events(view.id)][-1] is Event.ABORT
