"""A store of somebody who is called at night: workers are gone, thousands of jobs wait, most attempts failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.figures import EMPTY, Figure
from holdfast.core.job import NewJob
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import Beat, ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from holdfast.store.port import Store

WORLD = SystemEnvironment()


async def broken(store: Store) -> None:
    """Have everything go wrong. One worker lives, which delivers alerts and runs nobody's jobs."""
    workers = [Worker(id=WORLD.job_id(), name=f"web-{number}:4242", slots=4) for number in range(1, 4)]
    own = Worker(id=WORLD.job_id(), name="alerts", slots=4, info='{"queues": ["holdfast"]}')
    for worker in (*workers, own):
        await store.register(worker)
    await store.enqueue([NewJob(id=WORLD.job_id(), task="mail.send", queue="mail", lease=60.0) for _ in range(2005)])
    request = ClaimRequest(worker=workers[0].id, tasks=frozenset({"mail.send"}), limit=5, look=True)
    claimed = await store.claim(request)
    await store.rewind(7200.0)
    error = Error("SMTP_CLOSED", "the mail server hung up")
    write = Write(event=Event.FAIL, failures=1, error=error)
    await store.settle([Settlement(lease=one.lease, write=write) for one in claimed[:2]])
    await store.mark_offline(60.0)
    await store.beat(Beat(worker=own.id))
    figures = [
        Figure(queue="mail", task="mail.send", event=event, code=code, count=count, waits=EMPTY, runs=EMPTY)
        for event, code, count in ((Event.SUCCEED, "", 100), (Event.RETRY_LATER, "SMTP_CLOSED", 300))
    ]
    await store.measure(figures)
