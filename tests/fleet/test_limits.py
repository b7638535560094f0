"""A limit holds over processes: who ran at the same time is found by a sweep over what every job says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from uuid_utils.compat import uuid7

from benchmarks.limits import CROWDED, account, in_blocks, most_at_once
from holdfast.core.job import NewJob
from holdfast.core.limits import LimitKey
from holdfast.core.states import State
from tests.fleet.conftest import LONG, ROOT
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from holdfast.store.port import JobView
    from tests.fleet.conftest import Place

MOST = 2
"""Of a key."""
LIMIT = 3
"""Of a queue, and of a task."""
HALF = 0.5
"""Of the jobs a second without limits, so many are kept."""
STARVED = 0.05
"""A key whose first job begins later than this share of the whole time was kept waiting by others."""


@contextmanager
def workers(place: Place, count: int, slots: int, *options: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run workers in processes of their own until the block ends."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "NO_COLOR": "1", "FLEET_URL": place.url}
    words = [sys.executable, "-m", "holdfast", "worker", "tests.fleet.limited_jobs:app", "--concurrency", str(slots), *options]
    processes = [
        subprocess.Popen(words, cwd=place.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def jobs(
    count: int, keys: int, seconds: float, task: str = "limited", *, lease: float = 60.0, queue: str = "default"
) -> list[NewJob]:
    return [
        NewJob(
            id=uuid7(),
            task=task,
            queue=queue,
            args=json.dumps({"key": key, "seconds": seconds}),
            limit=LimitKey("limited", f"key:{key}") if task == "limited" else None,
            lease=lease,
        )
        for key in in_blocks(count, keys)
    ]


def most_by_key(ended: Sequence[JobView]) -> dict[int, int]:
    """Return how many jobs of each key ran at the same time, at most."""
    moments: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for job in ended:
        assert job.result is not None
        begun, over = json.loads(job.result)
        moments[json.loads(job.args)["key"]].append((begun, over))
    return {key: most_at_once(spans) for key, spans in moments.items()}


def most_of_all(ended: Sequence[JobView]) -> int:
    """Return how many of these jobs ran at the same time, at most."""
    return most_at_once([tuple(json.loads(job.result or "")) for job in ended])


def rate(ended: Sequence[JobView]) -> float:
    """Return jobs a second, from the start of the first to the end of the last."""
    return account([(json.loads(job.args)["key"], *json.loads(job.result or "")) for job in ended]).rate


def last_first(ended: Sequence[JobView]) -> float:
    """Return when the last key had its first job, as a share of the whole time."""
    return account([(json.loads(job.args)["key"], *json.loads(job.result or "")) for job in ended]).unfair


async def run(
    place: Place, made: list[NewJob], count: int, slots: int, *options: str, timeout: float = LONG, all_up: bool = False
) -> list[JobView]:
    """Have workers run the jobs; `all_up`: the jobs come when all workers are there."""
    ids, tasks = [job.id for job in made], {job.task for job in made}
    if not all_up:
        await place.store.enqueue(made)
    with workers(place, count, slots, *options):
        if all_up:

            async def up() -> bool:
                return len(await place.store.workers()) == count

            await until(up, timeout)
            await place.store.enqueue(made)

        async def over() -> bool:
            stats = await place.store.stats()
            return sum(row.counts.get(State.SUCCEEDED, 0) for row in stats.tasks if row.task in tasks) >= len(made)

        await until(over, timeout)
    return [job for begin in range(0, len(ids), 1000) for job in await place.jobs(ids[begin : begin + 1000])]


@pytest.mark.row(36)
@pytest.mark.parametrize("prefetch", ["0", "20"])
async def test_no_key_runs_more_often_at_once_than_its_limit_with_several_processes(every_place: Place, prefetch: str) -> None:
    ended = await run(every_place, jobs(150, 5, 0.01), 2, 10, "--prefetch", prefetch)
    most = most_by_key(ended)
    assert len(most) == 5, "no key was left out"
    assert max(most.values()) <= MOST
    assert {job.attempt for job in ended} == {1}


@pytest.mark.row(36)
@pytest.mark.parametrize("prefetch", ["0", "20"])
@pytest.mark.parametrize(
    ("over", "tasks", "queues"),
    [("a queue", ("free", "other"), ("narrow",)), ("a task", ("few",), ("default", "second"))],
    ids=["queue", "task"],
)
async def test_no_more_run_at_once_than_the_limit_of_their_queue_or_task_with_four_processes(
    every_place: Place, over: str, tasks: tuple[str, ...], queues: tuple[str, ...], prefetch: str
) -> None:
    """Whatever the tasks in the queue, and whatever the queues of the task."""
    made = [job for task in tasks for queue in queues for job in jobs(75, 5, 0.02, task, queue=queue)]
    ended = await run(every_place, made, 4, 10, "--prefetch", prefetch, all_up=True)
    assert most_of_all(ended) == LIMIT, f"as many as the limit of {over} lets through, and no more"
    assert {job.attempt for job in ended} == {1}


async def test_without_the_limit_the_same_jobs_would_crowd(every_place: Place) -> None:
    """Else the tests beside this one would hold with limits switched off."""
    ended = await run(every_place, jobs(150, 5, 0.1, task="free"), 2, 10)
    assert max(most_by_key(ended).values()) >= CROWDED


@pytest.mark.row(36)
async def test_a_killed_worker_gives_its_room_back(place: Place) -> None:
    made = jobs(4, 1, 3600.0, lease=1.0)
    await place.store.enqueue(made)
    with workers(place, 1, 10) as (first,):
        ids = [job.id for job in made]

        async def running() -> set[tuple[UUID, int]]:
            return {(job.id, job.attempt) for job in await place.jobs(ids) if job.state is State.RUNNING}

        async def two_run() -> bool:
            return len(await running()) == MOST

        await until(two_run, LONG)
        lost = await running()
        first.kill()
        first.wait()
        with workers(place, 1, 10):

            async def two_others_run() -> bool:  # those that were lost, or those that waited
                return len(await running() - lost) == MOST

            await until(two_others_run, LONG)


@pytest.mark.slow
async def test_fifty_keys_with_twenty_thousand_jobs_from_four_processes(every_place: Place) -> None:
    free = await run(every_place, jobs(20_000, 50, 0.05, task="free"), 4, 25, timeout=900.0)
    assert max(most_by_key(free).values()) >= CROWDED, "as many of a key are there to be held back"
    ended = await run(every_place, jobs(20_000, 50, 0.05), 4, 25, timeout=900.0)
    most = most_by_key(ended)
    assert len(most) == 50
    assert max(most.values()) <= MOST
    assert len(ended) == 20_000
    assert rate(ended) >= HALF * rate(free), "both in one run, on one machine"
    assert last_first(ended) <= STARVED, "every key had its turn soon, though all jobs of one came before those of the next"
