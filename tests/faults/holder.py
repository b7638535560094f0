"""A process that claims jobs, waits, and then tries everything that a holder may do: `python -m tests.faults.holder`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from holdfast import StaleLease, connect
from holdfast.core.job import NewJob
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import (
    Checkpoint,
    ClaimRequest,
    LogLine,
    Part,
    PartState,
    Progress,
    Settlement,
    StageMark,
    Worker,
)
from holdfast.system import SystemEnvironment
from tests.faults.tracing import URL, note, opened
from tests.faults.work import die_with_parent

if TYPE_CHECKING:
    from holdfast.core.lease import Claimed, Lease
    from holdfast.store.port import Store

JOBS = 8


async def main() -> None:
    store = connect(os.environ[URL])
    await store.open()
    try:
        claims = await claim(store)
        note("claimed")
        await opened("write")
        note("answered", answers=json.dumps(await write_everything(store, [claimed.lease for claimed in claims])))
    finally:
        await store.close()


async def claim(store: Store) -> list[Claimed]:
    worker = Worker(id=SystemEnvironment().token(), name="holder", slots=JOBS)
    await store.register(worker)
    request = ClaimRequest(worker=worker.id, tasks=frozenset({"tests.faults.tasks.wait_for"}), limit=JOBS, look=True)
    return await store.claim(request)


async def write_everything(store: Store, leases: list[Lease]) -> dict[str, str]:
    """Try each write under a lease that it may have for itself; returns the answers by the name of the write."""
    complete, fail, release, extend, progress, checkpoint, mark, child = leases
    answers = {
        "complete": (await store.settle([Settlement(complete, Write(Event.SUCCEED, 0, result='"stale"'))]))[0],
        "fail": (await store.settle([Settlement(fail, Write(Event.FAIL, 1, error=Error("STALE", "stale")))]))[0],
        "release": (await store.settle([Settlement(release, Write(Event.RELEASE, 0, front=True))]))[0],
        "extend": (await store.extend([extend]))[0].hold,
        "progress": (await store.progress([Progress(progress, 50, message="stale")]))[0],
        "checkpoint": (await store.checkpoint([Checkpoint(checkpoint, Part("stale", PartState.COMPLETED))]))[0],
        "log": (await store.log([LogLine(lease=mark, message="stale")]))[0],
        "stage": (await store.mark([StageMark(lease=mark, name="stale", event=Event.STAGE_ENTER)]))[0],
        "flag_free": (await store.flag_free([mark]))[0],
    }
    try:
        await store.enqueue([NewJob(id=SystemEnvironment().job_id(), task="stale")], under=child)
    except StaleLease:
        return {name: str(answer) for name, answer in answers.items()} | {"child": "StaleLease"}
    return {name: str(answer) for name, answer in answers.items()} | {"child": "enqueued"}


if __name__ == "__main__":
    die_with_parent(int(sys.argv[-1]))
    asyncio.run(main())
