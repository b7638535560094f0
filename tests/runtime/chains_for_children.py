"""An app whose tasks run in child processes, which import it. Tests override its store."""

from __future__ import annotations

import os
from typing import Any

from holdfast import Holdfast, Job, Retry

app = Holdfast("memory://")
SOON = Retry(max_attempts=3, initial=0.01, max=0.01)


@app.task()
async def last(pid: int, number: int) -> list[int]:
    return [pid, number]


@app.task(executor="process")
def in_a_process(number: int, *, job: Job) -> list[int]:
    return job.continue_with(last, os.getpid(), number + 1)


@app.task(executor="process")
def forgets(*, job: Job) -> int:
    job.continue_with(last, 1, 2)
    return 5


@app.task()
def in_a_thread(number: int, *, job: Job) -> list[int]:
    return job.continue_with(in_a_process, number + 1)


@app.task()
async def number() -> int:
    return 20


@app.task(executor="process")
def doubles_its_blocker(*, job: Job) -> int:
    (given,) = job.results(number)
    return 2 * given


def effect(path: str) -> int:
    with open(path, "a") as file:  # noqa: PTH123  the shortest there is
        file.write("effect\n")
    return os.getpid()


@app.task(executor="process", retry=SOON)
def steps_in_a_process(path: str, *, job: Job) -> list[Any]:
    """Do something once, sleep, wait for a signal, fail once in between."""
    pid = job.step_sync("effect", effect, path)
    job.sleep_sync(0.05)
    if job.failures == 0:
        raise ValueError("once")
    data = job.wait_for_sync("go", type=list[int])
    return [pid > 0, data]


@app.task(executor="process", retry=1)
async def awaits_in_a_process(path: str, *, job: Job) -> int:
    """Do the same where the function awaits, on the child's own event loop."""
    await job.step("effect", effect, path)
    await job.sleep(0.05, name="nap")
    return job.attempt


@app.task(executor="process", retry=1)
def wants_a_transaction(*, job: Job) -> None:
    with job.transaction_sync():
        pass
