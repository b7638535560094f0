"""A process that enqueues, claims and settles in a SQLite file until it is told to stop, or kills itself inside a write.

    python -m tests.faults.scribbler FILE LOG STOP WRITES

What it was told by the store it appends to LOG, line by line. It ends when STOP is there. At its write number WRITES (0: never)
everything is done but the commit when it is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from holdfast.core.job import NewJob
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.errors import StoreUnavailable
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

WORLD = SystemEnvironment()
TASK = "scribbled"
SUCCEED = Write(Event.SUCCEED, 0, result="1")


def kill_inside(store: SqliteStore, number: int) -> None:
    """Have the process killed inside its write of this number, when only the commit is missing."""
    write = store._write
    writes = 0

    async def counted(operation: Callable[[Any], Any]) -> Any:
        nonlocal writes
        writes += 1
        if writes < number:
            return await write(operation)

        def last(writing: Any) -> None:
            operation(writing)
            os.kill(os.getpid(), signal.SIGKILL)

        return await write(last)

    store._write = counted  # type: ignore[method-assign]


async def answered(act: Callable[[], Awaitable[T]]) -> T:
    """Do something again until the file is free for it."""
    while True:
        try:
            return await act()
        except StoreUnavailable:
            continue


async def main(path: str, log: str, stop: str, writes: int) -> None:
    """Work, and note what was acknowledged."""
    store = SqliteStore(path, WORLD)
    await answered(store.open)
    worker = Worker(id=uuid4(), name=f"{os.getpid()}")
    await answered(lambda: store.register(worker))
    if writes:
        kill_inside(store, writes)
    request = ClaimRequest(worker=worker.id, tasks=frozenset({TASK}), limit=4)
    with Path(log).open("a", buffering=1) as told:  # noqa: ASYNC230  nothing else runs here
        told.write("begun\n")
        while not Path(stop).exists():  # noqa: ASYNC240  as above
            jobs = [NewJob(id=WORLD.job_id(), task=TASK, args='"' + "x" * 2000 + '"') for _ in range(5)]
            await answered(lambda jobs=jobs: store.enqueue(jobs))  # type: ignore[misc]
            told.write(f"enqueued {' '.join(str(job.id) for job in jobs)}\n")
            claims = await answered(lambda: store.claim(request))
            ends = [Settlement(claim.lease, SUCCEED) for claim in claims]
            await answered(lambda ends=ends: store.settle(ends))  # type: ignore[misc]
            told.write(f"settled {' '.join(str(claim.job_id) for claim in claims)}\n")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
