"""Handlers without end: a time-out frees their jobs, whatever they do to prevent it, and their neighbours go on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.states import Event, State
from tests.faults import tasks
from tests.faults.support import BUSY
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Handle
    from holdfast.store.port import JobView
    from tests.faults.support import Fleet

STOP_GRACE = 5.0
"""Seconds that a handler has to stop once it was asked to."""

# it is the worker that is tried here: on one store, and on the other where there is time
pytestmark = pytest.mark.parametrize("url", ["sqlite", pytest.param(f"pg{MAJORS[-1]}", marks=pytest.mark.slow)], indirect=True)


@pytest.mark.row(7)
async def test_an_endless_loop_in_a_process_is_killed_while_its_neighbours_finish(fleet: Fleet) -> None:
    (endless,) = await fleet.enqueue(tasks.spin.call())
    neighbours = await fleet.enqueue(tasks.toil.call(2.5), tasks.nap.call(2.5), tasks.doze.call(2.5))
    worker = await fleet.started("worker", concurrency=4)

    (view,) = await fleet.ended([endless])

    _assert_timed_out(view, attempts=2)
    first = (await fleet.store.attempts(view.id))[0]
    assert first.error is not None
    assert (first.event, first.error.code) == (Event.RETRY, "TIMEOUT")
    killed = {note.pid for note in fleet.notes("began", [endless])}
    assert len(killed) == 2, f"each attempt should have had a child of its own, for the first was killed: {killed}"
    for one in await fleet.succeeded(neighbours):
        assert (one.attempt, one.failures) == (1, 0), f"{one.task} suffered from its neighbour"
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0


@pytest.mark.row(7)
async def test_handlers_that_will_not_stop_cannot_hold_their_jobs_past_the_time_out(fleet: Fleet) -> None:
    endless = await fleet.enqueue(
        tasks.await_for_ever.call(), tasks.refuse_to_stop.call("let go"), tasks.run_for_ever.call("let go")
    )
    brief = await fleet.enqueue(tasks.run_for_ever.options(lease=2).call("let go"))
    worker = await fleet.started("worker", concurrency=6)
    neighbours = await fleet.enqueue(tasks.nap.call(2), tasks.doze.call(2))

    for view in await fleet.ended(endless):
        _assert_timed_out(view, attempts=1)
    for view in await fleet.ended(brief):
        _assert_timed_out(view, attempts=1)  # also where the lease is shorter than the time it has to stop
    for handle, allowed in zip(endless, (BUSY, STOP_GRACE + BUSY, STOP_GRACE + BUSY), strict=True):
        (attempt,) = await fleet.store.attempts(handle.id)
        assert attempt.ended_at is not None
        took = (attempt.ended_at - attempt.claimed_at).total_seconds()
        assert took < 1 + allowed, f"a job with a time-out of 1 s was held for {took:.1f} s"
    for one in await fleet.succeeded(neighbours):
        assert (one.attempt, one.failures) == (1, 0), f"{one.task} suffered from its neighbours"

    # three slots are taken by what will not stop: the other three go on
    more = await fleet.enqueue(*[tasks.nap.call(0.3) for _ in range(9)])
    await fleet.succeeded(more)
    held = await _most_held(fleet, more)
    assert held <= 3, (
        f"{held} jobs were held at once, with three slots free: the slot of a handler that still runs was given away"
    )

    fleet.open_gate("let go")
    await fleet.noted("ended", [*endless[1:], *brief])
    more = await fleet.enqueue(*[tasks.wait_for.call("all") for _ in range(6)])
    await fleet.noted("began", more)  # so all six slots are there again
    fleet.open_gate("all")
    await fleet.succeeded(more)
    for view in await fleet.views([*endless, *brief]):
        _assert_timed_out(view, attempts=1)  # what they returned in the end does not count
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0


@pytest.mark.row(6, 7)
async def test_a_worker_whose_loop_stays_blocked_gives_its_neighbours_back_and_ends(fleet: Fleet) -> None:
    (endless,) = await fleet.enqueue(tasks.block_for_ever.call("block"))
    neighbours = await fleet.enqueue(*[tasks.wait_for.options(lease=15).call("end") for _ in range(3)])
    worker = await fleet.started("worker", concurrency=4, exit_when_blocked=True)
    await fleet.noted("began", [endless, *neighbours])

    fleet.open_gate("block")

    assert await worker.exited() == 70, "a worker that gives up says so by its exit code"
    _assert_timed_out((await fleet.views([endless]))[0], attempts=1)
    for view in await fleet.views(neighbours):
        assert (view.state, view.attempt, view.failures) == (State.READY, 1, 0), "neighbours are given back at no cost"
        assert (await fleet.store.attempts(view.id))[0].event is Event.RELEASE
    assert len(worker.said("its neighbours are given back")) == 1
    fleet.open_gate("end")
    await fleet.started("next", concurrency=4)
    for view in await fleet.succeeded(neighbours):
        assert (view.attempt, view.failures) == (2, 0)


@pytest.mark.row(41)
async def test_a_worker_with_a_thread_that_never_ends_can_be_stopped(fleet: Fleet) -> None:
    (stuck,) = await fleet.enqueue(tasks.run_for_ever.options(timeout=None, lease=2).call("never"))
    worker = await fleet.started("worker", concurrency=2, shutdown_timeout=0.5)
    await fleet.noted("began", [stuck])

    worker.send(signal.SIGTERM)

    assert await worker.exited(within=0.5 + 2 * STOP_GRACE + 2 * BUSY) == 75
    (view,) = await fleet.views([stuck])
    assert view.state is State.RUNNING, "it still ran when its worker ended: its lease is left to lapse"
    await fleet.lapsed([stuck])
    fleet.open_gate("never")
    await fleet.started("next", concurrency=2)
    (view,) = await fleet.succeeded([stuck])
    assert (view.attempt, view.failures) == (2, 0), "what will not stop at a shutdown is flagged: its expiry costs nothing"


def _assert_timed_out(view: JobView, *, attempts: int) -> None:
    assert view.error is not None
    assert (view.state, view.attempt, view.failures) == (State.FAILED, attempts, attempts), f"{view.task}: {view.error}"
    assert view.error.code == "RETRIES_EXHAUSTED"
    assert "TIMEOUT: it ran longer than its time-out" in view.error.message, f"{view.task}: {view.error.message}"


async def _most_held(fleet: Fleet, handles: Sequence[Handle[Any]]) -> int:
    """Return how many of these jobs were held at the same moment, by the store's clock."""
    held = most = 0
    attempts = [attempt for handle in handles for attempt in await fleet.store.attempts(handle.id)]
    changes = [(one.claimed_at, 1) for one in attempts] + [(one.ended_at, -1) for one in attempts if one.ended_at is not None]
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most
