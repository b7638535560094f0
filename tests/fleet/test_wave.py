"""A wave of work: workers come, and go again when it is over."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.core.states import State

if TYPE_CHECKING:
    from tests.fleet.conftest import Place

WAVE = 2_000
MOST = 4


async def test_a_wave_raises_the_workers_to_the_most_and_lets_them_fall_back_without_costing_an_attempt(
    every_place: Place,
) -> None:
    place = every_place
    with place.manager("--default-count", "1", "--max-count", str(MOST), "--concurrency", "8"):
        first = (await place.until_up(1))[0].worker.id
        stays = await place.enqueue(count=2, gate=place.gate("long"))
        await place.until_running(stays)
        ids = await place.enqueue(count=WAVE)
        await place.until_up(MOST)
        place.open()
        ended = await place.until_all_ended(ids)
        left = await place.until_up(1)
        assert [view.worker.id for view in left] == [first], "idle workers go first, and this one runs two jobs"
        place.open("long")
        ended += await place.until_all_ended(stays)
    assert {(job.state, job.attempt, job.failures) for job in ended} == {(State.SUCCEEDED, 1, 0)}
    numbers = await place.decided()
    assert (numbers[0], max(numbers), numbers[-1]) == (1, MOST, 1)
    rises = [after > before for before, after in pairwise(numbers)]
    assert sum(one != other for one, other in pairwise(rises)) == 1, f"it rises once and falls once: {numbers}"
