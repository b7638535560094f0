"""Results and errors that no store keeps: the job ends as documented, with a text that says so, and its worker goes on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from holdfast.core.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT
from holdfast.core.states import Event, State
from tests.faults import tasks

if TYPE_CHECKING:
    from holdfast.core.outcome import Error
    from tests.faults.support import Fleet

MOST_LOGGED = 1_000_000
"""Characters that a worker may write about all of it."""


@pytest.mark.row(32)
async def test_what_cannot_be_stored_ends_its_job_with_the_reason_and_harms_nobody_else(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    megabytes = 100 if request.config.getoption("--rows") else 25
    results = {
        "object": "cannot be encoded",
        "huge": f"{megabytes}.0 MiB encoded, the limit is 1.0 MiB",
        "surrogate": "lone surrogate",
        "NUL": "NUL character",
    }
    errors = {"huge": "too muchtoo much", "surrogate": "ValueError: a ?", "NUL": "ValueError: a \N{REPLACEMENT CHARACTER}"}
    refused = await fleet.enqueue(*[tasks.give.call(what, megabytes) for what in results])
    raised = await fleet.enqueue(*[tasks.complain.call(what, megabytes) for what in errors])
    neighbours = await fleet.enqueue(*[tasks.nap.options(lease=60).call(0.1) for _ in range(3)])

    worker = await fleet.started("worker", concurrency=2)

    for view, words in zip(await fleet.ended(refused), results.values(), strict=True):
        assert view.error is not None
        assert (view.state, view.attempt, view.failures, view.error.code) == (State.FAILED, 1, 1, "BAD_RESULT")
        assert words in view.error.message, f"the reason should say {words!r}: {view.error.message}"
    for view, words in zip(await fleet.ended(raised), errors.values(), strict=True):
        assert view.error is not None
        assert (view.state, view.attempt, view.failures, view.error.code) == (State.FAILED, 1, 1, "RETRIES_EXHAUSTED")
        assert words in view.error.message, f"the reason should say {words!r}: {view.error.message[:200]}"
        _assert_kept(view.error, cut=words.startswith("too much"))
    assert {(view.attempt, view.failures) for view in await fleet.succeeded(neighbours)} == {(1, 0)}
    for handle in [*refused, *raised]:
        assert [attempt.event for attempt in await fleet.store.attempts(handle.id)] == [Event.FAIL]
    worker.send(signal.SIGTERM)
    assert await worker.exited() == 0
    assert len(worker.log) < MOST_LOGGED, f"the log has grown by {len(worker.log)} characters"


def _assert_kept(error: Error, *, cut: bool) -> None:
    """Check that no more is kept than there is room for, and that it says so."""
    assert len(error.message) <= MESSAGE_LIMIT
    assert len(error.traceback) <= TRACEBACK_LIMIT
    assert "tasks.py" in error.traceback, "of a traceback the place is what matters"
    assert ("… cut: " in error.message, "… cut: " in error.traceback) == (cut, cut)
