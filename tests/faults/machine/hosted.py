"""Tasks for workers on several hosts, each of which tells where and when it works; what they did counts in a ledger."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from holdfast import Holdfast, Job
from tests.faults.machine.jobs import AT_ONCE, tell_of
from tests.faults.tracing import TURN, URL, is_open, note

if TYPE_CHECKING:
    from uuid import UUID

HOST: Final = "FAULTS_HOST"
BREATH: Final = 0.1
"""Seconds between two signs of life of a handler."""
LEDGER: Final = "CREATE TABLE ledger (job uuid NOT NULL, host text NOT NULL)"

app = Holdfast(os.environ.get(URL, "memory://"))


@app.on_worker
def tell(event: str, worker: UUID) -> None:
    note(event, worker=str(worker))


def tell_here(what: str, job: Job, **fields: Any) -> None:
    tell_of(what, job, host=os.environ[HOST], **fields)


async def enter_in_ledger(job: Job) -> str:
    """Enter the job in the job's own transaction, which ends it."""
    async with job.transaction() as tx:
        await tx.execute("INSERT INTO ledger (job, host) VALUES ($1, $2)", job.id, os.environ[HOST])
        return tx.complete(f"by attempt {job.attempt}")


@app.task(retry=AT_ONCE)
async def enter(*, job: Job) -> str:
    """Short work."""
    return await enter_in_ledger(job)


@app.task(retry=AT_ONCE)
async def stand(*, job: Job) -> str:
    """Works until the test is over."""
    tell_here("began", job)
    try:
        while not is_open("over"):
            tell_here("lives", job)
            await asyncio.sleep(BREATH)
    finally:
        tell_here("stopped", job, reason=job.abort.reason)
    return await enter_in_ledger(job)


@app.task(retry=AT_ONCE)
def stand_in_thread(*, job: Job) -> str:
    """The same; when it is asked to stop it does, and returns long after that what must not count."""
    tell_here("began", job)
    while not is_open("over") and not job.abort.is_set():
        tell_here("lives", job)
        threading.Event().wait(BREATH)
    tell_here("stopped", job, reason=job.abort.reason)
    while job.abort.is_set() and not is_open("healed"):
        threading.Event().wait(TURN)
    return f"by attempt {job.attempt}"


@app.task(retry=AT_ONCE, executor="process")
def stand_in_process(*, job: Job) -> str:
    """The same; its process is killed."""
    tell_here("began", job)
    while not is_open("over"):
        tell_here("lives", job)
        threading.Event().wait(BREATH)
    return f"by attempt {job.attempt}"
