"""Everything at once, for a while: workers are killed, frozen and replaced at random, and every job is finished."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults import tasks
from tests.faults.support import chance, until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.faults.support import Fleet, WorkerProcess

SECONDS = 30.0
JOBS = 600


@pytest.mark.slow
@pytest.mark.row(1, 5, 41)
async def test_a_storm_of_kills_freezes_and_deploys_loses_nothing(fleet: Fleet) -> None:
    rng = chance()
    task = tasks.nap.options(lease=1, retry=None)
    handles = await fleet.enqueue(*[task.call(rng.uniform(0.0, 1.0)) for _ in range(JOBS)])
    workers = [fleet.start(f"worker-{number}", concurrency=5, prefetch=5) for number in range(3)]
    await fleet.working(*workers)

    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and (await fleet.store.stats()).live:
        before = len(fleet.notes("began"))
        await until(lambda before=before: len(fleet.notes("began")) >= before + rng.randint(0, 10), "somebody should work", 20)  # type: ignore[misc]
        place = rng.randrange(len(workers))
        await _strike(fleet, workers[place], rng)
        workers[place] = await fleet.started(f"worker-{len(fleet.workers)}", concurrency=5, prefetch=5)

    await fleet.succeeded(handles, within=120)


async def _strike(fleet: Fleet, worker: WorkerProcess, rng: random.Random) -> None:
    match rng.choice(["kill", "freeze", "stop"]):
        case "kill":
            await worker.kill()
        case "freeze":
            await fleet.freeze(worker)
            await until(_after(rng.uniform(0.0, 3.0)), "time should pass")
            worker.send(signal.SIGCONT)
            worker.send(signal.SIGTERM)
        case _:
            worker.send(signal.SIGTERM)


def _after(seconds: float) -> Callable[[], bool]:
    moment = time.monotonic() + seconds
    return lambda: time.monotonic() >= moment
