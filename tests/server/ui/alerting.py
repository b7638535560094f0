"""Alerts as the dashboard shows them: two targets, and deliveries that went well, ill, and are tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.job import NewJob
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.server.alerts.delivering import QUEUE, TASK
from holdfast.server.alerts.target import targets_of
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.store.port import Store

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
TARGETS = targets_of(
    {
        "ops": {"url": "https://user:word@hooks.example.com/T0/B0/xyz", "secret": SECRET},
        "chat": {
            "url": "https://chat.example.com/services/T1/B1/abc",
            "form": "slack",
            "events": ["job_max_retries_exceeded", "job_failed_pattern"],
            "cooldown": 3600,
        },
    }
)
WORLD = SystemEnvironment()
JOB = "01a1b2c3-0000-7000-8000-000000000007"
DELIVERED = {"status": 202, "milliseconds": 12.5}


def delivery(target: str, kind: str, text: str, **options: Any) -> NewJob:
    """Return a job that delivers an alert."""
    alert = {"kind": kind, "text": text, "count": 1, "about": []}
    args = msgspec.json.encode({"target": target, "alert": alert, "at": "2026-11-17T12:00:00Z"}).decode()
    return NewJob(id=WORLD.job_id(), task=TASK, queue=QUEUE, args=args, **options)


async def alerted(store: Store) -> list[UUID]:
    """Have deliveries in a store: one that went well, one that failed for good, one that is tried again, one that waits."""
    jobs = [
        delivery("ops", "worker_startup", "worker gpu-3 has started"),
        delivery("chat", "job_max_retries_exceeded", f"job {JOB} (mail.send) has failed for good, with its budget spent"),
        delivery("ops", "job_failed_pattern", "mail.send failed 6 times in 10 minutes"),
    ]
    ends = [
        Write(event=Event.SUCCEED, failures=0, result=msgspec.json.encode(DELIVERED).decode()),
        Write(event=Event.FAIL, failures=1, error=Error("HTTP_410", "chat.example.com wants no more alerts")),
        Write(event=Event.RETRY_LATER, failures=1, delay=300.0, error=Error("HTTP_503", "hooks.example.com answered with 503")),
    ]
    worker = Worker(id=WORLD.job_id(), name="alerts", slots=4)
    await store.register(worker)
    for job, write in zip(jobs, ends, strict=True):
        await store.enqueue([job])
        (claimed,) = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({TASK}), limit=1, look=True))
        await store.settle([Settlement(lease=claimed.lease, write=write)])
    waits = delivery("ops", "stale_job_recovered", f"job {JOB} (video.transcode) lost its worker and was taken care of")
    await store.enqueue([waits])
    await store.retire(worker.id)
    return [job.id for job in (*jobs, waits)]
