"""Poison: jobs that kill what runs them spend their own budget and nobody else's, and are put away with the reason."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from holdfast.core.states import Event, State
from tests.faults import tasks

if TYPE_CHECKING:
    from tests.faults.support import Fleet

DEATHS = {
    "a bad pointer": ("quarantined", "SIGSEGV", "PROCESS_DIED"),
    "the kernel": ("quarantined", "SIGKILL", "PROCESS_DIED"),  # as it does when it is short of memory
    "a ration of memory": ("MemoryError",),  # its process lives on
}
"""What a job may die of, and what must be said of it."""


@pytest.mark.row(30)
async def test_a_crash_in_a_process_costs_its_job_an_attempt_and_nobody_else_anything(fleet: Fleet) -> None:
    neighbours = await fleet.enqueue(*[task.call(2.0) for task in (tasks.toil, tasks.nap, tasks.doze)])
    worker = await fleet.started("worker", program="tests.faults.rationed", concurrency=6)
    await fleet.noted("began", neighbours)
    poisons = await fleet.enqueue(*[tasks.crash.call(how) for how in DEATHS])

    for view, said in zip(await fleet.ended(poisons), DEATHS.values(), strict=True):
        assert view.error is not None
        assert (view.state, view.attempt, view.failures, view.error.code) == (State.FAILED, 3, 3, "RETRIES_EXHAUSTED")
        for words in ("3 of 3 attempts failed", *said):
            assert words in view.error.message, f"the reason should say {words!r}: {view.error.message}"
        attempts = await fleet.store.attempts(view.id)
        assert [attempt.event for attempt in attempts] == [Event.RETRY, Event.RETRY, Event.FAIL]
    for one in await fleet.succeeded(neighbours):
        assert (one.attempt, one.failures) == (1, 0), f"{one.task} suffered from its neighbour"
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0, "the worker itself outlives the crashes of its children"


@pytest.mark.row(30)
async def test_a_job_that_kills_its_worker_is_put_away_and_its_neighbours_finish(fleet: Fleet) -> None:
    (poison,) = await fleet.enqueue(tasks.crash_worker.call())
    neighbours = await fleet.enqueue(*[tasks.wait_first.options(lease=1).call() for _ in range(4)])

    for number, handles in ((1, [poison, *neighbours]), (2, [poison])):
        worker = await fleet.started(f"victim-{number}", concurrency=5)
        await fleet.noted("began", [poison], times=number)
        if number == 1:
            await fleet.noted("began", neighbours)
        else:
            await fleet.succeeded(neighbours)
        fleet.open_gate(f"crash-{number}")
        assert await worker.exited() == -signal.SIGSEGV
        await fleet.lapsed(handles)
    await fleet.started("survivor", concurrency=5)

    (view,) = await fleet.ended([poison])
    assert view.error is not None
    assert (view.state, view.attempt, view.failures, view.error.code) == (State.FAILED, 2, 2, "RETRIES_EXHAUSTED")
    for words in ("quarantined", "2 of 2 attempts failed", "LEASE_EXPIRED"):
        assert words in view.error.message, f"the reason should say {words!r}: {view.error.message}"
    attempts = await fleet.store.attempts(poison.id)
    assert [attempt.event for attempt in attempts] == [Event.EXPIRE, Event.EXPIRE_FAIL]
    for one in await fleet.views(neighbours):
        assert (one.state, one.attempt, one.failures) == (State.SUCCEEDED, 2, 1), f"{one.task} paid more than one failure"
