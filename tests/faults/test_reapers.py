"""Reapers that are frozen: whoever is left ends the lapsed leases, each of them once, and the frozen change nothing later."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from holdfast.core.states import Event
from tests.faults import tasks
from tests.faults.holder import JOBS, claim
from tests.faults.support import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Handle
    from tests.faults.support import Fleet, WorkerProcess

LEASE = 10.0


RECOVERED = f"recovered_jobs:{Event.EXPIRE}"

pytestmark = pytest.mark.row(10)


async def test_reapers_that_are_frozen_in_their_scan_keep_nothing_from_being_reaped_and_end_nothing_twice(fleet: Fleet) -> None:
    handles = await lapsed(fleet)
    # a file is written by one at a time, and who is frozen in that stops everybody: there is nothing between look and write
    points = ["before reaping"] if fleet.url.startswith("sqlite") else ["before reaping", "reaping"]
    frozen = [await held(fleet, point) for point in points]

    other = await fleet.started("other", concurrency=JOBS)

    fleet.open_gate("end")
    views = await fleet.succeeded(handles)
    assert {(view.attempt, view.failures, view.worker_name) for view in views} == {(2, 1, other.name)}
    assert set(fleet.runs(handles).values()) == {1}
    for worker in frozen:
        assert RECOVERED not in await thawed(fleet, worker), f"{worker.name} has ended a lease that had been ended"
    assert await fleet.views(handles) == views, "a reaper that was frozen has changed what had ended"
    other.send(signal.SIGTERM)
    assert await other.exited() == 0
    assert (await fleet.counters(other))[RECOVERED] == JOBS
    await _assert_ended_once(fleet, handles)


async def test_what_a_reaper_has_ended_before_it_was_frozen_stands_and_is_not_ended_again(fleet: Fleet) -> None:
    handles = await lapsed(fleet)
    frozen = await held(fleet, "reaped")

    other = await fleet.started("other", concurrency=JOBS)

    await fleet.noted("began", handles)
    assert (await thawed(fleet, frozen))[RECOVERED] == JOBS
    fleet.open_gate("end")
    views = await fleet.succeeded(handles)
    assert {(view.attempt, view.failures, view.worker_name) for view in views} == {(2, 1, other.name)}
    other.send(signal.SIGTERM)
    assert await other.exited() == 0
    assert RECOVERED not in await fleet.counters(other)
    await _assert_ended_once(fleet, handles)


async def lapsed(fleet: Fleet) -> list[Handle[int]]:
    """Return jobs whose holder is gone and whose leases have lapsed."""
    handles = await fleet.enqueue(*[tasks.wait_for.options(lease=LEASE).call("end") for _ in range(JOBS)])
    assert len(await claim(fleet.store)) == JOBS
    await fleet.store.rewind(LEASE + 1)
    return handles


async def held(fleet: Fleet, point: str) -> WorkerProcess:
    """Start a worker without jobs, and freeze it when its reaper is at a point; it goes on when the gate of its name opens."""
    worker = fleet.start(point, program="tests.faults.points", point=point, hold=point, queues=["no job is in this one"])
    await until(lambda: point in {note.fields["gate"] for note in fleet.notes("held")}, f"a reaper should be at {point!r}")
    await fleet.freeze(worker)
    return worker


async def thawed(fleet: Fleet, worker: WorkerProcess) -> dict[str, int]:
    """Let a frozen worker go on and come to its end; returns what it has counted."""
    fleet.open_gate(worker.name)
    worker.send(signal.SIGCONT)
    await until(lambda: worker.pid in {note.pid for note in fleet.notes("went on")}, f"{worker.name} should go on")
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0, worker.log
    return await fleet.counters(worker)


async def _assert_ended_once(fleet: Fleet, handles: Sequence[Handle[int]]) -> None:
    for handle in handles:
        events = [event.event for event in await fleet.store.events(handle.id)]
        assert events == [Event.ENQUEUE, Event.CLAIM, Event.EXPIRE, Event.CLAIM, Event.SUCCEED]
