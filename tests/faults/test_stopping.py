"""Workers that are asked to stop in the midst of a claim, once or twice: no job is lost, forgotten, or made to pay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from holdfast.core.states import Event, State
from tests.faults import tasks
from tests.faults.support import chance

if TYPE_CHECKING:
    from tests.faults.support import Fleet

ROUNDS = 6
MORE_ROUNDS = 90
JOBS_OF_A_ROUND = 15


@pytest.mark.row(41)
async def test_a_worker_that_is_asked_to_stop_while_it_claims_gives_back_what_it_has_not_begun_and_settles_the_rest(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    rng = chance()
    rounds = MORE_ROUNDS if request.config.getoption("--rows") else ROUNDS
    naps = [rng.uniform(0.0, 0.05) for _ in range(rounds * JOBS_OF_A_ROUND)]
    handles = await fleet.enqueue(*[tasks.nap.options(lease=300).call(seconds) for seconds in naps])
    worker = fleet.start(
        "worker",
        program="tests.faults.stopping",
        rounds=rounds,
        seed=rng.randrange(2**32),
        concurrency=3,
        prefetch=6,
        poll=0.2,
    )

    assert await worker.exited(within=60.0 + rounds) == 0, worker.log

    assert len(fleet.notes("served")) == rounds
    views = await fleet.views(handles)
    states = Counter(view.state for view in views)
    assert set(states) <= {State.READY, State.SUCCEEDED}, f"workers that have stopped still hold jobs: {states}"
    assert {view.failures for view in views} == {0}, "a signal has spent somebody's budget"
    ended = Counter(note.job for note in fleet.notes("ended"))
    assert set(ended) == {str(view.id) for view in views if view.state is State.SUCCEEDED}, "an outcome was not written"
    assert set(ended.values()) == {1}, "what had ended was run again"
    begun = Counter(note.job for note in fleet.notes("began"))
    happened: Counter[Event] = Counter()
    for view in views:
        events = Counter(event.event for event in await fleet.store.events(view.id))
        happened += events
        # one that has a slot, and is about to read what earlier attempts left, is aborted too
        least, most = events[Event.SUCCEED], events[Event.SUCCEED] + events[Event.ABORT]
        assert least <= begun[str(view.id)] <= most, f"{view.id} was begun, and given back as if it were not: {events}"
    assert set(happened) <= {Event.ENQUEUE, Event.CLAIM, Event.RELEASE, Event.ABORT, Event.SUCCEED}
    assert happened[Event.RELEASE], "nothing was claimed and not begun when a signal came: the fault did not happen"
    print(", ".join(f"{event} {count}" for event, count in happened.items()))  # noqa: T201
    assert "Traceback" not in worker.log
