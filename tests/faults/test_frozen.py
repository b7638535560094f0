"""Workers that are frozen for longer than their leases and go on afterwards: nothing that they write counts any more."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.core.states import State
from tests.faults import tasks
from tests.faults.support import until

if TYPE_CHECKING:
    from datetime import datetime

    from tests.faults.support import Fleet

LEASE = 1.0

pytestmark = pytest.mark.row(5)


async def test_a_worker_that_was_frozen_is_told_to_stop_and_changes_nothing(fleet: Fleet) -> None:
    handles = await fleet.enqueue(*[tasks.outlive.call() for _ in range(3)])
    frozen = await fleet.started("frozen", concurrency=3)
    await fleet.noted("began", handles)

    await fleet.freeze(frozen)
    frozen_at = await fleet.now()
    await fleet.lapsed(handles)
    other = await fleet.started("other", concurrency=3)
    await fleet.noted("began", handles, times=6)
    await passed(fleet, frozen_at + timedelta(seconds=3 * LEASE))
    frozen.send(signal.SIGCONT)

    asked = await fleet.noted("asked to stop", handles)
    reasons = {note.fields["reason"] for note in asked}
    assert reasons <= {"taken", "expired"}, f"handlers were asked to stop for {reasons}"
    await fleet.noted("checkpoint refused", handles)
    await fleet.noted("ended", handles)
    frozen.send(signal.SIGTERM)
    assert await frozen.exited() == 0
    stale = {name: count for name, count in (await fleet.counters(frozen)).items() if name.startswith("stale_writes")}
    assert stale.get("stale_writes:progress") == 3, f"three late reports of progress should be counted as refused: {stale}"
    assert stale.get("stale_writes:checkpoint") == 3, f"three late checkpoints should be counted as refused: {stale}"
    assert stale.get("stale_writes:settle", 0) + stale.get("stale_writes:extend", 0) >= 3, (
        f"each lost lease is found out by extending it or by settling it: {stale}"
    )
    for view in await fleet.views(handles):
        assert (view.state, view.attempt, view.worker_name) == (State.RUNNING, 2, other.name), "a stale worker took it away"
        assert (view.progress, view.message) == (75, "the second"), "a stale worker has written progress"
    fleet.open_gate("end")
    for view in await fleet.succeeded(handles):
        assert (view.result, view.attempt, view.failures, view.worker_name) == ('"the second"', 2, 1, other.name)
        assert [part.data for part in await fleet.store.parts(view.id)] == ['"the second"']


@pytest.mark.parametrize("ended", [False, True], ids=["taken", "ended"])
async def test_every_write_of_a_holder_that_was_frozen_is_refused(fleet: Fleet, *, ended: bool) -> None:
    handles = await fleet.enqueue(*[tasks.wait_for.options(lease=LEASE).call("end") for _ in range(8)])
    holder = fleet.start("holder", program="tests.faults.holder")
    await until(lambda: fleet.notes("claimed"), "the holder should have claimed eight jobs")
    await fleet.freeze(holder)
    frozen_at = await fleet.now()
    await fleet.lapsed(handles)
    other = await fleet.started("other", concurrency=8)
    await fleet.noted("began", handles)
    if ended:
        fleet.open_gate("end")
        await fleet.succeeded(handles)
    await passed(fleet, frozen_at + timedelta(seconds=3 * LEASE))

    fleet.open_gate("write")
    holder.send(signal.SIGCONT)

    assert await holder.exited() == 0, holder.log
    answers = json.loads(fleet.notes("answered")[0].fields["answers"])
    assert answers == {
        "complete": "stale",
        "fail": "stale",
        "release": "stale",
        "extend": "ended" if ended else "taken",
        "progress": "stale",
        "checkpoint": "stale",
        "log": "stale",
        "stage": "stale",
        "flag_free": "stale",
        "child": "StaleLease",
    }
    fleet.open_gate("end")
    for view in await fleet.succeeded(handles):
        assert (view.attempt, view.failures, view.result, view.worker_name) == (2, 1, "2", other.name)
        assert (view.progress, view.message) == (None, ""), "a stale holder has written progress"
        assert await fleet.store.parts(view.id) == [], "a stale holder has written a part"
        assert await fleet.store.logs(view.id, limit=10) == [], "a stale holder has written a line of a log"
    assert (await fleet.store.stats()).count() == len(handles), "a stale holder has enqueued a job"


async def passed(fleet: Fleet, moment: datetime) -> None:
    """Wait until the store's clock has reached a moment."""

    async def look() -> bool:
        return await fleet.now() >= moment

    await until(look, f"the store's clock should reach {moment}")
