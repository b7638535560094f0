"""Tasks whose moments are noted by the machine's monotonic clock, which all processes share and nobody sets."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, Retry
from tests.faults.tracing import TURN, URL, is_open, note, opened

if TYPE_CHECKING:
    from uuid import UUID

AT_ONCE = Retry(max_attempts=None, initial=0.0)

app = Holdfast(os.environ.get(URL, "memory://"))


@app.on_worker
def tell(event: str, worker: UUID) -> None:
    note(event, worker=str(worker))


def tell_of(what: str, job: Job, **fields: Any) -> None:
    note(what, job=str(job.id), attempt=job.attempt, moment=time.monotonic(), **fields)


@app.task(retry=AT_ONCE)
async def stay(*, job: Job) -> str:
    """Stays until it is cancelled; ends at once every other time."""
    tell_of("began", job)
    if job.attempt == 1:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tell_of("stopped", job, reason=job.abort.reason)
    return f"by attempt {job.attempt}"


@app.task(retry=AT_ONCE)
def stay_in_thread(*, job: Job) -> str:
    """Stays until it is asked to stop, and returns long after that what must not count; ends at once every other time."""
    tell_of("began", job)
    if job.attempt == 1:
        job.abort.wait(600)
        tell_of("stopped", job, reason=job.abort.reason)
        while not is_open("mended"):
            threading.Event().wait(TURN)
    return f"by attempt {job.attempt}"


@app.task(retry=AT_ONCE, executor="process")
def stay_in_process(*, job: Job) -> str:
    """Gives signs of life until its process is killed; ends at once every other time."""
    tell_of("began", job)
    while job.attempt == 1:
        tell_of("lives", job)
        threading.Event().wait(TURN)
    return f"by attempt {job.attempt}"


@app.task(retry=AT_ONCE)
async def stay_in_transaction(*, job: Job) -> str:
    """Is about to commit its effect and its end when the test has something happen; ends at once every other time."""
    async with job.transaction() as tx:
        await tx.execute("UPDATE balance SET amount = amount + 1 WHERE account = 0")
        said = tx.complete(f"by attempt {job.attempt}")
        tell_of("began", job)
        if job.attempt == 1:
            await opened("commit")
    return said


@app.task(retry=AT_ONCE, lease=5)
async def nap(seconds: float, *, job: Job) -> int:
    """Works for so long."""
    tell_of("began", job)
    await asyncio.sleep(seconds)
    tell_of("ended", job)
    return job.attempt


# -- clocks ----------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE)
async def hold(gate: str, *, job: Job) -> int:
    """Ends when the test opens the gate."""
    tell_of("began", job)
    await opened(gate)
    tell_of("ended", job)
    return job.attempt


@app.task(retry=AT_ONCE)
async def spawn(delay: float, *, job: Job) -> str:
    """Enqueues a job that is to run later; returns its id."""
    tell_of("began", job, shown=time.time())
    return str((await nap.options(delay=delay).enqueue(0.0)).id)


@app.task(retry=AT_ONCE)
async def spawn_unique(key: str, *, job: Job) -> str:
    """Enqueues a job unless there was one with this key within the last minute; returns the id of the one there is."""
    tell_of("began", job, shown=time.time())
    return str((await nap.options(key=key, key_window=60).enqueue(0.0)).id)


# -- disks -----------------------------------------------------------------------------------------------------------------


@app.task(retry=AT_ONCE)
async def keep(text: str) -> int:
    """Takes up room."""
    return len(text)
