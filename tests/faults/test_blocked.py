"""Handlers that block or hog what their worker needs: their leases are kept all the same."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.store.postgres.handle import MOST_TRANSACTIONS
from tests.faults import tasks
from tests.faults.support import until
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from holdfast import Handle
    from holdfast.store.port import JobView
    from tests.faults.support import Fleet

LEASE = 2.0
MOST_TRIES = 5


@pytest.mark.row(6)
async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease_and_is_named(fleet: Fleet) -> None:
    (handle,) = await fleet.enqueue(tasks.block.call(3 * LEASE + 0.2))
    blocked = await fleet.started("blocked", concurrency=2)
    await fleet.noted("began", [handle])
    idle = await fleet.started("idle", concurrency=2)

    # a reaper that never rests, besides the one of the idle worker
    async def reaped_until_ended() -> bool:
        assert await fleet.store.reap(1000) == [], "the lease of a blocked worker lapsed: its heartbeat was blocked too"
        return bool(fleet.notes("ended", [handle]))

    await until(reaped_until_ended, "the handler should wake up")

    (view,) = await fleet.succeeded([handle])
    assert (view.attempt, view.failures, view.worker_name) == (1, 0, blocked.name)
    assert not view.late, "it was settled after its lease had lapsed"
    assert fleet.runs([handle]) == {str(handle.id): 1}, f"somebody else, perhaps {idle.name}, has run it too"
    (warning,) = blocked.said("the event loop has been blocked for")
    assert f"by task {view.task} (job {view.id})" in warning, f"the log must name the task that blocks: {warning}"
    assert re.search(rf"tasks\.py:{_line_that_blocks()} in block", warning), f"and the line: {warning}"
    assert len(blocked.said("the event loop runs again after")) == 1


@pytest.mark.row(6)
async def test_a_call_that_holds_the_interpreter_may_lose_its_lease_and_then_changes_nothing(fleet: Fleet) -> None:
    workers = [fleet.start(name, concurrency=1, poll=0.2) for name in ("one", "other")]
    await fleet.working(*workers)

    handle, (view,) = await _lapsed_under_a_call(fleet)

    held, other = sorted(workers, key=lambda worker: worker.pid != fleet.notes("began", [handle])[0].pid)
    assert (view.attempt, view.failures, view.worker_name, view.result) == (2, 1, other.name, "2")
    found_out = ("asked to stop", "the lease was lost, so its outcome")
    await until(lambda: any(map(held.said, found_out)), "the worker should find out that it lost the lease, and say so")
    assert await fleet.views([handle]) == [view], "a stale worker has changed a job"


async def _lapsed_under_a_call(fleet: Fleet) -> tuple[Handle[int], list[JobView]]:
    """Have a job lose its lease while it holds the interpreter of its worker; returns it when it has ended elsewhere.

    In a file the worker may stand still in the midst of a write, and then nobody else can write meanwhile: another try.
    """
    for number in range(MOST_TRIES if fleet.url.startswith("sqlite") else 1):
        (handle,) = await fleet.enqueue(tasks.hold_interpreter.call(f"hold-{number}", 3))
        await fleet.noted("began", [handle])
        fleet.open_gate(f"hold-{number}")

        async def reaped(handle: Handle[int] = handle) -> bool:
            lapsed = bool(await fleet.store.reap(1000)) or (await fleet.views([handle]))[0].attempt > 1
            return lapsed or bool(fleet.notes("ended", [handle]))

        await until(reaped, "the lease should lapse, for the heartbeat of its worker cannot run")
        views = await fleet.succeeded([handle])
        if views[0].attempt > 1:
            return handle, views
    pytest.fail("no call has cost its job the lease: the fault did not happen")


@pytest.mark.row(6)
async def test_a_call_that_holds_the_interpreter_of_a_child_keeps_its_lease(fleet: Fleet) -> None:
    (handle,) = await fleet.enqueue(tasks.hold_other_interpreter.call(3))
    await fleet.started("worker", concurrency=1)

    async def reaped_until_ended() -> bool:
        assert await fleet.store.reap(1000) == [], "the lease lapsed although only the child was held"
        return bool(fleet.notes("ended", [handle]))

    await until(reaped_until_ended, "the call should return")

    (view,) = await fleet.succeeded([handle])
    assert (view.attempt, view.failures, view.late) == (1, 0, False)


@pytest.mark.row(15)
async def test_handlers_that_take_every_thread_and_every_connection_do_not_starve_the_heartbeat(fleet: Fleet) -> None:
    handles = await fleet.enqueue(
        *[tasks.hammer.call(2 * LEASE) for _ in range(20)], *[tasks.doze.call(2 * LEASE) for _ in range(8)]
    )
    await fleet.started("busy", program="tests.faults.scarce", concurrency=28)

    async def reaped_until_ended() -> bool:
        assert await fleet.store.reap(1000) == [], "a lease lapsed while handlers used up what their worker needs"
        return len(fleet.notes("ended", handles)) == len(handles)

    await until(reaped_until_ended, "the handlers should come to their end")

    counts = {(view.attempt, view.failures, view.late) for view in await fleet.succeeded(handles)}
    assert counts == {(1, 0, False)}, f"leases were lost while handlers used up what their worker needs: {counts}"


@pytest.mark.row(15)
@pytest.mark.parametrize("url", [f"pg{MAJORS[-1]}"], indirect=True)  # in a file one transaction keeps all others waiting
async def test_open_transactions_of_handlers_take_no_connection_from_the_worker(fleet: Fleet) -> None:
    handles = await fleet.enqueue(*[tasks.hold_transaction.call("end") for _ in range(MOST_TRANSACTIONS)])
    waiting = await fleet.enqueue(*[tasks.hold_transaction.options(lease=60).call("end") for _ in range(3)])
    await fleet.started("busy", concurrency=MOST_TRANSACTIONS + 5)
    await fleet.noted("began", [*handles, *waiting], times=MOST_TRANSACTIONS)
    begun_at = await fleet.now()

    others = await fleet.enqueue(*[tasks.nap.call(0.0) for _ in range(20)])

    await fleet.succeeded(others)

    async def held_for_a_lease() -> bool:
        assert await fleet.store.reap(1000) == [], "a lease lapsed while handlers had every connection for transactions"
        return await fleet.now() > begun_at + timedelta(seconds=LEASE)

    await until(held_for_a_lease, "a lease should pass")
    fleet.open_gate("end")
    counts = {(view.attempt, view.failures, view.late) for view in await fleet.succeeded([*handles, *waiting])}
    assert counts == {(1, 0, False)}, f"who waited for a connection, or had one, has paid for it: {counts}"


def _line_that_blocks() -> int:
    lines, first = inspect.getsourcelines(tasks.block.function)
    return next(first + number for number, line in enumerate(lines) if "the line that blocks" in line)
