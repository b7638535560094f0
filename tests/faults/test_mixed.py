"""A fleet of two versions: what a worker does not know or cannot read waits for one that does, where everybody can see it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.states import Event, State
from tests.faults import versions
from tests.faults.support import until

if TYPE_CHECKING:
    from tests.faults.support import Fleet, WorkerProcess

REST = 30.0
"""Seconds that a job rests whose args a worker cannot read."""


@pytest.mark.row(33)
async def test_what_the_old_workers_do_not_know_or_cannot_read_waits_for_a_new_one(fleet: Fleet) -> None:
    app = versions.make("new")
    resize, rotate, greet = (app.tasks[name] for name in ("resize", "rotate", "greet"))
    unreadable = await fleet.enqueue(*[resize.call((3, 4)) for _ in range(2)])
    unknown = await fleet.enqueue(*[rotate.call(90) for _ in range(3)])
    known = await fleet.enqueue(*[greet.call("Ada") for _ in range(3)])

    old = await started(fleet, "old")

    await fleet.succeeded(known)  # they pass what cannot be run here
    await until(lambda: len(old.said("its args cannot be read here")) >= len(unreadable), "the log should tell of the args")
    for view in await fleet.views(unreadable):
        assert (view.state, view.failures) == (State.SCHEDULED, 0), "it rests, at no cost, until a worker can read it"
        (attempt, *_) = await fleet.store.attempts(view.id)
        assert attempt.error is not None
        assert (attempt.event, attempt.error.code) == (Event.RESCHEDULE_LATER, "BAD_ARGS")
        assert "size" in attempt.error.message, f"the args at fault should be named: {attempt.error.message}"
    for view in await fleet.views(unknown):
        assert (view.state, view.attempt, view.failures) == (State.READY, 0, 0), "nobody knows the task, so nobody takes it"
    assert (await fleet.store.stats()).live == len(unreadable) + len(unknown), "what waits is counted"

    new = await started(fleet, "new")

    async def read() -> bool:
        """Tell whether all has ended. What the old worker took once more rests again, and so must be made older again."""
        states = {view.state for view in await fleet.views(unreadable)}
        if State.SCHEDULED in states:
            await fleet.store.rewind(REST)
            await fleet.enqueue(greet.options(delay=0.01).call("Bob"))  # workers look what is due when they hear of it
        return states == {State.SUCCEEDED}

    await fleet.succeeded(unknown)
    await until(read, "the new worker should come to read what the old one could not")
    for view in await fleet.views([*unreadable, *unknown]):
        assert (view.failures, view.worker_name) == (0, new.name)
    assert {note.fields["version"] for note in fleet.notes("began", [*unreadable, *unknown])} == {"new"}
    assert set(fleet.runs([*unreadable, *unknown]).values()) == {1}
    assert old.process.poll() is None, "args that cannot be read have ended a worker"
    for worker in (old, new):
        worker.send(signal.SIGTERM)
        assert await worker.exited() == 0, worker.log


async def started(fleet: Fleet, version: str, **options: Any) -> WorkerProcess:
    """Start a worker of a version."""
    return await fleet.started(
        version, module="tests.faults.versions", environment={versions.VERSION: version}, poll=0.5, **options
    )
