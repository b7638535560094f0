"""A wave of work: workers come, and go again when it is over."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from holdfast.core.limits import LimitKey, LimitKind, LimitName, LimitRule
from holdfast.core.states import State
from tests.fleet.conftest import doing

if TYPE_CHECKING:
    from uuid import UUID

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


async def test_a_busy_worker_that_is_let_go_finishes_what_it_runs_however_long_stopping_may_take(every_place: Place) -> None:
    place = every_place
    with place.manager(
        *("--default-count", "1", "--max-count", "3", "--concurrency", "4", "--shutdown-timeout", "100ms"),
    ):
        gates = [place.gate(f"gate{number}") for number in range(12)]
        ids = [(await place.enqueue(gate=gate))[0] for gate in gates]
        await place.until_running(ids)
        seen: dict[UUID | None, tuple[UUID, int]] = {}
        for number, job in enumerate(await place.jobs(ids)):
            seen.setdefault(job.worker_id, (job.id, number))
        assert len(seen) == 3
        stay = [job_id for job_id, _ in seen.values()]
        for number in set(range(12)) - {number for _, number in seen.values()}:
            place.open(f"gate{number}")
        await place.until_all_ended([job_id for job_id in ids if job_id not in stay])

        async def two_are_let_go() -> bool:
            return (await place.decided())[-1] == 1

        await place.until(two_are_let_go)
        await asyncio.sleep(0.5)  # five times as long as a worker that is stopped would have
        assert {job.state for job in await place.jobs(stay)} == {State.RUNNING}
        for number in range(12):
            place.open(f"gate{number}")
        ended = await place.until_all_ended(stay)
        await place.until_up(1)
    assert {(job.state, job.attempt, job.failures) for job in ended} == {(State.SUCCEEDED, 1, 0)}


async def test_a_worker_that_was_let_go_while_it_works_is_taken_back_when_more_comes(every_place: Place) -> None:
    place = every_place
    with place.manager("--default-count", "1", "--max-count", "2", "--concurrency", "4"):
        gates = [place.gate(f"gate{number}") for number in range(8)]
        ids = [(await place.enqueue(gate=gate))[0] for gate in gates]
        await place.until_running(ids)
        held = {job.worker_id: number for number, job in enumerate(await place.jobs(ids))}
        long = [ids[number] for number in held.values()]
        for number in set(range(8)) - set(held.values()):
            place.open(f"gate{number}")

        async def one_is_let_go() -> bool:
            return sorted(doing(view) for view in await place.workers()) == ["active", "active, draining"]

        await place.until(one_is_let_go)
        more = await place.enqueue(count=6, gate=place.gate("more"))
        await place.until_running(more)  # three on each: no third process may be started
        assert {job.worker_id for job in await place.jobs(more)} == set(held)

        async def both_are_shown_as_busy() -> bool:
            return [doing(view) for view in await place.workers()] == ["busy", "busy"]

        await place.until(both_are_shown_as_busy)
        assert {job.state for job in await place.jobs(long)} == {State.RUNNING}
        place.open("more")
        for number in held.values():
            place.open(f"gate{number}")
        ended = await place.until_all_ended([*long, *more])
        await place.until_up(1)
    assert {(job.state, job.attempt, job.failures) for job in ended} == {(State.SUCCEEDED, 1, 0)}
    log = place.log().read_text()
    assert "is taken back: it still runs 1 job(s)" in log
    assert "crashed" not in log
    assert (await place.decided())[:4] == [1, 2, 1, 2]


async def test_a_worker_that_rests_ends_once_its_manager_was_killed(place: Place) -> None:
    with place.manager("--default-count", "1", "--max-count", "2", "--concurrency", "4") as process:
        gates = [place.gate(f"gate{number}") for number in range(8)]
        ids = [(await place.enqueue(gate=gate))[0] for gate in gates]
        await place.until_running(ids)
        held = {job.worker_id: number for number, job in enumerate(await place.jobs(ids))}
        for number in set(range(8)) - set(held.values()):
            place.open(f"gate{number}")

        async def one_is_let_go() -> bool:
            return sorted(doing(view) for view in await place.workers()) == ["active", "active, draining"]

        await place.until(one_is_let_go)
        process.kill()
        process.wait()

        async def both_drain() -> bool:
            return [doing(view) for view in await place.workers()] == ["active, draining"] * 2

        await place.until(both_drain)
        for number in held.values():
            place.open(f"gate{number}")
        ended = await place.until_all_ended([ids[number] for number in held.values()])

        async def gone() -> bool:
            return not place.started()

        await place.until(gone)
    assert {(job.state, job.attempt) for job in ended} == {(State.SUCCEEDED, 1)}


@pytest.mark.parametrize("name", [LimitName(LimitKind.QUEUE, "default"), LimitName(LimitKind.KEY, "tenants")], ids=str)
async def test_jobs_that_a_limit_holds_back_keep_no_workers(place: Place, name: LimitName) -> None:
    key = LimitKey("tenants", "one")
    with place.manager("--default-count", "1", "--max-count", "3", "--concurrency", "4"):
        await place.until_up(1)
        before = await place.enqueue(count=12, gate=place.gate("before"))
        await place.until_up(3)
        await place.until_running(before)
        await place.store.set_limit(name, LimitRule(most=1))
        assert not any("hold back" in reason or "stay free" in reason for _, reason in await place.reasons())
        held = await place.enqueue(count=40, limit=key, gate=place.gate("held"))
        place.open("before")
        await place.until_all_ended(before)
        await place.until_up(1)
        states = [job.state for job in await place.jobs(held)]
        assert (states.count(State.RUNNING), states.count(State.READY)) == (1, 39)
        said = "limits hold back 39 more" if name.kind is LimitKind.QUEUE else "slots stay free, more would not help"

        async def told() -> bool:
            managers = [view for view in await place.store.workers() if view.manages]
            return managers[0].reason.startswith("stays at 1: ") and said in managers[0].reason

        await place.until(told)
        assert (await place.decided())[-1] == 1
        reasons = [reason for _, reason in await place.reasons() if reason.startswith("stays ")]
        assert any("hold back" in reason or "stay free" in reason for reason in reasons), reasons
        assert len(reasons) <= 3, "not one for each look"
